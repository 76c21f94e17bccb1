"""WebSockets between turns: which are used again, which are closed, and when; what a dead one costs (§4, C5)."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import pytest
import trio

from gateway import limits
from gateway.lock.virtual import virtual_run
from gateway.ports import UpstreamCall
from gateway.upstream import readiness
from gateway.upstream.scripted import Break, Close, Raw, Reply, Script, Silence, Step
from gateway.upstream.scripted_websocket import ScriptedNetwork, converse_over, frames
from gateway.upstream.scripts import event, prelude, response_object
from gateway.upstream.upgrade import Upgrade
from gateway.upstream.websocket import WebSocketSettings, WebSocketUpstream
from upstream.stage import CALL, FACES, Planes, attempt, script_of, settle, websocket_on

pytestmark = pytest.mark.trio(run=virtual_run)
both_faces = pytest.mark.parametrize("face", FACES)

CREATED, _ = prelude("resp_a")
DELTA = event("response.output_text.delta", delta="hi")
COMPLETED = event("response.completed", response=response_object("resp_a", "completed"))
FAILED = event("response.failed", response=response_object("resp_a", "failed"))
WHOLE = Reply((CREATED, COMPLETED))
SECONDS = 3600 * 24


def connections(script: Script) -> int:
    """How many sockets the calls came over: each handshake has a key of its own."""
    return len({dict(call.headers)["sec-websocket-key"] for call in script.calls})


@both_faces
@pytest.mark.parametrize("last", [COMPLETED, FAILED], ids=["completed", "failed"])
async def test_a_socket_whose_response_is_finished_serves_again(face: str, last: bytes) -> None:
    """C5: one handshake for three turns."""
    script = script_of(Reply((CREATED, last)))
    async with websocket_on(face, script) as upstream:
        for _ in range(3):
            assert (await attempt(upstream)).blocks == [CREATED, last]
            assert upstream.idle_sockets == 1
    assert (len(script.calls), connections(script)) == (3, 1)


@both_faces
@pytest.mark.parametrize(
    "steps",
    [
        (CREATED, Silence()),
        (CREATED, event("error", status=500, error={"code": "x"}), Silence()),
        (CREATED, COMPLETED + DELTA),
        (Raw(frames([b'{"type":"response.completed"}', b'{"type":"response.x"}'])),),
        (CREATED, Close(1000)),
        (CREATED, Break()),
    ],
    ids=["unfinished", "an error", "events behind", "frames behind", "a close", "a drop"],
)
async def test_a_socket_whose_response_is_not_finished_is_never_used_again(face: str, steps: tuple[Step, ...]) -> None:
    """Case 37: what it still has to say would answer the next turn."""
    script = script_of(Reply(steps), WHOLE)
    async with websocket_on(face, script) as upstream:
        with trio.move_on_after(2):
            await attempt(upstream)
        await settle()
        assert upstream.idle_sockets == 0
        assert (await attempt(upstream)).blocks == [CREATED, COMPLETED]
    assert connections(script) == 2


async def test_nothing_of_the_handshake_is_kept_as_long_as_the_socket() -> None:
    """Its parser and its request, credential and all: a socket lives for an hour."""
    async with websocket_on("socket", script_of(WHOLE)) as upstream:
        await attempt(upstream)
        assert upstream.idle_sockets == 1
        gc.collect()
        assert [kept for kept in gc.get_objects() if isinstance(kept, Upgrade)] == []


@both_faces
async def test_a_frame_that_nobody_asked_for_ends_an_idle_socket(face: str) -> None:
    """Case 37: late events of an answered turn are told to nobody."""
    script = script_of(Reply((CREATED, COMPLETED, 1.0, DELTA)), WHOLE)
    async with websocket_on(face, script) as upstream:
        await attempt(upstream)
        await trio.sleep(1.1)
        assert upstream.idle_sockets == 0
        assert (await attempt(upstream)).blocks == [CREATED, COMPLETED]


@both_faces
@pytest.mark.parametrize("ending", [Break(), Close(1001), Close(1011)], ids=str)
@pytest.mark.parametrize("pause", [0.0, 0.5])
async def test_a_socket_found_dead_is_opened_anew_and_is_no_attempt(face: str, ending: Step, pause: float) -> None:
    """§4: it was closed while it idled, or just as the next turn begins; one attempt, one create upstream."""
    script = script_of(Reply((CREATED, COMPLETED, 0.5, ending)), WHOLE)
    async with websocket_on(face, script) as upstream:
        await attempt(upstream)
        await trio.sleep(0.5 + pause)
        inputs = await attempt(upstream)
        assert (inputs.words[-1], len(script.calls), connections(script)) == ("response.completed", 2, 2)


async def test_a_dead_socket_is_found_behind_any_number_that_have_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """§4: twenty were closed at one instant, and the one that is used next is read as the last of them."""
    monkeypatch.setattr(readiness, "READY_SOCKETS_MAX", 1)
    sockets = 20
    ends = [event("response.completed", response=response_object(f"resp_{n}", "completed")) for n in range(sockets)]
    script = script_of(*(Reply((1.0, CREATED, end, 0.5, Close(1001))) for end in ends), WHOLE)
    async with websocket_on("socket", script) as upstream:
        async with trio.open_nursery() as nursery:
            for _ in range(sockets):
                nursery.start_soon(attempt, upstream)
        assert upstream.idle_sockets == sockets
        await trio.sleep(0.5)
        last = UpstreamCall("turn", CALL.body, continues=f"resp_{sockets - 1}")
        assert (await attempt(upstream, last)).words[-1] == "response.completed"
        assert len(script.calls) == sockets + 1


class Deaf(trio.abc.Stream):
    """A stream whose writes fail from some time on, which nothing tells before (a reset that is on its way)."""

    def __init__(self, stream: trio.abc.Stream, broken_at: float) -> None:
        self._stream = stream
        self._broken_at = broken_at

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As long as it goes."""
        if trio.current_time() >= self._broken_at:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Never."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As it is."""
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """As it is."""
        await self._stream.aclose()


def upstream_over(connect: Callable[[], Awaitable[trio.abc.Stream]]) -> WebSocketUpstream:
    """An upstream that is connected to in this way."""
    converse = converse_over(connect, is_plain=Planes.chosen == "plain")
    return WebSocketUpstream(WebSocketSettings("http://upstream.test/v1"), converse)


def deaf_network(script: Script, broken_at: list[float]) -> WebSocketUpstream:
    """An upstream whose connections can be written to until these times, one for each."""
    network = ScriptedNetwork(script)

    async def connect() -> trio.abc.Stream:
        return Deaf(await network(), broken_at.pop(0))

    return upstream_over(connect)


async def test_a_write_that_fails_at_its_first_byte_opens_the_same_route_anew_once() -> None:
    """§4: the create was never written; the second connection is the last one that is tried."""
    for broken_at, ended in ([10.0, 1e9], ["response.completed"]), ([10.0, trio.current_time()], ["ended"]):
        began_at = trio.current_time()
        script = script_of(WHOLE)
        upstream = deaf_network(script, [began_at + 1.0, broken_at[1]])
        await attempt(upstream)
        await trio.sleep(1.0)
        inputs = await attempt(upstream)
        assert inputs.words[-1:] == ended
        assert ended == ["response.completed"] or inputs.ended_as == ("never_sent", "upstream_connect_error")
        await upstream.aclose()


async def test_a_pong_that_cannot_be_written_hides_no_close(plane: str) -> None:
    """F4: what the peer has said before it left tells why; trio-websocket looks no further."""
    close = b"\x88\x02" + (1008).to_bytes(2, "big")
    script = script_of(Reply((CREATED, 1.0, Raw(b"\x89\x01x" + close), Silence())))
    inputs = await attempt(deaf_network(script, [trio.current_time() + 0.5]))
    assert inputs.words == ["opened", "response.created", "ended"]
    assert inputs.ended_as[0] == ("read_error" if plane == "plain" else "deterministic")


async def test_a_write_that_fails_in_its_middle_is_a_read_error() -> None:
    """§4: "a write error after the first byte of the request is a read error before the first event"."""

    class Cut(Deaf):
        writes = 0

        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            self.writes += 1
            if self.writes > 3:
                await trio.lowlevel.checkpoint()
                raise trio.BrokenResourceError
            await self._stream.send_all(data)

    network = ScriptedNetwork(script_of(WHOLE))

    async def connect() -> trio.abc.Stream:
        return Cut(await network(), 0.0)

    upstream = upstream_over(connect)
    inputs = await attempt(upstream, UpstreamCall("turn", b"x" * 500_000))
    assert inputs.ended_as == ("read_error", "stream_read_error")


# --- how long one is kept -----------------------------------------------------------------------------------------


@both_faces
@pytest.mark.parametrize(
    ("settings", "pause", "sockets"),
    [
        ({"idle_seconds_max": 100.0}, 99.9, 1),
        ({"idle_seconds_max": 100.0}, 100.0, 2),
        ({"age_seconds_max": 100.0, "idle_seconds_max": SECONDS}, 99.0, 1),
        ({"age_seconds_max": 100.0, "idle_seconds_max": SECONDS}, 100.0, 2),
        ({}, limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX - 1, 1),
        ({}, limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX, 2),
        ({"idle_sockets_max": 0}, 0.0, 2),
    ],
    ids=str,
)
async def test_a_socket_is_retired_before_the_upstream_retires_it(
    face: str, settings: dict[str, float], pause: float, sockets: int
) -> None:
    """Case 34: by its age and by its idling, at the exact instant."""
    script = script_of(WHOLE)
    async with websocket_on(face, script, **settings) as upstream:
        await attempt(upstream)
        await trio.sleep(pause)
        await attempt(upstream)
        assert connections(script) == sockets


async def test_sockets_of_one_age_end_while_they_idle() -> None:
    """Case 34: nobody need ask for them: an hour of turns every ten seconds, by default two sockets."""
    script = script_of(WHOLE)
    async with websocket_on("memory", script) as upstream:
        for _ in range(360):
            await attempt(upstream)
            await trio.sleep(10)
        assert connections(script) == 2
        await trio.sleep(limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX)
        assert upstream.idle_sockets == 0


@both_faces
async def test_idle_sockets_are_bounded_and_the_oldest_goes(face: str) -> None:
    """C5: ten turns at once leave three sockets."""
    script = script_of(Reply((CREATED, 1.0, COMPLETED)))
    async with websocket_on(face, script, idle_sockets_max=3) as upstream:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(attempt, upstream)
        assert (upstream.idle_sockets, connections(script)) == (3, 10)


@both_faces
async def test_a_drain_closes_what_idles_and_keeps_nothing(face: str) -> None:
    """T7: a turn that still runs ends by itself, and its socket with it."""
    script = script_of(Reply((CREATED, 1.0, COMPLETED)))
    async with websocket_on(face, script) as upstream:
        await attempt(upstream)
        upstream.drain()
        await settle()
        assert upstream.idle_sockets == 0
        assert (await attempt(upstream)).words[-1] == "response.completed"
        assert upstream.idle_sockets == 0


@both_faces
async def test_a_socket_is_another_clients_if_its_handshake_was(face: str) -> None:
    """H4: headers go up in the handshake, so they must be this client's."""
    script = script_of(WHOLE)
    async with websocket_on(face, script) as upstream:
        for note in ("one", "two", "one"):
            await attempt(upstream, UpstreamCall("turn", CALL.body, (("x-codex-note", note),)))
    assert [dict(call.headers)["x-codex-note"] for call in script.calls] == ["one", "two", "one"]
    assert connections(script) == 2


async def test_a_continuation_goes_to_the_socket_that_holds_its_response() -> None:
    """W10: with `store: false` the upstream knows it there and nowhere else."""

    def answer(name: str) -> Reply:
        return Reply((1.0, event("response.completed", response=response_object(name, "completed"))))

    script = script_of(answer("resp_1"), answer("resp_2"), answer("resp_3"))
    async with websocket_on("memory", script) as upstream:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(attempt, upstream)
                await trio.sleep(0.1)
        await attempt(upstream, UpstreamCall("turn", CALL.body, continues="resp_2"))
    keys = [dict(call.headers)["sec-websocket-key"] for call in script.calls]
    assert keys[2] == keys[1] != keys[0]


# --- pings (case 32, case 56) -------------------------------------------------------------------------------------


@both_faces
async def test_pings_are_answered_while_a_socket_idles(face: str) -> None:
    """Case 32: the upstream pings every 2 s while nobody asks anything, and the socket serves again."""
    ping: list[Step] = [2.0, Raw(b"\x89\x04ping")]
    script = script_of(Reply((CREATED, COMPLETED, *ping * 5, Silence())), WHOLE)
    async with websocket_on(face, script) as upstream:
        await attempt(upstream)
        await trio.sleep(11)
        await attempt(upstream)
        assert connections(script) == 1


async def test_a_peer_that_answers_no_ping_is_left() -> None:
    """C5: 20 s of idling, then 10 s for the pong."""
    script = script_of(WHOLE)
    network = ScriptedNetwork(script)
    streams = [await network()]
    is_deaf = trio.Event()

    class Silent(Deaf):
        async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
            data = await super().receive_some(max_bytes)
            if is_deaf.is_set():
                await trio.sleep_forever()
            return data

    async def connect() -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return Silent(streams.pop(), 1e9)

    upstream = upstream_over(connect)
    await attempt(upstream)
    is_deaf.set()
    await trio.sleep(29.9)
    assert upstream.idle_sockets == 1
    await trio.sleep(0.2)
    assert upstream.idle_sockets == 0


def of(client: set[str], continues: object = None) -> UpstreamCall:
    """A call of a client that may go on from these responses."""
    return UpstreamCall("turn", CALL.body, continues=continues, may_go_on=client.__contains__)


def named(number: int) -> Reply:
    return Reply((CREATED, event("response.completed", response=response_object(f"resp_{number}", "completed"))))


@both_faces
async def test_two_conversations_do_not_take_each_others_socket_away(face: str) -> None:
    """W10: each finds its response where it is, turn after turn; what nobody awaits any more is given to whoever
    comes."""
    script = script_of(*(named(number) for number in range(1, 7)))
    async with websocket_on(face, script) as upstream:
        one, other = {"resp_1", "resp_3"}, {"resp_2", "resp_4"}
        for client, continues in ((one, None), (other, None), (one, "resp_1"), (other, "resp_2")):
            await attempt(upstream, of(client, continues))
        assert upstream.holds("resp_3", ())
        assert upstream.holds("resp_4", ())
        assert connections(script) == upstream.idle_sockets == 2
        await attempt(upstream, of(set()))
        assert connections(script) == 3, "both are awaited"
        await attempt(upstream, CALL)
        assert connections(script) == 3, "nobody goes on from the last one"


@both_faces
async def test_where_there_is_no_room_the_longest_idle_socket_goes_though_it_is_awaited(face: str) -> None:
    """C5."""
    script = script_of(*(named(number) for number in range(1, 5)))
    async with websocket_on(face, script, idle_sockets_max=2) as upstream:
        for _ in range(3):
            await attempt(upstream, of({"resp_1", "resp_2", "resp_3"}))
        assert connections(script) == upstream.idle_sockets == 2
        assert [upstream.holds(f"resp_{number}", ()) for number in (1, 2, 3)] == [False, True, True]
