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
from typing import Any, Final

from gateway.lock.scenario import COLUMNS

Entry = dict[str, Any]
Columns = Mapping[str, Sequence[Entry]]
"""The four columns of one door."""
Transcript = Mapping[str, Columns]
"""The columns by the door's name."""

DIFFERENCES_SHOWN_MAX: Final = 40
LINE_CHARACTERS_MAX: Final = 160


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
    """A transcript as it was recorded. ValueError for what is none."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(columns, dict) for columns in found.values()):
        raise ValueError("it is no transcript")
    return found


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
    for line in difflib.unified_diff(old, new, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield f"  {_shortened(line)}"


def _shortened(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[:LINE_CHARACTERS_MAX]} …"
