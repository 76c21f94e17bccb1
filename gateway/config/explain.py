"""Validation errors in words: every type of error that the tables can give has a row here, with its fix."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.config.problems import REFUSED, KeyPath, Problem, key_path, suggestion
from gateway.config.section import Section
from gateway.config.tables import ANY_NAME, SECTIONS, Document

_KEY_MARK: Final = "[key]"
"""What pydantic puts behind a path when the name itself is at fault, not the value it leads to."""

_QUOTED: Final = re.compile(r"'([^']*)'")

_LIST_WORDS: Final = ("must be a list", 'write it as ["first", "second"]')
_TABLE_WORDS: Final = ("must be a table", "write it as [table] with keys below, or as {{ key = value }}")
_WORDS: Final[dict[str, tuple[str, str]]] = {
    # error type: (problem, fix); the names in braces are the error's own figures
    "bool_type": ("must be true or false", "write one of the two, without quotes"),
    "dict_type": _TABLE_WORDS,
    "finite_number": ("must be a finite number", "write a number of seconds"),
    "float_type": ("must be a number", "write it without quotes"),
    "greater_than": ("is {value}, which is too low", "write a number above {gt}"),
    "greater_than_equal": ("is {value}, which is too low", "write {ge} or more"),
    "int_type": ("must be a whole number", "write it without quotes and without a decimal point"),
    "less_than_equal": ("is {value}, which is too high", "write {le} or less"),
    "model_type": _TABLE_WORDS,
    "string_pattern_mismatch": ("is not a usable name", "use 1 to 128 visible ASCII characters without spaces"),
    "string_too_short": ("is empty", "give it a value or leave the key out"),
    "string_type": ("must be text", "write it in quotes"),
    "too_short": ("is empty", "add at least one entry"),
    "tuple_type": _LIST_WORDS,
}
_OTHER_WORDS: Final = ("is not valid", "compare it with deploy/gateway.example.toml")
"""Not reached by the tables of today; pydantic may rename a type, and a start-up must still say where to look."""


def explain(error: ValidationError, file: str, form: type[Section] = Document) -> Iterator[Problem]:
    """Each of the error's details as a problem of `file`, which has that form, in the order of the tables."""
    for details in error.errors(include_url=False):
        path = place_of(details)
        if details["type"] == "extra_forbidden":
            problem, fix = _unknown_key(path, form)
        else:
            problem, fix = _SPECIAL.get(details["type"], _from_words)(details, path)
        yield Problem(file, key_path(path), problem, fix)


def fields_at(path: KeyPath, form: type[Section] = Document) -> Mapping[str, FieldInfo]:
    """The keys that the table at `path` may have; none if there is no table of fixed keys."""
    if not path:
        return form.model_fields
    pattern = tuple(ANY_NAME if depth == 1 or isinstance(step, int) else step for depth, step in enumerate(path))
    section = SECTIONS.get(pattern)
    return {} if section is None else section.model_fields


def place_of(details: ErrorDetails) -> KeyPath:
    """The path without pydantic's mark; an unknown key may well be called as the mark is."""
    is_marked = details["loc"][-1] == _KEY_MARK and details["type"] != "extra_forbidden"
    return details["loc"][:-1] if is_marked else details["loc"]


def words_of(details: ErrorDetails) -> tuple[str, str] | None:
    """The problem and its fix; None for a type that has no words here."""
    if details["type"] not in _WORDS:
        return None
    problem, fix = _WORDS[details["type"]]
    figures = {name: _figure(value) for name, value in details.get("ctx", {}).items()}
    return problem.format(value=_figure(details["input"]), **figures), fix.format(**figures)


def _from_words(details: ErrorDetails, _path: KeyPath) -> tuple[str, str]:
    return words_of(details) or _OTHER_WORDS


def _figure(value: object) -> str:
    """Numbers as a person writes them; nothing else is quoted, see `problems.py`."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else "not a number"


def _own_words(details: ErrorDetails, _path: KeyPath) -> tuple[str, str]:
    context: dict[str, Any] = details["ctx"]
    return context["problem"], context["fix"]


def _unknown_key(path: KeyPath, form: type[Section]) -> tuple[str, str]:
    """TOML puts a key into the table whose header stands above it, which is not always the one that was meant."""
    homes = [home for home in ("server", "limits", "estimate") if path[-1] in fields_at((home,))]
    if homes:
        return "is not a known key", f"it belongs in [{homes[0]}]"
    if len(path) > 1 and path[-1] == "routes":
        return "is not a known key", "it belongs above the first [table] of gateway.toml"
    return "is not a known key", suggestion(path[-1], list(fields_at(path[:-1], form)))


def _missing_key(_details: ErrorDetails, path: KeyPath) -> tuple[str, str]:
    examples = fields_at(path[:-1])[str(path[-1])].examples or ["it"]
    return "is missing", f"add {examples[0]}"


def _unknown_word(details: ErrorDetails, _path: KeyPath) -> tuple[str, str]:
    words = _QUOTED.findall(details["ctx"]["expected"])
    return "is not one of the words allowed here", suggestion(details["input"], words)


_SPECIAL: Final[dict[str, Callable[[ErrorDetails, KeyPath], tuple[str, str]]]] = {
    REFUSED: _own_words,
    "missing": _missing_key,
    "literal_error": _unknown_word,
}
