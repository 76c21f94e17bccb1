"""K4: every rule can be flipped by name, and each flip breaks a scenario."""

import os
from pathlib import Path

import pytest

from gateway.core import events, replay, sse
from gateway.lock.checking import check_scenario
from gateway.lock.mutants import all_mutants, unreached
from gateway.lock.mutants.flips import everywhere, swapped
from gateway.lock.mutating import catch, catch_all, read_recorded
from gateway.lock.pack import shipped
from lock.packs import small_pack
from support.slices import is_in_the_slice

IS_LONG = bool(os.environ.get("GATEWAY_LONG"))
ONE_IN = 4
SILENT_CHANGES = {
    # what somebody might do without a word: the scenario that says so
    "R5: a first-event timeout is replayed": "r5-no-event-in-time",
    "R9: no read error is replayed": "r15-break-before-the-first-event",
    "R7: the row is left out": "r7-held-bytes",
}


@pytest.mark.widens
def test_every_mutant_is_caught_by_a_scenario() -> None:
    """K4: `gateway lock mutate`, in as many processes as there are cores; the fast suite has its slice of them."""
    names = [name for name in all_mutants() if name not in unreached() and (IS_LONG or is_in_the_slice(name, ONE_IN))]
    survivors = [caught.mutant for caught in catch_all(shipped(), names, os.cpu_count() or 1) if caught.has_survived]
    assert survivors == []


def test_there_are_mutants_of_every_kind_of_rule() -> None:
    """E, R, F, S, T, B, X, and those of the doors that a turn shows."""
    letters = {name.split(":")[0][0] for name in all_mutants()}
    assert letters >= set("ERFSTBXHWMP")


def test_what_cannot_be_reached_is_the_name_of_a_mutant() -> None:
    assert set(unreached()) - set(all_mutants()) == set()


@pytest.mark.long
@pytest.mark.parametrize("name", unreached())
def test_what_cannot_be_reached_survives(name: str) -> None:
    """One that is caught leaves the list."""
    assert catch(all_mutants()[name], read_recorded(shipped())).has_survived


@pytest.mark.parametrize(("mutant", "scenario"), SILENT_CHANGES.items())
def test_a_silent_change_is_caught_by_name(mutant: str, scenario: str) -> None:
    """The three of the issue: `gateway lock check` names the file, and its columns."""
    with all_mutants()[mutant].flip():
        (finding,) = check_scenario(shipped(), scenario)
    assert finding.file == f"{scenario}.json"
    assert "http, upstream:" in finding.details
    assert check_scenario(shipped(), scenario) == []


def test_a_scenario_that_is_not_as_recorded_shows_nothing(tmp_path: Path) -> None:
    """Else every mutant would be caught by a pack that is wrong."""
    pack = small_pack(tmp_path)
    for name in pack.names:
        file = pack.transcript(name)
        file.write_text(file.read_text("utf-8").replace('"route": "a"', '"route": "c"'), encoding="utf-8")
    assert catch(all_mutants()["R15: nothing is ever replayed"], read_recorded(pack)).has_survived


def test_a_flip_ends_with_its_context() -> None:
    before = replay.NEVER_RULES
    with swapped(replay, "NEVER_RULES", ())():
        assert replay.NEVER_RULES == ()
    assert replay.NEVER_RULES is before


def test_what_several_modules_imported_is_flipped_in_all_of_them() -> None:
    true = events.PARSED_TYPES
    assert vars(sse)["PARSED_TYPES"] is true
    with everywhere(true, "flipped")():
        assert [vars(module)["PARSED_TYPES"] for module in (events, sse)] == ["flipped", "flipped"]
    assert events.PARSED_TYPES is vars(sse)["PARSED_TYPES"] is true


def test_a_flip_of_a_name_that_is_not_there_is_refused_at_once() -> None:
    """So a mutant does not outlive the rule that it flips."""
    with pytest.raises(AttributeError, match="NEVER_RULE_SET"):
        swapped(replay, "NEVER_RULE_SET", ())
