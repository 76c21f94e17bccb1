"""K5, K3: what documents say of the behaviour is as the code and the fixtures have it."""

from pathlib import Path

import pytest

from gateway.lock.pack import checkout, shipped
from gateway.lock.table import CHANGELOG_MARKS, MarksMissing, declared_changes, documents, left_over
from lock.packs import small_pack


def test_the_replay_table_the_changelog_and_every_page_are_as_they_would_be_written() -> None:
    """K5: else run `gateway lock table`."""
    stale = [
        path.name
        for path, text in documents(shipped(), checkout())
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == []


def test_there_is_no_page_without_its_scenario() -> None:
    assert left_over(shipped()) == []


def test_a_declaration_is_a_line_in_the_changelog_with_the_beginning_of_its_hash(tmp_path: Path) -> None:
    """So an edited one is seen there, also the last one, which no other is chained to."""
    pack = small_pack(tmp_path)
    before = declared_changes(pack).splitlines()
    last = pack.declarations / "0002-a-change.toml"
    last.write_text(last.read_text("utf-8").replace('why = "', 'why = "Now '), encoding="utf-8")
    after = declared_changes(pack).splitlines()
    assert before[0].startswith("- Changed: r15-break-before-the-first-event is recorded. (`0002-a-change.toml`, ")
    assert (before[0] == after[0], before[1:] == after[1:]) == (False, True)


def test_a_document_without_its_marks_is_told() -> None:
    with pytest.raises(MarksMissing, match="end of declarations"):
        CHANGELOG_MARKS.filled("# Changelog\n", "")
