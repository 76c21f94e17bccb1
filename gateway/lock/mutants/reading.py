"""How an upstream's bytes are read (P), which route is asked (M1, C2, C3), what the house says of itself (R12–R14)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.core import alias, sse
from gateway.core.attempt import Attempt
from gateway.core.events import Event, classify, parse_object
from gateway.core.failures import Failure, FailureKind, failure_from_answer, gateway_failure
from gateway.core.messages import Door
from gateway.core.routing import next_route
from gateway.core.sse import SSEParser, block_data, read_block, sse_block
from gateway.encodings import decoder_for
from gateway.lock.mutants.flips import Flip, Mutant, everywhere, swapped
from gateway.ports import Model, Route, TurnClosing, TurnOpening
from gateway.turn import opening
from gateway.turn.books import Books
from gateway.turn.house import StandingHouse
from gateway.turn.running import RunningTurn
from gateway.turn.tables import Tables
from gateway.upstream import answers
from gateway.upstream import sse as upstream_sse
from gateway.upstream.sse import SSEUpstream


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _bytes()
    yield from _answers()
    yield from _routes()
    yield from _records()


def _bytes() -> Iterator[Mutant]:
    yield Mutant("P1: lines end at LF alone", ("P1", "E10"), swapped(SSEParser, "_find_blank_line", _two_line_feeds))
    yield Mutant("P3: a byte order mark is no mark", ("P3",), swapped(sse, "BYTE_ORDER_MARK", b"\x00"))
    yield Mutant(
        "P5: the first data line is all",
        ("P5",),
        everywhere(block_data, lambda block: block_data(block).split(b"\n")[0]),
    )
    yield Mutant(
        "P5: spaces of data lines are cut", ("P5", "E10"), swapped(sse, "_data_of", lambda line: line[5:].strip())
    )
    yield Mutant("P6: missing line ends are LF", ("P6", "P1"), swapped(sse, "_missing_line_ends", _line_feeds))
    yield Mutant("P9: content types are in small letters", ("P9",), swapped(upstream_sse, "_is_event_stream", _small))
    yield Mutant("E10: a frame becomes one line", ("E10", "C5"), everywhere(sse_block, _one_line))
    for sign in ".:-":
        plain = re.compile(f"(?!.*[{sign}]){sse.PLAIN_NAME.pattern}")
        yield Mutant(f"E10: no plain name has a {sign!r}", ("E10", "C5"), swapped(sse, "PLAIN_NAME", plain))
    yield Mutant("M3: a space stands behind data", ("M3", "E10"), swapped(alias, "LEADS", alias.LEADS[:2]))
    yield Mutant("P6: a pending event never counts", ("P6",), swapped(SSEParser, "receive_end", _never_whole))
    yield Mutant("P8: any encoding is none", ("P8",), everywhere(decoder_for, lambda _encoding: decoder_for("")))
    yield Mutant("E7: the event line is trusted", ("E7",), everywhere(read_block, _as_its_line_says))


def _two_line_feeds(_parser: SSEParser, buffer: bytes | bytearray, start: int) -> int | None:
    found = buffer.find(b"\n\n", start)
    return None if found < 0 else found + 2


def _line_feeds(pending: bytes) -> bytes:
    return b"\n" if pending.endswith((b"\r", b"\n")) else b"\n\n"


def _small(head: Any) -> bool:
    return any(name == "content-type" and value.startswith("text/event-stream") for name, value in head)


def _one_line(event_type: str, payload: bytes) -> bytes:
    return sse_block(event_type, payload.replace(b"\n", b" "))


def _never_whole(_parser: SSEParser, *, clean: bool) -> None:
    """Whatever the end was."""


def _as_its_line_says(block: bytes) -> Event | None:
    event = read_block(block)
    named = EVENT_LINE.search(block)
    if event is None or named is None:
        return event
    name = named[1].decode("latin-1").strip()
    return event._replace(type=name, kind=classify(name), body=parse_object(event.data))


EVENT_LINE: Final = re.compile(rb"^event: ?(.*)$", re.MULTILINE)


def _answers() -> Iterator[Mutant]:
    yield Mutant(
        "P9: a bad response is not retryable", ("P9",), swapped(SSEUpstream, "_bad_response", _final_bad_response)
    )
    yield Mutant(
        "F2: what was never sent is a read error", ("F2", "R10"), _made(FailureKind.NEVER_SENT, FailureKind.READ_ERROR)
    )
    yield Mutant(
        "R9: a read error was never sent", ("R9", "R10"), _made(FailureKind.READ_ERROR, FailureKind.NEVER_SENT)
    )
    yield Mutant("F2: an upstream's 401 is told as it is", ("F2", "X2"), everywhere(failure_from_answer, _as_it_is))


_true_bad_response: Final = SSEUpstream._bad_response


def _final_bad_response(asked: SSEUpstream, what: str) -> Failure:
    return replace(_true_bad_response(asked, what), kind=FailureKind.NOT_RETRYABLE)


def _made(true: FailureKind, false: FailureKind) -> Flip:
    """The adapter takes one kind of failure for another."""

    def made(kind: FailureKind, code: str, message: str) -> Failure:
        return gateway_failure(false if kind is true else kind, code, message)

    return swapped(answers, "gateway_failure", made)


def _as_it_is(answer: Any, codes: frozenset[str]) -> Failure:
    failure = failure_from_answer(answer, codes)
    return replace(failure, code="unnamed", status=answer.status, answer=answer)


def _routes() -> Iterator[Mutant]:
    yield Mutant("M1: the last route is asked first", ("M1",), everywhere(next_route, _backwards))
    yield Mutant("R14: a route is tried twice", ("R14", "R15"), everywhere(next_route, _again))
    yield Mutant(
        "C3: a route that cools down is asked", ("C3", "R14"), _house("is_cooling", lambda _house, _route: False)
    )
    for name, stands in STANDS.items():
        yield Mutant(f"C2: {name}", ("C2",), swapped(Tables, "stands", stands))
    yield Mutant("C2: nothing is swapped", ("C2",), swapped(Tables, "swap", lambda _tables, _table: None))
    yield Mutant("R13: the budget is never spent", ("R13",), _house("is_throttled", lambda _house: False))
    yield Mutant("R12: the house never drains", ("R12", "T7"), _house("is_draining", lambda _house: False))


def _stands_by_name(tables: Tables, model: Model, route: Route) -> bool:
    newest = tables.current.models.get(model.name)
    return newest is not None and any(other.name == route.name for other in newest.routes)


STANDS: Final[dict[str, Callable[[Tables, Model, Route], bool]]] = {
    "a route that is gone is asked": lambda _tables, _model, _route: True,
    "a route that was changed is asked": _stands_by_name,
    "no route stands in another table": lambda tables, model, _route: tables.current.hash == model.table,
}


def _records() -> Iterator[Mutant]:
    """L1: whose an upstream's request id is, who asked, what was paid."""
    yield Mutant("L1: a request id stays for the next attempt", ("L1",), swapped(RunningTurn, "_replay", _with_its_id))
    for field, value in ASKED.items():
        yield Mutant(
            f"L1: no {field} on record",
            ("L1",),
            swapped(opening, "TurnOpening", _opened_with(field, value)),
            words=WHOLE,
        )
    for field, value in PAID.items():
        closing = swapped(Books, "_turn_closing", _closed_with(field, value))
        yield Mutant(f"L1: no {field} on record", ("L1",), closing, words=WHOLE)
    for field in ("cached_tokens", "reasoning_tokens"):
        yield Mutant(
            f"L1: no {field} on record", ("L1",), swapped(Attempt, "report", _reported_without(field)), words=WHOLE
        )


WHOLE: Final = ("tells_whole_records",)
ASKED: Final[Mapping[str, Any]] = {"key": "", "client_address": None, "door": Door.HTTP, "reserved_nanodollars": 0}
PAID: Final[Mapping[str, Any]] = {"nanodollars": None, "flags": ()}
_true_closing: Final = Books._turn_closing
_true_report: Final = Attempt.report


def _opened_with(field: str, value: Any) -> Callable[..., TurnOpening]:
    return lambda **fields: TurnOpening(**{**fields, field: value})


def _closed_with(field: str, value: Any) -> Callable[..., TurnClosing]:
    return lambda books, finish, resolution: replace(_true_closing(books, finish, resolution), **{field: value})


def _reported_without(field: str) -> Callable[..., Any]:
    def report(attempt: Attempt, end: Any) -> Any:
        true = _true_report(attempt, end)
        return true if true.usage is None else replace(true, usage=replace(true.usage, **{field: 0}))

    return report


_true_replay: Final = RunningTurn._replay


async def _with_its_id(running: RunningTurn, replay: Any) -> None:
    held = running._upstream_request_id
    await _true_replay(running, replay)
    running._upstream_request_id = running._upstream_request_id or held


def _house(question: str, answer: Callable[..., bool]) -> Flip:
    return swapped(StandingHouse, question, answer)


def _backwards(listed: Any, tried: Any, closed: Any, draw: float = 0.0) -> str | None:
    return next_route([replace(entry, priority=-entry.priority) for entry in listed], tried, closed, draw)


def _again(listed: Any, _tried: Any, closed: Any, draw: float = 0.0) -> str | None:
    return next_route(listed, (), closed, draw)
