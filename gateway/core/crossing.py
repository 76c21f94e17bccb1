"""X5: an upstream's failure where the door speaks another protocol than the upstream does.

A WebSocket has no status line: an upstream that refuses a request says so in its first frame, an `error` with a status
of 400–599. It is judged as that status. An HTTP client gets it as one, with the error object byte for byte; a WebSocket
client gets the frame. Behind any other event an `error` is an event like all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.core.events import Event, EventClass, error_code, error_message, error_status, is_marked_retryable, member
from gateway.core.failures import (
    ROUTE_FAULT_STATUSES,
    UNNAMED,
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
    """H1: a failure told by events, for a client that gets one body. `response.failed` brings the body, if it has one;
    an `error` alone is an HTTP status with its object."""
    last = failure.events[-1]
    if last.type == "response.failed" and isinstance(member(last.body, "response"), Mapping):
        return failure
    if error_status(last.body) in ROUTE_FAULT_STATUSES:
        text = "the upstream refused the gateway's own credential"
        return gateway_failure(failure.kind, "upstream_auth_error", text)
    status = failure.status if 400 <= failure.status <= 599 else status_of_code(failure.code)
    return replace(failure, status=status, answer=UpstreamAnswer(status, JSON_CONTENT, _body_of(last)))


def _body_of(event: Event) -> bytes:
    """`{"error": ...}`, the object in the upstream's own bytes; made of what the event says where it has none."""
    if not isinstance(member(event.body, "error"), Mapping):
        return json.dumps({"error": _flat_error(event)}).encode()
    try:
        read = RequestBody(event.data)
        found = read.members["error"]
    except (MalformedBody, KeyError):
        return json.dumps({"error": member(event.body, "error")}).encode()
    return b'{"error":' + read.text[found.value_start : found.value_end].encode() + b"}"


def _flat_error(event: Event) -> dict[str, Any]:
    """E8: the API's own `error` event is flat: its members are the error's."""
    code, param = error_code(event.body), member(event.body, "param")
    message = error_message(event.body) or "the upstream failed and did not say why"
    flat = {
        "message": message,
        "type": code or UNNAMED,
        "code": code,
        "param": param if isinstance(param, str) else None,
    }
    marked = is_marked_retryable(event.body)
    return flat if marked is None else {**flat, "retryable": marked}
