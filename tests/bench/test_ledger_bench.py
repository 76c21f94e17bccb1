"""What the books cost: durable turns per second, the wait that they add to a turn's beginning, and the processor.

poe bench, or: pytest -m bench tests/bench/test_ledger_bench.py -s

A turn is what a gateway writes of one that is not replayed: reserve, open_turn and open_attempt before its upstream
call, one after the other; resolve, close_turn and close_attempt behind it, at once (turn/books.py). There is no
upstream: turns follow each other without a pause, so `concurrent` is also how many wait for the store at any time.
Databases are durable as in production; PostgreSQL is of the run's own, on the same machine and the same two cores.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from gateway.core.accounts import Kind
from gateway.core.ledger import OpenAccount, Reserve, Resolve, Transfer
from gateway.core.money import Resolution, Result
from gateway.ledger.durable import DurableLedger
from gateway.ledger.memory import MemoryLedger
from gateway.ports import Ledger, Records
from gateway.records.durable import DurableRecords
from gateway.records.memory import MemoryRecords
from gateway.store.commit import commit
from gateway.store.postgres import PostgresDatabase
from gateway.store.proof import prove
from gateway.store.retention import Keep, purge
from gateway.store.schema import AnyDatabase
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import Store, open_database
from records.contract import attempt_closing, opening, turn_closing
from support.booked import aged
from support.postgres import DURABLE, PostgresServer

pytestmark = pytest.mark.bench

RESULTS: Final = Path(__file__).parents[2] / "build" / "bench" / "ledger.json"
SECONDS: Final = float(os.environ.get("GATEWAY_BENCH_SECONDS", "5"))
WARM_UP_TURNS: Final = 20
CONCURRENT: Final = (1, 16, 256)
ACCOUNTS: Final = 8
PROFILED_TURNS: Final = 500
OLD_TURNS: Final = 20_000


@dataclass(frozen=True)
class Measured:
    """One line of the table. Milliseconds for waits; `cpu` is the gateway's process, all its threads, per turn."""

    store: str
    concurrent: int
    turns_per_second: float
    reserve_p50: float
    reserve_p99: float
    opening_p50: float
    opening_p99: float
    closing_p50: float
    closing_p99: float
    cpu: float


@asynccontextmanager
async def opened(place: AnyDatabase | None, spool: Path) -> AsyncIterator[tuple[Ledger, Records]]:
    """Ledger and records in this database, or in memory."""
    names = [f"account-{number}" for number in range(ACCOUNTS)]
    if place is None:
        yield MemoryLedger(dict.fromkeys(names, 10**18)), MemoryRecords()
        return
    open_database(place, spool)
    money = [work for name in names for work in (OpenAccount(name), Transfer(Kind.DEPOSIT, name, 10**18, "bench"))]
    commit(place, money)
    store = Store(place, FileSpool(spool))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.writer.run)
        yield DurableLedger(store.writer), DurableRecords(store, origin_days=31)
        await store.aclose()
        nursery.cancel_scope.cancel()


class Run:
    """Turns one after the other in each of so many tasks, for a time."""

    def __init__(self, ledger: Ledger, records: Records, seconds: float) -> None:
        self._ledger = ledger
        self._records = records
        self._seconds = seconds
        self.reserves: list[float] = []
        self.openings: list[float] = []
        self.closings: list[float] = []

    async def play(self, concurrent: int) -> tuple[float, float]:
        """How long it took, and how much of the processor."""
        for number in range(WARM_UP_TURNS):
            await self._turn(f"warm-{concurrent}-{number}", "account-0")
        self.reserves, self.openings, self.closings = [], [], []
        began, processor = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for number in range(concurrent):
                nursery.start_soon(self._turns, concurrent, number, began + self._seconds)
        return time.perf_counter() - began, time.process_time() - processor

    async def _turns(self, concurrent: int, task: int, until: float) -> None:
        number = 0
        while time.perf_counter() < until:
            number += 1
            await self._turn(f"turn-{concurrent}-{task}-{number}", f"account-{task % ACCOUNTS}")

    async def _turn(self, turn_id: str, account: str) -> None:
        began = time.perf_counter()
        assert await self._ledger.reserve(turn_id, account, 1_000_000) is Result.CREATED
        reserved = time.perf_counter()
        await self._records.open_turn(replace(opening(turn_id), account=account))
        await self._records.open_attempt(turn_id, 1, "a")
        upstream = time.perf_counter()
        resolved = self._ledger.resolve(turn_id, Resolution(900_000))
        noted = self._records.close_turn(turn_closing(turn_id)), self._records.close_attempt(attempt_closing(turn_id))
        for pending in (resolved, *noted):
            await pending
        self.reserves.append(reserved - began)
        self.openings.append(upstream - began)
        self.closings.append(time.perf_counter() - upstream)


def measured(name: str, place: AnyDatabase | None, concurrent: int, spool: Path) -> Measured:
    async def main() -> Measured:
        async with opened(place, spool) as (ledger, records):
            run = Run(ledger, records, SECONDS)
            seconds, processor = await run.play(concurrent)
            turns = len(run.openings)
            reserve, upstream, closing = map(percentiles, (run.reserves, run.openings, run.closings))
            return Measured(
                name, concurrent, turns / seconds, *reserve, *upstream, *closing, cpu=processor / turns * 1000
            )

    return trio.run(main)


def percentiles(waits: list[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    ordered = sorted(waits)
    return ordered[len(ordered) // 2] * 1000, ordered[len(ordered) * 99 // 100] * 1000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Durable: the fixtures' own skips the disk."""
    server = PostgresServer(DURABLE)
    yield server
    server.close()


@pytest.fixture(scope="module")
def places(
    server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Callable[[], AnyDatabase | None]]:
    """A new, empty store of each kind."""

    def sqlite() -> AnyDatabase:
        return SQLiteDatabase(tmp_path_factory.mktemp("bench") / "gateway.sqlite")

    def postgres() -> AnyDatabase:
        return PostgresDatabase(server.dsn(server.create_database()))

    return {"memory": lambda: None, "sqlite": sqlite, "postgres": postgres}


def test_durable_turns(
    places: dict[str, Callable[[], AnyDatabase | None]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B1, L2: each store, with few and many turns at once; the books balance afterwards."""
    found = []
    for name, place in places.items():
        for concurrent in CONCURRENT:
            database = place()
            found.append(measured(name, database, concurrent, tmp_path / "spool"))
            if database is not None:
                with database.snapshot() as session:
                    assert prove(session).discrepancies == []
                database.close()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(line) for line in found], indent=2), "utf-8")
    with capsys.disabled():
        print("\n" + "\n".join(table(found)))  # noqa: T201 - a measurement is for its reader
    assert all(line.turns_per_second > 0 for line in found)


def table(lines: list[Measured]) -> list[str]:
    head = "store     concurrent  turns/s   reserve ms p50/p99   opening ms p50/p99   closing ms p50/p99   cpu ms/turn"
    return [head, *(_line(line) for line in lines)]


def _line(line: Measured) -> str:
    pairs = (
        (line.reserve_p50, line.reserve_p99),
        (line.opening_p50, line.opening_p99),
        (line.closing_p50, line.closing_p99),
    )
    waits = "  ".join(f"{p50:>8.2f} / {p99:>7.2f}" for p50, p99 in pairs)
    return f"{line.store:<10}{line.concurrent:>10}{line.turns_per_second:>9.0f}   {waits}{line.cpu:>12.3f}"


def test_where_a_turn_s_time_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One turn at a time on SQLite, profiled in one thread: the commits are run inline."""
    database = SQLiteDatabase(tmp_path / "gateway.sqlite")
    profile = cProfile.Profile()

    async def inline(blocking: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return blocking()

    async def main() -> None:
        open_database(database, tmp_path / "spool")
        commit(database, [OpenAccount("account-0"), Transfer(Kind.DEPOSIT, "account-0", 10**18, "bench")])
        store = Store(database, FileSpool(tmp_path / "spool"), inline)
        run = Run(DurableLedger(store.writer), DurableRecords(store, origin_days=31), 0.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.writer.run)
            profile.enable()
            for number in range(PROFILED_TURNS):
                await run._turn(f"turn-{number}", "account-0")
            profile.disable()
            await store.aclose()
            nursery.cancel_scope.cancel()

    trio.run(main)
    stats = pstats.Stats(profile)
    with capsys.disabled():
        print(f"\n{PROFILED_TURNS} turns, one at a time")  # noqa: T201 - a measurement is for its reader
        stats.sort_stats("tottime").print_stats(18)
    assert stats.total_calls > PROFILED_TURNS  # type: ignore[attr-defined]  # typeshed has not got it


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_a_purge_beside_the_writer(
    places: dict[str, Callable[[], AnyDatabase | None]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How long a chunk of the retention has the database, and how long a proof of all of it takes."""
    database = places[name]()
    assert database is not None
    fill(database)
    began = time.perf_counter()
    with database.snapshot() as session:
        assert prove(session).holds
    proven = time.perf_counter() - began
    aged(database, 200)
    chunks = chunk_times(database)
    p50, p99 = percentiles(chunks)
    database.close()
    with capsys.disabled():
        print(  # noqa: T201 - a measurement is for its reader
            f"\n{name}: proof of {OLD_TURNS} turns {proven:.2f} s; {len(chunks)} chunks, ms p50 {p50:.1f} p99 {p99:.1f}"
        )
    assert len(chunks) > 2 * OLD_TURNS // 200


def fill(database: AnyDatabase) -> None:
    open_database(database, Path("/nonexistent"))
    commit(database, [OpenAccount("many"), Transfer(Kind.DEPOSIT, "many", 10**18, "bench")])
    records = "insert into turn (turn_id, account, model, door, reserved_nanodollars, opened_at, outcome) values"
    for start in range(0, OLD_TURNS, 1000):
        ids = [f"turn-{number:08}" for number in range(start, start + 1000)]
        commit(database, [Reserve(turn_id, "many", 5) for turn_id in ids])
        commit(database, [Resolve(turn_id, Resolution(4)) for turn_id in ids])
        rows = [{"turn_id": turn_id, "at": time.time()} for turn_id in ids]
        with database.transaction() as session:
            session.run_each(f"{records} (:turn_id, 'many', 'm', 'http', 5, :at, 'completed')", rows)
            attempts = "insert into attempt (turn_id, number, route, opened_at, outcome) values"
            session.run_each(f"{attempts} (:turn_id, 1, 'a', :at, 'completed')", rows)


def chunk_times(database: AnyDatabase) -> list[float]:
    times: list[float] = []
    chunks = iter(purge(database, Keep(90, 31)))
    while True:
        began = time.perf_counter()
        if next(chunks, None) is None:
            return times
        times.append(time.perf_counter() - began)
