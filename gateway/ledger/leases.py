"""Leases (B7): what this process's turns have set aside stays theirs while they live; what a dead process left open is
refunded when its lease ends, once, by whoever sees it first.

    keep     renews the leases of live turns, three times in the life of a lease
    sweep    voids reservations whose lease has ended, closes their attempts and turns

Time in which the store was away does not count: nobody could renew then. So a sweeper ends nothing before it has seen
the store take writes for as long as every living process needs to renew. It writes before it reads, and begins to count
anew when that failed or took long, or when the store's clock has jumped (a host that slept, a step of the clock).

A sweep may die anywhere: each of its writes changes nothing when it is repeated, and the next sweep, whoever's it is,
finds what is left. A turn whose own process lives after all closes its records over the sweeper's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
import trio

from gateway import limits
from gateway.core.ledger import Expire, Renew
from gateway.core.money import Result
from gateway.ledger.durable import DurableLedger
from gateway.store.database import Session, StoreAway
from gateway.store.money import LEASES_ENDED
from gateway.store.records import ABANDONED, RecordWrite
from gateway.store.store import Store
from gateway.store.writer import RETRY_SECONDS

logger = structlog.get_logger("gateway.ledger")

SWEPT_AT_ONCE_MAX: Final = 100
"""Reservations that are ended in one go: what a crashed process left takes several, with other writers in between."""
RENEWED_AT_ONCE_MAX: Final = 128
"""Half a batch of the writer's: thousands of leases that are due together delay no reservation by more than a batch."""
NOBODYS: Final = Renew("", 0.0)
"""A write that finds nothing to do: whether the store takes writes at all."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a lease lasts, how often it is renewed and how often ended ones are looked for, in seconds."""

    lease_seconds: float = limits.LEASE_SECONDS

    @property
    def renew_seconds(self) -> float:
        """Two renewals may fail."""
        return self.lease_seconds / 3

    @property
    def sweep_seconds(self) -> float:
        """An ended lease is found soon."""
        return self.lease_seconds / 6

    @property
    def trust_seconds(self) -> float:
        """Whoever lives has renewed in a time of this length in which the store took writes: its writer finds the store
        back within a retry and its leases are due within another, or it renews as always; and what happens between two
        looks of the sweeper is not seen."""
        return self.renew_seconds + self.sweep_seconds + 2 * RETRY_SECONDS

    @property
    def overdue_seconds(self) -> float:
        """How long ago a lease must have ended: not at all, unless it is so short that it proves too little."""
        return max(0.0, self.trust_seconds - self.lease_seconds)


@dataclass(frozen=True, slots=True)
class _Ended:
    """What one look at the store found, at this time of its clock."""

    at: float
    reservations: Sequence[str]
    records: Sequence[str]

    @property
    def may_be_more(self) -> bool:
        return max(len(self.reservations), len(self.records)) >= SWEPT_AT_ONCE_MAX


class Leases:
    """This process's part in keeping and ending leases."""

    def __init__(self, store: Store, ledger: DurableLedger, times: LeaseTimes) -> None:
        self._store = store
        self._ledger = ledger
        self._times = times
        self._up_since: float | None = None
        self._clocks_differ_by = 0.0
        self.expired = 0
        """Reservations that this process has refunded for a dead one."""

    def __repr__(self) -> str:
        return f"<Leases of {self._times.lease_seconds} s, {self.expired} expired>"

    @property
    def measures(self) -> tuple[Callable[[], float], ...]:
        """What the metrics ask: operations that wait, whether the store is away, leases ended, late settlements."""
        writer, ledger = self._store.writer, self._ledger
        return lambda: writer.waiting, lambda: writer.is_away, lambda: self.expired, lambda: ledger.late_settlements

    # --- keeping ------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Renew for ever."""
        pause = self._times.renew_seconds
        while True:
            await trio.sleep(pause)
            pause = self._times.renew_seconds if await self.renew() else min(pause, RETRY_SECONDS)

    async def renew(self) -> bool:
        """Renew the leases of all live turns. Whether the store took it."""
        turn_ids = sorted(self._ledger.live)
        try:
            for start in range(0, len(turn_ids), RENEWED_AT_ONCE_MAX):
                await _at_once(self._renew_one, turn_ids[start : start + RENEWED_AT_ONCE_MAX])
        except StoreAway:
            return False
        return True

    async def _renew_one(self, turn_id: str) -> None:
        result = await self._store.writer.ask(Renew(turn_id, self._times.lease_seconds))
        if result is not Result.RENEWED:
            self._ledger.live.discard(turn_id)

    # --- sweeping -----------------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Look for ended leases for ever."""
        while True:
            await trio.sleep(self._times.sweep_seconds)
            try:
                await self.sweep_once()
            except Exception:
                self._up_since = None
                logger.exception("sweep_failed")

    async def sweep_once(self) -> None:
        """End what has ended, if the leases can be trusted."""
        try:
            found = await self._look()
            while self._leases_are_true:
                await _at_once(self._expire, [turn_id for turn_id in found.reservations if self._is_not_ours(turn_id)])
                await _at_once(self._abandon, found.records)
                if not found.may_be_more:
                    return
                found = await self._look()
        except StoreAway:
            self._up_since = None

    async def _look(self) -> _Ended:
        began = trio.current_time()
        await self._store.writer.ask(NOBODYS)
        found = await self._store.read(partial(_ended, self._times.overdue_seconds))
        now = trio.current_time()
        differ_by, self._clocks_differ_by = self._clocks_differ_by, found.at - now
        has_jumped = abs(self._clocks_differ_by - differ_by) > RETRY_SECONDS
        if self._up_since is None or has_jumped or now - began > RETRY_SECONDS:
            self._up_since = now
        return found

    @property
    def _leases_are_true(self) -> bool:
        """Whether every living process had the time to renew."""
        is_up = self._up_since is not None and trio.current_time() - self._up_since >= self._times.trust_seconds
        return is_up and not self._store.writer.is_away

    def _is_not_ours(self, turn_id: str) -> bool:
        return turn_id not in self._ledger.live

    async def _expire(self, turn_id: str) -> None:
        if await self._store.writer.ask(Expire(turn_id)) is Result.EXPIRED:
            self.expired += 1
            logger.warning("lease_ended", turn_id=turn_id)

    async def _abandon(self, turn_id: str) -> None:
        await self._store.writer.ask(RecordWrite("abandon_attempts", {"turn_id": turn_id}))
        await self._store.writer.ask(RecordWrite("abandon_turn", {"turn_id": turn_id}))


async def _at_once(call: Callable[[str], Awaitable[None]], turn_ids: Sequence[str]) -> None:
    """All of them in one batch of the writer's. One that fails keeps none of the others from its turn; StoreAway is
    raised once all have been tried."""
    away: list[StoreAway] = []

    async def call_one(turn_id: str) -> None:
        try:
            await call(turn_id)
        except StoreAway as error:
            away.append(error)
        except Exception:
            logger.exception("lease_not_handled", turn_id=turn_id)

    async with trio.open_nursery() as nursery:
        for turn_id in turn_ids:
            nursery.start_soon(call_one, turn_id)
    if away:
        raise away[0]


def _ended(overdue_seconds: float, session: Session) -> _Ended:
    now = session.now()
    params = {"now": now - overdue_seconds, "limit": SWEPT_AT_ONCE_MAX}
    reservations, records = ([turn_id for (turn_id,) in session.fetch(s, params)] for s in (LEASES_ENDED, ABANDONED))
    return _Ended(now, reservations, records)
