"""SQLite: one file on one host, in WAL mode, every commit on the disk before it returns (`synchronous = FULL`). Its
amounts are 64-bit integers; a larger one fails alone (OverflowError), like whatever else SQLite does not take."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from gateway.store.database import Params, Row, StoreAway, StoreUnusable

BUSY_SECONDS: Final = 5.0
"""How long a writer waits for another process's transaction; each of ours lasts milliseconds."""

SWITCH_AGAIN_SECONDS: Final = 0.02
PRIMARY_CODE: Final = 0xFF
"""The part of an error's code that says which; the rest says where."""
HINTS: Final = {
    sqlite3.SQLITE_BUSY: f"another process has held it for {BUSY_SECONDS:g} s",
    sqlite3.SQLITE_CANTOPEN: "its folder must exist and the gateway's user must be allowed to write there",
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_IOERR: "look at its disk",
    sqlite3.SQLITE_READONLY: "the gateway's user must be allowed to write the file and its folder",
}

_ROW_LOCK: Final = re.compile(r"\s+for update( skip locked)?\b")


class SQLiteSession:
    """One transaction (database.Session)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def now(self) -> float:
        """The host's wall clock, which all its processes share."""
        return time.time()

    def fetch(self, statement: str, params: Params) -> list[Row]:
        """Rows (database.Session)."""
        return self._connection.execute(_without_row_locks(statement), params).fetchall()

    def fetch_each(self, statement: str, many: Sequence[Params]) -> list[list[Row]]:
        """Rows for each (database.Session)."""
        return [self.fetch(statement, params) for params in many]

    def run_each(self, statement: str, many: Sequence[Params]) -> None:
        """Once for each (database.Session)."""
        self._connection.executemany(_without_row_locks(statement), many)


@lru_cache
def _without_row_locks(statement: str) -> str:
    return _ROW_LOCK.sub("", statement)


class SQLiteDatabase:
    """The file at `path` (database.Database). It is opened as it is first used."""

    dialect: Final = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        self._connection: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"<SQLiteDatabase {self.path}>"

    def another(self) -> SQLiteDatabase:
        """Another connection to the same file."""
        return SQLiteDatabase(self.path)

    def transaction(self) -> AbstractContextManager[SQLiteSession]:
        """A transaction that writes (database.Database)."""
        return self._within("begin immediate")

    def snapshot(self) -> AbstractContextManager[SQLiteSession]:
        """A transaction that reads (database.Database)."""
        return self._within("begin")

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def connect(self) -> sqlite3.Connection:
        """The connection itself, for what only SQLite has: pragmas, backups. Raises StoreAway, StoreUnusable."""
        if self._connection is None:
            with self.errors_named():
                self._connection = self.new_connection()
        return self._connection

    def new_connection(self) -> sqlite3.Connection:
        """A connection of the caller's own, without a transaction."""
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("pragma synchronous = full")  # the connection's; the mode of the journal is the file's
        return connection

    def use_wal(self) -> None:
        """Switch the file to WAL, for good: a file of somebody else's must not be switched. Raises StoreAway,
        StoreUnusable."""
        connection = self.connect()
        with self.errors_named():
            mode = _switch_to_wal(connection)
        if mode != "wal":
            raise StoreUnusable(
                f"{self.path} cannot be in WAL mode ({mode}): put it on a local disk, no network's, or use PostgreSQL"
            )

    @contextmanager
    def _within(self, begin: str) -> Iterator[SQLiteSession]:
        connection = self.connect()
        with self.errors_named():
            connection.execute(begin)
            try:
                yield SQLiteSession(connection)
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """SQLite's errors in the words of database.py. What was asked may be at fault itself: that goes through."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.InternalError) as error:
            hint = HINTS.get(getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE)
            raise StoreAway(f"{self.path}: {error}{f'; {hint}' if hint else ''}") from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:
                raise
            raise StoreUnusable(
                f"{self.path}: {error}; it is no database of the gateway's: name another file, or restore a backup"
            ) from error


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    """The mode that the file then is in. SQLite does not wait here itself: two that switch at once would wait for each
    other."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("pragma journal_mode = wal").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(SWITCH_AGAIN_SECONDS)
