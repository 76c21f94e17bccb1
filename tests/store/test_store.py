"""A store as a gateway has it: its writer in threads, readings beside it, its end and its next start."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from gateway.core.ledger import Reserve, Resolve
from gateway.core.money import Resolution, Result
from gateway.lock.virtual import virtual_run
from gateway.store.commit import commit
from gateway.store.database import Session, StoreAway, StoreUnusable
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import AnyDatabase, prepare
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import CONFIGURATION, Store, grant, open_database
from gateway.store.writer import RETRY_SECONDS
from support.durable import ClockedDatabase, ClockedSession, SQLiteFiles, accounts_in, entries_in
from support.postgres import PostgresServer
from support.processes import PATIENCE_SECONDS


@pytest.mark.trio(run=trio.run)
async def test_many_at_once_are_written_and_read_beside_the_event_loop(database: AnyDatabase, tmp_path: Path) -> None:
    """B1: with real threads and real time."""
    grant(database, {"main": 1000})
    store = Store(database.another(), FileSpool(tmp_path / "spool"))
    results: list[object] = []
    loop_thread, seen = threading.get_ident(), set()

    def read(session: Session) -> dict[str, tuple[int, int]]:
        seen.add(threading.get_ident())
        return accounts_in(session)

    async def turn(number: int) -> None:
        results.append(await store.writer.ask(Reserve(f"turn-{number}", "main", 10)))
        await store.read(read)
        results.append(await store.writer.insist(Resolve(f"turn-{number}", Resolution(1))))

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.writer.run)
            async with trio.open_nursery() as turns:
                for number in range(50):
                    turns.start_soon(turn, number)
            assert await store.read(read) == {"main": (950, 0)}
            await store.aclose()

    assert (results.count(Result.CREATED), results.count(Result.SETTLED)) == (50, 50)
    assert loop_thread not in seen
    assert lines_in(tmp_path / "spool") == 0


@pytest.mark.trio(run=trio.run)
async def test_what_an_outage_kept_from_the_store_is_written_at_the_next_start(
    postgres_to_stop: PostgresServer, tmp_path: Path
) -> None:
    """B1, L2: the process ends while the server is down; the next one starts when it is up, and then once more."""
    name = postgres_to_stop.create_database()
    database = PostgresDatabase(postgres_to_stop.dsn(name))
    open_database(database, tmp_path)
    grant(database, {"main": 100})
    store = Store(database, FileSpool(tmp_path))
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.writer.run)
            await store.writer.ask(Reserve("turn", "main", 60))
            postgres_to_stop.stop()
            with pytest.raises(StoreAway):
                await store.writer.ask(Reserve("refused", "main", 1))
            store.writer.insist_later(Resolve("turn", Resolution(25)))
            await store.aclose()
            nursery.cancel_scope.cancel()

    with pytest.raises(StoreAway):
        open_database(database.another(), tmp_path)
    postgres_to_stop.start()
    for _ in range(2):
        open_database(database, tmp_path)
    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (75, 0)}
    assert files_in(tmp_path) == []
    database.close()
    postgres_to_stop.drop_database(name)


class Hanging(ClockedDatabase):
    """A database whose every reading takes five seconds and then fails, until it `is_back`."""

    SECONDS = 5.0
    is_back = False
    readings = 0

    def another(self) -> Hanging:
        return self

    @contextmanager
    def snapshot(self) -> Iterator[ClockedSession]:
        self.readings += 1
        if not self.is_back:
            raise StoreUnusable("malformed")
        with super().snapshot() as session:
            yield session


@pytest.mark.trio(run=virtual_run)
async def test_many_readings_of_a_store_that_hangs_fail_together(tmp_path: Path) -> None:
    """X1: a client learns that the ledger is away, and does not wait behind all others that learn it too."""
    database = Hanging(SQLiteFiles(tmp_path).fresh())
    told: list[float] = []

    async def slowly(blocking: Callable[[], object]) -> object:
        await trio.sleep(Hanging.SECONDS)
        return blocking()

    store = Store(database, FileSpool(tmp_path / "spool"), slowly)

    async def read() -> None:
        with pytest.raises(StoreAway):
            await store.read(accounts_in)
        told.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(read)
    assert (told, database.readings) == ([Hanging.SECONDS] * 100, 1)

    database.is_back = True
    await trio.sleep(RETRY_SECONDS)
    assert await store.read(accounts_in) == {}
    database.close()


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


# --- what the configuration grants --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "balance", "moved"),
    [
        (100, 75, [("deposit", 100)]),
        (130, 105, [("deposit", 100), ("deposit", 30)]),
        (40, 15, [("deposit", 100), ("debit", 60)]),
        (0, 0, [("deposit", 100), ("debit", 75)]),
        (None, 75, [("deposit", 100)]),
    ],
)
def test_a_grant_is_all_in_all_however_often_it_is_said(
    database: AnyDatabase, second: int | None, balance: int, moved: list[tuple[str, int]]
) -> None:
    """B6: a restart deposits nothing; an amount that was changed is booked as the difference, less what is spent."""
    grant(database, {"main": 100})
    commit(database, [Reserve("turn", "main", 60), Resolve("turn", Resolution(25))])
    for _ in range(2):
        grant(database, {"main": second})

    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (balance, 0)}
        assert [(e.kind.value, e.nanodollars) for e in entries_in(session) if e.actor == CONFIGURATION] == moved


def test_a_grant_that_is_lowered_takes_only_what_is_available(tmp_path: Path) -> None:
    """B6: open reservations never exceed the balance; the rest of it is asked for again."""
    database = prepared(tmp_path)
    grant(database, {"main": 100})
    commit(database, [Reserve("turn", "main", 30), Reserve("spent", "main", 50), Resolve("spent", Resolution(50))])
    with capture_logs() as logs:
        grant(database, {"main": 10})
    assert [(line["event"], line["nanodollars"], line["taken"]) for line in logs] == [("grant_not_lowered", 90, 20)]
    assert balance_of(database, "main") == (30, 30)

    commit(database, [Resolve("turn", Resolution(None))])
    grant(database, {"main": 10})
    assert balance_of(database, "main") == (0, 0)
    grant(database, {"main": 200})
    assert balance_of(database, "main") == (150, 0)


def prepared(folder: Path) -> SQLiteDatabase:
    database = SQLiteDatabase(folder / "books.sqlite")
    prepare(database)
    return database


def balance_of(database: SQLiteDatabase, name: str) -> tuple[int, int]:
    with database.snapshot() as session:
        ((balance, is_open),) = session.fetch("select balance, open from account where name = :name", {"name": name})
    return int(balance), int(is_open)


@pytest.mark.trio(run=trio.run)
async def test_a_server_that_hangs_is_away_and_what_ends_meanwhile_is_in_the_spool(
    postgres_to_stop: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1, X1: it neither answers nor breaks the connection; what its late answers say is nothing new."""
    monkeypatch.setattr("gateway.store.writer.WRITE_BATCH_SECONDS_MAX", 0.5)
    database = PostgresDatabase(postgres_to_stop.dsn(postgres_to_stop.create_database()))
    open_database(database, tmp_path)
    grant(database, {"main": 100})
    store = Store(database, FileSpool(tmp_path))
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.writer.run)
            await store.writer.ask(Reserve("turn", "main", 60))
            with hanging(database):
                store.writer.insist_later(Resolve("turn", Resolution(25)))
                with pytest.raises(StoreAway, match="has not answered"):
                    await store.writer.ask(Reserve("refused", "main", 1))
                async with store.writer._spooling:  # it is being written
                    assert lines_in(tmp_path) == 1
            assert await store.writer.insist(Resolve("turn", Resolution(25))) is Result.ALREADY_SETTLED
            assert await store.writer.ask(Reserve("next", "main", 1)) is Result.CREATED
            await store.aclose()
            nursery.cancel_scope.cancel()

    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (75, 2)}  # the refused one was written late: a turn takes it back
    assert files_in(tmp_path) == []
    database.close()


def lines_in(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.iterdir())


@contextmanager
def hanging(database: PostgresDatabase) -> Iterator[None]:
    """The server's process that serves this connection is stopped while the block lasts."""
    with database.connect() as connection:
        process = connection.info.backend_pid
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
