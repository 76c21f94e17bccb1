"""A store with books and records in it, in either database, prepared and empty at first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import AnyDatabase, prepare
from gateway.store.sqlite import SQLiteDatabase


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyDatabase]:
    """Each of the two."""
    if request.param == "sqlite":
        opened: AnyDatabase = SQLiteDatabase(tmp_path / "gateway.sqlite")
    else:
        opened = PostgresDatabase(request.getfixturevalue("fresh_dsn"))
    prepare(opened)
    yield opened
    opened.close()
