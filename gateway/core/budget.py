"""The replay budget: so that an outage is not doubled (C4, R13).

A replay may begin while the replays of the last 10 s are fewer than 20 % of its turns, or while those of the last
second are fewer than 10. Both windows slide: what began exactly 10 s (1 s) ago is out of them. Windows hold at every
instant, where a bucket of tokens would let what it saved pass beside what it gets.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from gateway import limits


class ReplayBudget:
    """One process's budget: its part of the floor; the share is of its own turns (C6)."""

    def __init__(self, workers: int = 1) -> None:
        self._replays_per_second_min = max(1, limits.REPLAYS_PER_SECOND_MIN // workers)
        self._turns: deque[float] = deque(maxlen=limits.BUDGET_TURNS_MAX)
        self._replays: deque[float] = deque(maxlen=limits.BUDGET_TURNS_MAX)

    def __repr__(self) -> str:
        return f"<ReplayBudget, {len(self._replays)} replays, {len(self._turns)} turns>"

    def turn_began(self, now: float) -> None:
        """A turn counts once, whatever becomes of it."""
        self._turns.append(now)
        _forget(self._turns, now)

    def replay_began(self, now: float) -> None:
        """A replay is spent."""
        self._replays.append(now)

    def is_spent(self, now: float) -> bool:
        """Whether no replay may begin (R13)."""
        _forget(self._turns, now)
        _forget(self._replays, now)
        if 100 * len(self._replays) < limits.REPLAYS_PERCENT_MAX * len(self._turns):
            return False
        return self._replays_of_last_second(now) >= self._replays_per_second_min

    def _replays_of_last_second(self, now: float) -> int:
        """As many as matter: no more than the floor are looked at."""
        newest = islice(reversed(self._replays), self._replays_per_second_min)
        return sum(began > now - 1.0 for began in newest)


def _forget(moments: deque[float], now: float) -> None:
    while moments and moments[0] <= now - limits.REPLAY_WINDOW_SECONDS:
        moments.popleft()
