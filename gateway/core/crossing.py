"""X5: an upstream's failure where the door speaks another protocol than the upstream does.

A WebSocket has no status line: an upstream that refuses a request says so in its first frame, an `error` with a status
of 400–599. It is judged as that status. An HTTP client gets it as one, with the error object byte for byte; a WebSocket
client gets the frame. Behind any other event an `error` is an event like all others.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from gateway.core.events import Event, EventClass, error_status
from gateway.core.failures import (
    ROUTE_FAULT_STATUSES,
    Failure,
    UpstreamAnswer,
    failure_from_answer,
    gateway_failure,
    status_of_code,
)
from gateway.core.request import MalformedBody, RequestBody

JSON_CONTENT: Final = (("content-type", "application/json"),)


def failure_from_first_frame(event: Event, retryable_codes: frozenset[str]) -> Failure | None:
    """The failure that a stream's first frame tells, with both its event and the answer that it stands for; None if it
    stands for none. One that blames the gateway's own account has neither (F2)."""
    status = error_status(event.body) if event.kind is EventClass.ERROR else None
    if status is None or not 400 <= status <= 599:
        return None
    failure = failure_from_answer(UpstreamAnswer(status, JSON_CONTENT, _body_of(event)), retryable_codes)
    return failure if failure.answer is None else replace(failure, events=(event,))


def as_answer(failure: Failure) -> Failure:
    """H1: a failure told by events, for a client that gets one body. `response.failed` brings the body; an `error`
    alone is an HTTP status with its object."""
    last = failure.events[-1]
    if last.type == "response.failed":
        return failure
    if error_status(last.body) in ROUTE_FAULT_STATUSES:
        text = "the upstream refused the gateway's own credential"
        return gateway_failure(failure.kind, "upstream_auth_error", text)
    status = failure.status if 400 <= failure.status <= 599 else status_of_code(failure.code)
    return replace(failure, status=status, answer=UpstreamAnswer(status, JSON_CONTENT, _body_of(last)))


def _body_of(event: Event) -> bytes:
    """`{"error": ...}`, the object in the upstream's own bytes."""
    try:
        read = RequestBody(event.data)
        found = read.members["error"]
    except (MalformedBody, KeyError):
        return json.dumps({"error": (event.body or {}).get("error")}).encode()
    return b'{"error":' + read.text[found.value_start : found.value_end].encode() + b"}"
