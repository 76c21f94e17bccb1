"""A transcript: what was seen of a scenario through each door, in four columns with exact virtual times (K1).

    client     the frames the client received: heads, events, comments, ends
    upstream   what was asked of whom, and when the conversation was over
    money      the entries of the ledger, in words
    records    the turns and attempts on record

It is JSON with one entry on each line, the same bytes whatever the order of tasks: so two of them are compared by eye
and by `diff`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from gateway.lock.files import Unreadable, text_of
from gateway.lock.scenario import COLUMNS

Entry = dict[str, Any]
Columns = Mapping[str, Sequence[Entry]]
"""The four columns of one door."""
Transcript = Mapping[str, Columns]
"""The columns by the door's name."""

DIFFERENCES_SHOWN_MAX: Final = 40
LINE_CHARACTERS_MAX: Final = 160
HEAD_CHARACTERS: Final = 40
"""Of a line that is cut, what is kept of its beginning: its time."""
BEFORE_CHARACTERS: Final = 40
"""Of a line that is cut, what is kept before the first difference."""


def to_text(transcript: Transcript) -> str:
    """The transcript as its file has it."""
    return "{\n" + ",\n".join(f"{_json(door)}: {_columns(columns)}" for door, columns in transcript.items()) + "\n}\n"


def _columns(columns: Columns) -> str:
    return "{\n" + ",\n".join(f" {_json(name)}: {_entries(columns[name])}" for name in COLUMNS) + "\n}"


def _entries(entries: Sequence[Entry]) -> str:
    return "[" + ",".join(f"\n  {_json(entry)}" for entry in entries) + ("\n ]" if entries else "]")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def from_text(text: str) -> Transcript:
    """A transcript as it was recorded. ValueError, which says why, for what is none."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict) or not found or not all(_are_columns(columns) for columns in found.values()):
        raise ValueError(f"it does not have the columns {', '.join(COLUMNS)} for each door")
    return found


def _are_columns(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and set(found) == set(COLUMNS)
        and all(
            isinstance(column, list) and all(isinstance(entry, dict) for entry in column) for column in found.values()
        )
    )


def read_transcript(path: Path) -> Transcript:
    """The transcript in a file. Raises Unreadable."""
    fix = f"`gateway lock record {path.stem}` writes it"
    if not path.exists():
        raise Unreadable(path.name, f"is missing; {fix}")
    try:
        return from_text(text_of(path))
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(path.name, f"is no transcript ({error}); {fix}") from None


# --- two of them ------------------------------------------------------------------------------------------------


def differences(recorded: Transcript, played: Transcript) -> list[str]:
    """What differs, by door and column, as a person reads it: lines that were recorded (-) and that were played (+)."""
    lines: list[str] = []
    for door in dict.fromkeys((*recorded, *played)):
        for name in COLUMNS:
            before, after = recorded.get(door, {}).get(name, []), played.get(door, {}).get(name, [])
            lines += [f"{door}, {name}:", *_changes(before, after)] if before != after else []
    return lines if len(lines) <= DIFFERENCES_SHOWN_MAX else [*lines[:DIFFERENCES_SHOWN_MAX], "…"]


def changed_columns(recorded: Transcript, played: Transcript) -> list[str]:
    """The columns that differ, as `http client`."""
    return [
        f"{door} {name}"
        for door in dict.fromkeys((*recorded, *played))
        for name in COLUMNS
        if recorded.get(door, {}).get(name, []) != played.get(door, {}).get(name, [])
    ]


def _changes(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[str]:
    old, new = [_json(entry) for entry in before], [_json(entry) for entry in after]
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            cut = [_cut(one, other) for one, other in zip_longest(old[start:end], new[new_start:new_end])]
            yield from (f"  -{line}" for line, _ in cut if line is not None)
            yield from (f"  +{line}" for _, line in cut if line is not None)


def _cut(one: str | None, other: str | None) -> tuple[str | None, str | None]:
    """Both lines as they are shown: of long ones the beginning, and what is around the first difference."""
    at = 0 if one is None or other is None else _first_difference(one, other)
    return (None if one is None else _shortened(one, at)), (None if other is None else _shortened(other, at))


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _shortened(line: str, at: int) -> str:
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    head, start = "", max(0, at - BEFORE_CHARACTERS)
    if start > HEAD_CHARACTERS:
        head = f"{line[:HEAD_CHARACTERS]} … "
    else:
        start = 0
    end = start + LINE_CHARACTERS_MAX - len(head)
    return f"{head}{line[start:end]}{' …' if end < len(line) else ''}"
