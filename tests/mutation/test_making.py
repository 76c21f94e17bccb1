"""Mutants as mutmut makes them, and how one takes its function's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mutation.making import mutated
from mutation.registry import MUTANTS, SEEN, activate

SAMPLE = """
def first(x, by=1):
    '''Said first of all.'''
    return x + by

class Counter:
    def up(self, x):
        return first(x) + 3

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def made(cls, x):
        return cls().up(x) - 1

AT_IMPORT = first(1)
"""


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with all its mutants, imported."""
    module = ModuleType("sample")
    monkeypatch.setitem(sys.modules, "sample", module)
    SEEN.clear()
    code, count = mutated(Path("sample.py"), SAMPLE)
    exec(compile(code, "sample.py", "exec"), module.__dict__)
    assert count == len(names())
    yield module
    for name in names():
        del MUTANTS[name]


def names() -> list[str]:
    return [name for name in MUTANTS if name.startswith("sample.")]


def test_without_a_mutant_all_is_as_it_was(sample: Any) -> None:
    found = sample.first(1), sample.first(1, by=5), sample.Counter().up(1), sample.Counter.twice(3)
    assert (found, sample.Counter.made(4), sample.AT_IMPORT) == ((2, 6, 5, 6), 7, 2)


def test_a_function_notes_that_it_was_called_and_so_does_what_an_import_calls(sample: Any) -> None:
    assert {"sample.x_first"} == SEEN
    sample.Counter().up(1)
    assert {"sample.x_first", "sample.xǁCounterǁup"} == SEEN


@pytest.mark.parametrize("function", ["x_first", "xǁCounterǁup", "xǁCounterǁtwice", "xǁCounterǁmade"])
def test_a_mutant_takes_its_functions_place(sample: Any, function: str) -> None:
    """Of a function, a method, a static method, a class method: for whoever holds it already."""
    held = {
        "x_first": sample.first,
        "xǁCounterǁup": sample.Counter().up,
        "xǁCounterǁtwice": sample.Counter.twice,
        "xǁCounterǁmade": sample.Counter.made,
    }[function]
    before = answer(held)
    mine = [name for name in names() if name.startswith(f"sample.{function}__mutmut_")]
    changed = []
    for name in mine:
        activate(name)
        changed.append(answer(held) != before)
    assert changed == [True] * len(mine) != []


def answer(held: Any) -> object:
    """What it gives, or how it fails."""
    try:
        return held(3)
    except (TypeError, AttributeError) as error:
        return type(error)
