"""What the documents say is what the code is: the README's table, and every rule id in the rulebook."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.cli.rules import rule_lines, rulebook
from gateway.core.replay import NEVER_RULES, REPLAY

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
RULE_ID = re.compile(r"\b([EPRFSTBXHWOMCLK](?:1[0-9]|[1-9])a?)\b")
HOUSEHOLD_WORDS = {"B1", "A1", "B0", "C1", "O4"}
"""Upstream calls and the number of a bug case look like rule ids; those that are rules stand elsewhere too."""


def _named_ids() -> dict[str, str]:
    files = [*ROOT.glob("gateway/**/*.py"), *ROOT.glob("tests/**/*.py"), README]
    named: dict[str, str] = {}
    for file in files:
        for rule_id in RULE_ID.findall(file.read_text(encoding="utf-8")):
            named.setdefault(rule_id, str(file.relative_to(ROOT)))
    return named


def test_every_rule_id_that_the_project_names_stands_in_the_rulebook() -> None:
    """Who clones the project can look up every id in it."""
    known = {rule_id for chapter in rulebook().values() for rule_id in chapter}
    unknown = {rule_id: file for rule_id, file in _named_ids().items() if rule_id not in known | HOUSEHOLD_WORDS}
    assert unknown == {}


def test_every_rule_of_the_decision_stands_in_the_rulebook() -> None:
    """R1–R15."""
    assert [*(rule.id for rule in NEVER_RULES), REPLAY.rule] == [name for name in rulebook()["R"] if name != "title"]


def test_a_rule_is_found_by_its_id_in_any_case() -> None:
    """`gateway rules r9`."""
    assert rule_lines(rulebook(), "r9") == [
        f"R  {rulebook()['R']['title']}",
        "  R9   Never when the stream broke after its first event.",
    ]
