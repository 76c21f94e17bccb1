"""Fixtures as they are read: whatever cannot be read is told by its file, in one line.

Only regular files are opened: a FIFO would be waited for, and a folder may bear any file's name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path


class Unreadable(ValueError):
    """A file that cannot be used: which, and why."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(file, problem)  # both, for it also comes out of other processes
        self.file = file
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def bytes_of(path: Path) -> bytes:
    """What is in a file. Raises Unreadable."""
    if not path.exists() and not path.is_symlink():
        raise Unreadable(path.name, "is missing")
    if not path.is_file():
        raise Unreadable(path.name, "is no regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(path.name, f"cannot be read ({error.strerror})") from None


def entries_of(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing in one that is not there. Raises Unreadable: `glob` would call a folder
    that nobody may read an empty one."""
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(str(folder), f"cannot be read ({error.strerror})") from None


def all_below(folder: Path) -> Iterator[Path]:
    """The same for the folders in it, too; links to folders are not followed."""
    for path in entries_of(folder):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from all_below(path)


def text_of(path: Path) -> str:
    """The text in a file, its ends of line as they are. Raises Unreadable."""
    try:
        return bytes_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(path.name, f"is not UTF-8 (byte {error.start})") from None


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hex: what `sha256sum` prints. Raises Unreadable."""
    return hashlib.sha256(bytes_of(path)).hexdigest()
