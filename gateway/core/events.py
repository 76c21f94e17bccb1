"""What an upstream event is: its class decides whether it is held, commits the turn, or ends it (E).

    E1 LIFECYCLE  response.created, response.queued, response.in_progress: held before output
    E2 NEUTRAL    types outside `response.*` other than `error`, and `response.metadata`: held in place; never output
    E3 OUTPUT     every other `response.*`, unknown ones included: the commit point
    E4 TERMINAL   response.completed, .incomplete, .failed, .cancelled: ends the turn
    E5 ERROR      `error`, or an object with a truthy `error` and no `type`: a failure; `response.failed` may follow

An event keeps the bytes it came in (`block`) and its payload (`data`): both are forwarded as they are (E10). An output
event is known by its first member and never parsed: what stands behind it is the client's to read. Nothing an upstream
sends may raise here (E8): what is not a JSON object is not an event (E7), and what is kept of an event, its code or its
id, is text that every log and every store can hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from gateway.limits import INLINE_BODY_BYTES_MAX

JsonObject = Mapping[str, Any]


class EventClass(Enum):
    """The five classes of E1–E5."""

    LIFECYCLE = "lifecycle"
    NEUTRAL = "neutral"
    OUTPUT = "output"
    TERMINAL = "terminal"
    ERROR = "error"

    __hash__ = object.__hash__  # by identity, in C: each event is looked up by its class


EVENT_CLASSES: Final[Mapping[str, EventClass]] = {
    "response.created": EventClass.LIFECYCLE,
    "response.queued": EventClass.LIFECYCLE,
    "response.in_progress": EventClass.LIFECYCLE,
    "response.metadata": EventClass.NEUTRAL,
    "response.completed": EventClass.TERMINAL,
    "response.incomplete": EventClass.TERMINAL,
    "response.failed": EventClass.TERMINAL,
    "response.cancelled": EventClass.TERMINAL,
    "error": EventClass.ERROR,
}
"""The named types; `classify` places every other."""


def classify(event_type: str) -> EventClass:
    """E1–E5 by type. Unknown `response.*` types are output: the safe side, for it ends replayability."""
    named = EVENT_CLASSES.get(event_type)
    if named is not None:
        return named
    return EventClass.OUTPUT if event_type.startswith("response.") else EventClass.NEUTRAL


ITEM_DONE: Final = "response.output_item.done"
"""The one kind of output that is read: whoever goes on from it, or to where it was made, knows it again (W10, O3)."""
UNENDED: Final = ("queued", "in_progress")
"""Statuses of a response that goes on."""


class Event(NamedTuple):
    """One upstream event.

    `data` is the payload (a JSON object, UTF-8 unless the upstream erred), `block` the SSE block as it came, with its
    blank line. `body` is the parsed payload of every class but OUTPUT, where it is None. If it `is_whole`, its data is
    the bare response: one body that came in a stream's place (H1).
    """

    kind: EventClass
    type: str
    data: bytes
    block: bytes
    body: JsonObject | None
    is_whole: bool = False


Fields = tuple[EventClass, str, bytes, bytes, JsonObject | None, bool]
event_of: Final[Callable[[Fields], Event]] = partial(tuple.__new__, Event)
"""An event of its fields, past the constructor, which takes twice as long."""

JSON_WHITESPACE: Final = b" \t\n\r"
FIRST_MEMBER_IS_TYPE: Final = re.compile(
    rb'[ \t\n\r]*\{[ \t\n\r]*"type"[ \t\n\r]*:[ \t\n\r]*"(response\.[A-Za-z0-9_.]+)"[ \t\n\r]*[,}]'
)
"""A payload whose first member names its type is known without parsing: all but every real upstream writes it so. Of
two `type` members the first decides here: an event that names an output type ends replayability, whatever else it
says."""
PARSED_TYPES: Final = frozenset(name.encode() for name, kind in EVENT_CLASSES.items() if kind is not EventClass.OUTPUT)
"""Every other `response.*` type is output."""


def read_event(data: bytes, block: bytes) -> Event | None:
    """The event in one block's payload, or None where there is none (E7)."""
    known = FIRST_MEMBER_IS_TYPE.match(data)
    if known is not None and known[1] not in PARSED_TYPES and data.rstrip(JSON_WHITESPACE).endswith(b"}"):
        return event_of((EventClass.OUTPUT, known[1].decode("ascii"), data, block, None, False))
    return read_parsed(data, block)


def read_parsed(data: bytes, block: bytes) -> Event | None:
    """The same of a payload whose first member does not tell enough."""
    body = parse_object(data)
    if body is None:
        return None
    event_type = body.get("type")
    if type(event_type) is not str:
        kind = EventClass.ERROR if body.get("error") else EventClass.NEUTRAL
        return Event(kind, "error" if kind is EventClass.ERROR else "", data, block, body)
    kind = classify(event_type)
    return event_of((kind, event_type, data, block, None if kind is EventClass.OUTPUT else body, False))


def parse_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object as leniently as it can be read (invalid UTF-8, NaN and lone surrogates included), or None.

    None also for what is nested deeper than the interpreter reads: some hundreds of levels, where events have ten.
    """
    decoder = _LENIENT if len(data) <= INLINE_BODY_BYTES_MAX else _LENIENT_IN_A_THREAD
    text = data.decode("utf-8", "replace").strip(" \t\n\r")
    try:
        value, end = decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict and end == len(text) else None


def lenient_integer(digits: str) -> int | float:
    """Python refuses integers of thousands of digits; JSON does not."""
    return int(digits) if len(digits) < 400 else float(digits)


def _as_it_is(read: dict[str, Any]) -> dict[str, Any]:
    return read


_LENIENT: Final = json.JSONDecoder(parse_int=lenient_integer)
_LENIENT_IN_A_THREAD: Final = json.JSONDecoder(parse_int=lenient_integer, object_hook=_as_it_is)
"""Calls Python for each object, and so lets other threads run, which the scanner in C does not: 30 MB held the event
loop for 0.14 s from a thread, too."""


# --- what is read from a parsed event ---------------------------------------------------------------------------


def member(value: object, *path: str) -> Any:
    """The value at `path` in nested objects, None where it is missing or its parent is no object."""
    for key in path:
        if type(value) is not dict or key not in value:
            return None
        value = value[key]
    return value


def members(value: object, paths: Sequence[Sequence[str]]) -> list[Any]:
    """The values at `paths` that are there and not null, in their order."""
    found = []
    for path in paths:
        current = value
        for key in path:
            if type(current) is not dict or key not in current:
                break
            current = current[key]
        else:
            if current is not None:
                found.append(current)
    return found


CODE_PATHS: Final = (
    ("error", "code"),
    ("error", "type"),
    ("code",),
    ("response", "error", "code"),
    ("response", "error", "type"),
    ("status",),
)
"""E8: where an error code is looked for, in order; `response.error.type` serves failures whose code is null."""
MESSAGE_PATHS: Final = (("error", "message"), ("message",), ("response", "error", "message"), ("error",))
STATUS_PATHS: Final = (("status",), ("status_code",), ("error", "status"), ("error", "status_code"))
RETRYABLE_PATHS: Final = (("error", "retryable"), ("retryable",), ("response", "error", "retryable"))
USAGE_PATHS: Final = (("response", "usage"), ("usage",), ("error", "usage"))


CODE_CHARACTERS_MAX: Final = 256
"""A code is a name: it stands in logs, in records and in metrics."""
ID_CHARACTERS_MAX: Final = 1024
"""Above the ids of gateways that pack their routing into them, below what a database index takes as a key."""
MESSAGE_CHARACTERS_MAX: Final = 4096
"""What is kept of an upstream's own words; the client gets them all, for it gets the event itself."""


def error_code(body: object) -> str | None:
    """E8: the first name at one of the places where codes stand."""
    return next((text for text in _texts(body, CODE_PATHS) if _is_name(text, CODE_CHARACTERS_MAX)), None)


def error_message(body: object) -> str | None:
    """The upstream's own words for a failure, their beginning; what no store takes (lone surrogates, NUL) replaced."""
    text = next(_texts(body, MESSAGE_PATHS), None)
    if text is None:
        return None
    kept = text[:MESSAGE_CHARACTERS_MAX].replace("\0", "?")
    return kept if kept.isascii() else kept.encode("utf-8", "replace").decode()


def _texts(body: object, paths: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """The non-empty strings at `paths`, in their order."""
    return (text for text in members(body, paths) if isinstance(text, str) and text)


def _is_name(text: str, characters_max: int) -> bool:
    """Whether text can be an identifier: no lone surrogates, no control characters, no megabytes."""
    return len(text) <= characters_max and text.isprintable()


def error_status(body: object) -> int | None:
    """The HTTP status an error event speaks of (an integer, or digits in a string), 100–599."""
    for value in members(body, STATUS_PATHS):
        status = _status(value)
        if status is not None:
            return status
    return None


def _status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 100 <= value <= 599 else None


def is_marked_retryable(body: object) -> bool | None:
    """An explicit boolean `retryable`, or None."""
    return next((value for value in members(body, RETRYABLE_PATHS) if isinstance(value, bool)), None)


def usages(body: object) -> list[object]:
    """Every non-null `usage` an event carries."""
    return members(body, USAGE_PATHS)


def response_id(body: object) -> str | None:
    """The id of the response a lifecycle or terminal event speaks of."""
    found = member(body, "response", "id")
    return found if found and type(found) is str and _is_name(found, ID_CHARACTERS_MAX) else None


def sequence_number(body: object) -> int | None:
    """The event's own number, if the upstream numbers its events."""
    value = member(body, "sequence_number")
    return value if type(value) is int else None


def event_sequence_number(event: Event) -> int | None:
    """`sequence_number` of any event; parses output events, so it is asked only when a failure is made (X3)."""
    return sequence_number(event.body if event.body is not None else parse_object(event.data))


def has_output_items(body: object) -> bool:
    """R4: a failure's `response.output` is not empty."""
    return bool(member(body, "response", "output"))


# --- delivered text, for the estimate (B4) ----------------------------------------------------------------------

DELTA: Final = re.compile(rb'"delta"[ \t\n\r]*:[ \t\n\r]*"([^"\\]*+)((?:\\.[^"\\]*+)*+)"')
"""A delta's text in its event, up to its first escape and from there on. Inside a JSON string the quotes would be
escaped, so only a key matches."""
DELTA_KEY: Final = b'"delta"'
PLAIN_DELTA: Final = b'"delta":"'
PLAIN_DELTA_BYTES: Final = len(PLAIN_DELTA)
BASE64_TYPES: Final = frozenset({"response.audio.delta", "response.output_audio.delta"})
_STRING: Final = json.JSONDecoder(strict=False)


def delivered_text_bytes(*events: Event) -> int:
    """UTF-8 bytes of the text that deltas carry; base64 (audio) is never counted as text."""
    count, known, carries_text = 0, "", False
    for event in events:
        if event.type != known:
            known = event.type
            carries_text = known.endswith(".delta") and known not in BASE64_TYPES
        if not carries_text:
            continue
        data = event.data
        key = data.find(DELTA_KEY)
        start = key + PLAIN_DELTA_BYTES
        end = data.find(b'"', start)
        if end > 0 and data[key:start] == PLAIN_DELTA and b"\\" not in data[start:end]:
            count += end - start  # as most are written: half of what the pattern takes
        elif key >= 0:
            count += _odd_delta_bytes(data, key)
    return count


def _odd_delta_bytes(data: bytes, key: int) -> int:
    found = DELTA.search(data, key)
    if found is None:
        return 0
    text, escaped = found.groups()
    return _unescaped_bytes(text + escaped) if escaped else len(text)


def _unescaped_bytes(escaped: bytes) -> int:
    try:
        text: str = _STRING.decode(f'"{escaped.decode()}"')
    except ValueError:
        return len(escaped)
    return len(text.encode("utf-8", "surrogatepass"))


# --- splices (E10): the few bytes that a door or an alias changes -----------------------------------------------


def insert_members(data: bytes, members: Mapping[str, Any]) -> bytes:
    """`data` (a JSON object) with `members` put in front, every other byte as it was."""
    if not members:
        return data
    start = data.index(b"{") + 1
    added = json.dumps(members, separators=(",", ":")).encode()[1:-1]
    rest = data[start:]
    comma = b"" if rest.lstrip(JSON_WHITESPACE).startswith(b"}") else b","
    return data[:start] + added + comma + rest
