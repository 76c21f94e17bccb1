"""The books of keys keep their contract (ports.KeyBook)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.core.keys import Key
from gateway.keys.durable import DurableKeys
from gateway.keys.memory import MemoryKeys
from gateway.lock.virtual import virtual_run
from gateway.ports import LedgerUnavailable
from gateway.store.database import StoreAway
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import Store
from keys.contract import KeyBookContract, Opened
from keys.stores import inline, opened_store

pytestmark = pytest.mark.trio(run=virtual_run)


class OpenedMemory:
    """Keys in memory."""

    def __init__(self) -> None:
        self.book = MemoryKeys()

    async def add(self, key: Key) -> str:
        """A key is made."""
        digest = f"{len(self.book.keys):064x}1"
        self.book.keys[digest] = key
        return digest

    async def revoke(self, digest: str) -> None:
        """A key is taken back."""
        del self.book.keys[digest]


class TestMemoryKeys(KeyBookContract):
    """In memory."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Opened]:
        yield OpenedMemory()


class TestSQLiteKeys(KeyBookContract):
    """In SQLite."""

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Opened]:
        with opened_store(self.folder) as opened:
            yield opened


class TestPostgresKeys(KeyBookContract):
    """In PostgreSQL."""

    @pytest.fixture(autouse=True)
    def _in_a_database(self, tmp_path: Path, fresh_dsn: str) -> None:
        self.folder, self.dsn = tmp_path, fresh_dsn

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Opened]:
        with opened_store(self.folder, self.dsn) as opened:
            yield opened


class DatabaseAway(SQLiteDatabase):
    """A database that cannot be reached."""

    def snapshot(self) -> AbstractContextManager[Any]:
        """Raises StoreAway."""
        raise StoreAway("the disk is gone")

    def another(self) -> SQLiteDatabase:
        """Neither can its twin."""
        return DatabaseAway(self.path)


async def test_a_store_that_is_away_is_said_in_the_ports_words(tmp_path: Path) -> None:
    """X: `ledger_unavailable`."""
    store = Store(DatabaseAway(tmp_path / "none"), FileSpool(tmp_path / "spool"), run_blocking=inline)
    with pytest.raises(LedgerUnavailable, match="the disk is gone"):
        await DurableKeys(store).find(["0" * 64])
