"""What an upstream does, in the few words of a scenario: from notation to a `Reply` of the scripted upstream.

    does = ["created", "in_progress", 3.5, "delta hello", "completed 5/1"]

A number is a pause in seconds. A text is one of these:

    created, queued, in_progress        a lifecycle event with the response's object
    delta TEXT                          a piece of output text (empty without TEXT)
    completed, incomplete, cancelled    a terminal event; `completed 5/1` carries a usage of 5 tokens in, 1 out
    failed CODE, error CODE             a failure, with `5/1` behind it if it carries usage; `failed -` has no code
    answer                              created, in_progress, delta hi, completed 5/1
    comment, done                       an SSE comment, and `data: [DONE]`
    break, silence                      the connection is reset; nothing more comes and it stays open

and a table is one of these:

    { type = "response.output_item.added", item = { … } }    any event; to a lifecycle or terminal event's response
                                                             object the members of `response` are added
    { json = '{"type":"error","error":{"code":null}}' }      an event whose payload is this text
    { raw = "data: …" }, { hex = "fffe" }                    these bytes
    { together = […] }, { bytewise = […] }                   the steps' bytes in one piece, or one at a time
    { times = 30, does = […] }                               the steps, so many times
    { close = 1011 }                                         a WebSocket is closed with this code, 0 for none

Each event names its route and call (`resp_a1` is of A's first call) and is numbered as it is sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.events import EventClass, classify
from gateway.upstream.scripted import Break, Close, Silence, Step
from gateway.upstream.scripts import event, response_object, usage_object

Written = str | int | float | Mapping[str, Any]
"""A step as it is written in a scenario."""
ANSWER: Final = ("created", "in_progress", "delta hi", "completed 5/1")
STATUS_OF_TYPE: Final = {"response.created": "in_progress", "response.queued": "queued"}
"""The status in the response object; of every other lifecycle or terminal event it is the type's own word."""
STEPS_MAX: Final = 10_000
"""Of one reply, `times` and `bytewise` counted out: all of them are held in memory."""
OWN_MEMBERS: Final = frozenset({"response_id", "status", "model"})
"""What the response object gets from the event and its reply."""
CLOSE_CODE_MIN: Final = 1000
CLOSE_CODES: Final = 5000
"""RFC 6455, 7.4: codes are from 1000 to 4999."""
SECONDS_MAX: Final = 100_000
"""More than a day, and ten times less than the virtual time at which a run is taken for a deadlock."""


class NotationError(ValueError):
    """A step that is not in the notation: what is wrong with it, and how to put it right."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem = problem
        self.fix = fix


@dataclass(slots=True)
class Speaker:
    """One reply's voice: whose it is, and the number of its next event."""

    call: str
    model: str
    is_numbered: bool = True
    number: int = 0
    made: int = 0

    def steps(self, written: Iterable[Written]) -> list[Step]:
        """The steps of the scripted upstream. Raises NotationError."""
        return [step for one in written for step in self._steps(one)]

    def _steps(self, written: Written) -> list[Step]:
        self._count(1)
        if isinstance(written, bool) or not isinstance(written, int | float | str | Mapping):
            raise NotationError("is no step", "write a number of seconds, a word of the notation, or a table")
        if isinstance(written, int | float):
            return [_pause(written)]
        if isinstance(written, str):
            return self._word(written)
        return self._table(dict(written))

    def _count(self, steps: int) -> None:
        self.made += steps
        if self.made > STEPS_MAX:
            raise NotationError(f"has more than {STEPS_MAX} steps", "write fewer `times`, or fewer bytes in `bytewise`")

    # --- words ------------------------------------------------------------------------------------------------------

    def _word(self, text: str) -> list[Step]:
        word, _, rest = text.partition(" ")
        if word in SIGNS and not rest:
            return list(SIGNS[word])
        if word == "answer" and not rest:
            return self.steps(ANSWER)
        if word not in VERBS:
            raise NotationError(f"{text!r} is not in the notation", f"begin it with one of: {', '.join(WORDS)}")
        return [VERBS[word](self, word, rest)]

    def lifecycle(self, word: str, rest: str) -> bytes:
        """created, queued, in_progress."""
        if rest:
            raise NotationError(f"{word!r} takes nothing behind it", "write fields as a table with `type`")
        return self.event(f"response.{word}", {})

    def delta(self, _word: str, text: str) -> bytes:
        """delta TEXT."""
        place = {"item_id": f"msg_{self.call}", "output_index": 0, "content_index": 0}
        return self.event("response.output_text.delta", {**place, "delta": text})

    def ending(self, word: str, rest: str) -> bytes:
        """completed, incomplete, cancelled, with or without a usage."""
        usage = {} if not rest else {"usage": _usage(rest)}
        return self.event(f"response.{word}", {"response": usage})

    def failed(self, word: str, rest: str) -> bytes:
        """failed CODE."""
        code, usage = _code_and_usage(word, rest)
        return self.event("response.failed", {"response": {"error": self._error(code), **usage}})

    def error(self, word: str, rest: str) -> bytes:
        """error CODE, nested as upstreams send it."""
        code, usage = _code_and_usage(word, rest)
        return self.event("error", {"error": {"type": "some_type", **self._error(code), "param": None}, **usage})

    def _error(self, code: str | None) -> dict[str, Any]:
        return {"code": code, "message": f"the words of {self.call}"}

    # --- tables -----------------------------------------------------------------------------------------------------

    def _table(self, table: dict[str, Any]) -> list[Step]:
        kind = next((name for name in TABLES if name in table), None)
        if kind is None:
            raise NotationError("the table is no step", f"give it one of: {', '.join(TABLES)}")
        strangers = [name for name in table if name not in KEYS.get(kind, table)]
        if strangers:
            raise NotationError(f"has {strangers[0]!r} beside `{kind}`", f"write {' and '.join(KEYS[kind])} alone")
        if not is_json(table):
            raise NotationError("holds a date or a number that JSON has no word for", "write it as a text")
        return TABLES[kind](self, table)

    def typed(self, table: dict[str, Any]) -> list[Step]:
        """{ type = …, fields }."""
        event_type = _text_of(table, "type")
        if not isinstance(response := table.get("response", {}), Mapping) or OWN_MEMBERS & set(response):
            raise NotationError(
                f"has a `response` that is no table, or sets its {' or '.join(sorted(OWN_MEMBERS))}",
                "write the other members of the response as a table",
            )
        if "event_type" in table:
            raise NotationError("has `event_type` beside `type`", "write it with `json`")
        del table["type"]
        return [self.event(event_type, table)]

    def repeated(self, table: dict[str, Any]) -> list[Step]:
        """{ times = N, does = […] }; each time the events are new ones, with numbers of their own."""
        does, times = table.get("does"), table["times"]
        if not isinstance(does, list | tuple) or not does:
            raise NotationError("has `times` and not `does`", 'write { times = 30, does = [1.0, "comment"] }')
        if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= STEPS_MAX:
            raise NotationError(
                "has `times` that are no number of times", f"write a whole number from 1 to {STEPS_MAX}"
            )
        return [step for _ in range(times) for step in self.steps(does)]

    def together(self, table: dict[str, Any]) -> list[Step]:
        """{ together = […] }."""
        return [self._joined(table, "together")]

    def bytewise(self, table: dict[str, Any]) -> list[Step]:
        """{ bytewise = […] }."""
        data = self._joined(table, "bytewise")
        self._count(len(data))
        return [data[at : at + 1] for at in range(len(data))]

    def _joined(self, table: Mapping[str, Any], name: str) -> bytes:
        written = table[name]
        if not isinstance(written, list | tuple):
            raise NotationError(f"has a `{name}` that is no list", f'write {{ {name} = ["created", "delta hi"] }}')
        steps = self.steps(written)
        if any(not isinstance(step, bytes) for step in steps):
            raise NotationError("joins what are no bytes", "keep pauses, break and silence outside of it")
        return b"".join(step for step in steps if isinstance(step, bytes))

    # --- events -----------------------------------------------------------------------------------------------------

    def event(self, event_type: str, fields: Mapping[str, Any]) -> bytes:
        """An event of that type, with the next number unless it brings its own."""
        numbered = {"sequence_number": self._next_number()} if self.is_numbered else {}
        members = {**numbered, **fields}
        if classify(event_type) in (EventClass.LIFECYCLE, EventClass.TERMINAL):
            status = STATUS_OF_TYPE.get(event_type, event_type.removeprefix("response."))
            given = members.get("response", {})
            members["response"] = response_object(f"resp_{self.call}", status, self.model, **given)
        return event(event_type, **members)

    def _next_number(self) -> int:
        self.number += 1
        return self.number - 1


def _pause(seconds: float) -> float:
    if seconds < 0:
        raise NotationError("is a pause of less than nothing", "write a number of seconds")
    if not seconds <= SECONDS_MAX:  # so that NaN is refused, too
        raise NotationError("is a pause without an end", f"write at most {SECONDS_MAX} seconds")
    return float(seconds)


def is_json(value: Any) -> bool:
    """Whether JSON has a word for a value of a TOML file: not for dates, NaN and infinity."""
    if isinstance(value, Mapping):
        return all(map(is_json, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_json, value))
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, str | int)


def _text_of(table: Mapping[str, Any], name: str) -> str:
    text = table[name]
    if not isinstance(text, str):
        raise NotationError(f"has a `{name}` that is no text", f'write {{ {name} = "…" }}')
    return text


def _code_and_usage(word: str, rest: str) -> tuple[str | None, dict[str, Any]]:
    code, _, usage = rest.partition(" ")
    if not code:
        raise NotationError(f"{word!r} names no code", f'write "{word} server_error", or "{word} -" for none')
    return (None if code == "-" else code), ({"usage": _usage(usage)} if usage else {})


def _usage(text: str) -> dict[str, Any]:
    tokens_in, _, tokens_out = text.partition("/")
    if not tokens_in.isdecimal() or not tokens_out.isdecimal():
        raise NotationError(f"{text!r} is no usage", 'write tokens in and out as "5/1"')
    return usage_object(int(tokens_in), int(tokens_out))


def _json(speaker: Speaker, table: dict[str, Any]) -> list[Step]:
    text = _text_of(table, "json")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotationError(
            f"has a `json` that is none ({error})", "use `raw` for what is meant to be broken"
        ) from None
    name = payload.get("type", "message") if isinstance(payload, dict) else "message"
    speaker.number += 1
    return [f"event: {name}\ndata: {text}\n\n".encode()]


def _hex(_speaker: Speaker, table: dict[str, Any]) -> list[Step]:
    text = _text_of(table, "hex")
    try:
        return [bytes.fromhex(text)]
    except ValueError:
        raise NotationError("has a `hex` that is none", 'write two digits for each byte: "fffe"') from None


def _close(_speaker: Speaker, table: dict[str, Any]) -> list[Step]:
    code = table["close"]
    if isinstance(code, bool) or not isinstance(code, int) or not (code == 0 or CLOSE_CODE_MIN <= code < CLOSE_CODES):
        raise NotationError("has a `close` that is no close code", f"write {CLOSE_CODE_MIN} to {CLOSE_CODES - 1}, or 0")
    return [Close(code)]


SIGNS: Final[Mapping[str, Sequence[Step]]] = {
    "comment": (b": ping\n\n",),
    "done": (b"data: [DONE]\n\n",),
    "break": (Break(),),
    "silence": (Silence(),),
}
VERBS: Final[Mapping[str, Callable[[Speaker, str, str], bytes]]] = {
    "created": Speaker.lifecycle,
    "queued": Speaker.lifecycle,
    "in_progress": Speaker.lifecycle,
    "delta": Speaker.delta,
    "completed": Speaker.ending,
    "incomplete": Speaker.ending,
    "cancelled": Speaker.ending,
    "failed": Speaker.failed,
    "error": Speaker.error,
}
WORDS: Final = (*VERBS, "answer", *SIGNS)
TABLES: Final[Mapping[str, Callable[[Speaker, dict[str, Any]], list[Step]]]] = {
    "json": _json,
    "raw": lambda _speaker, table: [_text_of(table, "raw").encode()],
    "hex": _hex,
    "close": _close,
    "together": Speaker.together,
    "bytewise": Speaker.bytewise,
    "times": Speaker.repeated,
    "type": Speaker.typed,
}
KEYS: Final[Mapping[str, Sequence[str]]] = {
    "json": ("json",),
    "raw": ("raw",),
    "hex": ("hex",),
    "close": ("close",),
    "together": ("together",),
    "bytewise": ("bytewise",),
    "times": ("times", "does"),
}
"""What may stand in a table of each kind; beside `type` stand the members of an event."""
