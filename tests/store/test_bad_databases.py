"""Databases that cannot be used: each is named with what to do, and is afterwards as it was before."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.core.ledger import Reserve
from gateway.core.money import Result
from gateway.store.commit import commit
from gateway.store.database import StoreAway, StoreUnusable
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import VERSION_TABLE, VERSIONS, prepare
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import grant
from support.durable import SQLiteFiles, accounts_in, unprivileged
from support.postgres import WITH_PASSWORD, PostgresDatabases, PostgresServer
from support.processes import REPOSITORY, environment

RESERVE = Reserve("turn", "main", 60)


# --- SQLite: files ------------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody can get to: pytest's own are root's where the tests are."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


def refusal(error: type[Exception], database: SQLiteDatabase | PostgresDatabase) -> str:
    """What is said of it."""
    with pytest.raises(error) as refused:
        prepare(database)
    database.close()
    said = str(refused.value)
    assert database.name in said
    return said.replace(database.name, "NAME")


def test_a_file_that_may_only_be_read(shared: Path) -> None:
    """House: seen at the start, not by the first turn."""
    path = SQLiteFiles(shared).fresh().path
    path.chmod(0o444)
    shared.chmod(0o555)
    with unprivileged():
        said = refusal(StoreAway, SQLiteDatabase(path))

    assert said == (
        "NAME: attempt to write a readonly database;"
        " the gateway's user must be allowed to write the file and its folder"
    )


def test_a_folder_that_may_only_be_read(shared: Path) -> None:
    """House."""
    shared.chmod(0o555)
    with unprivileged():
        said = refusal(StoreAway, SQLiteDatabase(shared / "new.sqlite"))

    assert said == (
        "NAME: unable to open database file;"
        " its folder must exist and the gateway's user must be allowed to write there"
    )
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("name", ["missing/new.sqlite", "."])
def test_no_file_can_be_there(tmp_path: Path, name: str) -> None:
    """House: a folder that does not exist, a folder in the file's place."""
    assert refusal(StoreAway, SQLiteDatabase(tmp_path / name)).startswith("NAME: unable to open database file; ")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    """House."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear all, " * 1000)

    assert refusal(StoreUnusable, SQLiteDatabase(path)) == (
        "NAME: file is not a database; it is no database of the gateway's: name another file, or restore a backup"
    )
    assert path.read_text() == "Dear all, " * 1000
    assert list(tmp_path.iterdir()) == [path]


def test_somebody_else_s_database_is_left_as_it_is(tmp_path: Path) -> None:
    """House: not even its journal's mode is changed."""
    path = tmp_path / "bookmarks.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table bookmark (url text)")
    connection.close()
    before = path.read_bytes()

    said = refusal(StoreUnusable, SQLiteDatabase(path))
    assert said == "NAME holds the tables of something else; name another database"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_database_that_broke_says_so(tmp_path: Path) -> None:
    """House: a file whose pages are garbage."""
    database = SQLiteFiles(tmp_path).fresh()
    size = database.path.stat().st_size
    with database.path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (size - 100))

    assert "restore a backup" in refusal(StoreUnusable, database)


# --- SQLite: locked, full -----------------------------------------------------------------------------------------


@contextmanager
def held(path: Path, *statements: str) -> Iterator[None]:
    """Somebody else has the file."""
    other = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        other.execute(statement)
    yield
    other.rollback()
    other.close()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.sqlite.BUSY_SECONDS", 0.1)


@pytest.mark.usefixtures("_impatient")
def test_a_file_that_another_process_holds_is_away_and_then_there(tmp_path: Path) -> None:
    """X1: nothing of what was asked meanwhile is in it."""
    database = SQLiteFiles(tmp_path).fresh()
    grant(database, {"main": 100})
    with held(database.path, "begin immediate"):
        with pytest.raises(StoreAway, match=r"database is locked; another process has held it for \d+ s"):
            commit(database, [RESERVE])
        with database.snapshot() as session:  # readers do not wait for writers
            assert accounts_in(session) == {"main": (100, 0)}

    assert commit(database, [RESERVE]) == [Result.CREATED]
    database.close()


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_file_that_is_held_for_oneself_alone_cannot_be_started_on(tmp_path: Path, is_prepared: bool) -> None:
    """X1: another program, a copy under way."""
    path = SQLiteFiles(tmp_path).fresh().path if is_prepared else tmp_path / "new.sqlite"
    with held(path, "pragma locking_mode = exclusive", "begin exclusive", "create table held (id int)"):
        assert "locked" in refusal(StoreAway, SQLiteDatabase(path))

    database = SQLiteDatabase(path)
    prepare(database)
    database.close()


def test_a_reader_that_stays_keeps_nobody_from_writing(tmp_path: Path) -> None:
    """L2: a statement of an account may take minutes; turns go on."""
    database = SQLiteFiles(tmp_path).fresh()
    grant(database, {"main": 100})
    reader = database.another()
    with reader.snapshot() as session:
        before = accounts_in(session)
        assert commit(database, [RESERVE]) == [Result.CREATED]
        assert accounts_in(session) == before
    reader.close()
    database.close()


def test_a_full_disk_is_away_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """X1: a batch that found no room is not there in part."""
    database = SQLiteFiles(tmp_path).fresh()
    grant(database, {"main": None})
    ((pages,),) = database.connect().execute("pragma page_count").fetchall()
    database.connect().execute(f"pragma max_page_count = {pages}")
    batch = [Reserve(f"turn-{number}", "main", 1) for number in range(500)]
    with pytest.raises(StoreAway, match="database or disk is full; free space on its disk"):
        commit(database, batch)
    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (0, 0)}

    database.connect().execute("pragma max_page_count = 100000")
    assert commit(database, batch) == [Result.CREATED] * 500
    database.close()


def test_a_disk_that_fills_while_the_schema_is_made_leaves_a_database_that_can_be_made(tmp_path: Path) -> None:
    """House: all of a version or nothing of it."""
    path = tmp_path / "new.sqlite"
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000));"
        "from pathlib import Path; from gateway.store.schema import prepare;"
        "from gateway.store.sqlite import SQLiteDatabase; prepare(SQLiteDatabase(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(path)]
    ended = subprocess.run(command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, check=False)
    assert (
        f"gateway.store.database.StoreAway: {path}: d" in ended.stderr
    )  # "disk I/O error", "database or disk is full"

    database = SQLiteDatabase(path)
    prepare(database)
    database.close()


# --- versions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement", [f"update {VERSION_TABLE} set version_num = '0999'", f"delete from {VERSION_TABLE}"]
)
def test_a_database_of_a_newer_gateway_is_left_to_it(
    database: SQLiteDatabase | PostgresDatabase, statement: str
) -> None:
    """House: one of no version is nobody's either."""
    with database.transaction() as session:
        session.run_each(statement, [{}])

    said = refusal(StoreUnusable, database)
    assert said.startswith("NAME has schema ")
    assert said.endswith(f"this gateway knows {VERSIONS[-1]} at most: upgrade the gateway, or name another database")


# --- PostgreSQL ---------------------------------------------------------------------------------------------------

SECRET = "hunter2-secret"


@pytest.fixture(scope="session")
def role(postgres_from_wheel: PostgresServer) -> str:
    """A role that needs a password and may do nothing."""
    postgres_from_wheel.run(f"create role {WITH_PASSWORD} login password '{SECRET}'")
    return WITH_PASSWORD


def test_a_wrong_password_is_not_shown(postgres_from_wheel: PostgresServer, role: str) -> None:
    """House: host and database are."""
    database = PostgresDatabase(postgres_from_wheel.dsn("postgres", user=role, password=f"not-{SECRET}"))
    said = refusal(StoreAway, database)

    assert "password authentication failed" in said
    assert SECRET not in said + repr(database)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """House."""
    database = PostgresDatabase(f"postgresql://me:{SECRET}@/books?host={tmp_path}")
    said = refusal(StoreAway, database)

    assert said.startswith("PostgreSQL NAME: connection ")
    assert "No such file or directory" in said
    assert SECRET not in said + repr(database)


def test_a_database_that_is_not_there(postgres: PostgresDatabases) -> None:
    """House."""
    said = refusal(StoreAway, PostgresDatabase(postgres.dsn("no_such_database")))
    assert 'database "no_such_database" does not exist' in said


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me@host:{SECRET}/books",
        f"postgresql://me:p@{SECRET}@host/books",
        f"postgresql://me:{SECRET}/p@host/books",
        f"postgresql://me:77/{SECRET}@host/books",
        f"postgresql://me:{SECRET}@/books?what={SECRET}",
        f"host=localhost password='{SECRET}",
        f"{SECRET}",
        f"postgresql://me:{SECRET}%@/books",
    ],
)
def test_a_text_that_is_no_dsn_is_not_shown(dsn: str) -> None:
    """House: it may hold a password, whatever else it holds."""
    with pytest.raises(StoreUnusable, match=r"\[ledger\] dsn is no PostgreSQL address") as refused:
        PostgresDatabase(dsn)
    assert SECRET not in "".join(traceback.format_exception(refused.value, limit=-1))


def test_a_role_that_may_make_no_schema_says_what_it_needs(postgres_from_wheel: PostgresServer, role: str) -> None:
    """House: and works where an administrator has made it one, with no other right."""
    name = postgres_from_wheel.create_database()
    dsn = postgres_from_wheel.dsn(name, user=role, password=SECRET)
    assert refusal(StoreAway, PostgresDatabase(dsn)).endswith(
        "; grant the role what it needs: create on the database, or all on the schema gateway"
    )

    postgres_from_wheel.run(f"create schema gateway authorization {role}", name)
    database = PostgresDatabase(dsn)
    prepare(database)
    grant(database, {"main": 100})
    assert commit(database, [RESERVE]) == [Result.CREATED]
    database.close()
    postgres_from_wheel.drop_database(name)


def test_a_schema_of_that_name_that_is_somebody_else_s_is_left_as_it_is(
    postgres: PostgresDatabases, fresh_dsn: str
) -> None:
    """House."""
    name = PostgresDatabase(fresh_dsn).name.split("/")[-1]
    postgres.run("create schema gateway", name)
    postgres.run("create table gateway.toll (id int)", name)

    assert refusal(StoreUnusable, PostgresDatabase(fresh_dsn)) == (
        "NAME holds the tables of something else; name another database"
    )
    assert postgres.run("select tablename::text from pg_tables where schemaname = 'gateway'", name) == [("toll",)]


def test_other_schemas_are_nobody_s_business(postgres: PostgresDatabases, fresh_dsn: str) -> None:
    """House: the database may hold other things too."""
    name = PostgresDatabase(fresh_dsn).name.split("/")[-1]
    postgres.run("create table account (id int)", name)
    database = PostgresDatabase(fresh_dsn)
    prepare(database)
    grant(database, {"main": 100})
    database.close()

    assert postgres.run("select count(*) from public.account", name) == [(0,)]


def read_only(name: str) -> str:
    return f"alter database {name} set default_transaction_read_only = on"


@pytest.mark.parametrize("first", [prepare, lambda _: None], ids=["prepared", "empty"])
def test_a_server_that_may_only_be_read(
    postgres: PostgresDatabases, fresh_dsn: str, first: Callable[[PostgresDatabase], None]
) -> None:
    """House: a replica, seen at the start, not by the first turn."""
    database = PostgresDatabase(fresh_dsn)
    first(database)
    database.close()
    postgres.run(read_only(database.name.split("/")[-1]))

    assert refusal(StoreAway, PostgresDatabase(fresh_dsn)).endswith(
        "in a read-only transaction; the server is read-only, a replica perhaps: name the primary"
    )
