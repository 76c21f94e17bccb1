"""The files of a configuration: read whole, bounded, and taken apart as TOML; what is wrong with a file has its place.

gateway.toml  --routes = "routes.toml"-->  routes.toml        or the tables [routes.NAME] and [models.NAME] in itself

A reading keeps what it has read (`Files`), the files of secrets too: a process can be started with just that when the
files themselves have become unusable.
"""

import ast
import errno
import json
import os
import re
import tomllib
from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class Kept:
    """What a reading has read: the files that are watched, gateway.toml and the routes file, with how they stood; and
    the contents of all, files of secrets too."""

    stamps: Mapping[Path, Stamp]
    contents: Mapping[Path, bytes]

    def to_bytes(self) -> bytes:
        """For another process; secrets are in it."""
        stamps = {str(path): found for path, found in self.stamps.items()}
        contents = {str(path): content.decode("latin-1") for path, content in self.contents.items()}
        return json.dumps([stamps, contents]).encode()

    @classmethod
    def from_bytes(cls, written: bytes) -> "Kept":
        """As it comes there."""
        stamps, contents = json.loads(written)
        return cls(
            {Path(path): None if found is None else tuple(found) for path, found in stamps.items()},
            {Path(path): content.encode("latin-1") for path, content in contents.items()},
        )


class Files:
    """The files of one reading, from the disk: what is read is kept."""

    def __init__(self) -> None:
        self._stamps: dict[Path, Stamp] = {}
        self._contents: dict[Path, bytes] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {len(self._contents)} read>"

    @property
    def kept(self) -> Kept:
        """So far."""
        return Kept(self._stamps, self._contents)

    def watch(self, path: Path) -> None:
        """Take note of how a file stands, before it is read: a later change is seen as one."""
        self._stamps[path] = self.stamp(path)

    def read(self, path: Path, bytes_max: int = -1) -> bytes:
        """Its content, or the beginning. Raises OSError."""
        content = self._contents[path] = self.content(path, bytes_max)
        return content

    def stamp(self, path: Path) -> Stamp:
        """How it stands."""
        return stamp(path)

    def is_file(self, path: Path) -> bool:
        """Whether it is there, and a regular one. Raises OSError."""
        return path.is_file()

    def content(self, path: Path, bytes_max: int) -> bytes:
        """As `read`."""
        with path.open("rb") as file:
            return file.read(bytes_max)


class KeptFiles(Files):
    """Those that another reading has kept, as if they were there; no other is."""

    def __init__(self, source: Kept) -> None:
        super().__init__()
        self._source = source

    def stamp(self, path: Path) -> Stamp:
        """How it stood."""
        return self._source.stamps.get(path)

    def is_file(self, path: Path) -> bool:
        """Whether it was read."""
        return path in self._source.contents

    def content(self, path: Path, bytes_max: int) -> bytes:
        """As it was."""
        if path not in self._source.contents:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        content = self._source.contents[path]
        return content if bytes_max < 0 else content[:bytes_max]


def read_text(path: Path, files: Files | None = None) -> str:
    """The file's text; a byte order mark, which Windows editors write, is no part of it. Raises ConfigError."""
    try:
        return _decoded(path, (files or Files()).read(path))
    except OSError as error:
        why = error.strerror
    raise ConfigError([Problem(str(path), "", f"cannot be read ({why})", "check the path and its permissions")])


def read_routes_text(path: Path, files: Files | None = None) -> str:
    """The same for a routes file, which is read while turns run: no pipe to be waited for, no file without end. Raises
    ConfigError."""
    files = files or Files()
    try:
        if not files.is_file(path):
            raise ConfigError([Problem(str(path), "", "does not exist or is no regular file", _CREATE_IT)])
        content = files.read(path, limits.ROUTES_FILE_BYTES_MAX + 1)
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
