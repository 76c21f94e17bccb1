"""The ledger that lasts keeps the contract on both databases, and what only a database has to keep."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, cast

import psycopg
import pytest

from gateway.core.accounts import HOUSE
from gateway.core.ledger import Operation
from gateway.core.money import Result
from gateway.ledger.durable import DurableLedger
from gateway.ports import Ledger
from gateway.store.database import Session
from gateway.store.store import Store, grant
from ledger.books import Account, Books, lines_of
from ledger.contract import LedgerContract
from support.durable import (
    ClockedDatabase,
    FreshDatabases,
    PostgresTables,
    SQLiteFiles,
    StoreClock,
    accounts_in,
    entries_in,
    running_store,
)
from support.postgres import PostgresDatabases


class DurableContract(LedgerContract):
    """A DurableLedger, its writer and its database. Books are read in a snapshot beside the writer."""

    databases: ClassVar[FreshDatabases]
    spool: ClassVar[pytest.TempPathFactory]

    @asynccontextmanager
    async def opened(self, balances: Mapping[str, int | None]) -> AsyncIterator[Ledger]:
        self.clock = StoreClock()
        database = ClockedDatabase(self.databases.fresh(), self.clock)
        grant(database, balances)
        async with running_store(database, self.spool.getbasetemp() / "spool") as store:
            self.store = store
            yield DurableLedger(store.writer)

    async def books_of(self, ledger: Ledger) -> Books:
        return await books_of(self.store)

    async def carry_out(self, ledger: Ledger, operation: Operation) -> Result:
        return cast("Result", await self.store.writer.insist(operation))

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds


async def books_of(store: Store) -> Books:
    def read(session: Session) -> Books:
        accounts = {name: Account(*stands) for name, stands in accounts_in(session).items()}
        return Books(lines_of(entries_in(session)), accounts, HOUSE)

    return await store.read(read)


class TestLedgerInSQLite(DurableContract):
    """The contract in a file."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _databases(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.spool = tmp_path_factory
        cls.databases = SQLiteFiles(tmp_path_factory.mktemp("ledger"))

    @pytest.mark.parametrize("statement", ["update entry set nanodollars = 0", "delete from entry"])
    async def test_nobody_changes_an_entry(self, statement: str) -> None:
        """B8: not even by hand."""
        async with self.opened({"main": 100}) as ledger:
            with (
                pytest.raises(sqlite3.IntegrityError, match="append-only"),
                self.store.database.transaction() as session,
            ):
                session.run_each(statement, [{}])
            assert [line.nanodollars for line in (await self.books_of(ledger)).entries] == [100]


class TestLedgerInPostgres(DurableContract):
    """The contract on a server."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _databases(cls, postgres: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.spool = tmp_path_factory
        name = postgres.create_database()
        cls.databases = PostgresTables(postgres.dsn(name))
        yield
        postgres.drop_database(name)

    @pytest.mark.parametrize(
        "statement", ["update entry set nanodollars = 0", "delete from entry", "truncate entry restart identity"]
    )
    async def test_nobody_changes_an_entry(self, statement: str) -> None:
        """B8: not even by hand."""
        async with self.opened({"main": 100}) as ledger:
            with (
                pytest.raises(psycopg.errors.RaiseException, match="append-only"),
                self.store.database.transaction() as session,
            ):
                session.run_each(statement, [{}])
            assert [line.nanodollars for line in (await self.books_of(ledger)).entries] == [100]
