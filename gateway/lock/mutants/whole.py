"""What comes or goes whole (H1), and bodies that come compressed (H3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gateway.core import delivery, whole
from gateway.core.alias import with_model
from gateway.core.attempt import Attempt
from gateway.core.failures import Failure
from gateway.core.request import RequestBody, TurnRequest
from gateway.downstream import bodies, http
from gateway.lock.mutants.flips import Mutant, everywhere, swapped
from gateway.ports import Inputs
from gateway.upstream import frame_stream, sse
from gateway.upstream.answers import read_error


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield Mutant("H1: a break in a body is replayed", ("H1", "R4"), swapped(sse, "_broken", _broken_before))
    yield Mutant("H1: a cut body is a bad response", ("H1", "R4"), swapped(sse, "is_cut_short", lambda _data: False))
    yield Mutant("H1: any object is a response", ("H1", "P9"), swapped(whole, "_is_response", lambda _body: True))
    needless = swapped(frame_stream, "_lacks_response", lambda _event: False)
    yield Mutant("H1: an end needs no response", ("H1", "P9"), needless)
    yield Mutant("H1: no status is an ending of its own", ("H1", "R4"), swapped(whole, "ENDINGS", frozenset()))
    yield Mutant("H1: a stream is asked for", ("H1", "H3"), swapped(TurnRequest, "body_for_sse", _streaming))
    yield Mutant("H1: a stream is taken", ("H1", "P9"), swapped(sse, "_is_event_stream", lambda _response: False))
    yield Mutant("H1: a body's output was not delivered", ("H1", "B3"), swapped(delivery, "has_output_items", _none))
    yield Mutant("H1: a body has no text", ("H1", "B4"), swapped(delivery, "output_text_bytes", lambda _event: 0))
    yield Mutant("H1: a body shows the route's name of the model", ("H1", "M3"), everywhere(with_model, _as_is))
    yield Mutant("H1: the first-event limit holds", ("H1", "T2"), swapped(Attempt, "due", property(_due_as_a_stream)))
    yield Mutant("H1: a request streams unless it says otherwise", ("H1",), swapped(http, "asks_for_stream", _streams))
    yield Mutant("S1: a compaction could be stored", ("H1", "S1"), swapped(bodies, "RESPONSES", "/responses/compact"))
    yield Mutant("H3: a compressed body is read as it came", ("H3",), swapped(http, "coding_of", lambda _header: ""))


async def _broken_before(why: str, _body: object, inputs: Inputs) -> Failure | None:  # noqa: ASYNC124 - in its place
    return read_error(why)


def _none(_body: object) -> bool:
    return False


def _as_is(event: object, _model: str) -> object:
    return event


_true_body: Final = TurnRequest.body_for_sse
_true_due: Final = Attempt.due


def _streaming(request: TurnRequest, upstream_model: str | None) -> bytes:
    return _true_body(replace(request, streams=True), upstream_model)


def _due_as_a_stream(attempt: Attempt) -> object:
    return _true_due.fget(replace(attempt, is_whole=False))  # type: ignore[attr-defined]  # it is a property


def _streams(body: RequestBody) -> bool:
    return body.get("stream") is not False
