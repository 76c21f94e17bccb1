"""The stores that a configuration asks for: names the concrete ones, opens them, runs what they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from gateway.config import Config, LedgerTable
from gateway.keys.durable import DurableKeys
from gateway.keys.memory import MemoryKeys
from gateway.ledger.durable import DurableLedger
from gateway.ledger.leases import Leases, LeaseTimes
from gateway.ledger.memory import MemoryLedger
from gateway.ports import KeyBook, Ledger, Records
from gateway.records.durable import DurableRecords
from gateway.records.memory import MemoryRecords
from gateway.store.retention import Keep, Retention
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import Store, grant, open_database

if TYPE_CHECKING:
    from gateway.store.postgres import PostgresDatabase

Watch = Callable[[str, str, Callable[[], float]], None]
_MEASURES = (lambda: 0.0,) * 4


@dataclass(frozen=True, slots=True)
class Stores:
    """A ledger, records and keys, and what runs beside them."""

    ledger: Ledger
    records: Records
    store: Store | None = None
    leases: Leases | None = None
    keys: KeyBook = field(default_factory=MemoryKeys)
    retention: Retention | None = None
    _tasks: trio.CancelScope = field(default_factory=trio.CancelScope)
    _beside: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        """Run the writer and what works beside it, until `aclose`."""
        if self.store is None or self.leases is None:
            return
        with self._tasks:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.store.writer.run)
                nursery.start_soon(self._run_beside, self.leases)

    async def _run_beside(self, leases: Leases) -> None:
        with self._beside:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leases.keep)
                nursery.start_soon(leases.sweep)
                if self.retention is not None:
                    nursery.start_soon(self.retention.run)

    def adopt(self, turn_id: str) -> None:
        """B9: a turn's lease is kept from ending; a memory has no leases."""
        if isinstance(self.ledger, DurableLedger):
            self.ledger.adopt(turn_id)

    def watch(self, gauge: Watch, total: Watch) -> None:
        """Have what stands here measured, by name, text, and a function that is asked for the value. A memory is never
        away, and forgets with its process."""
        waiting, is_away, expired, late = _MEASURES if self.leases is None else self.leases.measures
        gauge("ledger_waiting_operations", "Operations that wait for the store.", waiting)
        gauge("store_away", "1 while the store is away.", is_away)
        total("leases_expired", "Reservations of dead processes that were refunded.", expired)
        total("late_settlements", "Settlements after their lease: the house bore them.", late)

    async def aclose(self) -> None:
        """Write what waits; what cannot be written is in the spool when this returns. Nothing else reads any more."""
        self._beside.cancel()
        if self.store is not None:
            await self.store.aclose()
        self._tasks.cancel()


def open_stores(config: Config, workers: int = 1) -> Stores:
    """Open what the configuration names, bring it up to date, and grant its accounts what they have, for one of so many
    workers. Blocks. Raises StoreAway, StoreUnusable or OSError."""
    balances = {name: account.balance_nanodollars for name, account in config.accounts.items()}
    if config.ledger.store == "memory":
        return Stores(MemoryLedger(balances), MemoryRecords())
    database = database_of(config.ledger)
    spool = Path(config.ledger.spool)
    open_database(database, spool)
    grant(database, balances)
    is_shared = workers > 1 or config.ledger.dsn is not None
    return durable_stores(Store(database, FileSpool(spool)), config.ledger, is_shared=is_shared)


def durable_stores(store: Store, settings: LedgerTable, *, is_shared: bool = True) -> Stores:
    """Ledger and records in this store, which other processes use if it `is_shared`."""
    ledger = DurableLedger(store.writer, settings.lease)
    leases = Leases(store, ledger, LeaseTimes(settings.lease))
    retention = Retention(store.database, Keep(settings.record_days, settings.origin_days))
    records = DurableRecords(store, settings.origin_days, is_shared=is_shared)
    return Stores(ledger, records, store, leases, DurableKeys(store), retention=retention)


def database_of(settings: LedgerTable) -> SQLiteDatabase | PostgresDatabase:
    """The database that is named, not opened yet."""
    if settings.dsn is None:
        return SQLiteDatabase(Path(settings.path))
    from gateway.store.postgres import PostgresDatabase  # its driver is a tenth of a start: for those who use it

    return PostgresDatabase(settings.dsn)
