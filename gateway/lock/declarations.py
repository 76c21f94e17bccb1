"""Declarations (K3): which fixtures change, to what, and why. Nothing else may change.

    before = "…"                     the SHA-256 of the declaration before it; "none" for the first
    why = "…"
    [changelog]                      what CHANGELOG.md says of it, under which heading
    section = "Changed"
    text = "…"
    [fixtures]
    "name.json" = "…"                the new SHA-256 of the file, or "removed"

Each names the hash of the one before: so history cannot be edited without its successors showing it. The newest has
none yet, and no name is chained: for both CHANGELOG.md is the witness (told.py). Folded together they say what every
fixture must be.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from gateway.config.section import Section
from gateway.lock.files import Unreadable, entries_of, hash_of, text_of
from gateway.lock.finding import Finding
from gateway.lock.pack import Pack

FILE_NAME: Final = re.compile(r"(?P<number>\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.toml")
NONE_BEFORE: Final = "none"
REMOVED: Final = "removed"

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SECTIONS: Final = ("Added", "Changed", "Fixed", "Removed")
"""The headings of Keep a Changelog that a change of behaviour may stand under."""


class ChangelogEntry(Section):
    """What CHANGELOG.md says."""

    section: Literal["Added", "Changed", "Fixed", "Removed"]
    text: str = Field(pattern=r"\S")


class Declaration(Section):
    """One file."""

    before: Hash | Literal["none"]
    why: str = Field(pattern=r"\S")
    changelog: ChangelogEntry
    fixtures: dict[str, Hash | Literal["removed"]] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class History:
    """The declarations and the hash of each file, in order, and what is wrong with them."""

    declarations: Mapping[str, Declaration]
    hashes: Mapping[str, str]
    findings: Sequence[Finding]

    def declared(self) -> dict[str, tuple[str, str]]:
        """What each fixture must be: its hash, and the declaration that says so."""
        folded: dict[str, tuple[str, str]] = {}
        for file, declaration in self.declarations.items():
            for fixture, value in declaration.fixtures.items():
                if value == REMOVED:
                    folded.pop(fixture, None)
                else:
                    folded[fixture] = value, file
        return folded


def read_history(pack: Pack) -> History:
    """All declarations of a pack. What cannot be read is told and left out."""
    declarations: dict[str, Declaration] = {}
    hashes: dict[str, str] = {}
    findings: list[Finding] = []
    for number, path in enumerate(entries_of(pack.declarations), start=1):
        try:
            hashes[path.name] = hash_of(path)
            declarations[path.name] = _read(path, number)
        except NotDeclared as error:
            findings.append(error.finding)
        except Unreadable as error:
            findings.append(Finding(error.file, error.problem))
    return History(declarations, hashes, [*findings, *_edited(declarations, hashes)])


class NotDeclared(Exception):
    """A file in the folder of declarations that is none."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def _read(path: Path, number: int) -> Declaration:
    named = FILE_NAME.fullmatch(path.name)
    if named is None or int(named["number"]) != number:
        fix = f"the file in its place is called {number:04}-slug.toml"
        raise NotDeclared(Finding(path.name, f"is no declaration: {fix}"))
    try:
        return Declaration.model_validate(tomllib.loads(text_of(path)))
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False))
        raise NotDeclared(Finding(path.name, "is not a declaration", tuple(wrong))) from None
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise NotDeclared(Finding(path.name, f"is not valid TOML: {error}")) from None


def _edited(declarations: Mapping[str, Declaration], hashes: Mapping[str, str]) -> Iterator[Finding]:
    """Where the chain is broken: at a file that was written behind another than it stands behind, or else at the one
    before it, which is not what it was."""
    files = list(hashes)
    for before, file in zip([None, *files], files, strict=False):
        if file not in declarations:
            continue
        said = declarations[file].before
        if said == (NONE_BEFORE if before is None else hashes[before]):
            continue
        own = next((name for name in files if hashes[name] == said), NONE_BEFORE if said == NONE_BEFORE else None)
        if before is None:
            yield Finding(file, f"history was edited: it is the first, and was written behind {own or said}")
        elif own is not None:
            yield Finding(file, f"history was edited: it stands behind {before}, and was written behind {own}")
        else:
            yield Finding(before, f"history was edited: its hash is {hashes[before]}, {file} was written behind {said}")


# --- what is, against what is declared --------------------------------------------------------------------------


def undeclared(pack: Pack, history: History) -> list[Finding]:
    """Every file that is not as the declarations have it: changed, new, missing."""
    declared, actual = history.declared(), pack.hashes()
    return [
        *(
            Finding(name, f"changed without a declaration; the last word on it is {declared[name][1]}")
            for name in actual
            if name in declared and declared[name][0] != actual[name]
        ),
        *(Finding(name, "is new, and no declaration names it") for name in actual if name not in declared),
        *(
            Finding(name, f"is missing; {file} declares it")
            for name, (_, file) in declared.items()
            if name not in actual
        ),
    ]


def changes(pack: Pack, history: History) -> dict[str, str]:
    """What the next declaration has to say: each fixture that is not as declared, with its hash or `removed`."""
    declared, actual = history.declared(), pack.hashes()
    changed = {name: value for name, value in actual.items() if name not in declared or declared[name][0] != value}
    return changed | {name: REMOVED for name in declared if name not in actual}


def draft(pack: Pack, history: History, why: str, section: str, text: str) -> str:
    """The next declaration as a file, to be reviewed."""
    files = _toml_files(pack)
    before = hash_of(files[-1]) if files else NONE_BEFORE
    lines = [f"before = {_quoted(before)}", f"why = {_quoted(why)}", ""]
    lines += ["[changelog]", f"section = {_quoted(section)}", f"text = {_quoted(text)}", "", "[fixtures]"]
    lines += [f"{_quoted(name)} = {_quoted(value)}" for name, value in sorted(changes(pack, history).items())]
    return "\n".join(lines) + "\n"


def next_file(pack: Pack, slug: str) -> Path:
    """Where the next declaration belongs."""
    return pack.declarations / f"{len(_toml_files(pack)) + 1:04}-{slug}.toml"


def _toml_files(pack: Pack) -> list[Path]:
    return [path for path in entries_of(pack.declarations) if path.suffix == ".toml"]


def _quoted(text: str) -> str:
    """A text as TOML writes it: JSON's escapes are TOML's, but that TOML wants DEL escaped, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
