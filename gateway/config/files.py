"""The files of a configuration: read whole, bounded, and taken apart as TOML; what is wrong with a file has its place.

gateway.toml  --routes = "routes.toml"-->  routes.toml        or the tables [routes.NAME] and [models.NAME] in itself
"""

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway import limits
from gateway.config.problems import ConfigError, Problem, key_path

Document = dict[str, Any]
Stamp = tuple[int, int, int] | None
"""A file's time, size and inode, None where there is none. One that is renamed into place has another inode."""

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")
_DECLARED_TWICE: Final = re.compile(r"Cannot declare (\(.*\)) twice")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that might take the place of the routes file, and what it is called in problems."""

    text: str
    name: str


def stamp(path: Path) -> Stamp:
    """How the file stands now; taken before it is read, so that a later change is seen as one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_text(path: Path) -> str:
    """The file's text; a byte order mark, which Windows editors write, is no part of it. Raises ConfigError."""
    try:
        return _decoded(path, path.read_bytes())
    except OSError as error:
        why = error.strerror
    raise ConfigError([Problem(str(path), "", f"cannot be read ({why})", "check the path and its permissions")])


def read_routes_text(path: Path) -> str:
    """The same for a routes file, which is read while turns run: no pipe to be waited for, no file without end. Raises
    ConfigError."""
    try:
        if not path.is_file():
            raise ConfigError([Problem(str(path), "", "does not exist or is no regular file", _CREATE_IT)])
        with path.open("rb") as file:
            content = file.read(limits.ROUTES_FILE_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror
    else:
        if len(content) > limits.ROUTES_FILE_BYTES_MAX:
            raise ConfigError([too_large(str(path))])
        return _decoded(path, content)
    raise ConfigError([Problem(str(path), "", f"cannot be read ({why})", "let the gateway's user read it")])


_CREATE_IT: Final = "create it, or correct `routes` in the file that names it; a relative path starts at that file"


def too_large(file: str) -> Problem:
    """What is wrong with more text than is read."""
    return Problem(file, "", f"is larger than {limits.ROUTES_FILE_BYTES_MAX} bytes", "name the file with the routes")


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
    raise ConfigError([Problem(str(path), f"line {line}", "is not UTF-8 text", "save the file as UTF-8")])


def parse_toml(text: str, file: str) -> Document:
    """The document; `file` is its name in problems. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # tomllib.TOMLDecodeError, or an integer of thousands of digits
        message = str(error)
    except RecursionError:
        raise ConfigError([Problem(file, "", "is nested too deeply", "write it flatter")]) from None
    raise ConfigError([_syntax_problem(message, file)])


def _syntax_problem(message: str, file: str) -> Problem:
    """tomllib's message taken apart: TOML itself refuses two tables, or two keys of a table, with one name."""
    place = _PLACE.search(message)
    where = f"line {place[1]}, column {place[2]}" if place and place[1] else "the end of the file"
    what = _PLACE.sub("", message)
    twice = _DECLARED_TWICE.fullmatch(what)
    if twice:
        table = key_path(ast.literal_eval(twice[1]))
        return Problem(file, where, f"declares the table {table} a second time", "rename or remove one of the two")
    if what == "Cannot overwrite a value" or what.startswith("Duplicate inline table key"):
        return Problem(file, where, "sets a key a second time", "remove one of the two")
    return Problem(file, where, f"is not valid TOML ({what})", "correct the syntax there")
