"""K1, K3: the pack as it is shipped behaves as recorded, and whatever differs is named by its file."""

import shutil
from pathlib import Path

import pytest

from gateway.lock.checking import check, check_files, check_scenario
from gateway.lock.declarations import REMOVED, changes, read_history
from gateway.lock.pack import Pack, shipped
from lock.packs import NAMES, declare, small_pack

R9, R15 = NAMES


def found(pack: Pack) -> list[tuple[str, str]]:
    """Each finding: its file, and the first words of the problem."""
    return [(finding.file, " ".join(finding.problem.split()[:3])) for finding in check(pack, pack.names)]


def test_every_scenario_behaves_as_recorded_and_every_fixture_is_as_declared() -> None:
    """K1, K3: `gateway lock check`."""
    pack = shipped()
    assert [str(finding) for finding in check(pack, pack.names)] == []


def test_a_declared_pack_is_as_it_should_be(tmp_path: Path) -> None:
    assert found(small_pack(tmp_path)) == []


def test_a_changed_transcript_is_named_as_changed_and_as_not_what_is_played(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    file = pack.transcript(R9)
    file.write_text(file.read_text("utf-8").replace("void", "settle 7000"), encoding="utf-8")
    assert found(pack) == [(file.name, "changed without a"), (file.name, "the gateway behaves")]


def test_what_is_played_otherwise_is_told_by_column_and_entry(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    file = pack.transcript(R9)
    file.write_text(file.read_text("utf-8").replace("void", "settle 7000"), encoding="utf-8")
    (finding,) = check_scenario(pack, R9)
    assert finding.details == (
        "http, money:",
        '  -{"at": 1, "turn": 1, "entry": "settle 7000"}',
        '  +{"at": 1, "turn": 1, "entry": "void"}',
        "websocket, money:",
        '  -{"at": 1, "turn": 1, "entry": "settle 7000"}',
        '  +{"at": 1, "turn": 1, "entry": "void"}',
    )


def test_another_layout_of_a_transcript_is_a_difference(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    file = pack.transcript(R9)
    file.write_text(file.read_text("utf-8").replace("\n  {", "\n    {"), encoding="utf-8")
    (finding,) = check_scenario(pack, R9)
    assert finding.details == ("the layout of the file",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("\n", "it is empty"),
        ("so it was", "Expecting value: line 1 column 1 (char 0)"),
        ("[]", "it does not have the columns client, upstream, money, records for each door"),
        ("{}", "it does not have the columns client, upstream, money, records for each door"),
    ],
)
def test_a_transcript_that_is_none_is_told(tmp_path: Path, text: str, why: str) -> None:
    """And not that the gateway behaves in another way."""
    pack = small_pack(tmp_path)
    pack.transcript(R9).write_text(text, encoding="utf-8")
    assert [str(finding) for finding in check_scenario(pack, R9)] == [
        f"{R9}.json: is no transcript ({why}); `gateway lock record {R9}` writes it"
    ]


def test_a_changed_scenario_is_named(tmp_path: Path) -> None:
    """Its comment alone: what a scenario says is declared, too."""
    pack = small_pack(tmp_path)
    file = pack.scenario(R9)
    file.write_text(file.read_text("utf-8") + "# a remark\n", encoding="utf-8")
    assert found(pack) == [(file.name, "changed without a")]


def test_a_renamed_fixture_is_named_by_both_names(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    pack.scenario(R9).rename(pack.scenario("renamed"))
    pack.transcript(R9).rename(pack.transcript("renamed"))
    assert found(pack) == [
        ("renamed.json", "is new, and"),
        ("renamed.toml", "is new, and"),
        (f"{R9}.json", "is missing; 0001-a-change.toml"),
        (f"{R9}.toml", "is missing; 0001-a-change.toml"),
    ]


def test_an_extra_file_is_named(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    (pack.lock / "notes.txt").write_text("anything", encoding="utf-8")
    assert found(pack) == [("notes.txt", "is new, and")]


def test_a_transcript_that_is_missing_is_named(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    pack.transcript(R9).unlink()
    assert found(pack) == [(f"{R9}.json", "is missing; 0001-a-change.toml"), (f"{R9}.json", "is missing; `gateway")]


def test_a_scenario_without_a_usable_name_is_named(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    shutil.copy(pack.scenario(R9), pack.scenario("A_Name"))
    shutil.copy(pack.transcript(R9), pack.transcript("A_Name"))
    declare(pack, "another")
    assert found(pack) == [("A_Name.toml", "is not a")]


def test_a_page_is_made_and_needs_no_declaration(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    pack.pages.mkdir()
    (pack.pages / f"{R9}.md").write_text("a page", encoding="utf-8")
    assert found(pack) == []


# --- history ----------------------------------------------------------------------------------------------------


def test_an_edited_declaration_is_named_itself(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    first = pack.declarations / "0001-a-change.toml"
    first.write_text(first.read_text("utf-8").replace("is recorded", "was never"), encoding="utf-8")
    assert found(pack) == [("0001-a-change.toml", "history was edited:")]


@pytest.mark.parametrize(
    ("copied", "behind"), [("0001-a-change.toml", "none"), ("0002-a-change.toml", "0001-a-change.toml")]
)
def test_a_declaration_that_was_slipped_in_is_named_itself(tmp_path: Path, copied: str, behind: str) -> None:
    """And not the one that it stands behind, which is as it was."""
    pack = small_pack(tmp_path)
    shutil.copy(pack.declarations / copied, pack.declarations / "0003-zz.toml")
    assert [str(finding) for finding in check_files(pack)] == [
        f"0003-zz.toml: history was edited: it stands behind 0002-a-change.toml, and was written behind {behind}"
    ]


def test_declarations_that_changed_places_are_named_both(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    first, second = (pack.declarations / f"000{number}-a-change.toml" for number in (1, 2))
    written = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(written)
    assert [finding.file for finding in check_files(pack)] == [first.name, second.name]


def test_an_edited_hash_in_an_old_declaration_is_named_twice(tmp_path: Path) -> None:
    """By the chain, and by the fixture that is not as it now says."""
    pack = small_pack(tmp_path)
    first = pack.declarations / "0001-a-change.toml"
    digest = pack.hashes()[f"{R9}.json"]
    first.write_text(first.read_text("utf-8").replace(digest, "0" * 64), encoding="utf-8")
    assert found(pack) == [("0001-a-change.toml", "history was edited:"), (f"{R9}.json", "changed without a")]


def test_a_missing_declaration_is_a_gap_in_history(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    (pack.declarations / "0001-a-change.toml").unlink()
    assert found(pack)[0] == ("0002-a-change.toml", "is no declaration:")


def test_a_first_declaration_that_follows_another_is_named(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    (pack.declarations / "0002-a-change.toml").unlink()
    first = pack.declarations / "0001-a-change.toml"
    first.write_text(first.read_text("utf-8").replace("none", "0" * 64), encoding="utf-8")
    assert found(pack)[0] == ("0001-a-change.toml", "history was edited:")


def test_a_file_that_is_no_declaration_is_named(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    (pack.declarations / "0003-notes.toml").write_text("why = 7", encoding="utf-8")
    (pack.declarations / "0004-broken.toml").write_text("why =", encoding="utf-8")
    assert found(pack) == [("0003-notes.toml", "is not a"), ("0004-broken.toml", "is not valid")]


def test_a_declaration_without_its_why_is_none(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    (pack.lock / "notes.txt").write_text("anything", encoding="utf-8")
    declare(pack, "")
    assert ("0003-a-change.toml", "is not a") in found(pack)


def test_what_is_removed_is_declared_as_removed(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    pack.scenario(R15).unlink()
    pack.transcript(R15).unlink()
    assert changes(pack, read_history(pack)) == {f"{R15}.json": REMOVED, f"{R15}.toml": REMOVED}
    declare(pack, "it is not needed")
    assert found(pack) == []


def test_a_declared_change_is_as_it_should_be(tmp_path: Path) -> None:
    pack = small_pack(tmp_path)
    file = pack.scenario(R9)
    file.write_text(file.read_text("utf-8") + "# a remark\n", encoding="utf-8")
    declare(pack, "a remark")
    assert found(pack) == []
