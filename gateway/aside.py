"""Work on large bodies, frames and events, beside the event loop: what takes half a second in there would stop every
other turn for as long.

A thread still takes the interpreter from the loop, some milliseconds at a time; two would take it twice as often and
be no faster. So one body is worked on after the other, in the order in which they came, and small ones, which are
done before a thread is awake, are done at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import trio

from gateway import limits

T = TypeVar("T")
RunAside = Callable[[Callable[[], Any]], Awaitable[Any]]

BODIES_AT_ONCE: Final = 1


def in_a_thread() -> RunAside:
    """A thread for one body after the other. Who is cancelled leaves it to its end."""
    limiter = trio.CapacityLimiter(BODIES_AT_ONCE)

    async def run(work: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)

    return run


async def at_once(work: Callable[[], Any]) -> Any:  # noqa: ASYNC124 - a thread's place, where no thread may be
    """Here and now: a virtual clock would jump while a thread runs."""
    return work()


class Aside:
    """Where a body is worked on, by its size."""

    def __init__(self, run: RunAside = at_once, inline_bytes_max: int = limits.INLINE_BODY_BYTES_MAX) -> None:
        self._run = run
        self._inline_bytes_max = inline_bytes_max

    async def run(self, size_bytes: int, work: Callable[[], T]) -> T:
        """What `work` returns or raises."""
        if size_bytes <= self._inline_bytes_max:
            return work()
        result: T = await self._run(work)
        return result
