"""A turn's client while the turn writes to it: one writer at a time, by the writer's task or past it (T6, H6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import trio
import trio.testing

from gateway.core.events import Event, EventClass
from gateway.core.messages import Deliver, DeliverFailure, Door, Taken
from gateway.lock.virtual import virtual_run
from gateway.turn.writing import Frames, Writing

EVENT = Event(EventClass.OUTPUT, "response.output_text.delta", b"{}", b"data: {}\n\n", None)
FRAMES = Deliver([EVENT], None)


class Client:
    """Takes what it is told to take of what passes, and each write takes it three seconds."""

    door = Door.HTTP

    def __init__(self, taken: Taken = Taken.ALL, quiet_deadline: float = math.inf) -> None:
        self.taken = taken
        self.quiet_deadline = quiet_deadline
        self.told: list[tuple[float, str]] = []

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        self.told.append((now, f"passed {len(events)}"))
        return self.taken

    async def write(self, frames: Deliver | DeliverFailure) -> None:
        await self._write("frames")

    async def write_rest(self) -> None:
        await self._write("rest")

    async def write_quiet(self) -> None:
        self.quiet_deadline = math.inf
        await self._write("quiet")

    async def end(self) -> None:
        await self._write("end")

    def watch(self, _tell: Callable[[str], None]) -> None:
        """It never leaves."""

    def unwatch(self, _tell: Callable[[str], None]) -> None:
        """It never left."""

    async def _write(self, what: str) -> None:
        self.told.append((trio.current_time(), what))
        await trio.sleep(3.0)


def writing_to(client: Client) -> tuple[Writing, list[float]]:
    """A writing of ten seconds, and by when its turn had to be woken."""
    wakes: list[float] = []
    return Writing(client, 10.0, wakes.append, lambda: wakes.append(math.nan)), wakes


@pytest.mark.parametrize(("now", "passes"), [(4.999, True), (5.0, False), (5.001, False)])
def test_from_the_instant_on_at_which_a_quiet_client_is_told_it_is_the_writers_turn(now: float, passes: bool) -> None:
    """H6."""
    client = Client(quiet_deadline=5.0)
    assert writing_to(client)[0].pass_on([EVENT], now) == passes
    assert client.told == ([(now, "passed 1")] if passes else [])


@pytest.mark.parametrize("taken", Taken)
def test_what_was_taken_in_part_has_passed(taken: Taken) -> None:
    async def main() -> None:
        assert writing_to(Client(taken))[0].pass_on([EVENT, EVENT], 0.0) == (taken is not Taken.NOTHING)

    virtual_run(main)


def test_nothing_passes_once_the_writer_was_given_frames() -> None:
    client = Client()
    writing, _ = writing_to(client)
    writing.took()
    assert (writing.pass_on([EVENT], 0.0), client.told) == (False, [])


def test_events_pass_again_though_the_writer_was_done_before_it_was_said_to_have_frames() -> None:
    """Whoever gives it frames says so at the same instant, in either order."""

    async def main() -> None:
        client = Client()
        writing, _ = writing_to(client)
        sending, receiving = trio.open_memory_channel[Frames](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run, receiving)
            await sending.send(FRAMES)
            await trio.sleep(3.5)
            writing.took()
            assert writing.pass_on([EVENT], 3.5)
            sending.close()

    virtual_run(main)


def test_nothing_passes_the_rest_of_what_was_taken_in_part() -> None:
    """T6, E10: the writer sees to it at once, and its time runs."""

    async def main() -> None:
        client = Client(Taken.PART)
        writing, wakes = writing_to(client)
        sending, receiving = trio.open_memory_channel[Frames](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run, receiving)
            await trio.sleep(1.0)
            passed = [writing.pass_on([EVENT], 1.0), writing.pass_on([EVENT], 1.0)]
            assert (passed, writing.stalls_at, client.told) == ([True, False], 11.0, [(1.0, "passed 1")])
            client.taken = Taken.ALL
            await trio.sleep(2.0)
            assert not writing.pass_on([EVENT], 3.0)
            await trio.sleep(2.0)
            assert (writing.pass_on([EVENT], 5.0), writing.stalls_at) == (True, math.inf)
            await sending.send(FRAMES)
            await trio.sleep(1.0)
            assert (writing.pass_on([EVENT], 6.0), writing.stalls_at) == (False, 15.0)
            sending.close()
        assert client.told == [(1.0, "passed 1"), (1.0, "rest"), (5.0, "passed 1"), (5.0, "frames"), (8.0, "end")]
        assert wakes == [11.0, 11.0, 15.0]

    virtual_run(main)


def test_a_quiet_client_is_told_at_its_instant_and_not_again() -> None:
    """H6: whatever the writer waits for."""

    async def main() -> None:
        client = Client(quiet_deadline=5.0)
        writing, wakes = writing_to(client)
        sending, receiving = trio.open_memory_channel[Frames](1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run, receiving)
            await trio.sleep(6.0)
            assert (writing.pass_on([EVENT], 6.0), writing.stalls_at) == (False, 15.0)
            await trio.sleep(20.0)
            sending.close()
        assert (client.told, wakes) == ([(5.0, "quiet"), (26.0, "end")], [15.0])

    virtual_run(main)


@pytest.mark.parametrize("error", [trio.BrokenResourceError, trio.ClosedResourceError])
def test_a_client_that_cannot_be_written_to_is_said_to_be_gone(error: type[Exception]) -> None:
    """H7: once, and nothing is raised."""

    class Gone(Client):
        async def write(self, frames: Deliver | DeliverFailure) -> None:
            raise error

    async def main() -> None:
        client = Gone()
        writing, wakes = writing_to(client)
        sending, receiving = trio.open_memory_channel[Frames](1)
        sending.send_nowait(FRAMES)
        await writing.run(receiving)
        assert (client.told, wakes[0], math.isnan(wakes[1]), len(wakes)) == ([], 10.0, True, 2)

    virtual_run(main)
