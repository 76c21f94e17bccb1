"""A fault at one await of a turn: an instrument of Trio's that counts the turn's steps and strikes at the n-th.

A step is a task of the turn going on behind an await: any task in whose stack a function of `gateway/turn/` waits.
`raises` makes that await raise; `cancels` cancels the task that serves the client, as a server does that stops at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

import outcome
from trio.abc import Instrument
from trio.lowlevel import Task

BUG: Final = ZeroDivisionError("a bug of ours")
TURN: Final = "/gateway/turn/"
NETWORK: Final = "/gateway/upstream/scripted.py"


class FaultAt(Instrument):
    """Strikes at the `number`-th step; 0 only counts."""

    def __init__(self, number: int, cancel: Callable[[], None] | None = None) -> None:
        self.number = number
        self.cancel = cancel
        self.steps = 0
        self.struck_in = ""

    @property
    def has_struck(self) -> bool:
        """Whether there was such a step."""
        return self.struck_in != ""

    def before_task_step(self, task: Task) -> None:
        """Count, and strike."""
        if not self._is_a_step(task):
            return
        self.steps += 1
        if self.steps == self.number:
            self.struck_in = " > ".join(code.co_qualname for code in _stack(task) if TURN in code.co_filename)
            self._strike(task)

    def _is_a_step(self, task: Task) -> bool:
        """Waits of a nursery for its children are no awaits of ours: raising there would orphan them. Nor are those of
        the scripted network."""
        stack = list(_stack(task))
        return (
            any(TURN in code.co_filename for code in stack)
            and isinstance(task._next_send, outcome.Outcome)
            and not any(code.co_name == "_nested_child_finished" or NETWORK in code.co_filename for code in stack)
        )

    def _strike(self, task: Task) -> None:
        if self.cancel is None:
            task._next_send = outcome.Error(BUG)
        else:
            self.cancel()


def _stack(task: Task) -> Iterator[CodeType]:
    """What the task is in, outermost first."""
    waits: Any = task.coro
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None:
            yield frame.f_code
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
