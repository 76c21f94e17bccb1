"""§0: both doors show the same; where they do not, the scenario says so, and what it says is so."""

from typing import Any

import pytest

from gateway.lock.pack import shipped
from gateway.lock.parity import disparities
from gateway.lock.player import play
from gateway.lock.scenario import Scenario, read_scenario
from gateway.lock.transcript import Transcript

NAME = "r9-break-after-created"


@pytest.fixture(name="scenario")
def a_scenario() -> Scenario:
    """One whose doors differ in the client's column, and that says so."""
    return read_scenario(shipped().scenario(NAME))


def found(scenario: Scenario, transcript: Transcript) -> list[str]:
    return [finding.problem for finding in disparities(NAME, scenario, transcript)]


def changed(transcript: Transcript, column: str, **members: Any) -> Transcript:
    """The first entry of a WebSocket's column has other members."""
    websocket = transcript["websocket"]
    first, *others = websocket[column]
    return {**transcript, "websocket": {**websocket, column: [{**first, **members}, *others]}}


def test_doors_that_differ_as_the_scenario_says_are_well(scenario: Scenario) -> None:
    assert found(scenario, play(scenario, NAME)) == []


def test_doors_that_differ_where_nothing_is_said_are_found(scenario: Scenario) -> None:
    silent = scenario.model_copy(update={"differs": {}})
    assert found(silent, play(scenario, NAME)) == [
        "the doors differ in the column 'client', and `differs` does not say why"
    ]


@pytest.mark.parametrize("column", ["upstream", "money", "records"])
def test_any_column_may_differ(scenario: Scenario, column: str) -> None:
    transcript = changed(play(scenario, NAME), column, at=7)
    assert found(scenario, transcript) == [f"the doors differ in the column {column!r}, and `differs` does not say why"]


def test_a_difference_that_is_said_and_not_there_is_found(scenario: Scenario) -> None:
    boastful = scenario.model_copy(update={"differs": {**scenario.differs, "money": "a reason"}})
    assert found(boastful, play(scenario, NAME)) == [
        "`differs` says that the doors differ in the column 'money', and they do not"
    ]


def test_a_scenario_of_one_door_has_no_parity(scenario: Scenario) -> None:
    transcript = play(scenario, NAME)
    assert found(scenario, {"http": transcript["http"]}) == []


def test_an_error_is_the_same_as_a_status_an_event_and_a_frame() -> None:
    """X2, X4: only its error object and its number are compared."""
    scenario = read_scenario(shipped().scenario("r14-the-other-route-cools-down"))
    assert found(scenario, play(scenario, NAME)) == []
