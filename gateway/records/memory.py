"""Complete records in memory, the newest kept (ports.Records)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio

from gateway import limits
from gateway.core.background import BackgroundTurn
from gateway.core.origin import Maker
from gateway.pending import Done
from gateway.ports import AttemptClosing, Noted, Origin, TurnClosing, TurnOpening

TURNS_KEPT_MAX = 10_000
"""Ended turns beyond it are forgotten, oldest first: a process that runs for weeks must not grow."""
NOTED: Final = Done(None)
"""A memory notes at once."""


@dataclass(slots=True)
class AttemptRecord:
    """One attempt: its route, and how it ended once it has."""

    route: str
    opened_at: float
    closing: AttemptClosing | None = None


@dataclass(slots=True)
class TurnRecord:
    """One turn with its attempts, in order."""

    opening: TurnOpening
    attempts: list[AttemptRecord] = field(default_factory=list)
    closing: TurnClosing | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be written: a discarded attempt's end may come after its turn's own."""
        return self.closing is not None and all(attempt.closing is not None for attempt in self.attempts)


class MemoryRecords:
    """The turns of this process."""

    def __init__(self, turns_kept_max: int = TURNS_KEPT_MAX) -> None:
        self._turns_kept_max = turns_kept_max
        self.turns: OrderedDict[str, TurnRecord] = OrderedDict()
        self.origins: OrderedDict[tuple[str, str], Origin] = OrderedDict()
        self.background: dict[str, tuple[BackgroundTurn, float, float]] = {}
        self.marks: OrderedDict[tuple[str, str], Maker] = OrderedDict()

    def __repr__(self) -> str:
        return f"<MemoryRecords of {len(self.turns)} turns>"

    def open_turn(self, opening: TurnOpening, first: str | None = None) -> Noted:
        """A turn has its reservation (ports.Records)."""
        self.turns[opening.turn_id] = TurnRecord(opening)
        self._forget_oldest()
        return NOTED

    def open_attempt(self, turn_id: str, attempt: int, route: str) -> Noted:
        """An attempt is about to call its upstream (ports.Records). ValueError if attempts are out of order."""
        attempts = self.turns[turn_id].attempts
        if attempt != len(attempts) + 1:
            raise ValueError(f"attempt {attempt} of {turn_id} follows {len(attempts)}")
        attempts.append(AttemptRecord(route, trio.current_time()))
        return NOTED

    def close_attempt(self, closing: AttemptClosing) -> Noted:
        """An attempt is over (ports.Records); the first closing stays."""
        record = self.turns[closing.turn_id].attempts[closing.attempt - 1]
        record.closing = record.closing or closing
        return NOTED

    def close_turn(self, closing: TurnClosing) -> Noted:
        """A turn is over (ports.Records); the first closing stays."""
        record = self.turns[closing.turn_id]
        record.closing = record.closing or closing
        return NOTED

    def learn_origin(self, origin: Origin) -> Noted:
        """A response's route (ports.Records)."""
        self.origins.setdefault((origin.account, origin.response_id), origin)
        _forget_oldest(self.origins, self._turns_kept_max)
        return NOTED

    async def origin(self, account: str, response_id: str) -> Origin | None:
        """Where a response was made (ports.Records)."""
        await trio.lowlevel.checkpoint()
        return self.origins.get((account, response_id))

    def learn_marks(self, account: str, maker: Maker, marks: Sequence[str]) -> Noted:
        """Where what has these marks was made (ports.Records)."""
        for mark in marks:
            self.marks.setdefault((account, mark), maker)
        _forget_oldest(self.marks, self._turns_kept_max)
        return NOTED

    async def origins_of_marks(self, account: str, marks: Sequence[str]) -> Mapping[str, Maker]:
        """Where they were made (ports.Records)."""
        await trio.lowlevel.checkpoint()
        return {mark: self.marks[account, mark] for mark in marks if (account, mark) in self.marks}

    def keep_background(self, turn: BackgroundTurn) -> Noted:
        """It is to be looked after (ports.Records)."""
        now = trio.current_time()
        _, began_at, due_at = self.background.get(turn.turn_id, (turn, now, now + limits.BACKGROUND_POLL_SECONDS))
        self.background[turn.turn_id] = turn, began_at, due_at
        return NOTED

    async def background_turns(self) -> Sequence[BackgroundTurn]:
        """Those that are not closed (ports.Records)."""
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
        over = [turn_id for turn_id in self.background if self.turns[turn_id].closing is not None]
        for turn_id in over:
            del self.background[turn_id]
        kept = self.background.values()
        return [replace(turn, age_seconds=now - began_at, is_due=now >= due_at) for turn, began_at, due_at in kept]

    async def postpone_background(self, turn_id: str) -> None:
        """Somebody asks about it now (ports.Records)."""
        await trio.lowlevel.checkpoint()
        turn, began_at, _ = self.background[turn_id]
        self.background[turn_id] = turn, began_at, trio.current_time() + limits.BACKGROUND_POLL_SECONDS

    def open_attempts(self) -> list[AttemptRecord]:
        """Attempts that have not ended."""
        return [attempt for turn in self.turns.values() for attempt in turn.attempts if attempt.closing is None]

    def _forget_oldest(self) -> None:
        ended = (turn_id for turn_id, record in self.turns.items() if record.is_over)
        while len(self.turns) > self._turns_kept_max and (oldest := next(ended, None)) is not None:
            del self.turns[oldest]
            ended = (turn_id for turn_id, record in self.turns.items() if record.is_over)


def _forget_oldest(kept: OrderedDict[tuple[str, str], Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
