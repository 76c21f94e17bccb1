"""SQLite's own promises: on the disk when it says so, read beside the writer, never carried into another process."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.core.ledger import OpenAccount, Reserve
from gateway.core.money import Result
from gateway.store.backup import CannotBackUp, restore
from gateway.store.commit import commit
from gateway.store.database import StoreAway, StoreUnusable
from gateway.store.schema import prepare
from gateway.store.sqlite import SQLiteDatabase, serving_lock
from gateway.store.store import grant, open_database
from support.durable import SQLiteFiles, accounts_in
from support.processes import REPOSITORY, environment

SYNCHRONOUS_FULL = 2


def test_every_connection_waits_for_the_disk(tmp_path: Path) -> None:
    """B1: in WAL mode only FULL keeps the last commit through a power cut; it is the connection's, not the file's."""
    first = SQLiteFiles(tmp_path).fresh()
    prepare(first)
    for database in (first, first.another()):
        connection = database.connect()
        assert connection.execute("pragma journal_mode").fetchall() == [("wal",)]
        assert connection.execute("pragma synchronous").fetchall() == [(SYNCHRONOUS_FULL,)]
        database.close()


def test_a_file_system_that_has_no_wal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: SQLite says nothing and stays in the old mode, in which readers and the writer wait for each other."""
    database = SQLiteFiles(tmp_path).fresh()
    monkeypatch.setattr("gateway.store.sqlite._switch_to_wal", lambda _: "delete")
    with pytest.raises(StoreUnusable, match=r"cannot be in WAL mode \(delete\): put it on a local disk"):
        prepare(database)
    database.close()


CRASH = """
import os, sys
from pathlib import Path
from gateway.core.ledger import Reserve
from gateway.store.commit import commit
from gateway.store.money import carry_out
from gateway.store.sqlite import SQLiteDatabase
database = SQLiteDatabase(Path(sys.argv[1]))
commit(database, [Reserve("committed", "main", 1)])
with database.transaction() as session:
    carry_out(session, [Reserve("under way", "main", 2)], session.now())
    os.kill(os.getpid(), 9)
"""


def test_a_process_that_is_killed_within_a_transaction_leaves_what_it_had_committed(tmp_path: Path) -> None:
    """B7: and nothing of the rest; no lock stays either."""
    database = SQLiteFiles(tmp_path).fresh()
    grant(database, {"main": 100})
    command = [sys.executable, "-c", CRASH, str(database.path)]
    subprocess.run(command, cwd=REPOSITORY, env=environment(), check=False)

    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (100, 1)}
    assert commit(database, [Reserve("next", "main", 99)]) == [Result.CREATED]
    database.close()


def test_a_database_is_opened_again_by_whoever_uses_it_next(tmp_path: Path) -> None:
    """House: `close` lets go of the file, and is no end."""
    database = SQLiteDatabase(SQLiteFiles(tmp_path).fresh().path)
    database.close()
    for number in range(2):
        assert commit(database, [OpenAccount(f"account-{number}")]) == [Result.CREATED]
        database.close()


# --- the file under a gateway -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_moved_under_a_gateway_is_a_store_that_is_away(tmp_path: Path, *, is_replaced: bool) -> None:
    """B1: it does not go on charging books that nobody looks at, and opens no others; put back, it goes on."""
    database = SQLiteFiles(tmp_path).fresh()
    commit(database, [Reserve("turn-1", "main", 1)])
    moved = database.path.rename(tmp_path / "moved.sqlite")
    if is_replaced:
        shutil.copyfile(moved, database.path)
    for use in (database.transaction, database.snapshot):
        with pytest.raises(StoreAway, match="moved or replaced under the gateway; put it back"), use():
            pass

    moved.rename(database.path)
    assert len(commit(database, [Reserve("turn-2", "main", 1)])) == 1
    database.close()


@pytest.mark.parametrize("is_gone", [False, True])
def test_nothing_is_restored_while_a_gateway_serves_the_place(tmp_path: Path, *, is_gone: bool) -> None:
    """B8: also where its file was moved away; it would come back to books that are not its own."""
    backup = SQLiteFiles(tmp_path).fresh().path
    database = SQLiteDatabase(tmp_path / "gateway.sqlite")
    open_database(database, tmp_path / "spool")
    if is_gone:
        database.path.rename(tmp_path / "moved.sqlite")
    with pytest.raises(CannotBackUp, match="is in use: stop the gateways"):
        restore(backup, database.path)
    assert database.path.exists() is not is_gone

    database.close()
    restore(backup, database.path, give_up_seconds=0)
    assert database.path.exists()


def test_no_gateway_starts_while_a_backup_is_restored(tmp_path: Path) -> None:
    """B8; and two gateways serve one file."""
    first, second = (SQLiteDatabase(tmp_path / "gateway.sqlite") for _ in range(2))
    open_database(first, tmp_path / "spool")
    first.close()
    held = serving_lock(first.path, fcntl.LOCK_EX)
    with pytest.raises(StoreAway, match="a backup is being restored"):
        open_database(first, tmp_path / "spool")
    os.close(held)
    open_database(first, tmp_path / "spool")
    open_database(second, tmp_path / "spool")
    first.close()
    second.close()
