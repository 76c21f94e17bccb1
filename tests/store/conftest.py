"""Each store in turn, empty and prepared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.store.schema import AnyDatabase
from support.durable import PostgresTables, SQLiteFiles


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[AnyDatabase]:
    """An empty database of the test's own; `another()` is another gateway's connection to it."""
    if request.param == "sqlite":
        opened: AnyDatabase = SQLiteFiles(request.getfixturevalue("tmp_path")).fresh()
    else:
        opened = PostgresTables(request.getfixturevalue("fresh_dsn")).fresh()
    yield opened
    opened.close()
