"""Backup and restore of the SQLite store: live, whole or not at all, and never over something."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.core.accounts import Kind
from gateway.core.ledger import Reserve, Resolve, Transfer
from gateway.core.money import Resolution
from gateway.store import backup
from gateway.store.backup import CannotBackUp, back_up, restore
from gateway.store.database import StoreUnusable
from gateway.store.proof import prove
from gateway.store.schema import prepare
from gateway.store.sqlite import SQLiteDatabase
from support.booked import book, book_history


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteDatabase]:
    """A store in use, with the history in it."""
    database = SQLiteDatabase(tmp_path / "gateway.sqlite")
    prepare(database)
    book_history(database)
    yield database
    database.close()


def entries(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("select count(*) from entry").fetchone()[0]
        return found


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_one_file_that_holds_what_the_store_held(store: SQLiteDatabase, tmp_path: Path) -> None:
    """B8: and its books are proven."""
    target = tmp_path / "there" / "backup.sqlite"
    target.parent.mkdir()
    proof = back_up(store.path, target)
    book(store, [Transfer(Kind.DEPOSIT, "main", 1, "somebody")])

    assert (proof.holds, proof.entries, entries(target)) == (True, 21, 21)
    assert files(target.parent) == ["backup.sqlite"]
    assert target.stat().st_mode & 0o077 == 0


def test_a_backup_of_a_store_that_is_written_to_is_of_one_moment(store: SQLiteDatabase, tmp_path: Path) -> None:
    """B8."""
    is_over = threading.Event()

    def write() -> None:
        writer = store.another()
        number = 0
        while not is_over.is_set():
            number += 1
            book(writer, [Reserve(f"turn-{number}", "rich", 5), Resolve(f"turn-{number}", Resolution(3))])
        writer.close()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        proofs = [back_up(store.path, tmp_path / f"{number}.sqlite") for number in range(5)]
    finally:
        is_over.set()
        writing.join()

    assert [proof.discrepancies for proof in proofs] == [[]] * 5
    counts = [proof.entries for proof in proofs]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_backup_never_overwrites(store: SQLiteDatabase, tmp_path: Path) -> None:
    target = tmp_path / "letters.txt"
    target.write_text("dear aunt", "utf-8")
    with pytest.raises(CannotBackUp, match=r"letters\.txt is there already; name a file that is not"):
        back_up(store.path, target)
    assert target.read_text("utf-8") == "dear aunt"


def test_a_file_that_comes_while_the_backup_is_made_is_not_overwritten(
    store: SQLiteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup.sqlite"
    copy = backup._copy

    def copy_and_come(source: Path, copied: Path) -> None:
        copy(source, copied)
        target.write_text("dear aunt", "utf-8")

    monkeypatch.setattr(backup, "_copy", copy_and_come)
    with pytest.raises(CannotBackUp, match="is there already"):
        back_up(store.path, target)
    assert target.read_text("utf-8") == "dear aunt"
    assert [name for name in files(tmp_path) if "partial" in name] == []


def test_a_restored_store_holds_what_the_backup_held_and_the_old_one_is_kept(
    store: SQLiteDatabase, tmp_path: Path
) -> None:
    back_up(store.path, tmp_path / "backup.sqlite")
    book(store, [Transfer(Kind.DEPOSIT, "main", 1, "somebody")])
    store.close()
    proof, aside = restore(tmp_path / "backup.sqlite", store.path, give_up_seconds=0)

    assert aside is not None
    assert (proof.entries, entries(store.path), entries(aside)) == (21, 21, 22)
    assert files(tmp_path) == ["backup.sqlite", "gateway.sqlite", aside.name]
    with store.snapshot() as session:
        assert prove(session).holds


def test_a_store_that_does_not_exist_yet_can_be_restored(store: SQLiteDatabase, tmp_path: Path) -> None:
    back_up(store.path, tmp_path / "backup.sqlite")
    proof, aside = restore(tmp_path / "backup.sqlite", tmp_path / "other.sqlite")

    assert (proof.entries, aside, entries(tmp_path / "other.sqlite")) == (21, None, 21)


def test_a_store_in_use_is_not_replaced(store: SQLiteDatabase, tmp_path: Path) -> None:
    """A gateway holds its connection for as long as it lives, whether it writes or not."""
    back_up(store.path, tmp_path / "backup.sqlite")
    book(store, [Transfer(Kind.DEPOSIT, "main", 1, "somebody")])
    with pytest.raises(CannotBackUp, match=r"gateway\.sqlite is in use \(database is locked\): stop the gateways"):
        restore(tmp_path / "backup.sqlite", store.path, give_up_seconds=0)

    book(store, [Transfer(Kind.DEPOSIT, "main", 1, "somebody")])
    assert entries(store.path) == 23
    assert [name for name in files(tmp_path) if "partial" in name or "before" in name] == []


def test_nobody_can_open_the_old_store_while_it_is_replaced(
    store: SQLiteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a process wrote would be lost with the old file."""
    back_up(store.path, tmp_path / "backup.sqlite")
    store.close()
    said: list[str] = []
    early = sqlite3.connect(store.path, timeout=0)

    def use_the_old_one(_seconds: float) -> None:
        with pytest.raises(sqlite3.OperationalError) as caught:
            early.execute("select count(*) from entry").fetchone()
        said.append(str(caught.value))

    monkeypatch.setattr("gateway.store.backup.time.sleep", use_the_old_one)
    restore(tmp_path / "backup.sqlite", store.path)
    early.close()
    assert said == ["database is locked"]


def test_a_backup_whose_books_do_not_balance_is_not_restored(store: SQLiteDatabase, tmp_path: Path) -> None:
    """B8."""
    bad = tmp_path / "backup.sqlite"
    back_up(store.path, bad)
    with closing(sqlite3.connect(bad)) as connection, connection:
        connection.execute("update account set balance = 1 where name = 'main'")
    store.close()
    with pytest.raises(CannotBackUp, match=r"backup\.sqlite: its books do not balance; nothing was changed"):
        restore(bad, store.path)
    assert (entries(store.path), files(tmp_path)) == (21, ["backup.sqlite", "gateway.sqlite"])


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table recipe (name text)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table gateway_schema (version_num text)")
        connection.execute("insert into gateway_schema values ('9999')")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_text("dear aunt, " * 100, "utf-8"), "file is not a database"),
        (foreign, "holds the tables of something else"),
        (newer, "has schema 9999"),
    ],
    ids=["a letter", "somebody else's database", "a newer gateway's"],
)
def test_a_file_that_is_no_backup_is_not_restored(
    store: SQLiteDatabase, tmp_path: Path, write: object, said: str
) -> None:
    store.close()
    assert callable(write)
    write(tmp_path / "file")
    with pytest.raises(StoreUnusable, match=said):
        restore(tmp_path / "file", store.path)
    assert (entries(store.path), files(tmp_path)) == (21, ["file", "gateway.sqlite"])


def test_a_backup_that_is_not_there_is_named(store: SQLiteDatabase, tmp_path: Path) -> None:
    with pytest.raises(CannotBackUp, match="nowhere is no file"):
        restore(tmp_path / "nowhere", store.path)


def test_a_store_that_is_broken_is_replaced_with_all_that_lies_beside_it(store: SQLiteDatabase, tmp_path: Path) -> None:
    """The file that a restore is for: nobody can have it in use, and its log must not become the new one's."""
    back_up(store.path, tmp_path / "backup.sqlite")
    store.close()
    store.path.write_bytes(b"rubbish " * 1000)
    log = store.path.with_name("gateway.sqlite-wal")
    log.write_bytes(b"rubbish " * 100)
    _, aside = restore(tmp_path / "backup.sqlite", store.path, give_up_seconds=0)

    assert aside is not None
    assert (entries(store.path), aside.read_bytes()[:7], log.exists()) == (21, b"rubbish", False)


def test_a_link_to_the_store_stays_one(store: SQLiteDatabase, tmp_path: Path) -> None:
    back_up(store.path, tmp_path / "backup.sqlite")
    store.close()
    link = tmp_path / "link.sqlite"
    link.symlink_to(store.path)
    restore(tmp_path / "backup.sqlite", link, give_up_seconds=0)
    assert link.is_symlink()
    assert entries(store.path) == 21


def test_who_could_use_the_old_store_can_use_the_restored_one(store: SQLiteDatabase, tmp_path: Path) -> None:
    """Root may restore what belongs to the gateway's user."""
    back_up(store.path, tmp_path / "backup.sqlite")
    store.close()
    store.path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(store.path, 12345, 23456)
    before = store.path.stat()
    restore(tmp_path / "backup.sqlite", store.path, give_up_seconds=0)
    after = store.path.stat()

    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
