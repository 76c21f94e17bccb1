"""Backup and restore of the SQLite store. PostgreSQL brings its own: pg_dump, pg_restore.

    back_up    copies the store as it is at one moment, beside whatever is written, into a file that is not there yet
    restore    puts a backup in the store's place, if its books balance and nobody has the store in use

Both write a file of another name first, make it durable, and give it its own name in one step: there is never half of
anything. What was in the restored store's place is kept beside it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.store.database import StoreUnusable
from gateway.store.proof import Proof, prove
from gateway.store.schema import prepare
from gateway.store.sqlite import BUSY_SECONDS, SQLiteDatabase, serving_lock

PARTIAL: Final = ".partial"
ASIDE: Final = ".before-restore-"
SIDE_FILES: Final = ("-wal", "-shm", "-journal")
GIVE_UP_SECONDS: Final = BUSY_SECONDS + 0.5
"""A gateway that opened the old file just before it was replaced waits so long for it, and then does not start."""


class CannotBackUp(Exception):
    """Says which file, why, and what to do."""


def back_up(store: Path, target: Path) -> Proof:
    """Copy the store, as it is at this moment, to `target`, and prove the copy. Raises CannotBackUp, or sqlite3.Error
    if the store cannot be read."""
    if target.exists():
        raise CannotBackUp(f"{target} is there already; name a file that is not")
    with _partial(target) as copy:
        _copy(store, copy)
        proof = _proof_of(copy)
        _as_one_file(copy)
        try:
            os.link(copy, target)  # fails where meanwhile there is one
        except FileExistsError:
            raise CannotBackUp(f"{target} is there already; name a file that is not") from None
        _sync(target.parent)
    return proof


def restore(backup: Path, store: Path, give_up_seconds: float = GIVE_UP_SECONDS) -> tuple[Proof, Path | None]:
    """Put a copy of `backup` in the store's place: its proof, and where what was there is now. Raises CannotBackUp or
    StoreUnusable; nothing was changed then."""
    if not backup.is_file():
        raise CannotBackUp(f"{backup} is no file")
    store = store.resolve()  # a link stays one
    with _partial(store) as copy:
        _copy(backup, copy)
        proof = _proof_of(copy)
        if not proof.holds:
            raise CannotBackUp(f"{backup}: its books do not balance; nothing was changed")
        _as_one_file(copy)
        with _nobody_serves(store):
            if not store.exists():
                copy.replace(store)
                _sync(store.parent)
                return proof, None
            return proof, _replace(store, copy, give_up_seconds)


@contextmanager
def _nobody_serves(store: Path) -> Iterator[None]:
    """No gateway has the file, nor one that was moved or deleted under it; none can start while the block lasts."""
    try:
        descriptor = serving_lock(store, fcntl.LOCK_EX)
    except FileNotFoundError:  # no gateway was ever there
        yield
        return
    except BlockingIOError:
        raise CannotBackUp(f"{store} is in use: stop the gateways that use it first") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _replace(store: Path, copy: Path, give_up_seconds: float) -> Path:
    aside = store.with_name(f"{store.name}{ASIDE}{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    with _nobody_else_has(store):
        os.link(store, aside)
        _give_like(store, copy)
        copy.replace(store)
        _sync(store.parent)
        time.sleep(give_up_seconds)
    return aside


@contextmanager
def _nobody_else_has(store: Path) -> Iterator[None]:
    """The store's file alone, whole and closed to all others while the block lasts. A file that is no database has
    nobody, and is moved as it is."""
    with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("pragma locking_mode = exclusive")
            connection.execute("pragma journal_mode = delete")  # needs the file for itself: its log becomes part of it
            connection.execute("begin exclusive")
            connection.execute("commit")
        except sqlite3.OperationalError as error:
            raise CannotBackUp(f"{store} is in use ({error}): stop the gateways that use it first") from None
        except sqlite3.DatabaseError:
            _put_side_files_aside(store)
        yield


def _put_side_files_aside(store: Path) -> None:
    """They would be taken for the new store's."""
    for suffix in SIDE_FILES:
        side = store.with_name(store.name + suffix)
        if side.exists():
            side.replace(side.with_name(f"{side.name}{ASIDE}{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"))


def _give_like(store: Path, copy: Path) -> None:
    """Whoever could use the old file can use the new one: root may restore what is the gateway's user's."""
    old = store.stat()
    copy.chmod(old.st_mode & 0o777)
    if os.geteuid() == 0:
        os.chown(copy, old.st_uid, old.st_gid)


# --- files ------------------------------------------------------------------------------------------------------


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """A name beside `target` for what is to become it; nothing of that name is left."""
    path = target.with_name(f"{target.name}{PARTIAL}-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # from the beginning nobody else's to read
    except OSError as error:
        raise CannotBackUp(f"{target} cannot be written: {error.strerror}") from None
    try:
        yield path
    finally:
        for suffix in ("", *SIDE_FILES):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """One reading, however long it takes: a copy in steps would begin anew with each write that comes between."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as reading,
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
    except sqlite3.OperationalError as error:
        raise CannotBackUp(f"{source} cannot be copied: {error}") from None
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{source}: {error}; it is no database") from None


def _proof_of(copy: Path) -> Proof:
    """Its schema brought up to date first."""
    database = SQLiteDatabase(copy)
    try:
        prepare(database)
        with database.snapshot() as session:
            return prove(session)
    finally:
        database.close()


def _as_one_file(copy: Path) -> None:
    """Durable, and without a log beside it."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = delete")
    _sync(copy)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
