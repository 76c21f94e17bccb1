"""What a request gets that never reaches the app: a status, and the error in the shape of all the gateway's (X2)."""

from __future__ import annotations

import json
import secrets
from typing import Final

from gateway.core.failures import PUBLIC_CODES

REASONS: Final = {
    400: ("invalid_request", "this is no HTTP/1.1 request, or one that can be read in two ways"),
    408: ("invalid_request", "the request did not arrive in time"),
    413: ("payload_too_large", "the request is larger than is accepted here"),
    431: ("payload_too_large", "the header section is larger than is accepted here"),
    501: ("invalid_request", "this transfer-encoding is not supported here"),
    505: ("invalid_request", "only HTTP/1.1 is served here"),
}
BAD_REQUEST: Final = 400

Headers = list[tuple[bytes, bytes]]


def refusal(status: int) -> tuple[int, Headers, bytes]:
    """Status, headers and body. A status without a reason of its own becomes 400."""
    status = status if status in REASONS else BAD_REQUEST
    code, message = REASONS[status]
    request_id = f"req_{secrets.token_hex(16)}"
    error = {"message": message, "type": PUBLIC_CODES[code].type, "code": code, "param": None}
    body = json.dumps({"error": {**error, "retryable": False, "request_id": request_id}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    return status, headers, body
