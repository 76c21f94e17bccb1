"""The store of one process: its database, prepared and caught up, its writer, and readings beside it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog
import trio

from gateway.core.accounts import Kind
from gateway.core.ledger import OpenAccount, Operation, Resolve, SetUnlimited, Transfer
from gateway.core.money import Result
from gateway.store.commit import commit, transact
from gateway.store.database import Database, Session, StoreAway, StoreUnusable
from gateway.store.money import carry_out
from gateway.store.schema import AnyDatabase, prepare
from gateway.store.spool import FileSpool, LeftBehind, check, take_over
from gateway.store.writer import BATCH_OPERATIONS_MAX, RETRY_SECONDS, OwnThreads, Writer

logger = structlog.get_logger("gateway.store")

T = TypeVar("T")

CONFIGURATION: Final = "the configuration"
"""Who moves the money that a configuration file grants its accounts."""
GRANTED: Final = f"""
select coalesce(sum(case when kind = 'debit' then -nanodollars else nanodollars end), 0)
from entry where account = :name and actor = '{CONFIGURATION}'
"""
READERS_MAX: Final = 1
"""One connection reads beside the writer's: lookups of keys and origins take well below a millisecond."""


class Store:
    """A prepared database with what works on it."""

    def __init__(
        self,
        database: Database,
        spool: FileSpool,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None,
    ) -> None:
        self.database = database
        self._spool = spool
        self._run_blocking = run_blocking or OwnThreads()
        self._reading = database.another()
        self._reader = trio.Semaphore(READERS_MAX)
        self._unread_until = -math.inf
        spool.reserve()
        self.writer = Writer(partial(commit, database), spool, run_blocking)

    def __repr__(self) -> str:
        return f"<Store {self.database!r}, {self.writer!r}>"

    async def read(self, reading: Callable[[Session], T]) -> T:
        """What `reading` finds, in a snapshot. Raises StoreAway: at once while the writer finds the store away, and
        shortly after another reading did, for one that hangs would make all behind it wait for as long, one by one."""
        self._refuse_while_away()  # not even behind a reading that hangs
        async with self._reader:
            self._refuse_while_away()
            try:
                found: T = await self._run_blocking(partial(self._read, reading))
            except (StoreAway, StoreUnusable) as error:
                self._unread_until = trio.current_time() + RETRY_SECONDS
                raise StoreAway(str(error)) from error
            return found

    def _refuse_while_away(self) -> None:
        if self.writer.is_away or trio.current_time() < self._unread_until:
            raise StoreAway(f"{self.database.name} was away a moment ago", was_tried=False)

    def _read(self, reading: Callable[[Session], T]) -> T:
        with self._reading.snapshot() as session:
            return reading(session)

    async def aclose(self) -> None:
        """Write what waits, spool what cannot be written, let go of the connections."""
        await self.writer.aclose()
        self._spool.close()
        self._reading.close()
        if not self.writer.is_writing:
            self.database.close()


def open_database(database: AnyDatabase, spool: Path) -> None:
    """Bring its schema up to date and write what processes that are gone have left in the spool. Blocks. Raises
    StoreAway, StoreUnusable or OSError."""
    check(spool)
    prepare(database)
    database.serve()
    for left in take_over(spool):
        try:
            _replay(database, left)
        finally:
            left.release()


def _replay(database: Database, left: LeftBehind) -> None:
    if not left.works and left.is_whole:  # its process was killed, and had nothing to keep
        left.remove()
        return
    is_whole = left.is_whole
    for start in range(0, len(left.works), BATCH_OPERATIONS_MAX):
        works = left.works[start : start + BATCH_OPERATIONS_MAX]
        for work, answer in zip(works, commit(database, works), strict=True):
            if isinstance(answer, Exception):
                is_whole = False
                logger.error("operation_failed", operation=repr(work), exc_info=answer)
            elif answer is Result.BORNE_BY_HOUSE and isinstance(work, Resolve):  # B7 alarms here, too
                logger.error("settled_after_lease", turn_id=work.turn_id, nanodollars=work.resolution.nanodollars)
    logger.warning("spool_replayed", file=str(left.path), operations=len(left.works))
    if is_whole:
        left.remove()
    else:
        logger.error("spool_put_aside", file=str(left.put_aside()))


def grant(database: Database, balances: Mapping[str, int | None]) -> None:
    """Give accounts what the configuration grants them, in nano-dollars, None for an unlimited one: all in all, however
    often it is said. An amount that was raised or lowered is booked as the difference. Blocks."""
    for name, balance in balances.items():
        transact(database, partial(_grant, name, balance))


def _grant(name: str, balance: int | None, session: Session) -> None:
    is_unlimited = balance is None
    operations: list[Operation] = [OpenAccount(name, is_unlimited), SetUnlimited(name, is_unlimited)]
    carry_out(session, operations, session.now())
    ((granted,),) = session.fetch(GRANTED, {"name": name})
    change = 0 if balance is None else balance - int(granted)
    if change < 0:
        change = -_what_can_be_taken(session, name, -change)
    if change:
        kind, reason = (Kind.DEPOSIT, "granted") if change > 0 else (Kind.DEBIT, "lowered")
        carry_out(session, [Transfer(kind, name, abs(change), CONFIGURATION, reason)], session.now())


def _what_can_be_taken(session: Session, name: str, nanodollars: int) -> int:
    """B6: what is spent or set aside cannot be taken any more; the rest of it is asked for again at the next start."""
    ((balance, is_open),) = session.fetch("select balance, open from account where name = :name", {"name": name})
    taken = max(0, min(nanodollars, int(balance) - int(is_open)))
    if taken < nanodollars:
        logger.warning("grant_not_lowered", account=name, nanodollars=nanodollars, taken=taken)
    return taken
