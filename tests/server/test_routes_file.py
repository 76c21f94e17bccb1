"""The routes file as it is replaced, and the tables that are kept of it (C2)."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway import limits
from gateway.server.routes_file import Kept, RoutesFile


def table(number: int) -> str:
    return f"{number:064x}"[::-1]


def applied(file: RoutesFile, *numbers: int) -> None:
    """So many tables, one after the other, at times of their own."""
    for number in numbers:
        file.replace(f"# {number}\n", table(number), None)
        path = file.path.with_name(f"{file.path.name}.applied") / f"{table(number)}.toml"
        at = 1_000_000 + sum(one.at.timestamp() >= 1 for one in file.kept())
        os.utime(path, (at + number, at + number))


def test_a_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    path.write_text("old")
    path.chmod(0o640)
    inode = path.stat().st_ino

    RoutesFile(path).replace("new", table(2), table(1))

    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert path.stat().st_ino != inode
    folder = tmp_path / "routes.toml.applied"
    assert {one.name: one.read_text() for one in folder.iterdir()} == {
        f"{table(1)}.toml": "old",
        f"{table(2)}.toml": "new",
    }
    assert (folder.stat().st_mode & 0o777, {one.stat().st_mode & 0o777 for one in folder.iterdir()}) == (0o700, {0o600})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["routes.toml", "routes.toml.applied"]


def test_what_a_link_leads_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("old")
    link = tmp_path / "routes.toml"
    link.symlink_to("real.toml")

    RoutesFile(link).replace("new", table(2), None)

    assert link.is_symlink()
    assert (tmp_path / "real.toml").read_text() == "new"


def test_a_failed_write_leaves_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "routes.toml"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        RoutesFile(path).replace("new", table(2), None)

    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.rglob(".*")] == []


@pytest.mark.parametrize("count", [limits.ROUTES_KEPT_MAX, limits.ROUTES_KEPT_MAX + 1])
def test_so_many_tables_are_kept_and_the_oldest_makes_room(tmp_path: Path, count: int) -> None:
    file = RoutesFile(tmp_path / "routes.toml")
    applied(file, *range(1, count + 1))

    kept = [one.hash for one in file.kept()]
    assert kept == [table(number) for number in range(count, count - limits.ROUTES_KEPT_MAX, -1)]


def test_what_is_kept_is_told_with_the_time_of_its_last_use(tmp_path: Path) -> None:
    file = RoutesFile(tmp_path / "routes.toml")
    applied(file, 1, 2, 3)

    found = file.find(table(2))
    assert isinstance(found, Kept)
    assert (found.hash, found.at.tzinfo) == (table(2), UTC)
    assert isinstance(found.at, datetime)


def test_where_none_is_kept_it_is_told(tmp_path: Path) -> None:
    file = RoutesFile(tmp_path / "routes.toml")
    assert file.find("123456") == "no table, or more than one, begins with '123456'; kept are: none"


@pytest.mark.parametrize(("named", "is_found"), [(table(2)[:6], True), (table(2)[:5], False), ("000000", False)])
def test_a_table_is_named_by_six_digits_of_its_own(tmp_path: Path, named: str, is_found: bool) -> None:
    file = RoutesFile(tmp_path / "routes.toml")
    for text, name in (("a", "2" * 64), ("b", "000000a" + "0" * 57), ("c", "000000b" + "0" * 57)):
        file.replace(text, name, None)

    found = file.find("222222" if is_found else named)
    assert isinstance(found, Kept) is is_found
