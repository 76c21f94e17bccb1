"""Every test on a virtual clock (gateway/lock/virtual.py), under several task orders.

    @in_every_order
    async def test_a_break_is_replayed(door: str) -> None: ...

runs the test once for each of a few task orders: the first in the fast suite, all in the long tier. Of tests of one
instant, which take more orders, the fast suite has half.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

from gateway.lock.virtual import virtual_run

ORDERS = 4
"""Task orders for a test whose outcome should not depend on any; tests of one instant take more."""

AsyncTest = Callable[..., Awaitable[None]]


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
        fast = 1 if count <= ORDERS else count // 2
        orders = [pytest.param(n, marks=[pytest.mark.long] if n >= fast else []) for n in range(count)]
        marked: Callable[..., None] = pytest.mark.parametrize("order", orders)(run)
        return marked

    return decorate


in_every_order = in_orders(ORDERS)
