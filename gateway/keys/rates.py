"""Requests per minute: never more than a key's limit in any 60 seconds, counted in this process (C6).

What was let in is remembered for a minute, so the memory is bounded by what the process can serve in that time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.core.keys import Key

MINUTE_SECONDS: Final = 60.0


class RequestRates:
    """The requests of the last minute, by key. With `workers` processes each takes its share of a limit; a limit below
    the number of workers lets each of them take one."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._taken: dict[str, deque[float]] = {}
        self._tidied_at = 0.0

    def __repr__(self) -> str:
        return f"<RequestRates, {sum(map(len, self._taken.values()))} requests of {len(self._taken)} keys>"

    def take(self, key: Key, now: float) -> float:
        """Count a request at this time of the monotonic clock: 0. Or after how many seconds there is room for it."""
        limit = key.limits.requests_per_minute
        if limit is None:
            return 0.0
        self._tidy(now)
        taken = self._taken.setdefault(key.label, deque())
        _forget_old(taken, now)
        share = max(1, limit // self._workers)
        if len(taken) >= share:
            return taken[len(taken) - share] + MINUTE_SECONDS - now
        taken.append(now)
        return 0.0

    def _tidy(self, now: float) -> None:
        """Forget the keys that have gone: once a minute, for all of them."""
        if now - self._tidied_at < MINUTE_SECONDS:
            return
        self._tidied_at = now
        for taken in self._taken.values():
            _forget_old(taken, now)
        self._taken = {label: taken for label, taken in self._taken.items() if taken}


def _forget_old(taken: deque[float], now: float) -> None:
    while taken and taken[0] <= now - MINUTE_SECONDS:
        taken.popleft()
