"""Versions of the schema: made once, whole or not at all, whoever starts at the same moment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from gateway.core.messages import Door
from gateway.ports import TurnOpening
from gateway.records.durable import _opening_row
from gateway.store.database import Session
from gateway.store.postgres import PostgresDatabase
from gateway.store.records import BACKGROUND, MARK, ORIGIN, STATEMENTS
from gateway.store.schema import VERSION_TABLE, VERSIONS, AnyDatabase, prepare
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import grant
from support.durable import TABLES, accounts_in
from support.processes import PATIENCE_SECONDS, REPOSITORY, environment

MIGRATIONS = REPOSITORY / "gateway" / "store" / "migrations"
STARTS = 4

START = """
import sys
from pathlib import Path
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import prepare
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import grant
kind, address = sys.argv[1:]
database = SQLiteDatabase(Path(address)) if kind == "sqlite" else PostgresDatabase(address)
sys.stdin.readline()
prepare(database)
grant(database, {"main": 100})
database.close()
print(sorted({"alembic", "sqlalchemy"} & set(sys.modules)))
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyDatabase]:
    """A database in which nothing is yet."""
    opened: AnyDatabase = (
        SQLiteDatabase(tmp_path / "new.sqlite")
        if request.param == "sqlite"
        else PostgresDatabase(request.getfixturevalue("fresh_dsn"))
    )
    yield opened
    opened.close()


def address_of(database: AnyDatabase) -> list[str]:
    if isinstance(database, SQLiteDatabase):
        return ["sqlite", str(database.path)]
    return ["postgres", database._dsn]


def starting(database: AnyDatabase) -> subprocess.Popen[str]:
    """A process that is about to use the database, when it is told to."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", START, *address_of(database)],
        cwd=REPOSITORY,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tables_in(session: Session) -> set[str]:
    if type(session).__name__ == "SQLiteSession":
        rows = session.fetch("select name from sqlite_master where type = 'table' and name not like 'sqlite%'", {})
    else:
        rows = session.fetch("select tablename::text from pg_tables where schemaname = 'gateway'", {})
    return {name for (name,) in rows}


def test_processes_that_start_at_once_on_nothing_all_start(empty: AnyDatabase) -> None:
    """B6: one of them makes the schema, and the account is granted once."""
    processes = [starting(empty) for _ in range(STARTS)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=PATIENCE_SECONDS) for process in processes]

    assert [process.returncode for process in processes] == [0] * STARTS, [said for _, said in ended]
    with empty.snapshot() as session:
        assert session.fetch(f"select version_num from {VERSION_TABLE}", {}) == [(VERSIONS[-1],)]
        assert accounts_in(session) == {"main": (100, 0)}


def test_a_start_that_finds_everything_in_place_loads_nothing_to_make_it(empty: AnyDatabase) -> None:
    """House: half a second and 40 MB that every worker would pay."""
    prepare(empty)
    process = starting(empty)
    said, errors = process.communicate("go\n", timeout=PATIENCE_SECONDS)

    assert (said, errors) == ("[]\n", "")


def test_the_table_of_versions_is_alembic_s() -> None:
    """House: a step that is added is added to both."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    steps = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(steps)) == VERSIONS


def test_both_stores_have_the_same_tables(tmp_path: Path, fresh_dsn: str) -> None:
    """House."""
    found = []
    for database in (SQLiteDatabase(tmp_path / "new.sqlite"), PostgresDatabase(fresh_dsn)):
        prepare(database)
        prepare(database)
        with database.snapshot() as session:
            found.append(tables_in(session))
        database.close()

    assert found == [{*TABLES, VERSION_TABLE}] * 2


def test_a_migration_that_fails_leaves_nothing(empty: AnyDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """House: all of a version or nothing of it; the next start makes it."""
    upgrade = command.upgrade

    def fail_at_the_end(config: Config, revision: str) -> None:
        upgrade(config, revision)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", fail_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            prepare(empty)
    with empty.snapshot() as session:
        assert tables_in(session) == set()

    prepare(empty)
    grant(empty, {"main": 100})


def test_background_turns_that_are_open_as_the_schema_changes_stay_so(
    empty: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: kept by the version before, whether in its table or in a spool that it left behind."""
    upgrade = command.upgrade
    kept = {"account": "main", "response_id": "r", "route": "a", "reserved_nanodollars": 9, "input_tokens": 7}
    times = {"text_bytes": 3, "pause_seconds": 30.0, "now": 5.0}
    turn = TurnOpening("", "main", "m", Door.HTTP, 9, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0003"))
        patch.setattr("gateway.store.schema.VERSIONS", VERSIONS[: VERSIONS.index("0003") + 1])
        prepare(empty)
        keep(empty, replace(turn, turn_id="in the table"), {**kept, **times})
    prepare(empty)
    keep(empty, replace(turn, turn_id="in a spool"), {**kept, **times, "now": 6.0})
    with empty.snapshot() as session:
        rows = session.fetch(BACKGROUND, {"limit": 9})
    assert [row[0] for row in rows] == ["in the table", "in a spool"]
    assert [row[1:] for row in rows] == [("main", "r", "a", 9, 7, 3, *[None] * 6, at, at + 30) for at in (5.0, 6.0)]


def keep(database: AnyDatabase, turn: TurnOpening, kept: dict[str, Any]) -> None:
    """An open background turn, as the version before 0004 wrote it."""
    with database.transaction() as session:
        session.run_each(STATEMENTS["open_turn"], [{**_opening_row(turn), "now": 1.0}])
        session.run_each(STATEMENTS["keep_background"], [{**kept, "turn_id": turn.turn_id}])


def test_origins_that_were_learned_before_the_schema_changed_are_known_by_their_routes_names(
    empty: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1, O3, C2: by the version before, whether in its tables or in a spool that it left behind."""
    upgrade = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0005"))
        patch.setattr("gateway.store.schema.VERSIONS", VERSIONS[: VERSIONS.index("0005") + 1])
        prepare(empty)
        learn_as_before(empty, "in the table")
    prepare(empty)
    learn_as_before(empty, "in a spool")
    asked = {"account": "main", "since": 0.0}
    for name in ("in the table", "in a spool"):
        with empty.snapshot() as session:
            assert session.fetch(ORIGIN, {**asked, "response_id": name}) == [("a", "m", None)]
            assert session.fetch(MARK, {**asked, "mark": name}) == [("a", None)]


def learn_as_before(database: AnyDatabase, name: str) -> None:
    """A response and a mark, as the version before 0006 wrote them."""
    learned = {"account": "main", "route": "a", "now": 1.0}
    with database.transaction() as session:
        session.run_each(STATEMENTS["learn_response"], [{**learned, "response_id": name, "model": "m"}])
        session.run_each(STATEMENTS["learn_mark"], [{**learned, "mark": name}])


def test_the_steps_are_found_in_a_folder_with_any_name(
    empty: AnyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """House: a percent sign would be a reference in Alembic's configuration."""
    folder = tmp_path / "100%(here)s"
    shutil.copytree(MIGRATIONS, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("gateway.store.schema.files", lambda _: folder)

    prepare(empty)
