"""What the lock refuses: a file by its name, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One of it; `details` are lines for a reader."""

    file: str
    problem: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.file}: {self.problem}", *(f"    {line}" for line in self.details)])
