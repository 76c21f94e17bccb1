"""What is wrong with a configuration file, told so that the reader can put it right without opening this code.

A problem has a place (file and key path), a statement and a fix. No problem ever quotes a text value of the file, for
any of them may turn out to be a secret that was put in the wrong place; names of keys and plain numbers are quoted.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic_core import PydanticCustomError

REFUSED: Final = "refused"
"""The type of the validation errors that `refusal` makes: they bring their own wording."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")

_LIKENESS_MIN: Final = 0.65
"""Two swapped letters of three are still a misspelling ("evn"); half a word in common is not."""

KeyPath = tuple[str | int, ...]
"""Where a value stands in the file: names of tables and keys, and positions in lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right: `path` is the key path as TOML writes it, a line of the file, or empty for the file."""

    file: str
    path: str
    problem: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.path}" if self.path else self.file
        return f"{place}: {self.problem}; {self.fix}"


class ConfigError(Exception):
    """The configuration cannot be used: everything that is wrong with it, one line per problem. `stamps` are its files,
    gateway.toml and the routes file that this names now, and how they stood: whoever puts them right changes them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        self.stamps: Mapping[Path, tuple[int, int, int] | None] = {}
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def refusal(problem: str, fix: str) -> PydanticCustomError:
    """A validation error in the words of this package, for a validator to raise; texts are taken as they are."""
    return PydanticCustomError(REFUSED, "{problem}", {"problem": problem, "fix": fix})


def key_path(path: KeyPath) -> str:
    """The path as TOML writes it: `models."gpt-5.6".routes[1]`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in path)
    return "".join(steps).removeprefix(".")


def suggestion(written: object, known: Sequence[str]) -> str:
    """The fix for a name that is not among `known`: the one that was probably meant, else all of them."""
    nearest = difflib.get_close_matches(written, known, n=1, cutoff=_LIKENESS_MIN) if isinstance(written, str) else []
    if nearest:
        return f"did you mean {json.dumps(nearest[0])}?"
    return f"use one of: {', '.join(map(_key, known))}" if known else "define one first"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name)
