"""What an upstream is sent: the route's credential, the headers it may see, and the body to the byte (H3, H4, P8)."""

from __future__ import annotations

import pytest

from gateway.core.request import RequestBody, TurnRequest
from gateway.lock.virtual import virtual_run
from gateway.ports import UpstreamCall
from gateway.upstream.answers import Credential
from gateway.upstream.scripted import Call, Reply
from gateway.upstream.scripts import event
from upstream.stage import CALL, FACES, attempt, script_of, upstream_on

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.parametrize("face", FACES)]

REPLY = Reply((event("response.completed", response={}),))
OF_HTTP = ("host", "content-length", "connection", "transfer-encoding")


async def call_of(face: str, call: UpstreamCall = CALL, **settings: object) -> Call:
    """The one call that the upstream got."""
    script = script_of(REPLY)
    async with upstream_on(face, script, **settings) as upstream:
        assert (await attempt(upstream, call)).words[-1] == "response.completed"
    (got,) = script.calls
    return got


def sent(call: Call) -> list[tuple[str, str]]:
    """The headers it came with, less those of HTTP itself."""
    return sorted((name.lower(), value) for name, value in call.headers if name.lower() not in OF_HTTP)


async def test_a_request_shows_the_route_s_credential_and_asks_for_a_plain_event_stream(face: str) -> None:
    """H4, P8: what the gateway itself sends, and nothing else of the library's."""
    assert sent(await call_of(face, credential=Credential("sk-route"))) == [
        ("accept", "text/event-stream"),
        ("accept-encoding", "identity"),
        ("authorization", "Bearer sk-route"),
        ("content-type", "application/json"),
        ("user-agent", "responses-gateway"),
    ]


async def test_a_route_without_a_credential_shows_none(face: str) -> None:
    """H4: `credential = "none"`."""
    assert "authorization" not in dict(sent(await call_of(face)))


async def test_the_client_s_forwardable_headers_and_the_route_s_own_go_along(face: str) -> None:
    """H4: both, in the spelling they have."""
    call = UpstreamCall("turn", CALL.body, (("openai-beta", "responses=v1"), ("x-codex-window-id", "w:1"), ("x", "")))
    headers = sent(await call_of(face, call, headers=(("x-tenant", "blue"),)))

    assert ("openai-beta", "responses=v1") in headers
    assert ("x-codex-window-id", "w:1") in headers
    assert ("x-tenant", "blue") in headers
    assert ("x", "") in headers


@pytest.mark.parametrize("name", ["openai-beta", "user-agent"])
async def test_a_header_that_the_route_sets_is_sent_once_and_is_the_route_s(face: str, name: str) -> None:
    """H4: the operator decides what the upstream sees."""
    call = UpstreamCall("turn", CALL.body, (("openai-beta", "the client's"),))
    headers = sent(await call_of(face, call, headers=((name, "ours"),)))

    assert [value for held, value in headers if held == name] == ["ours"]


@pytest.mark.parametrize("value", ["caf\xe9", "\xff", "a\tb", "", "%0d%0a"])
async def test_a_header_value_goes_up_in_the_bytes_it_came_in(face: str, value: str) -> None:
    """No header of a client raises an exception in the gateway: any byte that a server lets in is sent on."""
    call = UpstreamCall("turn", CALL.body, (("x-codex-note", value),))

    assert dict(sent(await call_of(face, call)))["x-codex-note"] == value


async def test_a_body_is_sent_to_the_byte_with_its_length(face: str) -> None:
    """H3; case 51: order, spaces, spellings and numbers as they are."""
    body = b'{"z":1.0,"a" :  1e2,\n "m":"\\u00e9 \xc3\xa9 \\ud83d","model":"gpt-test","stream":true}'
    call = await call_of(face, UpstreamCall("turn", body))

    assert call.body == body
    assert {name.lower(): value for name, value in call.headers}["content-length"] == str(len(body))
    assert call.fields["a"] == 100.0


async def test_a_replay_sends_the_same_bytes_but_for_the_model(face: str) -> None:
    """H3; case 51: the first attempt and the second."""
    raw = b'{ "input" : "hi",\n  "model" :"gpt-test",  "store":false ,"stream": true, "x":[1.50] }'
    request = TurnRequest(RequestBody(raw), "gpt-test", (), splices_store=False)
    bodies = [
        (await call_of(face, UpstreamCall("turn", request.body_for_sse(name)))).body for name in (None, "upstream-name")
    ]

    assert bodies == [raw, raw.replace(b'"gpt-test"', b'"upstream-name"')]


async def test_no_credential_shows_in_a_repr(face: str) -> None:
    """L1: no keys in logs."""
    async with upstream_on(face, script_of(REPLY), credential=Credential("sk-route")) as upstream:
        assert "sk-route" not in f"{upstream!r} {upstream._settings!r} {CALL!r}"
        assert "gpt-test" not in f"{CALL!r}"
