"""The live table (C2): which models are served, by which routes, now; and the tables before it that turns still run on.

    swap --> current --turn begins--> held by it until it ends --> left: nobody asks for it again
                                          |
                                          replay: only a route that the current table has, too, unchanged

A turn keeps the table it began on. An adapter is shared by all tables whose routes are configured alike, so "unchanged"
is "the same object"; whoever makes tables (gateway/routes.py) sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.ports import Model, Route


@dataclass(eq=False, slots=True)
class Table:
    """Models and their routes; `hash` names the content, `routes` are all of them, those of no model too."""

    hash: str
    models: Mapping[str, Model]
    routes: tuple[Route, ...]
    turns: int = field(default=0, init=False)
    """How many run on it."""


class Tables:
    """The current table, and those that are still held. `on_left` is called when one is held no more."""

    def __init__(self, first: Table, on_left: Callable[[], None] = lambda: None) -> None:
        self.current = first
        self._before: list[Table] = []
        self._on_left = on_left

    def __repr__(self) -> str:
        return f"<Tables, {self.current.hash[:12]} and {len(self._before)} before it>"

    @property
    def held(self) -> list[Table]:
        """Those that a turn may still ask for a route."""
        return [*self._before, self.current]

    def swap(self, table: Table) -> None:
        """From now on turns begin on this table; none is cut."""
        before, self.current = self.current, table
        if before.turns:
            self._before.append(before)
        self._on_left()

    def turn(self) -> Running:
        """A turn runs on the table that is current as it begins, for the block."""
        return Running(self)

    def left(self, table: Table) -> None:
        """One of its turns is over."""
        table.turns -= 1
        if table.turns == 0 and table in self._before:
            self._before.remove(table)
            self._on_left()

    def stands(self, model: Model, route: Route) -> bool:
        """Whether the current table has the route as it is, for the model of that name."""
        newest = self.current.models.get(model.name)
        return newest is not None and any(route is other for other in newest.routes)


class Running:
    """A turn on its table; no generator, for there are thousands at once."""

    __slots__ = ("_table", "_tables")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def __enter__(self) -> Table:
        self._table = self._tables.current
        self._table.turns += 1
        return self._table

    def __exit__(self, *_exception: object) -> None:
        self._tables.left(self._table)
