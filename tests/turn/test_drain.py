"""T7, W6: a gateway that shuts down lets running turns end, for a while, and starts nothing new; through both doors."""

import pytest
import trio

from gateway.lock.driver import connect, post
from gateway.upstream.scripted import Break, Silence, Step
from support.gateways import Seen, World, create, create_frame, seen, turn, words_of_failure, world
from support.stores import SlowRecords
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
CUT_AT = 32.0
"""Draining begins at 2 s and may last 30 s."""


@pytest.mark.parametrize("ends_at", [2.0, 20.0, 31.999])
@in_every_order
async def test_a_turn_that_ends_before_the_drains_end_is_whole(door: str, ends_at: float) -> None:
    """T7."""
    w = world(A.reply(A.prelude, A.delta(), ends_at, A.completed()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])


@pytest.mark.parametrize("pause", [CUT_AT, 32.001, Silence()])
@in_every_order
async def test_a_turn_that_does_not_end_is_cut_at_the_drains_end(door: str, pause: float | Silence) -> None:
    """T7, B3: the gateway's own fault costs the client nothing, also where output was delivered."""
    w = world(A.reply(A.prelude, A.delta(), pause, A.completed()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    told = [*OUT, *words_of_failure(door, "server_draining")]
    assert seen(w, client) == Seen(told, ["a"], ["a server_draining (output_delivered)"], ["voided unmetered"])
    assert (client.events[-1].at, w.closed_at, w.ended_at) == (CUT_AT, [CUT_AT], [CUT_AT])


@in_every_order
async def test_a_silent_turn_is_cut_with_a_status_of_its_own(door: str) -> None:
    """T7, X2."""
    w = world(A.reply(Silence()), B.answer(), server="drain_timeout = 5")
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert seen(w, client) == Seen(["error server_draining"], ["a"], ["a server_draining (draining)"], ["voided"])
    assert (client.events[0].at, client.failure) == (7.0, (503, "server_draining"))


@in_every_order
async def test_held_events_are_handed_over_before_the_cut(door: str) -> None:
    """T7, R3: here they left at 10 s; with a short drain they leave with the failure."""
    w = world(A.reply(A.prelude, Silence()), B.answer(), server="drain_timeout = 5")
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert client.times == [(7.0, label) for label in [*HELD, *words_of_failure(door, "server_draining")]]


@in_every_order
async def test_a_drain_without_patience_cuts_at_once(door: str) -> None:
    """T7: `drain_timeout = 0`."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), server="drain_timeout = 0")
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert client.events[-1].at == 2.0
    assert client.told == [*OUT, *words_of_failure(door, "server_draining")]


CUT_SHORT: dict[str, tuple[list[Step], list[str]]] = {
    "before any event": ([Silence()], []),
    "during the hold": ([A.prelude, Silence()], HELD),
    "after output": ([A.prelude, A.delta(), Silence()], OUT),
}


@pytest.mark.parametrize("moment", CUT_SHORT)
@in_every_order
async def test_a_drain_that_is_cut_short_ends_for_its_clients_as_every_drain(door: str, moment: str) -> None:
    """T7, X2: a second signal at 3 s."""
    steps, told = CUT_SHORT[moment]
    w = world(A.reply(*steps), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
        await trio.sleep_until(3.0)
        w.gateway.cut_short()
    if told:
        assert client.told == [*told, *words_of_failure(door, "server_draining")]
    else:
        assert (client.told, client.failure) == (["error server_draining"], (503, "server_draining"))
    assert (client.events[-1].at, w.closed_at, w.ended_at) == (3.0, [3.0], [3.0])
    assert w.money == ["voided unmetered" if told == OUT else "voided"]


@in_every_order
async def test_a_turn_that_begins_just_before_the_drain_is_cut_with_it(door: str) -> None:
    """T7: its books are still being opened when the drain begins."""
    w = world(A.reply(Silence()), server="drain_timeout = 5")
    async with turn(w, door) as client:
        w.gateway.engine.drain(5.0)
    assert client.times == [(5.0, "error server_draining")]


@in_every_order
async def test_a_drain_that_ends_while_the_replay_is_being_recorded_keeps_it_from_being_sent(door: str) -> None:
    """T7, T10: B's attempt is noted from 3 s to 7 s, the drain ends at 5.5 s; what was opened is closed."""
    records = SlowRecords(open_attempt=[0.0, 4.0])
    w = world(A.reply(3.0, Break()), B.answer(), server="drain_timeout = 2", records=records)
    async with turn(w, door) as client:
        await trio.sleep_until(3.5)
        w.gateway.drain()
    assert seen(w, client) == Seen(
        ["error server_draining"], ["a"], ["a stream_read_error (replay)", "b not_called"], ["voided"]
    )


# --- what would begin -------------------------------------------------------------------------------------------


@in_every_order
async def test_a_request_to_a_draining_gateway_is_refused() -> None:
    """T7, X2: 503 with `retry-after`, nothing reserved, nothing sent."""
    w = world(A.answer())
    w.gateway.drain()
    client = await post(w.app, create())
    assert (client.failure, w.called, w.reserved) == ((503, "server_draining"), [], [])
    assert (client.headers["retry-after"], client.headers["x-should-retry"]) == ("1", "true")


@in_every_order
async def test_an_upgrade_to_a_draining_gateway_is_refused() -> None:
    """T7, W1: 503, never 429."""
    w = world(A.answer())
    w.gateway.drain()
    async with connect(w.app, "websocket") as client:
        pass
    assert (client.status, client.events[0].code) == (503, "server_draining")


@in_every_order
async def test_an_idle_socket_closes_at_once() -> None:
    """W6: 1012, on which agents reconnect."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert (client.told, client.closed_at, client.close_code) == ([], 2.0, 1012)


@in_every_order
async def test_a_busy_socket_closes_after_its_turn_and_refuses_what_waits() -> None:
    """W3, W6: waiting creates get `server_draining`, with their `event_id`."""
    w = world(A.reply(A.prelude, A.delta(), 20.0, A.completed()))
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame(event_id="ev_1"))
        client.send_text(create_frame(event_id="ev_2"))
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert client.told == [*ANSWERED, "error server_draining"]
    assert (client.events[-1].payload["event_id"], client.events[-1].payload["status"]) == ("ev_2", 503)
    assert (client.closed_at, client.close_code, w.called) == (20.0, 1012, ["a"])
    w.assert_at_rest()


@in_every_order
async def test_a_draining_gateway_says_that_it_is_not_ready() -> None:
    """T7: `/readyz` turns false, `/healthz` stays."""
    w = world(A.answer())
    before = [await status_of(w, path) for path in ("/healthz", "/readyz")]
    w.gateway.drain()
    after = [await status_of(w, path) for path in ("/healthz", "/readyz")]
    assert (before, after) == ([200, 200], [200, 503])


async def status_of(w: World, path: str) -> int:
    """What a GET is answered with."""
    async with connect(w.app, "http", path, method="GET") as client:
        pass
    return client.status


@in_every_order
async def test_a_break_in_a_drain_is_told_and_not_replayed(door: str) -> None:
    """R12, T7."""
    w = world(A.reply(10.0, Break()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert seen(w, client) == Seen(["error stream_read_error"], ["a"], ["a stream_read_error (draining)"], ["voided"])
