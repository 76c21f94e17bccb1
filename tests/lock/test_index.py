"""K2: what the pack holds: every rule that a turn can show, each row on each door, the article, the bug cases."""

import re
import tomllib
from collections.abc import Mapping
from importlib import resources

import pytest

from gateway.cli.rules import rulebook
from gateway.core.replay import NEVER_RULES, REPLAY
from gateway.lock.pack import shipped
from gateway.lock.scenario import DOORS, Scenario, read_scenario
from gateway.lock.transcript import from_text

SCENARIOS: Mapping[str, Scenario] = {name: read_scenario(shipped().scenario(name)) for name in shipped().names}
UNSHOWN = tomllib.loads(resources.files("gateway.lock").joinpath("unshown.toml").read_text("utf-8"))
ARTICLE = {
    "a second read error",
    "no route left",
    "a failure after a held response.created",
    "a replacement stream that then breaks",
    "a first-event timeout",
    "a read error before the first event",
    "a buffer overflow",
}
CASES_ABOUT_A_TURN = {
    *(1, 3, 4, 5, 7, 9, 10, 11, 12, 14, 16, 17, 18, 20, 21, 22, 24, 26, 27, 28, 31),
    *(34, 35, 39, 41, 42, 43, 45, 46, 47, 48, 49, 51, 53),
}

WITHOUT_ANOTHER_SIDE = ("R2", "R8", "R8a", "R11", "R13", "R14")
"""Rows that ask for one plain fact: their other side is any replay."""


def named() -> set[str]:
    return {rule for scenario in SCENARIOS.values() for rule in scenario.rules}


@pytest.mark.parametrize("door", DOORS)
def test_there_are_far_more_than_sixty_three_scenarios_on_each_door(door: str) -> None:
    """K2."""
    assert sum(door in scenario.doors for scenario in SCENARIOS.values()) >= 200


def test_every_rule_that_a_turn_can_show_is_named_by_a_scenario() -> None:
    """K2: what is not stands on the list, with its reason."""
    known = {rule for chapter in rulebook().values() for rule in chapter if rule != "title"}
    unshown = {*UNSHOWN["not_built"], *UNSHOWN["no_turn_shows_it"]}
    assert known - named() == unshown


def test_no_scenario_names_a_rule_that_does_not_exist() -> None:
    assert named() - {rule for chapter in rulebook().values() for rule in chapter} == set()


def test_everything_is_built() -> None:
    """The list has only shrunk. A rule that is not built would belong on it, and in this test."""
    assert UNSHOWN["not_built"] == {}


def test_the_articles_boundaries_are_there() -> None:
    assert {scenario.article for scenario in SCENARIOS.values()} - {None} == ARTICLE


def test_every_bug_case_about_a_turn_is_there() -> None:
    assert {case for scenario in SCENARIOS.values() for case in scenario.cases} == CASES_ABOUT_A_TURN


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("rule", [*(rule.id for rule in NEVER_RULES), REPLAY.rule])
def test_each_row_of_the_decision_gives_a_verdict_on_each_door(door: str, rule: str) -> None:
    """K2, §4: every reason of the row; R12's second one is a WebSocket's alone, `background` HTTP's (W2)."""
    reasons = {reason for found, reason in verdicts(door) if found == rule}
    assert reasons == reasons_of(rule) - {"connection_limit" if door == "http" else "background"}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("rule", [rule.id for rule in NEVER_RULES if rule.id not in WITHOUT_ANOTHER_SIDE])
def test_beside_each_refusal_stands_a_replay(door: str, rule: str) -> None:
    """K2: a scenario of the row is replayed on that door."""
    assert any(
        rule in scenario.rules and "R15" in scenario.rules and door in scenario.doors and replays(name, door)
        for name, scenario in SCENARIOS.items()
    )


def reasons_of(rule: str) -> set[str]:
    rows = {row.id: {reason.value for reason in row.reasons} for row in NEVER_RULES} | {"R15": {"replay"}}
    return rows[rule]


def verdicts(door: str) -> set[tuple[str, str]]:
    text = "".join(shipped().transcript(name).read_text("utf-8") for name, s in SCENARIOS.items() if door in s.doors)
    return {(found[1], found[2]) for found in re.finditer(r'"verdict": "(R\w+) (\w+)"', text)}


def replays(name: str, door: str) -> bool:
    records = from_text(shipped().transcript(name).read_text("utf-8"))[door]["records"]
    return any(attempt.get("verdict") == "R15 replay" for turn in records for attempt in turn.get("attempts", []))
