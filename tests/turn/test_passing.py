"""Output behind output is handed straight to a client that takes it at once; nothing else changes by that.

The client takes the first delta at 1 s in the ordinary way: it commits the turn. What comes behind it may pass.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from gateway import limits
from gateway.core.events import Event, EventClass
from gateway.core.messages import Batch, Head, Opened, Taken, Tick
from gateway.core.sse import read_block
from gateway.lock.driver import Client, Message
from gateway.lock.virtual import virtual_run
from gateway.ports import Inputs, Stamped, UpstreamCall
from gateway.turn.passing import Inlet
from gateway.upstream.scripted import Break, Silence, Step
from gateway.upstream.scripts import event, response_object
from gateway.upstream.sse import SSEUpstream
from support.gateways import play, turn, words_of_failure, world
from support.virtual import in_every_order, in_orders
from support.voices import ANSWERED, NEUTRAL, A, B, repeat

DELTA = "output_text.delta"
HELD = ["created", "in_progress"]
GONE = ["a client_disconnected (client_disconnected)"]
OUTPUT_EVENT = Event(EventClass.OUTPUT, "response.output_text.delta", b"{}", b"data: {}\n\n", None)
STREAM: list[Step] = [A.prelude, 1.0, A.delta()]


@pytest.fixture(autouse=True)
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, Taken]]]:
    """What was tried to be written at once: when, and how much of it was taken."""
    tried: list[tuple[float, Taken]] = []
    takes = Client.takes_at_once

    def noting(client: Client, messages: list[Message]) -> Taken:
        taken = takes(client, messages)
        tried.append((trio.current_time(), taken))
        return taken

    monkeypatch.setattr(Client, "takes_at_once", noting)
    yield tried
    tried.clear()


@pytest.mark.usefixtures("each_transport")
@in_every_order
async def test_output_behind_output_passes_the_writer(door: str, passed: list[tuple[float, Taken]]) -> None:
    """The commit and the end go the ordinary way, and so does what is no output."""
    w = world(A.reply(*STREAM, 1.0, A.delta(), 1.0, A.delta() + A.delta(), 1.0, A.completed()))
    client = await play(w, door)
    assert client.times == [
        *((1.0, name) for name in (*HELD, DELTA)),
        (2.0, DELTA),
        (3.0, DELTA),
        (3.0, DELTA),
        (4.0, "completed"),
    ]
    assert passed in ([(2.0, Taken.ALL), (3.0, Taken.ALL)], [(2.0, Taken.ALL), (3.0, Taken.ALL), (3.0, Taken.ALL)], [])


@in_every_order
async def test_on_the_fast_plane_it_does(door: str, passed: list[tuple[float, Taken]]) -> None:
    await play(world(A.reply(*STREAM, 1.0, A.delta(), 1.0, A.completed())), door)
    assert passed == [(2.0, Taken.ALL)]


@pytest.mark.parametrize("other", [NEUTRAL, A.output("response.output_item.done", item={"id": "item_1"})])
@in_every_order
async def test_what_has_to_be_looked_at_does_not_pass(
    door: str, other: bytes, passed: list[tuple[float, Taken]]
) -> None:
    """E2, O3: neutral events and items go through the turn machine, in their place."""
    w = world(A.reply(*STREAM, 1.0, A.delta() + other + A.delta(), 1.0, A.completed()))
    client = await play(w, door)
    assert len(client.told) == 7
    assert passed == []


@pytest.mark.parametrize("other", [NEUTRAL, A.output("response.output_item.done", item={"id": "item_1"})])
@in_every_order
async def test_what_has_to_be_looked_at_is_neither_lost_nor_overtaken(door: str, other: bytes) -> None:
    """E10: alone, and with output right behind it."""
    w = world(A.reply(*STREAM, 1.0, other, 1.0, other, A.delta(), A.delta(), 1.0, A.completed()))
    client = await play(w, door)
    (looked_at,) = {*client.told} - {*ANSWERED}
    assert client.told == [*HELD, DELTA, looked_at, looked_at, DELTA, DELTA, "completed"]


@in_every_order
async def test_what_passed_is_delivered_and_paid_for(door: str) -> None:
    """R2, B4, X3: a break behind it is reported once, numbered on, and the text that passed is charged."""
    w = world(A.reply(*STREAM, 1.0, A.delta("six by", 7), 1.0, Break()), B.answer())
    client = await play(w, door)
    assert client.told == [*HELD, DELTA, DELTA, *words_of_failure(door, "stream_read_error")]
    assert (w.called, w.money) == (["a"], ["settled 7000 estimated"])
    assert door != "http" or client.events[-2].payload["sequence_number"] == 8


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pause", "end"), [(299.999, "completed"), (300.0, "failed"), (300.001, "failed")])
@in_every_order
async def test_silence_is_counted_from_what_passed_last(door: str, pause: float, end: str) -> None:
    """T4."""
    w = world(A.reply(*STREAM, 200.0, A.delta(), 200.0, A.delta(), pause, A.completed()), B.answer())
    client = await play(w, door)
    ends = ["completed"] if end == "completed" else words_of_failure(door, "stream_idle_timeout")
    assert client.told == [*HELD, DELTA, DELTA, DELTA, *ends]
    assert round(client.events[-1].at, 3) == min(701.0, 401.0 + pause)


@pytest.mark.parametrize("door", ["http"])
@in_every_order
async def test_a_comment_leaves_fifteen_seconds_behind_what_passed_last(door: str) -> None:
    """H6."""
    w = world(A.reply(*STREAM, 10.0, A.delta(), 14.999, A.delta(), 40.0, A.completed()))
    client = await play(w, door)
    assert [at for at, _ in client.comments] == [40.999, 55.999]


@pytest.mark.parametrize("door", ["http"])
@in_every_order
async def test_at_its_instant_the_comment_leaves_first(door: str, passed: list[tuple[float, Taken]]) -> None:
    """H6: under every task order."""
    w = world(A.reply(*STREAM, 15.0, A.delta(), 1.0, A.completed()))
    client = await play(w, door)
    assert [block[:9] for at, block in client.blocks if at == 16.0] == [b": keepali", b"event: re"]
    assert passed == []


@in_every_order
async def test_the_drain_cuts_what_passes_at_its_instant(door: str) -> None:
    """T7: just before its end output passes, from then on nothing does."""
    w = world(A.reply(*STREAM, *repeat(100, 0.5, A.delta()), A.completed()))
    async with turn(w, door) as client:
        await trio.sleep(2.0)
        w.gateway.drain()
    assert client.told == [*HELD, *[DELTA] * 62, *words_of_failure(door, "server_draining")]
    assert client.events[-1].at == 32.0


# --- a client that takes a part -----------------------------------------------------------------------------------


async def choke(client: Client, until: float) -> None:
    """Of what comes at 2 s a part is taken, and nothing more for a while."""
    await trio.sleep_until(1.5)
    client.choke()
    await trio.sleep_until(until)
    client.resume()


FLOWING: list[Step] = [*STREAM, *repeat(3, 1.0, A.delta()), 1.0, A.completed()]


@pytest.mark.parametrize("resumes_at", [2.001, 3.0, 10.0, 61.999])
@in_every_order
async def test_the_rest_of_a_piece_leaves_before_all_that_comes_behind_it(
    door: str, resumes_at: float, passed: list[tuple[float, Taken]]
) -> None:
    """E10: in order and whole; meanwhile nothing passes."""
    w = world(A.reply(*FLOWING))
    async with turn(w, door) as client:
        await choke(client, resumes_at)
    assert client.told == [*HELD, *[DELTA] * 4, "completed"]
    assert (w.attempts, w.money) == (["a completed"], ["settled 7000"])
    assert [one for one in passed if one[0] < max(resumes_at, 2.5)] == [(2.0, Taken.PART)]


@pytest.mark.parametrize("resumes_at", [62.0, 62.001, 100.0])
@pytest.mark.parametrize("steps", [[*STREAM, *repeat(200, 1.0, A.delta())], [*STREAM, 1.0, A.delta(), Silence()]])
@in_every_order
async def test_a_client_that_does_not_take_the_rest_is_gone(door: str, steps: list[Step], resumes_at: float) -> None:
    """T6, H7, B3: sixty seconds from where it took a part; what it was handed is charged."""
    w = world(A.reply(*steps), B.answer())
    async with turn(w, door) as client:
        await choke(client, resumes_at)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.called, w.attempts, w.money) == (["a"], GONE, ["settled 5000 estimated"])
    assert w.closed_at == [62.0]


@in_every_order
async def test_a_client_that_leaves_before_the_rest_is_gone_then(door: str) -> None:
    """H7."""
    w = world(A.reply(*FLOWING))
    async with turn(w, door) as client:
        await trio.sleep_until(1.5)
        client.choke()
        await trio.sleep_until(2.5)
        client.leave()
    assert (w.attempts, w.money, w.closed_at) == (GONE, ["settled 5000 estimated"], [2.5])


@in_every_order
async def test_a_failure_leaves_behind_the_rest(door: str) -> None:
    """X1: exactly one, and no half of an event before it."""
    w = world(A.reply(*STREAM, 1.0, A.delta(), 1.0, Break()), B.answer())
    async with turn(w, door) as client:
        await choke(client, 20.0)
    assert client.told == [*HELD, DELTA, DELTA, *words_of_failure(door, "stream_read_error")]
    assert {at for at, _ in client.times[3:]} == {20.0}


@pytest.mark.usefixtures("each_transport")
@in_every_order
async def test_nothing_passes_what_is_still_worked_on(door: str) -> None:
    """E10, M3: a response of megabytes is renamed beside the loop; what came behind it waits."""

    async def run_slowly(work: Callable[[], Any]) -> Any:
        await trio.sleep(1)
        return work()

    response = response_object("resp_a", "in_progress", instructions="x" * limits.INLINE_BODY_BYTES_MAX)
    large = event("response.in_progress", sequence_number=3, response=response)
    reply = A.reply(*STREAM, 1.0, large, 0.25, A.delta(), 0.25, A.delta(), 2.0, A.completed())
    client = await play(world(reply, route='model = "another"', run_aside=run_slowly), door)
    assert client.told == [*HELD, DELTA, "in_progress", DELTA, DELTA, "completed"]


@in_orders(20)
async def test_what_comes_without_a_wait_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """E10: an upstream's frames may lie ready, one behind the other, whatever is done with each of them."""
    blocks = [A.created, A.in_progress]
    for number in range(2, 200, 3):
        blocks += [A.delta(number=number), NEUTRAL, A.delta(number=number + 1), A.delta(number=number + 2)]
    blocks.append(A.completed())

    async def tell_all(_self: SSEUpstream, _call: UpstreamCall, inputs: Inputs) -> None:
        await inputs.send((Opened(Head()), trio.current_time()))
        for block in blocks:
            read = read_block(block)
            assert read is not None
            await inputs.send((Batch([read]), trio.current_time()))

    monkeypatch.setattr(SSEUpstream, "attempt", tell_all)
    client = await play(world(A.answer()), "http")
    assert client.body == b"".join(blocks)


# --- among others -------------------------------------------------------------------------------------------------


@pytest.mark.trio(run=virtual_run)
async def test_an_adapter_that_never_waits_lets_others_have_their_turn() -> None:
    """What passes takes no wait: a long run of it yields between."""
    sending, receiving = trio.open_memory_channel[Stamped](0)
    inlet = Inlet(sending, lambda _batch, _at, _now: True, lambda _head, _at: False)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery, sending, receiving:
        nursery.start_soon(count)
        for _ in range(10 * limits.BATCH_EVENTS_MAX):
            await inlet.send((Batch([OUTPUT_EVENT]), 0.0))
        nursery.cancel_scope.cancel()
    assert turns >= 8


@pytest.mark.trio(run=virtual_run)
async def test_what_goes_through_the_channel_is_not_overtaken() -> None:
    """What was sent and not yet looked at holds up what could pass."""
    sending, receiving = trio.open_memory_channel[Stamped](0)
    passed: list[float] = []
    came: list[float] = []

    def passes(_batch: Batch, at: float, _now: float) -> bool:
        passed.append(at)
        return True

    inlet = Inlet(sending, passes, lambda _head, _at: False)

    async def look() -> None:
        async for _arrived, at in receiving:
            came.append(at)
            for _ in range(3 if at == 3 else 0):
                inlet.was_looked_at()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await inlet.send((Tick(), 1.0))
        await inlet.send((Batch([OUTPUT_EVENT]), 2.0))
        assert not inlet.take(Batch([OUTPUT_EVENT]), 2.5)
        await inlet.send((Batch([OUTPUT_EVENT]), 3.0))
        await trio.testing.wait_all_tasks_blocked()
        await inlet.send((Batch([OUTPUT_EVENT]), 4.0))
        assert inlet.take(Batch([OUTPUT_EVENT]), 5.0)
        inlet.close()
    assert (came, passed) == ([1.0, 2.0, 3.0], [4.0, 5.0])


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.trio(run=virtual_run)
async def test_a_head_waits_for_what_comes_behind_it(is_kept: bool) -> None:
    """It wakes nobody, unless the turn does not keep it: then whoever listens is told of it, or that nobody does."""
    sending, receiving = trio.open_memory_channel[Stamped](1)
    kept: list[float] = []

    def keeps(_head: Opened, at: float) -> bool:
        kept.append(at)
        return is_kept

    inlet = Inlet(sending, lambda _batch, _at, _now: True, keeps)
    await inlet.send((Opened(Head()), 1.0))
    assert (kept, receiving.statistics().current_buffer_used) == ([1.0], not is_kept)
    assert inlet.take(Batch([OUTPUT_EVENT]), 1.0) is is_kept
    receiving.close()
    if not is_kept:
        with pytest.raises(trio.BrokenResourceError):
            await inlet.send((Opened(Head()), 2.0))
    inlet.close()
    with pytest.raises(trio.ClosedResourceError):
        await inlet.send((Opened(Head()), 3.0))
    assert 3.0 not in kept


@pytest.mark.trio(run=virtual_run)
async def test_once_its_attempt_is_over_nothing_passes() -> None:
    """E9: whoever still sends is told so."""
    told: list[Batch] = []

    def passes(batch: Batch, _at: float, _now: float) -> bool:
        told.append(batch)
        return True

    sending, _receiving = trio.open_memory_channel[Stamped](1)
    inlet = Inlet(sending, passes, lambda _head, _at: False)
    inlet.close()
    assert not inlet.take(Batch([OUTPUT_EVENT]), 0.0)
    with pytest.raises(trio.ClosedResourceError):
        await inlet.send((Batch([OUTPUT_EVENT]), 0.0))
    assert told == []
