"""A turn's client while the turn writes to it: one writer at a time, by the writer's task or past it (T6, H6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import trio
import trio.testing

from gateway.core.events import Event, EventClass
from gateway.core.messages import ClientLeft, Deliver, DeliverFailure, Door, Handed, Input, Taken
from gateway.lock.virtual import virtual_run
from gateway.turn.writing import Writing

EVENT = Event(EventClass.OUTPUT, "response.output_text.delta", b"{}", b"data: {}\n\n", None)
FRAMES = Deliver([EVENT], None)


class Client:
    """Takes what it is told to take of what passes, and each write takes it three seconds."""

    door = Door.HTTP
    departure_passes = 1

    def __init__(self, taken: Taken = Taken.ALL, quiet_deadline: float = math.inf) -> None:
        self.taken = taken
        self.quiet_deadline = quiet_deadline
        self.told: list[tuple[float, str]] = []
        self.lasts: list[bool] = []

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        self.told.append((now, f"passed {len(events)}"))
        return self.taken

    async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
        self.lasts.append(is_last)
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


def writing_to(client: Client) -> tuple[Writing, list[float], list[tuple[float, Input]]]:
    """A writing of ten seconds, by when its turn had to be woken, and what it was told when."""
    wakes: list[float] = []
    told: list[tuple[float, Input]] = []
    return Writing(client, 10.0, wakes.append, lambda one: told.append((trio.current_time(), one))), wakes, told


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


def test_nothing_passes_frames_that_were_given() -> None:
    """E10: from the moment on at which they were."""

    async def main() -> None:
        client = Client()
        writing, _, _ = writing_to(client)
        assert writing.give(FRAMES)
        assert (writing.pass_on([EVENT], 0.0), client.told, writing.stalls_at) == (False, [], 10.0)

    virtual_run(main)


def test_only_what_nothing_follows_is_written_as_the_last() -> None:
    """X1: so that it leaves with the end: two are given before the end is known, two are taken up when it is."""

    async def main() -> None:
        client = Client()
        writing, _, _ = writing_to(client)
        async with trio.open_nursery() as nursery:
            writing.give(FRAMES)
            nursery.start_soon(writing.run)
            await trio.sleep(1.0)
            writing.give(FRAMES)
            writing.give(FRAMES)
            writing.end()
        assert client.lasts == [False, False, True]
        assert [what for _, what in client.told] == ["frames"] * 3 + ["end"]

    virtual_run(main)


def test_events_pass_again_once_frames_are_written() -> None:
    async def main() -> None:
        client = Client()
        writing, wakes, told = writing_to(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            assert writing.give(FRAMES)
            await trio.sleep(2.999)
            assert not writing.pass_on([EVENT], 2.999)
            await trio.sleep(0.002)
            assert (writing.pass_on([EVENT], 3.001), writing.stalls_at) == (True, math.inf)
            writing.end()
        assert client.told == [(0.0, "frames"), (3.001, "passed 1"), (3.001, "end")]
        assert (wakes, told) == ([], [])

    virtual_run(main)


def test_frames_given_while_others_are_written_are_said_to_be_taken_up_as_the_last_of_them_is() -> None:
    """T4, T6: until then it is the client that is slow, and the time of each begins as it is taken up."""

    async def main() -> None:
        client = Client()
        writing, wakes, heard = writing_to(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            assert [writing.give(FRAMES) for _ in range(3)] == [True, False, False]
            await trio.sleep(5.999)
            assert (heard, writing.is_behind, len(writing.waiting)) == ([], True, 1)
            await trio.sleep(0.002)
            assert (heard, writing.is_behind, writing.waiting) == ([(6.0, Handed())], False, [])
            assert not writing.give(FRAMES)
            writing.end()
        assert heard == [(6.0, Handed()), (9.0, Handed())]
        assert client.told == [*((at, "frames") for at in (0.0, 3.0, 6.0, 9.0)), (12.0, "end")]
        assert wakes == [13.0, 16.0, 19.0]

    virtual_run(main)


@pytest.mark.parametrize("has_begun", [True, False])
def test_nothing_is_written_any_more_once_it_is_cancelled(has_begun: bool) -> None:
    """H7: neither what was given nor the end; whether the writer was there or came later."""

    async def main() -> None:
        client = Client()
        writing, _, told = writing_to(client)
        async with trio.open_nursery() as nursery:
            if has_begun:
                nursery.start_soon(writing.run)
                await trio.sleep(1.0)
            writing.give(FRAMES)
            writing.give(FRAMES)
            writing.cancel()
            writing.end()
            if not has_begun:
                nursery.start_soon(writing.run)
        assert (client.told, told, writing.waiting, writing.is_behind) == ([], [], [], False)

    virtual_run(main)


@pytest.mark.parametrize("gives_before", [True, False])
def test_once_all_was_given_a_client_that_stalls_is_left_by_the_writer_itself(gives_before: bool) -> None:
    """T6: at its instant, the end not written."""

    class Stalled(Client):
        async def _write(self, what: str) -> None:
            self.told.append((trio.current_time(), what))
            await trio.sleep(3.0 if len(self.told) == 1 else math.inf)

    async def main() -> None:
        client = Stalled()
        writing, _, _ = writing_to(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            writing.give(FRAMES)
            if gives_before:
                writing.give(FRAMES)
            await trio.sleep(3.5)
            if not gives_before:
                writing.give(FRAMES)
            writing.end()
        assert (len(client.told), trio.current_time()) == (2, 13.0 if gives_before else 13.5)

    virtual_run(main)


def test_the_end_may_take_longer_than_frames_may() -> None:
    class Slow(Client):
        async def end(self) -> None:
            await trio.sleep(20.0)

    async def main() -> None:
        client = Slow()
        writing, _, _ = writing_to(client)
        writing.give(FRAMES)
        writing.end()
        await writing.run()
        assert trio.current_time() == 23.0

    virtual_run(main)


def test_nothing_passes_the_rest_of_what_was_taken_in_part() -> None:
    """T6, E10: the writer sees to it at once, and its time runs."""

    async def main() -> None:
        client = Client(Taken.PART)
        writing, wakes, _ = writing_to(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            await trio.sleep(1.0)
            passed = [writing.pass_on([EVENT], 1.0), writing.pass_on([EVENT], 1.0)]
            assert (passed, writing.stalls_at, client.told) == ([True, False], 11.0, [(1.0, "passed 1")])
            client.taken = Taken.ALL
            await trio.sleep(2.0)
            assert not writing.pass_on([EVENT], 3.0)
            await trio.sleep(2.0)
            assert (writing.pass_on([EVENT], 5.0), writing.stalls_at) == (True, math.inf)
            writing.give(FRAMES)
            await trio.sleep(1.0)
            assert (writing.pass_on([EVENT], 6.0), writing.stalls_at) == (False, 15.0)
            writing.end()
        assert client.told == [(1.0, "passed 1"), (1.0, "rest"), (5.0, "passed 1"), (5.0, "frames"), (8.0, "end")]
        assert wakes == [11.0]

    virtual_run(main)


def test_a_quiet_client_is_told_at_its_instant_and_not_again() -> None:
    """H6: whatever the writer waits for."""

    async def main() -> None:
        client = Client(quiet_deadline=5.0)
        writing, wakes, _ = writing_to(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            await trio.sleep(6.0)
            assert (writing.pass_on([EVENT], 6.0), writing.stalls_at) == (False, 15.0)
            await trio.sleep(20.0)
            writing.end()
        assert (client.told, wakes) == ([(5.0, "quiet"), (26.0, "end")], [15.0])

    virtual_run(main)


@pytest.mark.parametrize("error", [trio.BrokenResourceError, trio.ClosedResourceError])
def test_a_client_that_cannot_be_written_to_is_said_to_be_gone(error: type[Exception]) -> None:
    """H7: once, and nothing is raised."""

    class Gone(Client):
        async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
            raise error

    async def main() -> None:
        client = Gone()
        writing, _, told = writing_to(client)
        writing.give(FRAMES)
        await writing.run()
        assert (client.told, told) == ([], [(0.0, ClientLeft("write failed"))])

    virtual_run(main)
