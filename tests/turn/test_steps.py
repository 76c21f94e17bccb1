"""T10, L2: a store's calls begin at once, beside each other, and are waited for only where there is something to wait
for.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, MutableMapping
from functools import partial
from typing import Any

import pytest
import trio

from gateway.core.messages import Door, Finish
from gateway.core.money import ChargePolicy, Ended, EndedBy, PartTokens
from gateway.ledger.memory import MemoryLedger
from gateway.pending import Done, Pending, Underway
from gateway.ports import TurnOpening
from gateway.records.memory import MemoryRecords
from gateway.turn.books import BookKeeping, Books
from gateway.turn.origins import Origins
from gateway.turn.steps import ASK_AGAIN_SECONDS, Steps
from support.virtual import in_orders

ENDED = Ended(EndedBy.TERMINAL, output_delivered=False, usage=None, failed=False)


def at_once(call: Coroutine[Any, Any, Any]) -> object:
    """What an async call comes to that never gives way to another task."""
    with pytest.raises(StopIteration) as returned:
        call.send(None)
    return returned.value.value


class Told:
    """Steps that tell what is done of them, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str]] = []

    def noted(self, name: str, *, fails: int = 0, lasts: float | None = None) -> Pending[object]:
        """Raises the first so many times; `lasts` so many seconds, or is done at once."""
        self.calls.append((trio.current_time(), name))
        if sum(told == name for _, told in self.calls) <= fails:
            raise ZeroDivisionError(name)
        return Done(name) if lasts is None else Underway(partial(self._in_time, name, lasts))

    async def _in_time(self, name: str, seconds: float) -> str:
        await trio.sleep(seconds)
        return name


async def awaited(pending: Pending[object]) -> object:
    """As whoever waits does."""
    return await pending


@in_orders(1)
async def test_what_is_done_at_once_is_waited_for_by_nobody() -> None:
    done = Done(7)
    assert (done.is_done, done.result(), at_once(awaited(done)), repr(done)) == (True, 7, 7, "<Done: 7>")


@in_orders(1)
async def test_what_is_under_way_is_known_to_whoever_waited() -> None:
    told = Told()
    pending = told.noted("step", lasts=3.0)
    assert (pending.is_done, repr(pending).startswith("<Underway: ")) == (False, True)
    with pytest.raises(RuntimeError, match="is not done"):
        pending.result()
    assert (await pending, trio.current_time()) == ("step", 3.0)


@in_orders(1)
async def test_a_turn_whose_store_is_a_memory_gives_way_to_nobody_for_its_books() -> None:
    """L2: neither as it is opened nor as it is closed; no task is started."""
    ledger, records = MemoryLedger({"main": 1000}), MemoryRecords()
    keeping = BookKeeping(ledger, records, Origins(records), ChargePolicy(), PartTokens(image=1, file=1))
    opening = TurnOpening("turn_1", "main", "gpt-test", Door.HTTP, reserved_nanodollars=7, opened_at=0.0)
    kinds = ("is_stored", "is_whole", "is_background", "is_warm_up")
    books = Books(keeping, opening, 1, (), table="", **dict.fromkeys(kinds, False))
    at_once(books.open())
    assert ledger.open_reservations("main") == 7
    async with trio.open_nursery() as nursery:
        books.close(Finish("completed", None, ENDED), None, nursery)
        assert (ledger.open_reservations("main"), nursery.child_tasks) == (0, frozenset())
    assert records.turns["turn_1"].closing is not None


@in_orders(1)
async def test_all_have_begun_before_anything_is_waited_for() -> None:
    """T10: one that fails keeps none of the others from beginning; each has its result."""
    told = Told()
    steps = {
        "fails": partial(told.noted, "fails", fails=1),
        "lasts": partial(told.noted, "lasts", lasts=1.0),
        "is done": partial(told.noted, "is done"),
    }
    begun = Steps("turn_1", steps)
    assert told.calls == [(0.0, "fails"), (0.0, "lasts"), (0.0, "is done")]
    assert (begun.are_through, begun.results) == (False, {"is done": "is done"})
    assert repr(begun) == "<Steps of turn_1, ['fails', 'lasts'] left>"
    await begun.see_through(5.0, math.inf)
    assert begun.results == {name: name for name in steps}
    assert (begun.are_through, trio.current_time(), told.calls[3:]) == (True, 1.0, [(ASK_AGAIN_SECONDS, "fails")])


@in_orders(1)
async def test_one_that_lasts_keeps_no_other_from_being_taken_again(logged: list[MutableMapping[str, Any]]) -> None:
    """T10: to the bound, to the instant; what is late then, and what is lost, are told apart."""
    told = Told()
    steps = {"lasts": partial(told.noted, "lasts", lasts=9.0), "fails": partial(told.noted, "fails", fails=9)}
    await Steps("turn_1", steps).see_through(1.0, math.inf)
    assert (trio.current_time(), [at for at, name in told.calls if name == "fails"]) == (1.0, [0, 0.25, 0.5, 0.75])
    assert [(entry["event"], entry.get("steps")) for entry in logged if entry["event"] != "books_asked_again"] == [
        ("books_still_written", ["lasts"]),
        ("books_not_closed", ["fails"]),
    ]
