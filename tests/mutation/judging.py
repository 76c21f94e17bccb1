"""Which surviving mutants are known to change nothing: equivalent.toml, read and compared.

A mutant is known by its function and by the lines it puts there, not by mutmut's number, which moves with every edit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIST: Final = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that no test can find. `function` is what its full name begins with, before mutmut's number."""

    function: str
    becomes: str
    why: str


def equivalents(path: Path = LIST) -> list[Equivalent]:
    """The list, a row for each mutant."""
    tables = tomllib.loads(path.read_text("utf-8")).get("equivalent", [])
    return [Equivalent(table["function"], becomes, table["why"]) for table in tables for becomes in table["becomes"]]


def judge(survivors: Mapping[str, tuple[str, str]], listed: Sequence[Equivalent]) -> tuple[list[str], list[Equivalent]]:
    """Survivors that are not listed, and what is listed and did not survive. `survivors` are full names with what they
    change: the lines that were, and those that take their place."""
    known = {(row.function, row.becomes) for row in listed}
    seen = {(function_of(name), becomes) for name, (_, becomes) in survivors.items()}
    unlisted = [name for name, (_, becomes) in survivors.items() if (function_of(name), becomes) not in known]
    return unlisted, [row for row in listed if (row.function, row.becomes) not in seen]


def function_of(mutant: str) -> str:
    """A mutant's full name without its number."""
    return mutant.rpartition("__mutmut_")[0]
