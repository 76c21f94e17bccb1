"""Stores on real databases for tests: fresh in a moment, on a clock that the test sets, on the virtual clock too.

SQLiteFiles, PostgresTables   `.fresh()` is an empty, prepared database
ClockedDatabase               the same database by a clock of the test's own
running_store                 a Store whose writer runs; its calls block inline, so that the virtual clock holds
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import trio

from gateway.core.accounts import Entry, Kind
from gateway.store.database import Database, Params, Row, Session
from gateway.store.money import flags_of
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import AnyDatabase, prepare
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import Store

NOBODY = 65534
TABLES = (
    "entry",
    "reservation",
    "spend",
    "api_key",
    "account",
    "attempt",
    "turn",
    "origin",
    "origin_mark",
    "background",
    "loss_route",
)


async def inline(blocking: Callable[[], Any]) -> Any:
    """A blocking call in the event loop's own thread: nothing else happens meanwhile, not even time."""
    await trio.lowlevel.checkpoint()
    return blocking()


# --- fresh databases --------------------------------------------------------------------------------------------


class FreshDatabases(Protocol):
    """Where empty databases come from."""

    def fresh(self) -> AnyDatabase:
        """An empty, prepared one."""
        ...


class SQLiteFiles:
    """Each fresh database is a copy of one that was prepared once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._prepared = directory / "prepared.sqlite"
        self._made = 0
        database = SQLiteDatabase(self._prepared)
        prepare(database)
        database.close()

    def fresh(self) -> SQLiteDatabase:
        """An empty file of its own."""
        self._made += 1
        path = self._directory / f"{self._made}.sqlite"
        shutil.copyfile(self._prepared, path)
        return SQLiteDatabase(path)


class PostgresTables:
    """One database, emptied each time: what was had of it before is empty then too."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        database = PostgresDatabase(dsn)
        prepare(database)
        database.close()

    def fresh(self) -> PostgresDatabase:
        """The database, empty."""
        database = PostgresDatabase(self._dsn)
        with database.connect() as connection:
            connection.execute("set session_replication_role = replica")  # entries are never truncated otherwise
            connection.execute(f"truncate {', '.join(TABLES)} restart identity".encode())
        database.close()
        return database


# --- a clock of the test's own ----------------------------------------------------------------------------------


@dataclass
class StoreClock:
    """What the store's clock says."""

    now: float = 1_790_000_000.0


class ClockedSession:
    """A session by another clock (database.Session)."""

    def __init__(self, session: Session, clock: StoreClock) -> None:
        self._session = session
        self._clock = clock

    def now(self) -> float:
        """What the test says."""
        return self._clock.now

    def fetch(self, statement: str, params: Params) -> list[Row]:
        """As it is."""
        return self._session.fetch(statement, params)

    def fetch_each(self, statement: str, many: Sequence[Params]) -> list[list[Row]]:
        """As it is."""
        return self._session.fetch_each(statement, many)

    def run_each(self, statement: str, many: Sequence[Params]) -> None:
        """As it is."""
        self._session.run_each(statement, many)


class ClockedDatabase:
    """A database by another clock (database.Database)."""

    def __init__(self, database: Database, clock: StoreClock | None = None) -> None:
        self._database = database
        self.clock = clock or StoreClock()
        self.name = database.name

    @contextmanager
    def transaction(self) -> Iterator[ClockedSession]:
        """As it is."""
        with self._database.transaction() as session:
            yield ClockedSession(session, self.clock)

    @contextmanager
    def snapshot(self) -> Iterator[ClockedSession]:
        """As it is."""
        with self._database.snapshot() as session:
            yield ClockedSession(session, self.clock)

    def another(self) -> ClockedDatabase:
        """By the same clock."""
        return ClockedDatabase(self._database.another(), self.clock)

    def close(self) -> None:
        """As it is."""
        self._database.close()


# --- stores -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running_store(database: Database, spool: Path) -> AsyncIterator[Store]:
    """A store of one process, as long as the block lasts."""
    store = Store(database, FileSpool(spool), inline)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.writer.run)
        try:
            yield store
        finally:
            await store.aclose()  # noqa: ASYNC102 - shielded, and bounded
            nursery.cancel_scope.cancel()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everything; what is refused to others is seen as one of them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


ENTRIES = "select kind, account, turn_id, nanodollars, flags, attempt, actor, reason from entry order by id"


def entries_in(session: Session) -> list[Entry]:
    """The books, oldest entry first."""
    return [
        Entry(Kind(kind), account, turn_id, nanodollars, flags_of(flags), attempt, actor, reason)
        for kind, account, turn_id, nanodollars, flags, attempt, actor, reason in session.fetch(ENTRIES, {})
    ]


def accounts_in(session: Session) -> dict[str, tuple[int, int]]:
    """Each account's balance, and what is open on it."""
    return {name: (balance, is_open) for name, balance, is_open in session.fetch(STANDINGS, {})}


STANDINGS = "select name, balance, open from account order by name"
