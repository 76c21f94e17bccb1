"""The declarations against CHANGELOG.md, which tells of each in its own words, by its file's name and the beginning of
its hash.

The chain (declarations.py) protects every declaration but the newest, and no name: a line of the changelog is made when
a declaration is, and shows in review what became of it. Only a checkout's own pack is told of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gateway.lock.declarations import History
from gateway.lock.files import Unreadable, text_of
from gateway.lock.finding import Finding
from gateway.lock.pack import Pack
from gateway.lock.table import CHANGELOG_MARKS, HASH_CHARACTERS, MarksMissing, line_of

LINE: Final = re.compile(rf"- .*\(`(?P<file>[^`/]+)`, (?P<digits>[0-9a-f]{{{HASH_CHARACTERS}}})\)")
WRITES: Final = "`gateway lock table` writes it"


def told_otherwise(pack: Pack, history: History) -> list[Finding]:
    """Declarations that are not as the changelog tells of them; of packs without one, nothing."""
    repository = pack.repository
    if repository is None:
        return []
    named = {finding.file for finding in history.findings}
    return [finding for finding in against(repository / "CHANGELOG.md", history) if finding.file not in named]


def against(changelog: Path, history: History) -> Iterator[Finding]:
    """Each declaration that was edited, renamed, removed, or is not told of yet."""
    try:
        lines = CHANGELOG_MARKS.between(text_of(changelog)).splitlines()
    except (MarksMissing, Unreadable) as error:
        yield Finding(changelog.name, str(error).removeprefix(f"{changelog.name}: "))
        return
    told: dict[str, tuple[str, str]] = {}
    for line in lines:
        found = LINE.fullmatch(line)
        if found is None or found["file"] in told:
            yield Finding(changelog.name, f"has a line among the declarations that tells of none: {line[:60]!r}")
        else:
            told[found["file"]] = found["digits"], line
    yield from _otherwise(changelog.name, told, history)


def _otherwise(changelog: str, told: Mapping[str, tuple[str, str]], history: History) -> Iterator[Finding]:
    for file, digest in history.hashes.items():
        if file not in told:
            yield Finding(file, f"{changelog} has no line for it: it is new, and {WRITES}, or it was renamed")
            continue
        digits, line = told[file]
        if not digest.startswith(digits):
            yield Finding(file, f"history was edited: its hash is {digest}, {changelog} says {digits}…")
        elif file in history.declarations and line != line_of(file, history.declarations[file], digest):
            yield Finding(changelog, f"tells of {file} in other words than that has; {WRITES}")
    for file in told:
        if file not in history.hashes:
            yield Finding(file, f"is missing; {changelog} tells of it: it was removed or renamed")
    if list(told) != sorted(told, reverse=True):
        yield Finding(changelog, f"does not tell of the declarations in their order, the newest first; {WRITES}")
