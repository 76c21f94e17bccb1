"""The list of the mutants that survive, and what is compared with it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from mutation.judging import Equivalent, equivalents, judge

LISTED = Equivalent("gateway.core.budget.x_f", "return 1 + 0", "nothing is added")


def test_a_survivor_is_known_by_its_function_and_by_what_it_puts_there() -> None:
    """Whatever its number: that moves with every edit."""
    survivors = {
        "gateway.core.budget.x_f__mutmut_3": ("return 1", "return 1 + 0"),
        "gateway.core.budget.x_f__mutmut_4": ("return 1", "return 2"),
        "gateway.core.budget.x_g__mutmut_3": ("return 1", "return 1 + 0"),
    }
    unlisted = ["gateway.core.budget.x_f__mutmut_4", "gateway.core.budget.x_g__mutmut_3"]
    assert judge(survivors, [LISTED]) == (unlisted, [])


def test_what_is_listed_and_did_not_survive_is_named() -> None:
    """A test finds it now, or its line is there no more."""
    assert judge({}, [LISTED]) == ([], [LISTED])


def test_a_row_may_name_several_of_one_function_for_one_reason(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    path.write_text('[[equivalent]]\nfunction = "f"\nbecomes = ["a", "b"]\nwhy = "both are"\n')
    assert equivalents(path) == [Equivalent("f", "a", "both are"), Equivalent("f", "b", "both are")]


@pytest.mark.parametrize("function", sorted({row.function for row in equivalents()}))
def test_a_row_names_a_function_that_is_there(function: str) -> None:
    """mutmut writes `x_function` and `xǁClassǁmethod`."""
    module, _, name = function.rpartition(".")
    held = import_module(module)
    for part in name.removeprefix("x_").removeprefix("xǁ").split("ǁ"):
        held = getattr(held, part)
    assert callable(held)


def test_every_row_says_why() -> None:
    assert [row.function for row in equivalents() if len(row.why.split()) < 4] == []
