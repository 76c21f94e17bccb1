"""What a request gets that never reaches the app: a status, and the error in the shape of all the gateway's (X2)."""

from __future__ import annotations

import json
import secrets
from http import HTTPStatus
from typing import Final

from gateway.core.failures import PUBLIC_CODES

REASONS: Final = {
    400: ("invalid_request", "this is no HTTP/1.1 request, or one that can be read in two ways"),
    408: ("invalid_request", "the request did not arrive in time"),
    413: ("payload_too_large", "the request is larger than is accepted here"),
    431: ("payload_too_large", "the header section is larger than is accepted here"),
    501: ("invalid_request", "this transfer-encoding is not supported here"),
    503: ("too_many_turns", "the gateway has as much open as it may"),
    505: ("invalid_request", "only HTTP/1.1 is served here"),
}
BAD_REQUEST: Final = 400

Headers = list[tuple[bytes, bytes]]


def refusal(status: int) -> tuple[int, Headers, bytes]:
    """Status, headers and body. A status without a reason of its own becomes 400."""
    status = status if status in REASONS else BAD_REQUEST
    code, message = REASONS[status]
    request_id = f"req_{secrets.token_hex(16)}"
    public = PUBLIC_CODES[code]
    error: dict[str, object] = {"message": message, "type": public.type, "code": code, "param": None}
    error["retryable"] = public.is_retryable
    again: Headers = []
    if public.retry_after_seconds is not None:
        error["retry_after"] = public.retry_after_seconds
        again = [(b"retry-after", str(public.retry_after_seconds).encode()), (b"x-should-retry", b"true")]
    body = json.dumps({"error": {**error, "request_id": request_id}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
        *again,
    ]
    return status, headers, body


def raw_refusal(status: int) -> bytes:
    """The same as bytes, for a connection that no protocol was started on."""
    known, headers, body = refusal(status)
    first = f"HTTP/1.1 {known} {HTTPStatus(known).phrase}".encode()
    return b"\r\n".join([first, *(name + b": " + value for name, value in headers), b"", body])
