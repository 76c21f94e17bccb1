"""A whole gateway on a real database and the virtual clock: blocking calls run inline, so that no time passes in them.

async with durable_world(database, spool, A.reply(Break()), B.answer()) as w:
    client = await play(w, door)
w.assert_at_rest()                          everything resolved once and closed, the books proven from the entries

A `Trouble` stands between the gateway and its database: it can hang, be away, or fail at one transaction.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from crash.proof import Fetch, assert_books_balance, rows_of
from gateway.app import Gateway, Parts
from gateway.config import LedgerTable
from gateway.ledger.durable import DurableLedger
from gateway.ledger.leases import Leases
from gateway.lock.driver import DEMO_KEY
from gateway.store.database import Session, StoreAway
from gateway.store.postgres import PostgresSession
from gateway.store.schema import AnyDatabase, prepare
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase, SQLiteSession
from gateway.store.store import Store, grant
from gateway.stores import Stores, durable_stores
from gateway.upstream.scripted import Reply, Script, ScriptedTransport
from support.gateways import CONFIGURATION, MODEL, ROUTE, _parsed

OpenDatabase = Callable[[], AnyDatabase]
EPOCH: Final = 1_800_000_000.0
LEASE_SECONDS: Final = 60.0


class WallClock:
    """What the stores' clock says: it runs with Trio's, and somebody may step it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stepped_by = 0.0
        for session in (SQLiteSession, PostgresSession):
            patch.setattr(session, "now", lambda _session: self.now())

    def now(self) -> float:
        """Seconds since the epoch."""
        try:
            return EPOCH + self.stepped_by + trio.current_time()
        except RuntimeError:  # before the run
            return EPOCH + self.stepped_by


def prepared_sqlite(path: Path) -> Path:
    """An empty database, in one file."""
    database = SQLiteDatabase(path)
    prepare(database)
    database.connect().execute("pragma wal_checkpoint(truncate)")
    database.close()
    return path


# --- trouble ----------------------------------------------------------------------------------------------------


@dataclass
class Trouble:
    """A database that misbehaves (store.Database). Transactions are numbered from 1; readings are not counted."""

    database: AnyDatabase
    is_away: bool = False
    takes_no_writes: bool = False
    fails_at: int = 0
    after_commit: bool = False
    error: Exception = field(default_factory=lambda: StoreAway("the connection was lost"))
    transactions: int = 0

    @property
    def name(self) -> str:
        """As the database's own."""
        return self.database.name

    @property
    def has_struck(self) -> bool:
        """Whether the transaction that was to fail has come."""
        return 0 < self.fails_at <= self.transactions

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One that may fail before it begins, or once it is durable."""
        self._refuse_if_away()
        if self.takes_no_writes:
            raise StoreAway("the database is locked")
        self.transactions += 1
        is_the_one = self.transactions == self.fails_at
        if is_the_one and not self.after_commit:
            raise self.error
        with self.database.transaction() as session:
            yield session
        if is_the_one:
            raise self.error

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """A reading, if it is there."""
        self._refuse_if_away()
        with self.database.snapshot() as session:
            yield session

    def another(self) -> Trouble:
        """The same trouble on another connection."""
        return _Reading(self)

    def close(self) -> None:
        """Let go of the connection."""
        self.database.close()

    def _refuse_if_away(self) -> None:
        if self.is_away:
            raise StoreAway("the store is away")


class _Reading(Trouble):
    """Another connection, which is away when the first is."""

    def __init__(self, first: Trouble) -> None:
        super().__init__(first.database.another())
        self._first = first

    def _refuse_if_away(self) -> None:
        self._first._refuse_if_away()


@dataclass
class Pace:
    """How long a blocking call takes: from the `slow_from`-th on, `seconds` each."""

    slow_from: int = 0
    seconds: float = 0.0
    calls: int = 0

    async def run(self, blocking: Callable[[], Any]) -> Any:
        """The call, and the time it takes."""
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if 0 < self.slow_from <= self.calls:
            await trio.sleep(self.seconds)
        return blocking()


# --- the world --------------------------------------------------------------------------------------------------


@dataclass
class DurableWorld:
    """A gateway with its scripted upstreams on a database, and a connection of the test's own to look at it."""

    gateway: Gateway
    scripts: Mapping[str, Script]
    stores: Stores
    look: AnyDatabase

    @property
    def app(self) -> Any:
        """The ASGI app."""
        return self.gateway.app

    @property
    def called(self) -> list[str]:
        """Whom the gateway called, in order."""
        calls = [call for script in self.scripts.values() for call in script.calls]
        return [call.upstream for call in sorted(calls, key=lambda call: call.at)]

    @property
    def leases(self) -> Leases:
        """Its part in keeping leases."""
        assert self.stores.leases is not None
        return self.stores.leases

    @property
    def ledger(self) -> DurableLedger:
        """The ledger."""
        assert isinstance(self.stores.ledger, DurableLedger)
        return self.stores.ledger

    @property
    def store(self) -> Store:
        """The store."""
        assert self.stores.store is not None
        return self.stores.store

    def fetch(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows, as they are in the database now."""
        return rows_of(self.look)(statement)

    @property
    def money(self) -> list[str]:
        """How each reservation ended: "voided", "settled 7000 estimated"; from the entries."""
        kinds = "kind in ('settled', 'voided', 'expired', 'late')"
        rows = self.fetch(f"select kind, nanodollars, flags from entry where {kinds} order by id")
        return [
            " ".join([kind, *([str(n)] if kind in ("settled", "late") else []), *flags.split()])
            for kind, n, flags in rows
        ]

    @property
    def attempts(self) -> list[str]:
        """Each attempt on record with its outcome."""
        rows = self.fetch("select route, outcome from attempt order by opened_at, turn_id, number")
        return [f"{route} {outcome or 'open'}" for route, outcome in rows]

    @property
    def outcomes(self) -> list[str | None]:
        """How the turns ended."""
        return [outcome for (outcome,) in self.fetch("select outcome from turn order by opened_at, turn_id")]

    def assert_at_rest(self) -> None:
        """Whatever happened: everything resolved once and closed, the books balance, nobody runs."""
        assert_at_rest(rows_of(self.look))
        assert self.gateway.engine.running_turns == 0
        attempts = self.fetch("select count(*) from attempt")[0][0]
        assert attempts >= len(self.called)


def assert_at_rest(fetch: Fetch) -> None:
    """Nothing is open, and the entries prove it (B8)."""
    assert fetch("select turn_id from reservation where state = 'reserved'") == []
    assert fetch("select turn_id, number from attempt where outcome is null") == []
    assert fetch("select turn_id from turn where outcome is null") == []
    assert_books_balance(fetch)


def durable_parts(
    database: AnyDatabase | Trouble, spool: Path, pace: Pace | None = None, lease: float = LEASE_SECONDS
) -> Stores:
    """Stores on this database, whose blocking calls run inline. Nothing is purged: that has a thread of its own."""
    settings = LedgerTable.model_construct(lease=lease, origin_days=31, record_days=90)
    run_blocking = (pace or Pace()).run
    store = Store(database, FileSpool(spool), run_blocking)
    return replace(durable_stores(store, settings), retention=None)


@asynccontextmanager
async def durable_world(
    database: AnyDatabase | Trouble,
    spool: Path,
    first: Reply | Sequence[Reply],
    second: Reply | None = None,
    *,
    pace: Pace | None = None,
    balance: str = "1000",
    name: str = "req",
    server: str = "",
    lease: float = LEASE_SECONDS,
) -> AsyncIterator[DurableWorld]:
    """A gateway with one or two routes on this database, whose writer and leases run as long as the block."""
    replies = {"a": first} | ({} if second is None else {"b": second})
    text = CONFIGURATION.format(
        server=server,
        limits="",
        balance=balance,
        key=DEMO_KEY,
        key_extra="",
        routes="".join(ROUTE.format(name=route, extra="") for route in replies),
        model=MODEL,
        names=json.dumps(list(replies)),
    )
    config = _parsed(text)
    plain = database.database if isinstance(database, Trouble) else database
    grant(plain, {account: table.balance_nanodollars for account, table in config.accounts.items()})
    stores = durable_parts(database, spool, pace, lease)
    scripts = {route: Script(route, [r] if isinstance(r, Reply) else r) for route, r in replies.items()}
    numbers = iter(range(1, 1_000_000))
    parts = Parts(
        transports={route: ScriptedTransport(script) for route, script in scripts.items()},
        stores=stores,
        new_request_id=lambda: f"{name}_{next(numbers)}",
    )
    world = DurableWorld(Gateway(config, parts), scripts, stores, plain.another())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stores.run)
        yield world
        await stores.aclose()
    world.look.close()
    database.close()
