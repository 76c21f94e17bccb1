"""Steps of a turn's books: all begin before anything is waited for, and each is taken until it is through (T10).

One store's trouble keeps no other from its part. A store that is away has been told, and goes on writing when the wait
for it is given up (ports.Ledger); only a step that failed is lost if it fails to the end. Where all are done at once
nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog
import trio

from gateway import limits
from gateway.pending import Pending

logger = structlog.get_logger("gateway.turn")

ASK_AGAIN_SECONDS: Final = 0.25
"""A step that failed is taken again after this while, within the bound of all closing (T10)."""
Step = Callable[[], Pending[object]]
"""All are idempotent."""


class Steps:
    """Some steps, by name. They begin as this is made."""

    def __init__(self, turn_id: str, steps: Mapping[str, Step]) -> None:
        self._turn_id = turn_id
        self._steps = steps
        self._left: dict[str, Pending[object] | None] = {}
        """Those that are not through: None for one that failed, and is to be taken again."""
        self.results: dict[str, object] = {}
        """What came of those that are."""
        for name in steps:
            self._begin(name)

    def __repr__(self) -> str:
        return f"<Steps of {self._turn_id}, {sorted(self._left)} left>"

    @property
    def are_through(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._left

    def _begin(self, name: str) -> None:
        try:
            pending = self._steps[name]()
            if pending.is_done:
                self._is_through(name, pending.result())
            else:
                self._left[name] = pending
        except Exception:
            self._has_failed(name)

    def _is_through(self, name: str, result: object) -> None:
        self.results[name] = result
        self._left.pop(name, None)

    def _has_failed(self, name: str) -> None:
        logger.warning("books_asked_again", turn_id=self._turn_id, step=name, exc_info=True)
        self._left[name] = None

    async def see_through(self, seconds: float, latest: float) -> None:
        """Wait for what is left, shielded, for so many seconds, and until `latest`, once the process drains (T7)."""
        with shielded(seconds, latest) as scope:
            async with trio.open_nursery() as nursery:
                for name in self._left:
                    nursery.start_soon(self._insist, name)
        if scope.cancelled_caught:
            self._log_unfinished()

    async def _insist(self, name: str) -> None:
        """A step that failed is taken again."""
        while name in self._left:
            pending = self._left[name]
            try:
                if pending is not None:
                    self._is_through(name, await pending)
                else:
                    await trio.sleep(ASK_AGAIN_SECONDS)
                    self._begin(name)
            except Exception:
                self._has_failed(name)

    def _log_unfinished(self) -> None:
        late = sorted(name for name, pending in self._left.items() if pending is not None)
        lost = sorted(self._left.keys() - set(late))
        if late:
            logger.warning("books_still_written", turn_id=self._turn_id, steps=late)
        if lost:
            logger.error("books_not_closed", turn_id=self._turn_id, steps=lost)


def shielded(seconds: float, latest: float) -> trio.CancelScope:
    """A wait for a store: no cancellation from outside ends it."""
    now = trio.current_time()
    return trio.CancelScope(shield=True, deadline=min(now + seconds, max(latest, now + limits.HAND_OVER_BOOKS_SECONDS)))
