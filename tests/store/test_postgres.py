"""PostgreSQL's own troubles: connections lost at the worst moment, locks, time limits, servers that restart."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import psycopg
import pytest

from gateway.core.ledger import BookHouse, Reserve, Resolve
from gateway.core.money import Resolution, Result
from gateway.store.commit import Work, commit, transact
from gateway.store.database import Session, StoreAway
from gateway.store.money import LOAD_ACCOUNT
from gateway.store.postgres import PostgresDatabase
from gateway.store.records import RecordWrite
from gateway.store.schema import prepare
from gateway.store.store import grant
from support.cut_line import Cut, CutLine
from support.durable import accounts_in, entries_in
from support.postgres import PostgresDatabases, PostgresServer
from support.processes import PATIENCE_SECONDS

BATCH: list[Work] = [
    Reserve("turn-1", "main", 10),
    Reserve("turn-2", "main", 20),
    Resolve("turn-1", Resolution(3)),
    BookHouse("turn-2", 1, 7),
]
FIRST = [Result.CREATED, Result.CREATED, Result.SETTLED, Result.CREATED]
AGAIN = [Result.EXISTS, Result.EXISTS, Result.ALREADY_SETTLED, Result.EXISTS]


@pytest.fixture
def database(fresh_dsn: str) -> Iterator[PostgresDatabase]:
    opened = PostgresDatabase(fresh_dsn)
    prepare(opened)
    grant(opened, {"main": 100})
    yield opened
    opened.close()


def name_of(database: PostgresDatabase) -> str:
    return database.name.split("/")[-1]


# --- connections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "cut", "again"),
    [
        (b"BEGIN", Cut.BEFORE, FIRST),
        (b"from account", Cut.BEFORE, FIRST),
        (b"from account", Cut.AFTER, FIRST),
        (b"insert into entry", Cut.BEFORE, FIRST),
        (b"insert into entry", Cut.AFTER, FIRST),
        (b"COMMIT", Cut.BEFORE, FIRST),
        (b"COMMIT", Cut.AFTER, AGAIN),
    ],
)
def test_a_batch_whose_connection_breaks_can_be_asked_again(
    database: PostgresDatabase, fresh_dsn: str, word: bytes, cut: Cut, again: list[Result]
) -> None:
    """B1: wherever it broke, also when the server had committed and the answer was lost: the books are the same."""
    with CutLine(fresh_dsn) as line:
        gateway = PostgresDatabase(line.dsn)
        commit(gateway, [])
        line.cut_at(word, cut)
        with pytest.raises(StoreAway):
            commit(gateway, BATCH)
        assert line.cuts == 1
        wait_until_alone(database)

        assert commit(gateway, BATCH) == again
        gateway.close()
    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (97, 20)}
        assert [entry.kind.value for entry in entries_in(session)] == [
            "deposit", "reserve", "reserve", "released", "settled", "house",
        ]  # fmt: skip


def wait_until_alone(database: PostgresDatabase) -> None:
    """The server has seen that the other's connection is gone, and has ended its transaction."""
    alone = (
        "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    )
    while database_says(database, alone) != 1:
        pass


def database_says(database: PostgresDatabase, question: str) -> object:
    with database.snapshot() as session:
        return session.fetch(question, {})[0][0]


def test_a_connection_that_an_administrator_ended_is_opened_again(
    database: PostgresDatabase, postgres: PostgresDatabases
) -> None:
    """X1: one batch fails, the next one is written."""
    ended = f"select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = '{name_of(database)}'"
    assert postgres.run(ended) == [(1,)]
    with pytest.raises(StoreAway, match="terminating connection"):
        commit(database, BATCH)

    assert commit(database, BATCH) == FIRST


def test_a_server_that_restarts_is_away_and_then_there(postgres_to_stop: PostgresServer) -> None:
    """X1: and what was written before is there."""
    name = postgres_to_stop.create_database()
    database = PostgresDatabase(postgres_to_stop.dsn(name))
    prepare(database)
    grant(database, {"main": 100})
    with postgres_to_stop.stopped():
        for _ in range(2):
            with pytest.raises(StoreAway):
                commit(database, BATCH)

    assert commit(database, BATCH) == FIRST
    database.close()
    postgres_to_stop.drop_database(name)


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(fresh_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresDatabase]:
    """A gateway that waits shorter than others."""
    waits = "-c search_path=gateway -c statement_timeout=400ms -c lock_timeout=200ms"
    monkeypatch.setitem(PostgresDatabase.__init__.__globals__["WAITS"], "options", waits)
    opened = PostgresDatabase(fresh_dsn)
    yield opened
    opened.close()


def test_a_row_that_somebody_holds_for_too_long_is_a_store_that_is_away(
    database: PostgresDatabase, impatient: PostgresDatabase
) -> None:
    """X1: 503, not a turn that waits; and then it is written."""
    with database.transaction() as session:
        session.fetch(LOAD_ACCOUNT, {"name": "main"})
        with pytest.raises(StoreAway, match=r"lock timeout; another client holds what is asked for"):
            commit(impatient, BATCH)

    assert commit(impatient, BATCH) == FIRST


def test_a_statement_that_takes_too_long_is_a_store_that_is_away(
    database: PostgresDatabase, impatient: PostgresDatabase
) -> None:
    """X1."""
    with pytest.raises(StoreAway, match=r"statement timeout; it took too long"), impatient.transaction() as session:
        session.fetch("select pg_sleep(60)", {})

    assert commit(impatient, BATCH) == FIRST


def test_the_connection_takes_what_the_dsn_says_of_it(fresh_dsn: str) -> None:
    """House: an administrator's options are kept beside ours."""
    database = PostgresDatabase(psycopg.conninfo.make_conninfo(fresh_dsn, options="-c work_mem=7MB"))
    with database.snapshot() as session:
        assert session.fetch("select current_setting('work_mem'), current_setting('lock_timeout')", {}) == [
            ("7MB", "5s")
        ]
    database.close()


def test_transactions_that_wait_for_each_other_are_done_one_after_the_other(database: PostgresDatabase) -> None:
    """B7: PostgreSQL ends one of them, and that one is done again."""
    both_hold_one = threading.Barrier(2)
    grant(database, {"other": 100})
    done: list[str] = []

    def lock(first: str, second: str) -> None:
        own = database.another()
        tries: list[int] = []

        def in_this_order(session: Session) -> None:
            session.fetch(LOAD_ACCOUNT, {"name": first})
            if not tries:
                both_hold_one.wait(PATIENCE_SECONDS)
            tries.append(1)
            session.fetch(LOAD_ACCOUNT, {"name": second})

        transact(own, in_this_order)
        done.append(first)
        own.close()

    threads = [threading.Thread(target=lock, args=names) for names in (("main", "other"), ("other", "main"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(done) == ["main", "other"]


# --- what is the store's fault, and what is not --------------------------------------------------------------------


def test_a_row_that_no_index_takes_fails_alone(database: PostgresDatabase) -> None:
    """B1: an upstream that names a response by a megabyte of noise must not stop the books."""
    noise = secrets.token_hex(500_000)
    long = RecordWrite("learn_origin", {"account": "main", "response_id": noise, "route": "a"})
    answers = commit(database, [BATCH[0], long, BATCH[2]])

    assert answers[0::2] == [Result.CREATED, Result.SETTLED]
    assert isinstance(answers[1], psycopg.errors.ProgramLimitExceeded)


def test_a_table_that_is_gone_is_a_store_that_is_away(database: PostgresDatabase, postgres: PostgresDatabases) -> None:
    """B1: what is insisted on is kept until somebody has brought it back, and not taken for a bad operation."""
    postgres.run("alter table gateway.entry rename to entry_gone", name_of(database))
    with pytest.raises(StoreAway, match='relation "entry" does not exist'):
        commit(database, BATCH)

    postgres.run("alter table gateway.entry_gone rename to entry", name_of(database))
    assert commit(database, BATCH) == FIRST


def test_a_role_that_lost_its_rights_is_a_store_that_is_away(
    database: PostgresDatabase, postgres: PostgresDatabases
) -> None:
    """B1: the same."""
    clerk = f"clerk_{secrets.token_hex(4)}"
    with database.connect() as connection:
        for statement in (f"create role {clerk}", f"grant usage on schema gateway to {clerk}", f"set role {clerk}"):
            connection.execute(statement.encode())
    with pytest.raises(StoreAway, match=r"permission denied for table .*; grant the role what it needs"):
        commit(database, BATCH)

    assert commit(database, BATCH) == FIRST
    postgres.run(f"drop owned by {clerk}", name_of(database))
    postgres.run(f"drop role {clerk}")
