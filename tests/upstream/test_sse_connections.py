"""Connections to an upstream: closed when an attempt is left, kept when its answer was whole, never leaked (E9, H7)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import trio

from gateway.core.messages import Opened
from gateway.lock.virtual import virtual_run
from gateway.ports import Stamped, Upstream
from gateway.turn.passing import OneByOne
from gateway.upstream.direct import DirectCaller
from gateway.upstream.scripted import Break, Reply, Silence, serve_scripted
from gateway.upstream.scripts import event, http_failure, prelude, response_object
from gateway.upstream.sse import SSESettings, SSEUpstream
from upstream.peers import FIN, OPEN, Late, chunked, head, raw_peer
from upstream.stage import CALL, FACES, attempt, caller_at, script_of, settle, upstream_at, upstream_on

pytestmark = pytest.mark.trio(run=virtual_run)
both_faces = pytest.mark.parametrize("face", FACES)

CREATED, IN_PROGRESS = prelude("resp_a")
DELTA = event("response.output_text.delta", sequence_number=2, delta="hi")
COMPLETED = event("response.completed", sequence_number=3, response=response_object("resp_a", "completed"))
WHOLE = chunked(CREATED + COMPLETED)
CHUNKED = "transfer-encoding: chunked"
SLOW = Reply((0.5, CREATED, 0.5, DELTA, 0.5, DELTA, 0.5, COMPLETED, Silence()), head_seconds=0.5, connect_seconds=0.5)


async def listen(upstream: Upstream, events: int) -> None:
    """Run an attempt whose turn listens to so many inputs and then closes its end."""
    sending, receiving = trio.open_memory_channel[Stamped](0)

    async def run() -> None:
        async with sending:
            await upstream.attempt(CALL, OneByOne(sending))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        async with receiving:
            for _ in range(events):
                await receiving.receive()


# --- left -----------------------------------------------------------------------------------------------------------


@both_faces
@pytest.mark.parametrize(("events", "ends_at"), [(0, 1.0), (1, 1.0), (2, 1.5), (3, 2.0)])
async def test_an_attempt_whose_turn_listens_no_more_stops_and_closes(face: str, events: int, ends_at: float) -> None:
    """ports.Upstream: it notices at its next input."""
    script = script_of(Reply((0.5, CREATED, 0.5, DELTA, 0.5, DELTA, Silence()), head_seconds=0.5))
    async with upstream_on(face, script) as upstream:
        await listen(upstream, events)
        ended_at = trio.current_time()
        await settle()

        assert ended_at == pytest.approx(ends_at if events else 0.5)
        assert script.calls[0].closed_at == pytest.approx(ended_at)


@both_faces
@pytest.mark.parametrize("seed", range(25))
async def test_an_attempt_cancelled_at_any_time_closes_its_connection(face: str, seed: int) -> None:
    """H7: during the connect, before the head, between events, in the silence behind."""
    left_at = random.Random(seed).uniform(0, 4)
    script = script_of(SLOW)
    async with upstream_on(face, script) as upstream:
        with trio.move_on_after(left_at):
            await attempt(upstream)
        ended_at = trio.current_time()
        await settle()

        assert ended_at <= left_at + 1e-9
        assert [call.closed_at for call in script.calls] == [pytest.approx(ended_at) for _ in script.calls]


@both_faces
async def test_an_attempt_cancelled_at_any_step_closes_its_connection(face: str) -> None:
    """H7: wherever in the library the cancellation meets it."""
    script = script_of(Reply((CREATED, DELTA, DELTA, Silence())))
    async with upstream_on(face, script) as upstream:
        for passes in range(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attempt, upstream)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        await settle()

        assert len(script.calls) > 20
        assert all(call.closed_at is not None for call in script.calls)


async def test_cancelled_calls_take_no_place_in_the_pool() -> None:
    """Case 54: many clients leave during the connect or soon after; then one normal call works at the first attempt.

    The pool has five places, and none of them is waited for: a place lost would keep the last call waiting for ever.
    """
    chance = random.Random(54)
    script = script_of(Reply((CREATED, 0.004, DELTA, Silence()), head_seconds=0.002))
    async with trio.open_nursery() as server:
        port = await server.start(serve_scripted, script, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{port}/v1"
        upstream = SSEUpstream(SSESettings(url), caller_at(url, connect_seconds=5.0, connections_max=5))
        async with trio.open_nursery() as clients:
            for number in range(300):
                clients.start_soon(_leave_after, upstream, number * 0.001, chance.choice([0, 0, 0.001, 0.003, 0.01]))
        await settle()
        assert all(call.closed_at is not None for call in script.calls)

        with trio.fail_after(5):
            await listen(upstream, 2)
        await upstream.aclose()
        server.cancel_scope.cancel()


async def _leave_after(upstream: Upstream, start: float, stay: float) -> None:
    await trio.sleep(start)
    with trio.move_on_after(stay):
        await attempt(upstream)


@both_faces
@pytest.mark.parametrize(
    "reply",
    [
        Reply((CREATED, Break())),
        Reply((b"x" * 3_000_000,), headers=(("content-type", "text/html"),)),
        Reply((b"x" * 3_000_000,), status=500),
        Reply((b"br",), headers=(("content-type", "text/event-stream"), ("content-encoding", "br"))),
        Reply((CREATED, b"data: " + b"x" * 9000, Silence())),
    ],
    ids=["reset", "a large success", "a large failure", "an unknown encoding", "an event too large"],
)
async def test_an_answer_that_is_not_read_to_its_end_leaves_no_connection(face: str, reply: Reply) -> None:
    """H7: closed at once, whatever the upstream still has to say."""
    script = script_of(reply)
    async with upstream_on(face, script, event_bytes_max=5000) as upstream:
        await attempt(upstream)
        await settle()

        assert script.calls[0].closed_at == pytest.approx(trio.current_time(), abs=0.02)


# --- kept -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        head(CHUNKED) + WHOLE,
        head(f"content-length: {len(CREATED + COMPLETED)}") + CREATED + COMPLETED,
        head("content-length: 2", "content-type: application/json", status="500 Oops") + b"{}",
        head("content-length: 2", "content-type: text/html") + b"ab",
        head("content-length: 0"),
    ],
    ids=["a stream", "a stream of a known length", "a failure", "a page", "nothing"],
)
async def test_a_connection_whose_answer_was_whole_serves_again(answer: bytes) -> None:
    """E9: a handshake saved; requests of different turns follow each other on it."""
    async with raw_peer((answer, OPEN)) as peer:
        upstream = upstream_at(peer.port)
        for _ in range(3):
            await attempt(upstream)

        assert (peer.connections, len(peer.requests)) == (1, 3)
        await upstream.aclose()
        await settle()
        assert peer.open_connections == 0


async def test_turns_at_one_time_have_a_connection_each() -> None:
    """No turn waits for another one's connection."""
    script = script_of(Reply((CREATED, 1.0, COMPLETED)))
    async with upstream_on("socket", script) as upstream:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(attempt, upstream)

        assert trio.current_time() == pytest.approx(1.0)
        assert {call.at for call in script.calls} == {0.0}


@pytest.mark.parametrize(("seconds", "connections"), [(0.05, 1), (0.099, 1), (0.101, 2), (60.0, 2)])
async def test_the_end_of_a_body_is_waited_for_a_moment(seconds: float, connections: int) -> None:
    """E9: behind the terminal event the last chunk may take its time, but not long (UPSTREAM_DRAIN_SECONDS_MAX)."""
    answer = head(CHUNKED) + chunked(CREATED + COMPLETED, ends=False)
    async with raw_peer((answer, Late(seconds, b"0\r\n\r\n"))) as peer:
        upstream = upstream_at(peer.port)
        for _ in range(2):
            assert (await attempt(upstream)).words[-1] == "response.completed"

        assert peer.connections == connections
        await upstream.aclose()


async def test_a_kept_connection_that_the_upstream_closed_is_not_used_again() -> None:
    """C5: found dead before the request was written, it is opened anew: no attempt is spent on it."""
    async with raw_peer((head(CHUNKED) + WHOLE, FIN)) as peer:
        upstream = upstream_at(peer.port)
        for _ in range(3):
            assert (await attempt(upstream)).words[-1] == "response.completed"
            await settle()

        assert (peer.connections, len(peer.requests)) == (3, 3)
        await upstream.aclose()


async def test_a_kept_connection_on_which_more_came_is_not_used_again() -> None:
    """Case 37: what an upstream sends unasked must not answer the next turn."""
    stray = head(CHUNKED) + chunked(event("response.created", response=response_object("resp_stray", "in_progress")))
    async with raw_peer((head(CHUNKED) + WHOLE, Late(0.01, stray))) as peer:
        upstream = upstream_at(peer.port)
        for _ in range(2):
            assert (await attempt(upstream)).blocks == [CREATED, COMPLETED]
            await trio.sleep(0.02)

        assert peer.connections == 2
        await upstream.aclose()


@both_faces
async def test_a_failure_and_a_success_follow_each_other_on_one_adapter(face: str) -> None:
    """One adapter serves a route for its whole life."""
    script = script_of(http_failure(500, "server_error", "busy"), Reply((CREATED, COMPLETED)), Reply((Break(),)))
    async with upstream_on(face, script) as upstream:
        last_words = [(await attempt(upstream)).words[-1] for _ in range(4)]

    assert last_words == ["ended", "response.completed", "ended", "ended"]
    assert len(script.calls) == 4


# --- what is held meanwhile -----------------------------------------------------------------------------------------


class Body(bytes):
    """A request's, which tells when nobody holds it any more."""

    gone: trio.Event

    def __new__(cls, text: bytes, gone: trio.Event) -> Body:
        made = super().__new__(cls, text)
        made.gone = gone
        return made

    def __del__(self) -> None:
        self.gone.set()


async def test_a_body_that_was_sent_is_not_held_while_its_answer_comes() -> None:
    """Issue 7: it may be megabytes, and the answer may take minutes. The turn has its text, for a replay."""
    gone = trio.Event()
    sending, receiving = trio.open_memory_channel[Stamped](1)
    async with raw_peer((head(CHUNKED, "content-type: text/event-stream"), OPEN)) as peer, trio.open_nursery() as turn:
        upstream = SSEUpstream(
            SSESettings(f"http://127.0.0.1:{peer.port}"), DirectCaller(f"http://127.0.0.1:{peer.port}")
        )
        turn.start_soon(upstream.attempt, replace(CALL, body=Body(b"{}", gone)), OneByOne(sending))
        opened, _ = await receiving.receive()
        assert isinstance(opened, Opened)
        await settle()
        assert gone.is_set()
        assert peer.requests[0].endswith(b"{}")
        turn.cancel_scope.cancel()
    await upstream.aclose()
