"""What a failure looks like to a client, whichever door, transport and kind of answer (F2, F5, X2, §9)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import trio

from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply, Silence
from support.gateways import MODEL, World, hang_up, play, turn, world
from support.known_origins import TO_A
from support.voices import A, B

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("each_transport")]

ASKED = [("http", True), ("http", False), ("websocket", True)]
each_way = pytest.mark.parametrize(("way", "stream"), ASKED, ids=["http", "http, whole", "websocket"])


async def ask(w: World, way: str, stream: bool, **fields: Any) -> Client:
    return await (play(w, way, stream=stream, **fields) if way == "http" else play(w, way, **fields))


# --- the gateway's own account (F2) -----------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("status", [401, 402, 403])
async def test_the_upstreams_word_on_the_gateways_account_is_never_the_clients(
    way: str, stream: bool, status: int
) -> None:
    """F2: on every way there is; not its status, not its code, not its words."""
    w = world(A.status(status, "invalid_api_key"))
    client = await ask(w, way, stream)
    assert client.failure == (502, "upstream_auth_error")
    assert A.mark not in client.body.decode()
    assert w.money == ["voided"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [401, 402, 403])
async def test_nor_is_one_that_comes_as_an_event_its_status(stream: bool, status: int) -> None:
    """F2, X5: in a stream that has begun it is an event like all others."""
    w = world(A.reply(A.error("some_code", status=status)))
    client = await play(w, "http", stream=stream)
    assert client.status in (200, 502)


# --- whether to send again (X2) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("first", "status", "again"),
    [
        (A.status(400, headers=(("x-should-retry", "true"),)), 400, "false"),
        (A.status(404), 404, "false"),
        (A.status(429, headers=(("x-should-retry", "false"),)), 429, None),
        (A.status(500, headers=(("x-should-retry", "true"),)), 500, "false"),
        (A.status(504), 504, "false"),
        (A.status(401), 502, "false"),
        (A.reply(Break()), 502, "false"),
        (A.reply(Silence()), 504, "false"),
    ],
)
async def test_a_client_may_not_simply_send_again_what_was_sent(
    stream: bool, first: Reply, status: int, again: str | None
) -> None:
    """X2: a 429 says nothing of it; the upstream's own word is never passed on."""
    client = await play(world(first), "http", stream=stream)
    assert (client.status, client.headers.get("x-should-retry")) == (status, again)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_of_the_gateways_has_all_members(stream: bool) -> None:
    """X2: `retry_after` where there is one, and the header as the body says."""
    w = world(A.reply(Silence()), server="drain_timeout = 1")
    async with turn(w, "http", stream=stream) as client:
        await trio.sleep(1)
        w.gateway.drain()
    assert json.loads(client.body) == {
        "error": {
            "message": "the gateway is shutting down",
            "type": "service_unavailable_error",
            "code": "server_draining",
            "param": None,
            "retryable": False,
            "retry_after": 1,
            "request_id": "req_1",
        }
    }
    assert (client.headers["retry-after"], client.headers["x-should-retry"]) == ("1", "false")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("value", "kept"), [("30", "30"), ("Wed, 21 Oct 2026 07:28:00 GMT", ...), ("-1", None), ("abc", None)]
)
async def test_case_45_a_retry_after_of_the_delivered_attempt(stream: bool, value: str, kept: Any) -> None:
    """F5: of the last one, and not of one that was replayed."""
    first = A.status(429, "slow_down", headers=(("retry-after", "99"),))
    second = B.status(503, "slow_down", headers=(("retry-after", value),))
    client = await play(world(first, second), "http", stream=stream)
    assert client.headers.get("retry-after") == (value if kept is ... else kept)
    assert client.started_at == 0.0


# --- heads of one body (H5) -------------------------------------------------------------------------------------------


@pytest.mark.over_http
async def test_case_43_one_body_has_the_gateways_own_head() -> None:
    """H5, M3: no framing, no cookie, no second id, and nothing that `connection` names."""
    upstream = (
        ("connection", "x-secret"),
        ("x-secret", "1"),
        ("set-cookie", "a=1"),
        ("openai-model", "another"),
        ("x-should-retry", "true"),
        ("x-request-id", "req_up"),
        ("openai-processing-ms", "7"),
    )
    w = world(A.reply(A.completed(), headers=(("content-type", "text/event-stream"), *upstream)))
    client = await play(w, "http", stream=False)
    assert client.headers == {
        "content-type": "application/json",
        "content-length": str(len(client.body)),
        "cache-control": "no-store",
        "x-request-id": "req_1",
        "x-billing-transaction-id": "req_1",
        "x-upstream-request-id": "req_up",
        "openai-processing-ms": "7",
    }


async def test_a_discarded_attempts_head_is_not_seen() -> None:
    """R15, H5."""
    client = await play(world(A.reply(Break()), B.answer()), "http", stream=False)
    assert (client.headers["x-upstream-request-id"], client.headers["x-ratelimit-limit-tokens"]) == ("req_of_b", "of_b")


# --- the client's own bytes (H3) --------------------------------------------------------------------------------------

REST = (
    b'"text":{"format":{"z":1.0,"a":1e2,"m":"\\u00e9 \xc3\xa9"}},\n"input" :  "hi \\ud83d",'
    b'"unknown":[ 1,2 ],"store":false'
)
STREAM = b'{"model":"%b","stream":true,%b}'
WHOLE = b'{"model":"%b","stream":false,%b}'
BARE = b'{"model":"%b",%b}'
FRAME = b'{"type":"response.create","model":"%b",%b}'
LABELLED = b'{"type":"response.create","event_id":"e","model":"%b",%b}'
STREAMED = b'{"stream":true,"model":"%b",%b}'


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize(
    ("way", "sent", "over_sse", "over_websocket"),
    [
        ("http", STREAM, STREAM, FRAME),
        ("http", WHOLE, WHOLE, FRAME),
        ("http", BARE, BARE, FRAME),
        ("websocket", LABELLED, STREAMED, FRAME),
    ],
    ids=["a stream", "one body", "one body by default", "a frame"],
)
async def test_case_51_what_goes_up_is_what_came_but_for_the_splices(
    each_transport: str, way: str, sent: bytes, over_sse: bytes, over_websocket: bytes, renamed: bool
) -> None:
    """H3: by their digests, of the first attempt and of the replay."""
    w = world(A.reply(Break()), B.answer(), route='model = "upstream-name"' if renamed else "")
    raw = sent % (MODEL.encode(), REST)
    async with connect(w.app, way, headers=AUTHORIZED, body=raw if way == "http" else None) as client:
        if way == "websocket":
            client.send_text(raw.decode())
            await hang_up(client)

    expected = (over_websocket if each_transport == "websocket" else over_sse) % (
        b"upstream-name" if renamed else MODEL.encode(),
        REST,
    )
    assert client.told[-1] == "completed"
    assert [digest(call.body) for call in w.calls] == [digest(expected)] * 2
    assert w.calls[0].body == expected


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("store", "calls"),
    [(False, ["a", "b"]), (True, ["a"]), (..., ["a"]), (None, ["a"]), ("false", ["a"]), (0, ["a"])],
)
async def test_case_49_store_goes_up_as_it_is_and_decides(stream: bool, store: Any, calls: list[str]) -> None:
    """S1: only an explicit `false` is stateless, for one body as for a stream."""
    w = world(A.reply(Break()), B.answer())
    await play(w, "http", stream=stream, store=store)
    assert w.called == calls
    assert w.calls[0].fields.get("store", ...) == store


# --- what only its origin can read (S5) -------------------------------------------------------------------------------


@each_way
async def test_case_47_encrypted_reasoning_goes_to_no_other_account(way: str, stream: bool) -> None:
    """R10, S5: the other route gets no call, and the client the first one's failure."""
    reasoning = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "minted by a"}]
    w = world(A.reply(Break()), B.answer())
    client = await ask(w, way, stream, input=reasoning, prompt_cache_key=TO_A)
    assert (client.failure, w.attempts) == ((502, "stream_read_error"), ["a stream_read_error (origin_bound)"])


@each_way
async def test_case_47_content_that_could_not_be_verified_is_the_requests_own_fault(way: str, stream: bool) -> None:
    """R8: delivered unchanged, and nothing is paid."""
    w = world(A.status(400, "invalid_encrypted_content"), B.answer())
    client = await ask(w, way, stream)
    assert (client.failure, w.called, w.money) == ((400, "invalid_encrypted_content"), ["a"], ["voided"])
