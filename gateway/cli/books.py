"""A store's books and records, read beside the gateways that use it: in one snapshot, without their secrets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gateway.cli.unusable import Unusable
from gateway.cli.written import DURATION, Written
from gateway.config import ConfigError, LedgerTable, load_ledger
from gateway.store.database import Conflict, Session, StoreAway, StoreUnusable
from gateway.store.schema import AnyDatabase, check_version, prepare
from gateway.store.sqlite import SQLiteDatabase
from gateway.stores import database_of

AS_LONG_AS_IT_TAKES: Final = "select set_config('statement_timeout', '0', true)"
"""PostgreSQL: nobody waits for a report, while the gateway's own statements are cut short."""


def ledger_settings(file: Path) -> LedgerTable:
    """The `ledger` table of the configuration in the file, of a store that lasts."""
    try:
        settings = load_ledger(file, os.environ)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    if settings.store == "memory":
        fix = 'write store = "sqlite" or "postgres"'
        raise Unusable(f'{file}: ledger.store: is "memory", which is gone with its process; {fix}')
    return settings


@contextmanager
def stored(file: Path) -> Iterator[tuple[LedgerTable, AnyDatabase]]:
    """The store that the configuration in the file names, which must be there, to be written to."""
    settings = ledger_settings(file)
    require_store(settings)
    database = database_of(settings)
    with opened(database):
        check_version(database)
        prepare(database)
        yield settings, database


@contextmanager
def reading(file: Path) -> Iterator[Session]:
    """One reading of one moment of that store."""
    settings = ledger_settings(file)
    with read_only(settings) as database, snapshot(database) as session:
        yield session


def require_store(settings: LedgerTable) -> None:
    """SQLite would make a file that is not there. A mistyped path must not look like empty books."""
    if settings.store == "sqlite" and not Path(settings.path).exists():
        raise Unusable(f"{settings.path} does not exist; `gateway serve` makes it at its first start")


@contextmanager
def read_only(settings: LedgerTable) -> Iterator[AnyDatabase]:
    """That store, which must be there, for readings that wait for no writer and need nothing that can be written."""
    require_store(settings)
    database = database_of(settings)
    if isinstance(database, SQLiteDatabase):
        database = SQLiteDatabase(database.path, only_reads=True)
    with opened(database):
        check_version(database)
        yield database


@contextmanager
def opened(database: AnyDatabase) -> Iterator[AnyDatabase]:
    """A store whose errors are this command's end."""
    try:
        with named_errors():
            yield database
    finally:
        database.close()


@contextmanager
def snapshot(database: AnyDatabase) -> Iterator[Session]:
    """A reading that may take its time."""
    with database.snapshot() as session:
        if database.dialect == "postgres":
            session.fetch(AS_LONG_AS_IT_TAKES, {})
        yield session


@contextmanager
def named_errors() -> Iterator[None]:
    """A store's errors as this command's end."""
    try:
        yield
    except (StoreAway, StoreUnusable, Conflict) as error:
        raise Unusable(f"ledger: {error}") from None


# --- times ------------------------------------------------------------------------------------------------------


def _moment(text: str) -> float:
    """Seconds since the epoch."""
    try:
        return time.time() - float(DURATION.convert(text, None, None))
    except click.BadParameter:
        return _instant(text)


def _instant(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            'is no time; write a date like "2027-01-31", a time like "2027-01-31T12:00" (UTC unless it names another'
            ' offset), or how long ago, like "24h"'
        ) from None


MOMENT: Final = Written("time", _moment)


def told_moment(at: float) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
