"""A ledger that lasts: its operations go through the store's writer (ports.Ledger)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import structlog

from gateway import limits
from gateway.core.accounts import SpendLimit
from gateway.core.ledger import BookHouse, Reserve, Resolve
from gateway.core.money import Resolution, Result
from gateway.pending import Pending, Underway
from gateway.store.commit import Answer, Work
from gateway.store.database import StoreAway
from gateway.store.writer import Answered, Writer

logger = structlog.get_logger("gateway.ledger")


class DurableLedger:
    """Accounts and reservations in a database. `live` are the turns whose leases are renewed (leases.py)."""

    def __init__(self, writer: Writer, lease_seconds: float = limits.LEASE_SECONDS) -> None:
        self._writer = writer
        self._lease_seconds = lease_seconds
        self.live: set[str] = set()
        self.late_settlements = 0
        """Settlements that came after their lease had ended: the house bore them (B7)."""
        writer.on_answer = self._note

    def __repr__(self) -> str:
        return f"<DurableLedger, {len(self.live)} turns live>"

    def reserve(
        self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()
    ) -> Pending[Result]:
        """Set money aside (ports.Ledger)."""
        asked = self._writer.ask(Reserve(turn_id, account, nanodollars, tuple(limits), self._lease_seconds))
        return Underway(partial(self._reserved, turn_id, asked))

    async def _reserved(self, turn_id: str, asked: Pending[Answered]) -> Result:
        try:
            result = cast("Result", await asked)
        except StoreAway as error:
            if error.was_tried:  # it may be set aside all the same
                self._writer.insist_later(Resolve(turn_id, Resolution(None)))
            raise
        if result in (Result.CREATED, Result.EXISTS):
            self.live.add(turn_id)
        return result

    def resolve(self, turn_id: str, resolution: Resolution) -> Pending[Result]:
        """Settle or void, once (ports.Ledger). The writer has it from here on: no lease needs to be kept for it."""
        self.live.discard(turn_id)
        return cast("Pending[Result]", self._writer.insist(Resolve(turn_id, resolution)))

    def adopt(self, turn_id: str) -> None:
        """B9: the lease of a turn that may have been another process's is kept from ending, as of one's own."""
        self.live.add(turn_id)

    def book_house(self, turn_id: str, attempt: int, nanodollars: int) -> Pending[Result]:
        """The house pays (ports.Ledger)."""
        return cast("Pending[Result]", self._writer.insist(BookHouse(turn_id, attempt, nanodollars)))

    def _note(self, work: Work, answer: Answer) -> None:
        """B7 alarms, also where the turn has long given up waiting for the store."""
        if answer is Result.BORNE_BY_HOUSE and isinstance(work, Resolve):
            self.late_settlements += 1
            logger.error("settled_after_lease", turn_id=work.turn_id, nanodollars=work.resolution.nanodollars)
