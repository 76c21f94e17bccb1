"""What the HTTP door sends down and up: heads, statuses and bodies, to the byte (H3–H6, X1–X3, X5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gateway.core.messages import Headers
from gateway.lock.driver import AUTHORIZED, connect, post
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import EVENT_STREAM, JSON_BODY, Break, Reply, Silence
from support.gateways import MODEL, create, play, world
from support.voices import COMMENT, A, B

pytestmark = pytest.mark.trio(run=virtual_run)

NEVER_DOWN: Headers = (
    ("connection", "x-secret"),
    ("keep-alive", "timeout=5"),
    ("x-secret", "1"),
    ("set-cookie", "a=1"),
    ("set-cookie", "b=2"),
    ("openai-model", "another-model"),
    ("openai-organization", "org"),
    ("x-should-retry", "true"),
    ("content-encoding", "identity"),
    ("server", "cloudflare"),
)
DOWN: Headers = (
    ("openai-processing-ms", "12"),
    ("x-ratelimit-remaining-tokens", "99"),
    ("ratelimit-limit", "caf\xe9"),
    ("x-codex-turn-state", "sticky"),
)
OWN = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-request-id": "req_1",
    "x-billing-transaction-id": "req_1",
}
PRETTY = (
    b'{\n  "error": {\n    "message": "caf\xc3\xa9",\n    "type": "t", "code": "some_code", "param": null\n  }\n}\n'
)


def raw_headers(client: Any) -> list[tuple[str, str]]:
    """The response's headers with repetitions, values as latin-1."""
    (head,) = [m for _, m in client.sent if m["type"] == "http.response.start"]
    return [(name.decode(), value.decode("latin-1")) for name, value in head["headers"]]


# --- heads (H5) -----------------------------------------------------------------------------------------------------


async def test_a_stream_has_the_gateway_s_own_head_and_what_may_come_down_of_the_upstream_s() -> None:
    """H5, M3; case 43: each once; no length, no framing, no cookie; two ids under two names."""
    ids = (("x-request-id", "req_up"), ("x-request-id", "req_second"))
    headers = (*EVENT_STREAM, *ids, *DOWN, *NEVER_DOWN)
    client = await post(world(Reply((A.prelude, A.delta(), A.completed()), headers=headers)).app, create())

    assert sorted(raw_headers(client)) == sorted([*OWN.items(), *DOWN, ("x-upstream-request-id", "req_up")])


async def test_a_discarded_attempt_s_head_is_not_seen() -> None:
    """R15, H5; case 5: the ids and limits are those of the attempt that was delivered."""
    client = await play(world(A.reply(Break()), B.answer()), "http")

    assert client.headers["x-upstream-request-id"] == "req_of_b"
    assert client.headers["x-ratelimit-limit-tokens"] == "of_b"


async def test_a_head_that_had_to_leave_early_names_no_attempt() -> None:
    """H5, H9: it left before the attempt was chosen."""
    client = await play(world(A.answer(3.0), server='start = "early"'), "http")

    assert dict(raw_headers(client)) == OWN
    assert client.comments[0] == (0.0, b": keepalive")


async def test_an_http_failure_has_the_head_of_an_answer() -> None:
    """X2, H5; cases 43, 45: its own type and length, ids, limits and `retry-after`; `x-should-retry` is ours."""
    headers = (*JSON_BODY, ("x-request-id", "req_up"), ("retry-after", "30"), *DOWN, *NEVER_DOWN)
    client = await post(world(Reply((PRETTY,), status=503, headers=headers)).app, create())

    assert client.body == PRETTY
    assert sorted(raw_headers(client)) == sorted(
        [
            ("content-type", "application/json"),
            ("content-length", str(len(PRETTY))),
            ("x-request-id", "req_1"),
            ("x-billing-transaction-id", "req_1"),
            ("x-upstream-request-id", "req_up"),
            ("retry-after", "30"),
            ("x-should-retry", "false"),
            *DOWN,
        ]
    )


@pytest.mark.parametrize(
    ("value", "passed"),
    [("30", "30"), ("Wed, 21 Oct 2026 07:28:00 GMT",) * 2, ("-1", None), ("1e9", None), ("abc", None), (None, None)],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_that_makes_sense_is_kept(status: int, value: str | None, passed: str | None) -> None:
    """F5; case 45."""
    headers = () if value is None else (("retry-after", value),)
    client = await post(world(A.status(status, "slow_down", headers=headers)).app, create())

    assert (client.status, client.headers.get("retry-after")) == (status, passed)


@pytest.mark.parametrize(
    ("status", "retry"), [(400, "false"), (404, "false"), (429, None), (500, "false"), (504, "false")]
)
async def test_a_client_is_told_not_to_send_again_what_was_sent_already(status: int, retry: str | None) -> None:
    """X2: a 429 excepted."""
    client = await post(world(A.status(status)).app, create())

    assert (client.status, client.headers.get("x-should-retry")) == (status, retry)


# --- statuses and bodies (X1, X2) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "text/html", None])
async def test_an_upstream_s_failure_is_delivered_as_it_came(status: int, content_type: str | None) -> None:
    """X1: status, type and body."""
    headers = () if content_type is None else (("content-type", content_type),)
    client = await post(world(Reply((PRETTY,), status=status, headers=headers)).app, create())

    assert (client.status, client.body) == (status, PRETTY)
    assert client.headers["content-type"] == (content_type or "application/json")


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_an_upstream_that_refuses_the_gateway_is_never_taken_for_the_client_s_fault(status: int) -> None:
    """F2."""
    client = await post(world(A.status(status, "invalid_api_key")).app, create())

    assert client.failure == (502, "upstream_auth_error")
    assert A.mark not in client.body.decode()


async def test_a_failure_on_a_started_stream_is_an_event_in_which_the_upstream_s_error_stands_to_the_byte() -> None:
    """X5: also an indented one, as upstreams send it; the stream goes on until it is ended."""
    w = world(Reply((PRETTY,), status=400, headers=JSON_BODY, head_seconds=3.0), server='start = "early"')
    client = await play(w, "http")

    assert client.status == 200
    (error,) = client.events
    assert (error.type, error.code, error.payload["status"]) == ("error", "some_code", 400)
    assert error.payload["error"]["message"] == "café"


async def test_the_body_ends_with_the_terminal_event() -> None:
    """X1: agents read until the end of the body."""
    client = await play(world(A.reply(A.prelude, 3.0, A.delta(), A.completed(), Silence())), "http")

    assert client.body_ended_at == client.events[-1].at == 3.0


async def test_the_body_is_the_upstream_s_events_to_the_byte() -> None:
    """E10, E7: odd blocks, multi-line data and CRLF as they came; comments and what is no event left out."""
    blocks = [
        A.created,
        b'id: 7\r\nretry: 1\r\nevent: message\r\ndata: {"type":"response.in_progress",\r\ndata: "x":1.0}\r\n\r\n',
        b'data:{"type":"response.output_text.delta","delta":"\\ud83d \xff"}\n\n',
        A.completed(),
    ]
    noise = COMMENT + b"data: [DONE]\n\nevent: keepalive\n\ndata: 7\n\n"
    client = await play(world(A.reply(noise.join([b"", *blocks]))), "http")

    assert client.body == b"".join(blocks)


# --- what goes up (H3, H4) ------------------------------------------------------------------------------------------


async def test_the_upstream_gets_the_client_s_bytes_and_the_same_again_on_the_replay() -> None:
    """H3, R15; case 51: key order, spaces, numbers and escapes as they are."""
    raw = (
        b'{ "text":{"format":{"z":1.0,"a":1e2, "m":"\\u00e9 \xc3\xa9"}},\n"input" :  "hi \\ud83d", "model":"gpt-test" ,'
        b'"store":false,"stream":true,"unknown":[ 1,2 ] }\n'
    )
    w = world(A.reply(Break()), B.answer())
    client = await post(w.app, raw)

    assert client.told[-1] == "completed"
    assert [call.body for call in w.calls] == [raw, raw]
    assert [dict(call.headers)["authorization"] for call in w.calls] == [
        "Bearer credential-of-a",
        "Bearer credential-of-b",
    ]


async def test_what_is_the_gateway_s_is_cut_and_what_the_upstream_needs_is_added() -> None:
    """H3, S1, M1: the whole list of splices."""
    raw = (
        b'{"type":"response.create","event_id":"e","model": "gpt-test","stream_id":"s","generate":true,"store":null,'
        b'"stream":true,"input":"hi"}'
    )
    w = world(A.answer(), server='absent_store = "false"', route='model = "upstream-name"')
    await post(w.app, raw)

    assert w.calls[0].body == b'{"model": "upstream-name","store":false,"stream":true,"input":"hi"}'


async def test_of_the_client_s_headers_the_listed_ones_go_up_with_the_route_s_own() -> None:
    """H4: no cookie, no credential, nothing forwarded; any byte of latin-1."""
    headers = (
        *AUTHORIZED,
        ("OpenAI-Beta", "responses=v1"),
        ("x-codex-note", "caf\xe9"),
        ("cookie", "a=1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("openai-organization", "org"),
        ("user-agent", "codex"),
        ("accept-encoding", "gzip"),
    )
    w = world(A.answer(), route='headers = { x-tenant = "blue" }')
    client = await post(w.app, create(), headers=headers)

    assert client.told[-1] == "completed"
    sent = {name.lower(): value for name, value in w.calls[0].headers}
    assert {name: value for name, value in sent.items() if name not in ("host", "connection", "content-length")} == {
        "openai-beta": "responses=v1",
        "x-codex-note": "caf\xe9",
        "x-tenant": "blue",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "responses-gateway",
        "authorization": "Bearer credential-of-a",
    }


async def test_a_body_that_comes_in_pieces_is_one_body() -> None:
    """H3: chunked uploads."""
    body = json.dumps(create()).encode()
    w = world(A.answer())
    async with connect(w.app, "http", body=None) as client:
        for byte in body[:-1]:
            client.say({"type": "http.request", "body": bytes([byte]), "more_body": True})
        await trio.sleep(50)
        client.say({"type": "http.request", "body": body[-1:], "more_body": False})

    assert (client.told[-1], w.calls[0].body, w.calls[0].at) == ("completed", body, 50.0)


async def test_a_large_body_that_takes_more_than_a_minute_is_taken() -> None:
    """Case 21: no default of a library cuts it."""
    filler = json.dumps(create(input="x" * 5_000_000)).encode()
    w = world(A.answer())
    async with connect(w.app, "http", body=None) as client:
        client.say({"type": "http.request", "body": filler[:1_000_000], "more_body": True})
        await trio.sleep(70)
        client.say({"type": "http.request", "body": filler[1_000_000:], "more_body": False})

    assert client.told[-1] == "completed"
    assert w.calls[0].body == filler


async def test_the_client_s_name_of_the_model_is_what_it_reads() -> None:
    """M3: in lifecycle and terminal events, by splice; deltas are not touched."""
    client = await play(world(A.answer(), route='model = "upstream-name"'), "http")

    models = [event.payload["response"]["model"] for event in client.events if "response" in event.payload]
    assert models == [MODEL] * 3
    assert A.delta() in client.body
