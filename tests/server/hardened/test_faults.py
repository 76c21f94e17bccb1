"""Each fault of the stock server beside its cure: what the hardening is for. A stock half that fails tells that a
release has mended the fault, and that the cure may go."""

from contextlib import suppress
from typing import Any

import pytest
import trio

from gateway.lock.virtual import virtual_run
from gateway.server.hardened.patience import Pace
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import frame, request, text
from server.hardened.stage import answering, connected

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("plane")]

GET = "GET / HTTP/1.1"
OPEN = request(GET, *HANDSHAKE)
FATAL = {
    "a subprotocol that is no ASCII": request(GET, *HANDSHAKE, "sec-websocket-protocol: \xff"),
    "an extension that is no ASCII": request(GET, *HANDSHAKE, "sec-websocket-extensions: \xff"),
    "a connection header that is no ASCII": request(GET, "connection: upgrade, \xff", *HANDSHAKE[1:]),
}
ACCEPTED = {
    "a folded header": request(GET, "x: y", " z"),
    "bare line feeds": b"GET / HTTP/1.1\nhost: a\n\n",
    "length and chunks": request(
        "POST / HTTP/1.1", "content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n"
    ),
}


@pytest.mark.parametrize("head", FATAL)
async def test_a_handshake_that_is_no_ascii_would_end_the_process(head: str) -> None:
    async with connected(answering, "stock") as stage:
        await stage.say(FATAL[head])
        await stage.ended.wait()
        assert stage.outcome[0] is not None
    async with connected(answering) as stage:
        assert (await stage.say(FATAL[head])).startswith(b"HTTP/1.1 400 ")
        await stage.ended.wait()
        assert stage.outcome == [None]


@pytest.mark.parametrize("head", ACCEPTED)
async def test_what_can_be_read_in_two_ways_would_be_accepted(head: str) -> None:
    async with connected(answering, "stock") as stage:
        assert (await stage.say(ACCEPTED[head])).startswith(b"HTTP/1.1 200 ")
    async with connected(answering) as stage:
        assert (await stage.say(ACCEPTED[head])).startswith(b"HTTP/1.1 400 ")


async def test_clear_text_http2_would_be_spoken() -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    async with connected(answering, "stock") as stage:
        assert (await stage.say(preface))[3:4] == b"\x04"  # its SETTINGS
    async with connected(answering) as stage:
        assert (await stage.say(preface)).startswith(b"HTTP/1.1 505 ")


async def test_compression_would_be_negotiated() -> None:
    offer = request(GET, *HANDSHAKE, "sec-websocket-extensions: permessage-deflate")
    async with connected(answering, "stock") as stage:
        assert b"permessage-deflate" in await stage.say(offer)
    async with connected(answering) as stage:
        answer = await stage.say(offer)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"permessage-deflate" not in answer


@pytest.mark.parametrize(
    ("sent", "code"), [(frame(3), 1002), (frame(1, b"{}", masked=False), 1002), (text(b"\xff"), 1007)]
)
async def test_a_broken_frame_would_be_met_with_silence(sent: bytes, code: int) -> None:
    async with connected(answering, "stock") as stage:
        await stage.say(OPEN)
        assert await stage.say(sent) == b""
    async with connected(answering) as stage:
        await stage.say(OPEN)
        assert (await stage.say(sent))[2:4] == code.to_bytes(2, "big")


async def test_a_frame_before_the_accept_would_end_the_connection() -> None:
    """W1."""

    async def slow_to_accept(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(1)
        await answering(scope, receive, send)

    async with connected(slow_to_accept) as stage:
        await stage.client.send_all(OPEN)
        await stage.client.send_all(text("one") + text("two"))
        await trio.sleep(2)
        assert (await stage.hear()).endswith(b"\x81\x03one\x81\x03two")
    async with connected(slow_to_accept, "stock") as stage:
        await stage.client.send_all(OPEN)
        await stage.client.send_all(text("one") + text("two"))
        await trio.sleep(2)
        assert b"one" not in await stage.hear()


async def test_bytes_behind_a_request_would_blind_it_to_the_peers_leaving() -> None:
    """Bug case 55."""
    left_at: list[float] = []

    async def waiting(_scope: Any, receive: Any, _send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left_at.append(trio.current_time())

    for kind in ("hardened", "stock"):
        async with connected(waiting, kind) as stage:
            await stage.client.send_all(request(GET) * 2)
            await trio.sleep(5)
            await stage.client.send_eof()
            await trio.sleep(5)
    assert left_at == [5]


async def test_pipelined_requests_are_served_one_after_the_other() -> None:
    async with connected(answering) as stage:
        answers = await stage.say(b"\r\n".join([request(GET)] * 3))
        assert answers.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize(("kind", "answers"), [("stock", 0), ("hardened", 1)])
async def test_who_was_accepted_just_before_the_end_would_be_closed_unheard(kind: str, answers: int) -> None:
    """T7: its request was on its way."""
    async with connected(answering, kind) as stage:
        await trio.testing.wait_all_tasks_blocked()
        await stage.context.terminated.set()
        with suppress(trio.BrokenResourceError):
            await trio.sleep(0.1)
            await stage.client.send_all(request(GET))
        assert (await stage.hear()).count(b"HTTP/1.1 200 ") == answers


# --- time -------------------------------------------------------------------------------------------------------


async def test_a_slow_head_is_cut() -> None:
    async with connected(answering, pace=Pace(head_seconds=15), keep_alive_timeout=1000) as stage:
        await trio.sleep(100)  # an idle connection is not a slow head
        await stage.dribble(request(GET, "x: " + "y" * 100), pieces_of=1)
        assert 115 <= trio.current_time() <= 118
        assert (await stage.hear()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(("pace", "status"), [(1, b"408"), (1000, b"200")])
async def test_a_body_below_the_pace_is_cut_and_one_above_it_is_not(pace: int, status: bytes) -> None:
    async with connected(answering, pace=Pace(body_pause_seconds=20, body_bytes_per_second=500)) as stage:
        await stage.client.send_all(request("POST / HTTP/1.1", f"content-length: {pace * 60}"))
        await stage.dribble(b"x" * pace * 60, pieces_of=pace)
        assert (await stage.hear()).startswith(b"HTTP/1.1 " + status)


async def test_pings_leave_every_interval_and_a_silent_peer_is_dropped_after_three() -> None:
    """W7."""
    async with connected(answering, websocket_ping_interval=20.0) as stage:
        await stage.say(OPEN)
        await stage.ended.wait()
        assert 60 <= trio.current_time() < 60.1


async def test_a_peer_that_answers_pings_is_kept() -> None:
    """W7."""
    async with connected(answering, websocket_ping_interval=20.0) as stage:
        await stage.say(OPEN)
        for _ in range(10):
            await trio.sleep(20)
            assert await stage.hear() == b"\x89\x00"
            await stage.client.send_all(frame(10))
        assert not stage.ended.is_set()
