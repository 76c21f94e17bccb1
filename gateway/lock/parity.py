"""Parity: both doors show the same, but for what a scenario says they do not.

The columns are compared as they are, but the client's: there an SSE block and a text frame are the same event if their
payloads are, and an HTTP error and an error frame the same failure if their error object is. Heads,
comments, and how a connection ends are each door's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway.lock.finding import Finding
from gateway.lock.scenario import COLUMNS, Scenario
from gateway.lock.transcript import Columns, Entry, Transcript

OWN_ERROR_MEMBERS: Final = ("error", "sequence_number", "response", "usage", "stream_id", "event_id")
"""What is compared of an error: `type` and `status` are added on a WebSocket (E10), the flat members repeat it."""


def disparities(name: str, scenario: Scenario, transcript: Transcript) -> list[Finding]:
    """Columns in which the doors differ and should not, or are said to differ and do not."""
    if len(transcript) < 2:
        return []
    http, websocket = transcript["http"], transcript["websocket"]
    differing = [column for column in COLUMNS if decoded(http, column) != decoded(websocket, column)]
    findings = [
        Finding(f"{name}.toml", f"the doors differ in the column {column!r}, and `differs` does not say why")
        for column in differing
        if column not in scenario.differs
    ]
    return findings + [
        Finding(f"{name}.toml", f"`differs` says that the doors differ in the column {column!r}, and they do not")
        for column in scenario.differs
        if column not in differing
    ]


def decoded(columns: Columns, column: str) -> list[Any]:
    """A column as it is compared; of a request's body the members, for a splice may put them in another order."""
    entries = columns[column]
    if column == "upstream":
        return [{**entry, "body": _object(entry["body"])} for entry in entries]
    if column != "client":
        return list(entries)
    return [[entry["at"], event] for entry in entries if (event := _event(entry)) is not None]


def _event(entry: Entry) -> Any:
    """What an entry tells of the turn, None for what is the door's own."""
    if "body" in entry:
        return _failure(_object(entry["body"]))
    return _told(_object(payload_of(entry))) if "event" in entry or "frame" in entry else None


def payload_of(entry: Entry) -> str:
    """What an entry carries: the data of an SSE block, a frame, a body."""
    return _data(entry["event"]) if "event" in entry else str(entry.get("frame", entry.get("body", "")))


def _told(payload: Any) -> Any:
    is_error = isinstance(payload, Mapping) and (payload.get("type") == "error" or "type" not in payload)
    return _failure(payload) if is_error else payload


def _failure(payload: Any) -> Any:
    """An HTTP answer has its status in the head, a frame in itself, an event in mid-stream there or nowhere."""
    if not isinstance(payload, Mapping):
        return payload
    kept = {name: value for name, value in payload.items() if name in OWN_ERROR_MEMBERS}
    if isinstance(kept.get("error"), Mapping):
        kept["error"] = {name: value for name, value in kept["error"].items() if name != "request_id"}
    return {"type": "error", **kept}


def _data(block: str) -> str:
    lines = block.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))


def _object(text: str) -> Any:
    """The payload as a value; what is no JSON is compared as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
