"""The live table and those before it, asked directly (C2)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import cast

import pytest

from gateway.core.messages import AttemptStarted
from gateway.core.money import FREE
from gateway.core.routing import in_order
from gateway.ports import Model, Route, Upstream
from gateway.turn.tables import Table, Tables

A = Route("a", cast(Upstream, None), AttemptStarted(first_event_seconds=25.0, idle_seconds=300.0), FREE)


def table(name: str, *routes: Route, model: str = "m") -> Table:
    return Table(name, {model: Model(model, routes, 1000, in_order([route.name for route in routes]))}, routes)


def hashes(tables: Tables) -> list[str]:
    return [held.hash for held in tables.held]


def test_a_turn_keeps_the_table_it_began_on_and_the_last_one_lets_it_go() -> None:
    """C2: a table that nobody runs on is left at once; one that is left is told of, once."""
    left: list[int] = []
    tables = Tables(table("one"), lambda: left.append(1))
    with ExitStack() as first, ExitStack() as second:
        assert first.enter_context(tables.turn()).hash == "one"
        second.enter_context(tables.turn())
        tables.swap(table("two"))
        assert (hashes(tables), len(left), repr(tables)) == (["one", "two"], 1, "<Tables, two and 1 before it>")
        with tables.turn() as current:
            assert (current.hash, current.turns) == ("two", 1)
        first.close()
        assert (hashes(tables), len(left)) == (["one", "two"], 1)
        second.close()
        assert (hashes(tables), len(left)) == (["two"], 2)
    tables.swap(table("three"))
    assert (hashes(tables), len(left)) == (["three"], 3)


def test_a_turn_that_fails_lets_its_table_go_as_well() -> None:
    """C2."""
    tables = Tables(table("one"))

    def fails() -> None:
        tables.swap(table("two"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tables.turn():
        fails()
    assert hashes(tables) == ["two"]


def test_turns_of_the_current_table_leave_it_where_it_is() -> None:
    """C2."""
    left: list[int] = []
    tables = Tables(table("one"), lambda: left.append(1))
    with tables.turn(), tables.turn():
        assert tables.current.turns == 2
    assert (tables.current.turns, hashes(tables), left) == (0, ["one"], [])


def test_a_route_stands_while_the_current_table_has_the_very_same_for_that_model() -> None:
    """C2: unchanged is the same object."""
    tables = Tables(table("one", A, replace(A, name="b")))
    model = tables.current.models["m"]
    assert tables.stands(model, A)
    assert not tables.stands(model, replace(A))
    assert not tables.stands(replace(model, name="n"), A)
    tables.swap(table("two", replace(A, name="b"), A))
    assert tables.stands(model, A)
    tables.swap(table("three", A, model="n"))
    assert not tables.stands(model, A)
