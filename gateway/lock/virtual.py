"""Virtual time: a run on a clock that starts at 0 and jumps; a deadlock is an error at t = 1e6, not a hang.

`order` seeds the order of tasks: at each step of the scheduler all tasks that can run are shuffled by it, so what must
not depend on the order is seen not to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

T = TypeVar("T")
DEADLOCK_SECONDS: Final = 1e6


def virtual_run(function: Callable[..., Awaitable[T]], *arguments: Any, order: int = 0, **options: Any) -> T:
    """`trio.run` on an autojump clock, under the task order that `order` seeds."""
    options.pop("clock", None)

    async def guarded() -> T:
        with trio.fail_after(DEADLOCK_SECONDS):
            return await function(*arguments)

    with _tasks_in_order(order):
        return trio.run(guarded, clock=MockClock(autojump_threshold=0), **options)


@contextmanager
def _tasks_in_order(order: int) -> Iterator[None]:
    """The one place where trio draws the order of tasks from; without the switch it only turns each batch round or not.
    Both names are trio's own: a release without them is told of at once (AttributeError)."""
    was_allowed = trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    trio_run._r.seed(order)
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # final but for plugins that test
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = was_allowed  # type: ignore[misc]  # as above
