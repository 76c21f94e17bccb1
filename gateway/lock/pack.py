"""Where the lock's fixtures lie, and what lies there.

    fixtures/lock/NAME.toml           a scenario        fixtures/declarations/NNNN-slug.toml    what changed, and why
    fixtures/lock/NAME.json           its transcript    fixtures/lock/pages/NAME.md             it, for readers

An installed gateway carries scenarios, transcripts and declarations; a checkout has all of them in `fixtures/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from gateway.lock.files import all_below, entries_of, hash_of

NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""A scenario's name: words of lower-case letters and figures, joined by hyphens."""


@dataclass(frozen=True, slots=True)
class Pack:
    """The fixtures under one folder."""

    root: Path

    @property
    def is_embedded(self) -> bool:
        """Whether they lie in an installed package."""
        return self.root == _embedded()

    @property
    def repository(self) -> Path | None:
        """The checkout whose own fixtures these are: there, and only there, documents tell of them. One that has lost
        its documents is still a checkout: else who deletes the witness could edit what it saw (K3)."""
        above = checkout()
        return above if self.root.resolve() == (above / "fixtures").resolve() else None

    @property
    def lock(self) -> Path:
        """Scenarios and transcripts."""
        return self.root / "lock"

    @property
    def pages(self) -> Path:
        """A page for each scenario; made, and so not declared."""
        return self.lock / "pages"

    @property
    def declarations(self) -> Path:
        """What changed and why, one file after the other."""
        return self.root / "declarations"

    @property
    def names(self) -> list[str]:
        """The scenarios, by name. Raises Unreadable."""
        return sorted(path.stem for path in entries_of(self.lock) if path.suffix == ".toml")

    def scenario(self, name: str) -> Path:
        """The file of a scenario."""
        return self.lock / f"{name}.toml"

    def transcript(self, name: str) -> Path:
        """The file of its transcript."""
        return self.lock / f"{name}.json"

    def irregular(self) -> list[str]:
        """What lies there and is neither a file nor a folder: it has no bytes that could be declared."""
        found = (path for path in all_below(self.lock) if not path.is_file() and not path.is_dir())
        return sorted(path.relative_to(self.lock).as_posix() for path in found)

    def hashes(self) -> dict[str, str]:
        """Every file beside the pages, by its name, with the hash of its bytes."""
        files = (path for path in all_below(self.lock) if path.is_file() and not path.is_relative_to(self.pages))
        return {path.relative_to(self.lock).as_posix(): hash_of(path) for path in sorted(files)}


def shipped() -> Pack:
    """The pack that this gateway brings."""
    return Pack(_embedded() if _embedded().is_dir() else checkout() / "fixtures")


def _embedded() -> Path:
    return Path(str(resources.files("gateway"))) / "embedded" / "fixtures"


def checkout() -> Path:
    """The folder above the package: in a checkout that of README.md."""
    return Path(__file__).parents[2]
