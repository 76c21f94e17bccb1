"""A probe's turn as lines to read: what came when, what was held for how long, how it ended. Pure.

    moments, one after the other --Timeline--> lines, each as soon as it is complete
    all moments                  --summary---> what they mean

Times are seconds since the request left. A client cannot see a hold itself; it sees that lifecycle events came with the
first output, and so how long they can have been held at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.events import (
    Event,
    EventClass,
    error_code,
    error_message,
    is_marked_retryable,
    member,
    parse_object,
)

TOGETHER_SECONDS: Final = 0.1
"""Frames of one write are read within that time even where reader and writer share a busy machine."""
TEXT_CHARACTERS_MAX: Final = 400
IDS: Final = ("x-request-id", "x-upstream-request-id", "x-billing-transaction-id")
RETRY_HEADERS: Final = ("x-should-retry", "retry-after")
COMPLETED: Final = "response.completed"
TEXT_DELTA: Final = "response.output_text.delta"


@dataclass(frozen=True, slots=True)
class Answered:
    """The head of an HTTP answer, or of an answer to a WebSocket upgrade. Header names are in lower case."""

    at: float
    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The whole body of an answer that is no stream."""

    at: float
    body: bytes


@dataclass(frozen=True, slots=True)
class Came:
    """An event."""

    at: float
    event: Event


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more will come."""

    at: float
    how: str


Moment = Answered | Refused | Came | Ended


# --- line by line -----------------------------------------------------------------------------------------------


class Timeline:
    """Moments in, lines out; a run of events of one type is one line."""

    def __init__(self) -> None:
        self._run: list[Came] = []

    def add(self, moment: Moment) -> list[str]:
        """The lines that are complete with this moment."""
        if isinstance(moment, Came):
            if not self._run or self._run[0].event.type == moment.event.type:
                self._run.append(moment)
                return []
            lines = self.finish()
            self._run.append(moment)
            return lines
        return [*self.finish(), _line(moment.at, _words(moment))]

    def finish(self) -> list[str]:
        """The line of the run that has no successor."""
        if not self._run:
            return []
        first, last = self._run[0], self._run[-1]
        name = first.event.type or "(an event without a type)"
        times = f" × {len(self._run)}, until {_milliseconds(last.at)}" if len(self._run) > 1 else ""
        line, self._run = _line(first.at, name + times), []
        return [line]


def _line(at: float, words: str) -> str:
    return f"{_milliseconds(at):>11}  {words}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _words(moment: Answered | Refused | Ended) -> str:
    if isinstance(moment, Answered):
        return f"status {moment.status}"
    if isinstance(moment, Refused):
        return "a body that is no stream"
    return moment.how


# --- what it means ----------------------------------------------------------------------------------------------


def is_completed(moments: Sequence[Moment]) -> bool:
    """Whether the turn ended with `response.completed`: nothing else is a success."""
    return _last_word(_events(moments)) == COMPLETED


def summary(moments: Sequence[Moment]) -> list[str]:
    """The turn in a few lines, each with its heading."""
    sections = (
        ("held", _held(moments)),
        ("outcome", [_outcome(moments)]),
        ("text", _text(moments)),
        ("retry", _retry(moments)),
        ("ids", _ids(moments)),
    )
    return [
        f"{heading if number == 0 else '':<9}{line}" for heading, lines in sections for number, line in enumerate(lines)
    ]


def _held(moments: Sequence[Moment]) -> list[str]:
    events = _events(moments)
    early = [came for came in events if came.event.kind is EventClass.LIFECYCLE]
    if not early:
        return []
    names = ", ".join(dict.fromkeys(came.event.type for came in early))
    bound = f"held at most {_milliseconds(early[0].at)}"
    release = next((came for came in events if came.event.kind not in (EventClass.LIFECYCLE, EventClass.NEUTRAL)), None)
    if release is None:
        return [f"{names} came alone: {bound}"]
    what = "the first output" if release.event.kind is EventClass.OUTPUT else release.event.type
    gap = release.at - early[-1].at
    when = f"together with {what}" if gap <= TOGETHER_SECONDS else f"{_milliseconds(gap)} before {what}"
    return [f"{names} came {when}: {bound}"]


def _outcome(moments: Sequence[Moment]) -> str:
    events = _events(moments)
    word = _last_word(events)
    ended_at = _milliseconds(moments[-1].at) if moments else "0 ms"
    if word == COMPLETED:
        return f"{COMPLETED} after {ended_at}{_tokens(events[-1].event)}"
    refused = next((moment for moment in moments if isinstance(moment, Refused)), None)
    answered = next((moment for moment in moments if isinstance(moment, Answered)), None)
    if refused is not None and answered is not None:
        return f"status {answered.status} after {ended_at}{_error(parse_object(refused.body))}"
    had_output = any(came.event.kind is EventClass.OUTPUT for came in events)
    where = "after output" if had_output else "before any output"
    if word is None:
        how = moments[-1].how if moments and isinstance(moments[-1], Ended) else "nothing came"
        return f"no terminal event, {where}: {how}; that is a failure"
    return f"{word} {where}, after {ended_at}{_error(_failure(events))}"


def _last_word(events: Sequence[Came]) -> str | None:
    """The terminal event, else an error that no terminal event followed."""
    kinds = (EventClass.TERMINAL, EventClass.ERROR)
    found = [came.event.type for kind in kinds for came in events if came.event.kind is kind]
    return found[0] if found else None


def _failure(events: Sequence[Came]) -> Mapping[str, Any] | None:
    """The body that says what went wrong: the error's, for it says more, else the terminal event's."""
    kinds = (EventClass.ERROR, EventClass.TERMINAL)
    return next((came.event.body for kind in kinds for came in events if came.event.kind is kind), None)


def _error(body: Mapping[str, Any] | None) -> str:
    code, message = error_code(body), error_message(body)
    if body is not None and code is None and message is None:
        reason = member(body, "response", "incomplete_details", "reason")
        return f": {reason}" if isinstance(reason, str) else ""
    return "".join(f": {part}" for part in (code, message) if part)


def _tokens(event: Event) -> str:
    counts = [member(event.body, "response", "usage", name) for name in ("input_tokens", "output_tokens")]
    return f", {counts[0]} tokens in, {counts[1]} out" if all(isinstance(count, int) for count in counts) else ""


def _text(moments: Sequence[Moment]) -> list[str]:
    deltas = [
        delta
        for came in _events(moments)
        if came.event.type == TEXT_DELTA and isinstance(delta := member(parse_object(came.event.data), "delta"), str)
    ]
    text = " ".join("".join(deltas).split())
    return [text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]} …"] if text else []


def _retry(moments: Sequence[Moment]) -> list[str]:
    """What the answer says of sending the request again; nothing is said of one that completed."""
    if is_completed(moments):
        return []
    headers = _headers(moments)
    lines = [f"{name}: {headers[name]}" for name in RETRY_HEADERS if name in headers]
    told = (is_marked_retryable(body) for body in _error_bodies(moments))
    retryable = next((value for value in told if value is not None), None)
    return lines if retryable is None else [*lines, f"error.retryable: {str(retryable).lower()}"]


def _ids(moments: Sequence[Moment]) -> list[str]:
    headers = _headers(moments)
    found = [(name, headers[name]) for name in IDS if name in headers]
    found += [("response.id", value) for value in _values(_event_bodies(moments), "response", "id")][:1]
    found += [("error.request_id", value) for value in _values(_error_bodies(moments), "error", "request_id")][:1]
    return [f"{name:<26}{value}" for name, value in found] or ["none came"]


def _events(moments: Sequence[Moment]) -> list[Came]:
    return [moment for moment in moments if isinstance(moment, Came)]


def _headers(moments: Sequence[Moment]) -> Mapping[str, str]:
    return next((moment.headers for moment in moments if isinstance(moment, Answered)), {})


def _event_bodies(moments: Sequence[Moment]) -> list[Mapping[str, Any]]:
    return [came.event.body for came in _events(moments) if came.event.body is not None]


def _error_bodies(moments: Sequence[Moment]) -> list[Mapping[str, Any]]:
    refused = [parse_object(moment.body) or {} for moment in moments if isinstance(moment, Refused)]
    return [*refused, *_event_bodies(moments)]


def _values(bodies: Sequence[Mapping[str, Any]], *path: str) -> list[str]:
    return [value for body in bodies if isinstance(value := member(body, *path), str)]
