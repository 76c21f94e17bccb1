"""K3: CHANGELOG.md tells of each declaration: so the newest cannot be edited, and none be renamed, without a word."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.lock.checking import check_files
from gateway.lock.declarations import read_history
from gateway.lock.pack import Pack, shipped
from gateway.lock.table import CHANGELOG_MARKS, declared_changes
from gateway.lock.told import against
from lock.packs import NAMES, small_pack

FIRST, NEWEST = "0001-a-change.toml", "0002-a-change.toml"


@pytest.fixture(name="pack")
def a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pack:
    """A pack that is told of."""
    pack = small_pack(tmp_path / "fixtures")
    write_changelog(pack)
    monkeypatch.setattr("gateway.lock.pack.checkout", lambda: tmp_path)
    return pack


def write_changelog(pack: Pack) -> Path:
    file = pack.root.parent / "CHANGELOG.md"
    empty = CHANGELOG_MARKS.start + CHANGELOG_MARKS.end
    file.write_text("# Changelog\n\n" + CHANGELOG_MARKS.filled(empty, declared_changes(pack)), encoding="utf-8")
    return file


def found(pack: Pack) -> list[tuple[str, str]]:
    return [(finding.file, " ".join(finding.problem.split()[:3])) for finding in check_files(pack)]


def replaced(old: str, new: str) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(file.read_bytes().replace(old.encode(), new.encode()))


def test_what_is_told_as_it_is_has_no_findings(pack: Pack) -> None:
    assert found(pack) == []


@pytest.mark.parametrize(
    "edit",
    [
        replaced("is recorded", "was always so"),
        replaced("\n", "\r\n"),
        lambda file: file.write_bytes(file.read_bytes() + b"# a remark\n"),
        lambda file: file.write_bytes(file.read_bytes() + b"\n"),
    ],
    ids=["why", "ends of line", "a remark", "a byte"],
)
def test_the_newest_declaration_cannot_be_edited(pack: Pack, edit: Callable[[Path], object]) -> None:
    edit(pack.declarations / NEWEST)
    assert found(pack) == [(NEWEST, "history was edited:")]


def test_the_newest_declaration_cannot_be_made_to_say_what_a_changed_transcript_is(pack: Pack) -> None:
    transcript, before = pack.transcript(NAMES[1]), pack.hashes()
    transcript.write_text(transcript.read_text("utf-8").replace("settle", "void"), encoding="utf-8")
    replaced(before[transcript.name], pack.hashes()[transcript.name])(pack.declarations / NEWEST)
    assert (NEWEST, "history was edited:") in found(pack)


@pytest.mark.parametrize("file", [FIRST, NEWEST])
def test_no_declaration_can_be_renamed(pack: Pack, file: str) -> None:
    renamed = file.replace("a-change", "another")
    (pack.declarations / file).rename(pack.declarations / renamed)
    assert found(pack) == [(renamed, "CHANGELOG.md has no"), (file, "is missing; CHANGELOG.md")]


def test_an_older_one_that_was_edited_is_named_once(pack: Pack) -> None:
    replaced("is recorded", "was always so")(pack.declarations / FIRST)
    assert found(pack) == [(FIRST, "history was edited:")]


@pytest.mark.parametrize(
    ("old", "new"),
    [("- Changed: r15", "- a line of its own\n- Changed: r15"), (CHANGELOG_MARKS.end, "")],
    ids=["a line that tells of none", "no marks"],
)
def test_a_changelog_that_was_damaged_is_named(pack: Pack, old: str, new: str) -> None:
    replaced(old, new)(pack.root.parent / "CHANGELOG.md")
    assert {file for file, _ in found(pack)} == {"CHANGELOG.md"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("- Changed: r15", "- Nonsense: r15"), ("- Changed: r15", "- r15"), ("first-event is recorded", "is so")],
    ids=["the section", "no section", "the text"],
)
def test_other_words_than_a_declaration_has_are_named(pack: Pack, old: str, new: str) -> None:
    """What readers are told is as much a part of the history as the hash."""
    replaced(old, new)(pack.root.parent / "CHANGELOG.md")
    assert [str(finding) for finding in check_files(pack)] == [
        f"CHANGELOG.md: tells of {NEWEST} in other words than that has; `gateway lock table` writes it"
    ]


def test_a_changelog_that_was_deleted_is_named(pack: Pack) -> None:
    """Else the newest declaration could be edited behind its witness's back."""
    (pack.root.parent / "CHANGELOG.md").unlink()
    replaced("is recorded", "was always so")(pack.declarations / NEWEST)
    assert found(pack) == [("CHANGELOG.md", "is missing")]


def test_of_a_pack_outside_of_a_checkout_nothing_is_told(tmp_path: Path) -> None:
    pack = small_pack(tmp_path / "fixtures")
    replaced("is recorded", "was always so")(pack.declarations / NEWEST)
    assert found(pack) == []


def test_the_gateways_own_declarations_are_told_of() -> None:
    """Else run `gateway lock table`."""
    repository = shipped().repository
    assert repository is not None
    assert list(against(repository / "CHANGELOG.md", read_history(shipped()))) == []
