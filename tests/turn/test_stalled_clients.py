"""T6: a client that takes nothing for a minute counts as gone, whatever its socket says; through both doors.

In each test the client stops reading at 0.5 s, and the write that it does not take begins at 1 s.
"""

import math

import pytest
import trio

from gateway.lock.driver import Client, connect
from gateway.upstream.scripted import Silence, Step
from support.gateways import assert_all_is_well, create_frame, turn, turn_beside, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
GONE = ["a client_disconnected (client_disconnected)"]
ONE_DELTA = "settled 3000 estimated"
ENDLESS: list[Step] = [A.prelude, 1.0, A.delta(), *repeat(200, 1.0, A.delta()), A.completed()]
QUIET: list[Step] = [A.prelude, 1.0, A.delta(), Silence()]


async def stall(client: Client, until: float) -> None:
    """The client does not read for a while."""
    await trio.sleep_until(0.5)
    client.stall()
    await trio.sleep_until(until)
    client.resume()


@pytest.mark.parametrize("resumes_at", [2.0, 60.0, 60.999])
@in_every_order
async def test_a_client_that_reads_on_in_time_gets_everything(door: str, resumes_at: float) -> None:
    """T6: also what waited behind the write that was stuck."""
    w = world(A.reply(A.prelude, 1.0, A.delta(), 0.5, A.delta(), 3.0, A.completed()), B.answer())
    async with turn(w, door) as client:
        await stall(client, resumes_at)
    assert client.told == [*HELD, "output_text.delta", "output_text.delta", "completed"]
    assert (w.attempts, w.money) == (["a completed"], ["settled 7000"])


@pytest.mark.parametrize("resumes_at", [61.0, 61.001, 100.0])
@pytest.mark.parametrize("steps", [ENDLESS, QUIET], ids=["endless output", "one delta"])
@in_every_order
async def test_a_client_that_does_not_is_gone_at_sixty_seconds(door: str, steps: list[Step], resumes_at: float) -> None:
    """T6, H7, T10: upstream and books are closed at 61 s, however long the socket stays stuck; what was handed over is
    charged."""
    w = world(A.reply(*steps), B.answer())
    async with turn(w, door) as client:
        await stall(client, resumes_at)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.called, w.attempts, w.money) == (["a"], GONE, [ONE_DELTA])
    assert (w.closed_at, w.ended_at, w.failures) == ([61.0], [61.0], ["stalled"])


@in_every_order
async def test_books_and_upstream_are_closed_while_the_write_is_still_stuck(door: str) -> None:
    """T6, T10: seen at that moment, not only afterwards."""
    w = world(A.reply(*ENDLESS), B.answer())
    async with turn(w, door) as client:
        await stall(client, math.nextafter(61.0, 62.0))
        assert (w.closed_at, w.money, w.attempts) == ([61.0], [ONE_DELTA], GONE)
        client.leave()


@in_every_order
async def test_a_client_that_is_gone_gets_no_end(door: str) -> None:
    """T6: an HTTP body does not end as if it were whole, and a WebSocket does not wait for its next turn."""
    w = world(A.reply(*ENDLESS), B.answer())
    async with turn(w, door) as client:
        await stall(client, 100.0)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert "completed" not in client.told
    assert math.isnan(client.body_ended_at)
    assert client.ended_at == 100.0


@in_every_order
async def test_held_events_that_are_released_are_a_write_too(door: str) -> None:
    """T1, T6: released at 10 s, gone at 70 s; nothing was output, so nothing is charged."""
    w = world(A.reply(A.prelude, Silence()), B.answer())
    async with turn(w, door) as client:
        await stall(client, 80.0)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.attempts, w.money, w.closed_at) == (GONE, ["voided"], [70.0])


@pytest.mark.parametrize("door", ["http"])
@in_every_order
async def test_a_keepalive_comment_is_a_write_too(door: str) -> None:
    """H6, T6: the headers leave at 27 s, and the client has not taken them at 87 s."""
    w = world(A.reply(Silence()), B.answer(), route="first_event_timeout = 200")
    async with turn(w, door) as client:
        await stall(client, 90.0)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.attempts, w.closed_at) == (GONE, [87.0])


@pytest.mark.parametrize("last", [[A.delta(), A.completed()], [A.delta() + A.completed()]], ids=["two reads", "one"])
@in_every_order
async def test_the_last_frames_are_a_write_too(door: str, last: list[bytes]) -> None:
    """T6: the turn is over and paid; a client that does not take its end in a minute is gone all the same."""
    w = world(A.reply(A.prelude, 1.0, *last))
    async with turn(w, door) as client:
        await stall(client, 100.0)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.attempts, w.money, w.ended_at) == (["a completed"], ["settled 7000"], [1.0])
    assert (client.ended_at, math.isnan(client.body_ended_at)) == (100.0, True)


@in_every_order
async def test_how_long_may_be_configured(door: str) -> None:
    """T6: `write_timeout`."""
    w = world(A.reply(*ENDLESS), B.answer(), server="write_timeout = 2.5")
    async with turn(w, door) as client:
        await stall(client, 10.0)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.attempts, w.closed_at) == (GONE, [3.5])


@in_every_order
async def test_a_client_that_leaves_while_it_is_stuck_is_gone_then(door: str) -> None:
    """H7, T6."""
    w = world(A.reply(*ENDLESS), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(0.5)
        client.stall()
        await trio.sleep_until(20.0)
        client.leave()
    assert (w.attempts, w.money, w.closed_at) == (GONE, [ONE_DELTA], [20.0])


@in_every_order
async def test_one_stalled_client_stops_nobody_else(door: str) -> None:
    """T6: a second client of the same gateway gets its answer meanwhile."""
    w = world([A.reply(*ENDLESS), A.answer()])
    async with connect(w.app, "websocket") as stalled:
        stalled.send_text(create_frame())
        await trio.sleep_until(0.5)
        stalled.stall()
        await trio.sleep_until(2.0)
        async with turn_beside(w, door) as other:
            pass
        stalled.leave()
    assert_all_is_well(w, stalled)
    assert [at for at, _ in other.times] == [2.0] * len(ANSWERED)
