"""A scenario as a page: what it is about, and a picture of its turns as text, instant by instant.

    at      asked      decided                    the client got                    money
    0       a                                                                       reserve 4001000
    3.5     b          a: stream_read_error,      created, in_progress,             settle 7000
                       R15 replay                 output_text.delta, completed

The columns of a transcript are not one interleaving: what stands on one line happened at one instant.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from gateway.core.events import error_code, parse_object
from gateway.lock.parity import payload_of
from gateway.lock.scenario import Scenario
from gateway.lock.transcript import Columns, Entry, Transcript

LANES: Final = ("asked", "decided", "got", "money")
HEADINGS: Final = ("at", "asked", "decided", "the client got", "money")
WIDTHS: Final = (11, 8, 44, 46, 27)
DOOR_WORDS: Final = {"http": "HTTP", "websocket": "WebSocket"}
MADE: Final = "<!-- made by `gateway lock table`; the scenario and its transcript lie one folder up -->\n"


def page(name: str, scenario: Scenario, transcript: Transcript) -> str:
    """The page of one scenario, in Markdown."""
    facts = [f"Rules: {', '.join(scenario.rules)}."]
    facts += [f"Bug cases: {', '.join(map(str, scenario.cases))}."] if scenario.cases else []
    facts += [f"In the article: {scenario.article}."] if scenario.article else []
    facts += [f"The doors differ in {column!r}: {why}" for column, why in scenario.differs.items()]
    parts = [f"# {name}\n", f"{scenario.about}\n", " ".join(facts) + "\n"]
    for doors, drawn in _pictures(transcript):
        parts.append(f"{' and '.join(DOOR_WORDS[door] for door in doors)}:\n")
        parts.append(f"```text\n{drawn}```\n")
    return MADE + "\n".join(parts)


def _pictures(transcript: Transcript) -> Iterator[tuple[list[str], str]]:
    """One picture where both doors give the same."""
    drawn = [(door, picture(columns)) for door, columns in transcript.items()]
    for text, doors in groupby(drawn, key=lambda one: one[1]):
        yield [door for door, _ in doors], text


# --- the picture ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Instant:
    """What happened at one time, lane by lane."""

    at: float
    lanes: dict[str, list[str]] = field(default_factory=lambda: {lane: [] for lane in LANES})


def picture(columns: Columns) -> str:
    """The instants of one door, each in as many lines as it needs."""
    lines = [_line(HEADINGS), *(line for instant in _instants(columns) for line in _wrapped(instant))]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _instants(columns: Columns) -> list[Instant]:
    found: dict[float, Instant] = {}
    for at, lane, words in _happenings(columns):
        found.setdefault(at, Instant(at)).lanes[lane].append(words)
    return [found[at] for at in sorted(found)]


def _happenings(columns: Columns) -> Iterator[tuple[float, str, str]]:
    for call in columns["upstream"]:
        yield call["at"], "asked", call["route"]
    for turn in columns["records"]:
        yield from ((_seconds(attempt["ended"]), "decided", _decision(attempt)) for attempt in _ended(turn))
    yield from ((at, "got", words) for at, words in _frames(columns["client"]))
    yield from ((entry["at"], "money", entry["entry"]) for entry in columns["money"])


def _ended(turn: Entry) -> list[Entry]:
    return [attempt for attempt in turn.get("attempts", []) if "ended" in attempt]


def _seconds(text: str) -> float:
    return float(text.removesuffix(" s"))


def _decision(attempt: Entry) -> str:
    verdict = f", {attempt['verdict']}" if "verdict" in attempt else ""
    return f"{attempt['route']}: {attempt['outcome']}{verdict}"


def _frames(entries: Iterable[Entry]) -> Iterator[tuple[float, str]]:
    """Runs of one kind of event are one word."""
    labelled = [(entry["at"], _label(entry)) for entry in entries]
    for (at, words), run in groupby((at, words) for at, words in labelled if words is not None):
        count = len(list(run))
        yield at, words if count == 1 else f"{words} × {count}"


def _label(entry: Entry) -> str | None:
    if "end" in entry or "accept" in entry:
        return None
    if "close" in entry:
        return f"close {entry['close']}"
    if "status" in entry:
        return None if entry["status"] == 200 else f"status {entry['status']}"
    if "comment" in entry:
        return "a comment"
    return _event_label(parse_object(payload_of(entry).encode()))


def _event_label(payload: dict[str, Any] | None) -> str:
    if payload is None:
        return "(no JSON)"
    name = str(payload.get("type", "error")).removeprefix("response.")
    code = error_code(payload) if name in ("error", "failed") or "error" in payload else None
    return name if code is None else f"{name} {code}"


def _wrapped(instant: Instant) -> Iterator[str]:
    texts = [_number(instant.at), *(", ".join(instant.lanes[lane]) for lane in LANES)]
    cells = [textwrap.wrap(text, width - 2) or [""] for text, width in zip(texts, WIDTHS, strict=True)]
    for row in range(max(map(len, cells))):
        yield _line([cell[row] if row < len(cell) else "" for cell in cells])


def _number(at: float) -> str:
    return json.dumps(int(at) if at == int(at) else at)


def _line(cells: Sequence[str]) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
