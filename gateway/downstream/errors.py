"""What a failure looks like on the wire (X): HTTP bodies, SSE events, WebSocket frames. All pure.

Upstream's own bytes are kept wherever they are delivered; what the gateway makes itself carries the error both nested
and flat, since some clients read the one and some the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from gateway.core.events import (
    Event,
    EventClass,
    error_code,
    error_message,
    error_status,
    insert_members,
    member,
    parse_object,
)
from gateway.core.failures import (
    PUBLIC_CODES,
    Failure,
    PublicCode,
    Refusal,
    UpstreamAnswer,
    status_of_code,
)
from gateway.core.messages import DeliverFailure
from gateway.core.request import MalformedBody, RequestBody
from gateway.core.sse import sse_block

UNLISTED: Final = PublicCode(502, "upstream_error")
"""The row for codes that are an upstream's own."""
STORE_AWAY: Final = "ledger_unavailable"
"""The one failure of a turn that has called nobody: to its client it is a refusal (X2)."""


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def error_object(
    code: str, message: str, request_id: str, param: str | None = None, *, refused_as: PublicCode | None = None
) -> dict[str, Any]:
    """X2: the error as an object. Only what was refused, with nothing sent upstream, may simply be sent again."""
    public = refused_as or PUBLIC_CODES.get(code, UNLISTED)
    error: dict[str, Any] = {
        "message": message,
        "type": public.type,
        "code": code,
        "param": param,
        "retryable": refused_as is not None and public.is_retryable,
    }
    if public.retry_after_seconds is not None:
        error["retry_after"] = public.retry_after_seconds
    return {**error, "request_id": request_id}


def refusal_body(refusal: Refusal, request_id: str) -> bytes:
    """X2: a refusal as an HTTP body."""
    error = error_object(refusal.code, refusal.message, request_id, refusal.param, refused_as=refusal.public)
    return to_json({"error": error})


def failure_body(failure: Failure, request_id: str) -> bytes:
    """X2: a failure of the gateway's making as an HTTP body."""
    return to_json({"error": _failure_object(failure, request_id)})


def _failure_object(failure: Failure, request_id: str) -> dict[str, Any]:
    """Also on a WebSocket or a started stream a client may send again what nobody was called for."""
    refused_as = PUBLIC_CODES[failure.code] if failure.code == STORE_AWAY else None
    return error_object(failure.code, failure.message, request_id, refused_as=refused_as)


# --- on a started SSE stream (X3, X5) ---------------------------------------------------------------------------


def sse_failure(told: DeliverFailure, request_id: str) -> bytes:
    """An `error` event, then `response.failed` if the client knows a response that must end."""
    number = told.next_sequence_number
    blocks = sse_block("error", _error_payload(told.failure, request_id, number))
    if told.response is not None:
        blocks += sse_block("response.failed", _failed_payload(told, None if number is None else number + 1))
    return blocks


def _failed_payload(told: DeliverFailure, number: int | None) -> bytes:
    failure = told.failure
    error = {"code": failure.code, "message": failure.message}
    response = {**(told.response or {}), "status": "failed", "error": error}
    numbered = {} if number is None else {"sequence_number": number}
    return to_json({"type": "response.failed", **numbered, "response": response})


# --- on a WebSocket (X4, X5) ------------------------------------------------------------------------------------


def websocket_failure(told: DeliverFailure, request_id: str) -> bytes:
    """X4: exactly one frame."""
    return _error_payload(told.failure, request_id, told.next_sequence_number)


def websocket_refusal(refusal: Refusal, request_id: str, echo: Mapping[str, str]) -> bytes:
    """W5: the answer to a frame that became no turn, with its `event_id` and `stream_id`."""
    error = error_object(refusal.code, refusal.message, request_id, refusal.param, refused_as=refusal.public)
    return to_json(_flat(refusal.public.status, error) | dict(echo))


def websocket_event(event: Event) -> bytes:
    """E10: the payload as it came; an error frame gets the `type` and `status` that agents stall without."""
    if event.kind is not EventClass.ERROR or event.body is None:
        return event.data
    missing: dict[str, Any] = {}
    if not isinstance(event.body.get("type"), str):
        missing["type"] = "error"
    if type(event.body.get("status")) is not int:
        missing["status"] = error_status(event.body) or status_of_code(error_code(event.body) or "")
    return _with_members(event.data, missing)


def _with_members(data: bytes, members: Mapping[str, Any]) -> bytes:
    try:
        return RequestBody(data).spliced(replaced=members)
    except MalformedBody:
        return insert_members(data, members)


# --- the error event itself -------------------------------------------------------------------------------------


def _error_payload(failure: Failure, request_id: str, number: int | None) -> bytes:
    numbered = {} if number is None else {"sequence_number": number}
    if failure.answer is not None:
        return _answered_payload(failure.answer, request_id, numbered)
    return to_json(_flat(failure.status, _failure_object(failure, request_id)) | numbered)


def _answered_payload(answer: UpstreamAnswer, request_id: str, numbered: Mapping[str, Any]) -> bytes:
    """X5: an upstream's HTTP failure as an event: its status, its error object byte for byte."""
    theirs = _error_bytes(answer.body)
    if theirs is None:
        code = "upstream_bad_response"
        text = f"the upstream answered with status {answer.status} and no error object"
        return to_json(_flat(answer.status, error_object(code, text, request_id)) | dict(numbered))
    body = parse_object(answer.body)
    flat = {"code": error_code(body), "message": error_message(body), "request_id": request_id, **numbered}
    head = to_json({"type": "error", "status": answer.status})
    return head[:-1] + b',"error":' + theirs + b"," + to_json(flat)[1:]


def _error_bytes(body: bytes) -> bytes | None:
    """The bytes of the body's `error` object, None where there is none."""
    if not isinstance(member(parse_object(body), "error"), dict):
        return None
    try:
        read = RequestBody(body)
    except MalformedBody:
        return None
    found = read.members["error"]
    return read.text[found.value_start : found.value_end].encode()


def _flat(status: int, error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "error",
        "status": status,
        "error": dict(error),
        "code": error["code"],
        "message": error["message"],
        "param": error["param"],
    }
