"""What documents say that the code and the fixtures know: the README's replay table (K5), the declarations in the
changelog (K3), a page for each scenario.

`gateway lock table` writes all of it; a test holds that it is as it would be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.core.replay import NEVER_RULES, REPLAY
from gateway.lock.declarations import Declaration, read_history
from gateway.lock.files import Unreadable, entries_of, text_of
from gateway.lock.pack import Pack
from gateway.lock.pages import page
from gateway.lock.scenario import read_scenario
from gateway.lock.transcript import read_transcript

HASH_CHARACTERS: Final = 12
"""How much of a declaration's hash the changelog shows: so an edited one is seen there, too."""


class MarksMissing(ValueError):
    """A document without the marks between which a part of it is written."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The lines around a part that is written."""

    start: str
    end: str

    def filled(self, text: str, part: str) -> str:
        """The text with that part between the marks. Raises MarksMissing."""
        before, _, after = self._parts(text)
        return before + self.start + part + self.end + after

    def between(self, text: str) -> str:
        """What stands between the marks. Raises MarksMissing."""
        return self._parts(text)[1]

    def _parts(self, text: str) -> tuple[str, str, str]:
        before, _, rest = text.partition(self.start)
        part, found, after = rest.partition(self.end)
        if not found:
            raise MarksMissing(f"the marks {self.start.strip()!r} and {self.end.strip()!r} are missing")
        return before, part, after


README_MARKS: Final = Marks(
    "<!-- replay table: made from gateway/core/replay.py by `gateway lock table` -->\n",
    "<!-- end of replay table -->\n",
)
CHANGELOG_MARKS: Final = Marks(
    "<!-- made from fixtures/declarations by `gateway lock table` -->\n", "<!-- end of declarations -->\n"
)


def replay_table() -> str:
    """The decision as Markdown: one row for each rule, in its order."""
    rows = ["| rule | reason | when | replay |", "|---|---|---|---|"]
    for rule in NEVER_RULES:
        reasons = ", ".join(f"`{reason.value}`" for reason in rule.reasons)
        rows.append(f"| {rule.id} | {reasons} | {rule.when} | no |")
    rows.append(f"| {REPLAY.rule} | `{REPLAY.reason.value}` | none of these | **once, on another route** |")
    return "\n".join(rows) + "\n"


def declared_changes(pack: Pack) -> str:
    """A line for each declaration, the newest first."""
    history = read_history(pack)
    lines = [line_of(file, declaration, history.hashes[file]) for file, declaration in history.declarations.items()]
    return "".join(f"{line}\n" for line in reversed(lines))


def line_of(file: str, declaration: Declaration, digest: str) -> str:
    """The changelog's line: what a declaration says of itself, its file, the beginning of its hash."""
    entry = declaration.changelog
    return f"- {entry.section}: {entry.text} (`{file}`, {digest[:HASH_CHARACTERS]})"


def documents(pack: Pack, repository: Path) -> Iterator[tuple[Path, str]]:
    """Each document with the text that it must have. Raises MarksMissing, and Unreadable outside a checkout."""
    readme, changelog = repository / "README.md", repository / "CHANGELOG.md"
    yield readme, README_MARKS.filled(text_of(readme), replay_table())
    yield changelog, CHANGELOG_MARKS.filled(text_of(changelog), declared_changes(pack))
    yield from scenario_pages(pack)


def scenario_pages(pack: Pack) -> Iterator[tuple[Path, str]]:
    """The page of each scenario: they lie in the pack itself. Raises ScenarioError and Unreadable."""
    for name in pack.names:
        yield pack.pages / f"{name}.md", scenario_page(pack, name)


def scenario_page(pack: Pack, name: str) -> str:
    """The page of a scenario, from its two files."""
    file = pack.transcript(name)
    scenario, transcript = read_scenario(pack.scenario(name)), read_transcript(file)
    try:
        return page(name, scenario, transcript)
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # what stands in a column is any JSON
        raise Unreadable(file.name, f"is no transcript ({type(error).__name__}: {error})") from None


def left_over(pack: Pack) -> list[Path]:
    """Pages of scenarios that are no more. What is no page is left alone: it may be anybody's."""
    kept = {f"{name}.md" for name in pack.names}
    return [
        path for path in entries_of(pack.pages) if path.suffix == ".md" and path.is_file() and path.name not in kept
    ]
