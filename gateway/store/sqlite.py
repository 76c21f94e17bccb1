"""SQLite: one file on one host, in WAL mode, every commit on the disk before it returns (`synchronous = FULL`). Its
amounts are 64-bit integers; a larger one fails alone (OverflowError), like whatever else SQLite does not take."""

from __future__ import annotations

import fcntl
import os
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

SERVING: Final = ".lock"
"""What the lock of the gateways that serve a file is named, behind its own name. It is never removed: two could then
hold locks of different files."""
SWITCH_AGAIN_SECONDS: Final = 0.02
READ_ONLY_CODES: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
"""What SQLite says where it may not make the files in which readers and writers of a log meet."""
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
        if many:
            self._connection.executemany(_without_row_locks(statement), many)


@lru_cache
def _without_row_locks(statement: str) -> str:
    return _ROW_LOCK.sub("", statement)


class SQLiteDatabase:
    """The file at `path` (database.Database). It is opened as it is first used. Who `only_reads` can do so where
    nothing can be written."""

    dialect: Final = "sqlite"

    def __init__(self, path: Path, *, only_reads: bool = False) -> None:
        self.path = path
        self.name = str(path)
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        """Which file was opened: it may be moved, and another put in its place."""
        self._only_reads = only_reads
        self._served: int | None = None

    def __repr__(self) -> str:
        return f"<SQLiteDatabase {self.path}>"

    def another(self) -> SQLiteDatabase:
        """Another connection to the same file."""
        return SQLiteDatabase(self.path, only_reads=self._only_reads)

    def serve(self) -> None:
        """Until `close`, nobody may put another file in this one's place (`serving_lock`), not even when somebody has
        moved it. Raises StoreAway while it is being replaced."""
        if self._served is not None:
            return
        try:
            self._served = serving_lock(self.path, fcntl.LOCK_SH)
        except OSError as error:
            why = "a backup is being restored" if isinstance(error, BlockingIOError) else str(error)
            raise StoreAway(f"{self.path}: it cannot be locked for this gateway: {why}") from error

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
        served, self._served = self._served, None
        if served is not None:
            os.close(served)

    def connect(self) -> sqlite3.Connection:
        """The connection itself, for what only SQLite has: pragmas, backups. Raises StoreAway, StoreUnusable."""
        if self._connection is None:
            with self.errors_named():
                self._connection = self._reading_connection() if self._only_reads else self.new_connection()
            self._opened = self._found()
        elif self._opened != self._found():
            raise StoreAway(
                f"{self.path}: the file was moved or replaced under the gateway; put it back, or restart the gateway"
            )
        return self._connection

    def new_connection(self) -> sqlite3.Connection:
        """A connection of the caller's own, without a transaction."""
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("pragma synchronous = full")  # the connection's; the mode of the journal is the file's
        return connection

    def _found(self) -> tuple[int, int] | None:
        """Which file is at the path now."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _reading_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = None
        try:
            connection = self.new_connection()
            connection.execute("select count(*) from sqlite_master").fetchall()
        except sqlite3.OperationalError as error:
            if connection is not None:
                connection.close()
            if error.sqlite_errorcode & PRIMARY_CODE not in READ_ONLY_CODES:
                raise
            return self._unwritable_connection(error)
        return connection

    def _unwritable_connection(self, error: sqlite3.OperationalError) -> sqlite3.Connection:
        """Where nothing can be written, the file is all there is, unless a log lies beside it: without one, whoever
        wrote it last has closed it, and it holds everything."""
        if not os.access(self.path, os.R_OK):
            raise StoreAway(f"{self.path} may not be read; run this as the gateway's user") from error
        if self.path.with_name(f"{self.path.name}-wal").exists():
            raise StoreAway(
                f"{self.path}: its log ({self.path.name}-wal) can only be read where the folder may be written to;"
                " run this as the gateway's user, or copy both files to such a folder"
            ) from error
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?immutable=1", uri=True, isolation_level=None)

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


def serving_lock(path: Path, how: int) -> int:
    """A descriptor that holds the lock on the place `path`, whatever file is there: shared by all gateways that serve
    it, exclusive for whoever puts another file there. Raises OSError: BlockingIOError where others hold it,
    FileNotFoundError where no gateway ever has, for it is theirs to make."""
    place = path.resolve()
    makes = os.O_CREAT if how == fcntl.LOCK_SH else 0
    descriptor = os.open(place.with_name(place.name + SERVING), os.O_RDONLY | os.O_CLOEXEC | makes, 0o644)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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
