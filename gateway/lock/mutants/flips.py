"""How a rule is flipped: names of the gateway's modules are given other values, and get their own back.

Nothing in the gateway knows of it. A table or a function that several modules have imported is replaced in each of
them; the lock's own modules keep the true ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gateway.lock.world import Change

Flip = Callable[[], AbstractContextManager[None]]


@contextmanager
def nothing() -> Iterator[None]:
    """For a mutant that is a change of configuration alone."""
    yield


@dataclass(frozen=True, slots=True)
class Mutant:
    """One flipped rule. `rules` and `words` say where to look first for a scenario that shows it: by rule id, and by
    what stands in its files."""

    name: str
    rules: tuple[str, ...]
    flip: Flip = nothing
    change: Change | None = None
    words: tuple[str, ...] = ()


def swapped(owner: object, name: str, value: object) -> Flip:
    """An attribute of a module or a class has another value. AttributeError if there is none of that name."""

    @contextmanager
    def flip() -> Iterator[None]:
        original = vars(owner)[name]
        setattr(owner, name, value)
        try:
            yield
        finally:
            setattr(owner, name, original)

    if name not in vars(owner):
        raise AttributeError(f"{owner!r} has no {name!r} to be flipped")
    return flip


def everywhere(original: object, replacement: object) -> Flip:
    """What several modules have imported is another thing in all of them."""

    @contextmanager
    def flip() -> Iterator[None]:
        with ExitStack() as flipped:
            for module in _gateway_modules():
                for name in [name for name, value in vars(module).items() if value is original]:
                    flipped.enter_context(swapped(module, name, replacement)())
            yield

    return flip


def added(module: ModuleType, name: str, value: object) -> Flip:
    """A module has a name of its own where it used a built-in one."""

    @contextmanager
    def flip() -> Iterator[None]:
        setattr(module, name, value)
        try:
            yield
        finally:
            delattr(module, name)

    return flip


def both(*flips: Flip) -> Flip:
    """Several at once."""

    @contextmanager
    def flip() -> Iterator[None]:
        with ExitStack() as flipped:
            for each in flips:
                flipped.enter_context(each())
            yield

    return flip


def without(table: Any, entry: object) -> Any:
    """A set, tuple or mapping, less one of its entries."""
    if isinstance(table, Mapping):
        return {name: value for name, value in table.items() if name != entry}
    return type(table)(held for held in table if held != entry)


def _gateway_modules() -> list[ModuleType]:
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("gateway.") and not name.startswith("gateway.lock")
    ]
