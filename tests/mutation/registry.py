"""What a mutated module imports in the place of mutmut's trampoline: nothing stands between a caller and a function.

mutmut writes each mutant of a function beside it, and fills a table with them. Here the table puts one of them in the
function's place, by its code: what has no mutant active runs as fast as ever, and is what it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

ACTIVE: Final = "MUTANT_UNDER_TEST"
"""The environment's name of the mutant that is in place from the import on; the session puts it there by `activate`."""
ORIGINAL: Final = "_mutmut_orig"


class MutantDict(dict[str, Any]):
    """A function's mutants, by mutmut's name."""

    function: Any

    def __setitem__(self, name: str, held: Any) -> None:
        mutant: FunctionType = getattr(held, "__func__", held)
        super().__setitem__(name, mutant)
        full_name = f"{mutant.__module__}.{name}"
        if name != ORIGINAL:
            MUTANTS[full_name] = (self.function, mutant)
            if os.environ.get(ACTIVE) == full_name:
                activate(full_name)


SEEN: Final[set[str]] = set()
"""The functions that were called: each notes what its mutants' names begin with."""
MUTANTS: Final[dict[str, tuple[FunctionType, FunctionType]]] = {}
"""Each mutant by its full name: the function, and what takes its place."""


def wrap_in_trampoline(mutants: MutantDict, is_classmethod: bool = False) -> Callable[[Any], Any]:
    """mutmut's decorator: note the function."""

    def noting(function: Any) -> Any:
        mutants.function = getattr(function, "__func__", function)
        return function

    return noting


def activate(full_name: str) -> None:
    """The mutant is in its function's place from now on, in this process."""
    function, mutant = MUTANTS[full_name]
    function.__code__ = mutant.__code__
    function.__defaults__ = mutant.__defaults__
    function.__kwdefaults__ = mutant.__kwdefaults__
