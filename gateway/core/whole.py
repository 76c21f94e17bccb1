"""A response that comes, or leaves, whole: one JSON body (H1).

An upstream's body is read as the terminal event with which a stream would have told it, so there is one decision, one
bill and one record for both. Its bytes are kept as they came. The other way, a terminal event's `response` is the body
for a client that asked for no stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway.core.events import JSON_WHITESPACE, UNENDED, Event, EventClass, member, parse_object
from gateway.core.request import MalformedBody, RequestBody

ENDINGS: Final = frozenset({"completed", "incomplete", "failed", "cancelled", *UNENDED})
"""Statuses that a body's event has as its type. What has none, as a compaction, is complete when it is there. A
response that goes on in the background (B9) ends its exchange all the same."""
TEXT_KEYS: Final = frozenset({"text", "refusal", "arguments", "input", "code", "transcript"})
"""B4: where output items hold what a stream would have sent in deltas."""


def whole_event(data: bytes) -> Event | None:
    """The terminal event that a body stands for, or None if it is no response (P9)."""
    response = parse_object(data)
    if response is None or not _is_response(response):
        return None
    status = response.get("status")
    ending = status if isinstance(status, str) and status in ENDINGS else "completed"
    return Event(EventClass.TERMINAL, f"response.{ending}", data, data, {"response": response}, is_whole=True)


def _is_response(body: Mapping[str, Any]) -> bool:
    """By its status, its output, or its name: a count of tokens has neither of the first two."""
    if isinstance(body.get("status"), str) or isinstance(body.get("output"), list):
        return True
    return str(body.get("object")).startswith("response.") and not body.get("error")


def is_cut_short(data: bytes) -> bool:
    """Whether bytes that are no JSON object began as one: then they are the beginning of a result (R4)."""
    return data.lstrip(JSON_WHITESPACE).startswith(b"{") and parse_object(data) is None


def bare_response(event: Event) -> bytes:
    """A terminal event's response, in the upstream's own bytes wherever these can be told apart."""
    if event.is_whole:
        return event.data
    try:
        read = RequestBody(event.data)
        found = read.members["response"]
    except (MalformedBody, KeyError):
        return json.dumps(member(event.body, "response") or {}).encode()
    return read.text[found.value_start : found.value_end].encode()


def output_text_bytes(event: Event) -> int:
    """B4: UTF-8 bytes of the text in a response's output items; ids, types and base64 are none."""
    count, pending = 0, [member(event.body, "response", "output")]
    while pending:
        held = pending.pop()
        if isinstance(held, list):
            pending += held
        elif isinstance(held, Mapping):
            texts = [value for name, value in held.items() if name in TEXT_KEYS and isinstance(value, str)]
            count += sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
            pending += [value for value in held.values() if isinstance(value, list | Mapping)]
    return count
