"""Every test on a virtual clock that starts at 0 and jumps; a deadlock becomes an error at virtual t = 1e6, not a hang.

    @in_every_order
    async def test_a_break_is_replayed(door: str) -> None: ...

runs the test once for each of a few task orders: at each step of the scheduler all tasks that can run are shuffled by
the order's seed, so what must not depend on the order is seen not to.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

T = TypeVar("T")
DEADLOCK_SECONDS = 1e6
ORDERS = 4
"""Task orders for a test whose outcome should not depend on any; tests of one instant take more."""

AsyncTest = Callable[..., Awaitable[None]]


def virtual_run(function: Callable[..., Awaitable[T]], *arguments: Any, order: int = 0, **options: Any) -> T:
    """`trio.run` on an autojump clock, under the task order that `order` seeds."""
    options.pop("clock", None)

    async def guarded() -> T:
        with trio.fail_after(DEADLOCK_SECONDS):
            return await function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        # the one place where trio draws the order of tasks from; without this it only turns each batch round or not
        patch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
        trio._core._run._r.seed(order)
        return trio.run(guarded, clock=MockClock(autojump_threshold=0), **options)


def in_orders(count: int) -> Callable[[AsyncTest], Callable[..., None]]:
    """Make an async test a test that runs under `count` task orders, on the virtual clock."""

    def decorate(test: AsyncTest) -> Callable[..., None]:
        @wraps(test)
        def run(order: int, **arguments: Any) -> None:
            virtual_run(partial(test, **arguments), order=order)

        signature = inspect.signature(test)
        order = inspect.Parameter("order", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=int)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what pytest reads the parameters from
            parameters=[order, *signature.parameters.values()]
        )
        marked: Callable[..., None] = pytest.mark.parametrize("order", range(count))(run)
        return marked

    return decorate


in_every_order = in_orders(ORDERS)
