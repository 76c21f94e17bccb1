"""The routes file as `gateway routes apply` writes it, and the tables that it held before.

    routes.toml            replaced whole: written beside it, synced, renamed into its place, with the same mode
    routes.toml.applied/   HASH.toml: the last `ROUTES_KEPT_MAX` that were applied or replaced, the newest touched last

A symbolic link is followed: what it leads to is replaced, not the link. Everything here blocks, and raises OSError.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway import limits

FOLDER: Final = ".applied"
SUFFIX: Final = ".toml"
PREFIX_DIGITS_MIN: Final = 6
"""Of a hash, that a person may type in its place."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A table that can be gone back to. `hash` is the one that it had: secrets are part of it, and may differ now."""

    hash: str
    at: datetime
    path: Path


class RoutesFile:
    """One routes file."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._folder = self.path.with_name(self.path.name + FOLDER)

    def __repr__(self) -> str:
        return f"<RoutesFile {self.path}>"

    def replace(self, text: str, table: str, before: str | None) -> None:
        """Have `text`, whose table has that hash, stand in the file; keep it, and what stood there, which was the table
        `before` if it was one."""
        if before is not None:
            self._keep(self.path.read_bytes(), before)
        self._keep(text.encode(), table)
        _write(self.path, text.encode(), self.path.stat().st_mode if self.path.exists() else 0o600)
        for old in self.kept()[limits.ROUTES_KEPT_MAX :]:
            old.path.unlink(missing_ok=True)

    def kept(self) -> list[Kept]:
        """The tables that can be gone back to, the one that was applied last first."""
        found = [(path.stat().st_mtime_ns, path) for path in self._folder.glob(f"*{SUFFIX}")]
        return [
            Kept(path.stem, datetime.fromtimestamp(at / 1e9, UTC), path) for at, path in sorted(found, reverse=True)
        ]

    def find(self, named: str) -> Kept | str:
        """The kept table whose hash began so as it was put there; or why there is none."""
        kept = self.kept()
        fitting = [one for one in kept if one.hash.startswith(named)] if len(named) >= PREFIX_DIGITS_MIN else []
        if len(fitting) == 1:
            return fitting[0]
        known = ", ".join(one.hash[: limits.TABLE_DIGITS] for one in kept) or "none"
        return f"no table, or more than one, begins with {named[:64]!r}; kept are: {known}"

    def _keep(self, content: bytes, table: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _write(self._folder / f"{table}{SUFFIX}", content, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and durable."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with staging.open("wb") as file:
            os.fchmod(file.fileno(), mode & 0o777)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
