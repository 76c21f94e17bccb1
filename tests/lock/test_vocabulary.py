"""`gateway lock notation`: what a scenario may say, where nothing but the gateway is at hand."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gateway.cli import gateway
from gateway.config.section import Section
from gateway.lock.notation import TABLES, WORDS
from gateway.lock.scenario import SECTIONS, Scenario
from gateway.lock.vocabulary import WIDTH, vocabulary

FORMS: dict[str, type[Section]] = {"": Scenario, **SECTIONS}


def parts() -> dict[str, str]:
    """What is said of each table, by its name; of the scenario itself behind no name."""
    found, name = {"": ""}, ""
    for line in vocabulary().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        found[name] = f"{found.get(name, '')}{line}\n"
    return found


def test_the_command_says_it() -> None:
    result = CliRunner().invoke(gateway, ["lock", "notation"])
    assert (result.exit_code, result.output) == (0, vocabulary())


@pytest.mark.parametrize("name", FORMS)
def test_each_key_of_each_table_is_told_with_what_it_is(name: str) -> None:
    """A new one needs a description."""
    told = parts()[name]
    for key, field in FORMS[name].model_fields.items():
        assert field.description, f"{name}.{key} has no description"
        (line,) = (line for line in told.splitlines() if line.startswith(f"  {key} "))
        assert ", needed: " in line if field.is_required() else ": " in told


@pytest.mark.parametrize("word", [*WORDS, *TABLES])
def test_each_word_of_the_notation_is_told(word: str) -> None:
    assert word in vocabulary().partition("What `does` of an upstream says:")[2]


def test_a_key_is_told_with_its_kind_its_bounds_and_its_default() -> None:
    lines = vocabulary().splitlines()
    assert [line for line in lines if line.startswith('  route               "a", "b" or "c", needed: whose answer')]
    assert (
        "  status              a whole number from 100 to 599, 200 if left out: of the answer, or of the handshake"
        in lines
    )
    assert "  omits               a list of texts: members of the request that are left out" in lines
    assert "  client              tables [[client]]: what it does beside its requests" in lines


def test_no_line_is_too_long_for_a_terminal() -> None:
    assert [line for line in vocabulary().splitlines() if len(line) > WIDTH] == []
