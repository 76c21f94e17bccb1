"""Both doors, both databases, and the log, caught and not printed."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from crash.worlds import OpenDatabase, WallClock, prepared_sqlite
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import prepare
from gateway.store.sqlite import SQLiteDatabase
from support.gateways import DOORS
from support.postgres import PostgresDatabases
from support.slices import leave_to_the_long_tier

FAULTS_ONE_IN = 3
"""Of the cells of faults so many are in the fast suite."""
SLOW_ON_A_SERVER = ("_an_outage_longer_than_a_lease", "_of_two_processes", "[postgres-15]", "_kill_9_at_random")
"""Each waits for leases of a server's store: the fast suite has them on SQLite, or once."""


@pytest.hookimpl(tryfirst=True)  # before the tiers are chosen by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tier has all of them."""
    for item in items:
        if "/crash/" in item.nodeid and "postgres" in item.name and any(name in item.name for name in SLOW_ON_A_SERVER):
            item.add_marker(pytest.mark.long)
        elif "/crash/test_faults_everywhere" in item.nodeid:
            leave_to_the_long_tier(item, FAULTS_ONE_IN)


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """`http`, then `websocket`."""
    return str(request.param)


@pytest.fixture
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log's entries, in order."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def wall_clock() -> Iterator[WallClock]:
    """The stores' clock, which runs with the virtual one and can be moved."""
    with pytest.MonkeyPatch.context() as patch:
        yield WallClock(patch)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database that is copied for each test: making one takes longer than most tests."""
    return prepared_sqlite(tmp_path_factory.mktemp("template") / "gateway.sqlite")


@pytest.fixture
def sqlite(sqlite_template: Path, tmp_path: Path) -> OpenDatabase:
    """A database of the test's own; each call is another connection to it."""
    path = tmp_path / "gateway.sqlite"
    path.write_bytes(sqlite_template.read_bytes())
    return lambda: SQLiteDatabase(path)


@pytest.fixture
def postgres_database(fresh_dsn: str) -> Iterator[OpenDatabase]:
    """The same on PostgreSQL."""
    with connections_to(fresh_dsn) as open_one:
        yield open_one


@pytest.fixture(scope="session")
def used_postgres_database(postgres: PostgresDatabases) -> Iterator[OpenDatabase]:
    """One for all tests that leave nothing open in it."""
    name = postgres.create_database()
    with connections_to(postgres.dsn(name)) as open_one:
        yield open_one
    postgres.drop_database(name)


@contextmanager
def connections_to(dsn: str) -> Iterator[OpenDatabase]:
    """Each call is a connection of its own; all of them are closed at the end."""
    opened: list[PostgresDatabase] = []

    def open_one() -> PostgresDatabase:
        opened.append(PostgresDatabase(dsn))
        return opened[-1]

    prepare(open_one())
    yield open_one
    for database in opened:
        database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> OpenDatabase:
    """One, then the other."""
    name = {"sqlite": "sqlite", "postgres": "postgres_database"}[request.param]
    found: OpenDatabase = request.getfixturevalue(name)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def used_database(request: pytest.FixtureRequest) -> OpenDatabase:
    """One, then the other, which has seen other tests."""
    name = {"sqlite": "sqlite", "postgres": "used_postgres_database"}[request.param]
    found: OpenDatabase = request.getfixturevalue(name)
    return found
