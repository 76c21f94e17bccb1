"""X5, pure: which `error` frame stands for an HTTP status, and what is kept of it."""

from __future__ import annotations

import json

import pytest

from gateway.core.crossing import as_answer, failure_from_first_frame
from gateway.core.events import Event, read_event
from gateway.core.failures import RETRYABLE_CODES, failure_from_events


def event_of(payload: bytes) -> Event:
    found = read_event(payload, payload)
    assert found is not None
    return found


NOTHING = "the upstream failed and did not say why"


def made(message: str, code: str | None = None, param: str | None = None) -> bytes:
    """The body of an event that has no error object."""
    error = {"message": message, "type": code or "upstream_bad_response", "code": code, "param": param}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (b'{"type":"error","status":400,"error":{"b" : 1.50,"a":"\\u00e9"}}', b'{"error":{"b" : 1.50,"a":"\\u00e9"}}'),
        (b'{"status":"429","error":{"code":"x"}}', b'{"error":{"code":"x"}}'),
        (b'{"type":"error","status":500}', made(NOTHING)),
        (b'{"type":"error","status":500,"message":"no","code":"c","param":"p"}', made("no", "c", "p")),
        (b'{"type":"error","status":500,"param":7,"retryable":true}', made(NOTHING)[:-2] + b', "retryable": true}}'),
        (b'{"type":"error","status":500,"error":{"x":1},"error":{"x":2}}', b'{"error": {"x": 2}}'),
        (b'{"type":"error","status":500,"error":"\xff"}', made("\ufffd")),
    ],
)
def test_the_answer_is_the_error_object_in_its_own_bytes(payload: bytes, body: bytes) -> None:
    """X5, E8: where it can be cut out; and nothing raises."""
    event = event_of(payload)
    failure = failure_from_first_frame(event, RETRYABLE_CODES)
    assert failure is not None
    assert failure.answer is not None
    assert (failure.answer.body, failure.events) == (body, (event,))
    assert failure.answer.headers == (("content-type", "application/json"),)


@pytest.mark.parametrize("status", [400, 401, 598, 599])
def test_every_failing_status_stands_for_itself(status: int) -> None:
    """X5: 400–599, the first and the last of them too."""
    failure = failure_from_first_frame(event_of(b'{"type":"error","status":%d,"error":{}}' % status), RETRYABLE_CODES)
    assert failure is not None
    assert failure.status == (502 if status == 401 else status)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"error","error":{"code":"x"}}',
        b'{"type":"error","status":200,"error":{}}',
        b'{"type":"error","status":399,"error":{}}',
        b'{"type":"error","status":600,"error":{}}',
        b'{"type":"error","status":null,"error":{}}',
        b'{"type":"response.failed","status":500,"response":{}}',
    ],
)
def test_what_names_no_failing_status_stands_for_none(payload: bytes) -> None:
    """X5: 400–599, of an `error`."""
    assert failure_from_first_frame(event_of(payload), RETRYABLE_CODES) is None


def test_one_that_blames_the_gateways_account_is_told_in_its_own_words() -> None:
    """F2."""
    failure = failure_from_first_frame(event_of(b'{"type":"error","status":401,"error":{}}'), RETRYABLE_CODES)
    assert failure is not None
    assert (failure.code, failure.answer, failure.events) == ("upstream_auth_error", None, ())


def test_an_error_is_its_own_answer_whatever_else_it_carries() -> None:
    """H1: only `response.failed` brings a response for a body."""
    payload = b'{"type":"error","status":500,"error":{"code":"x"},"response":{"id":"r"}}'
    failure = as_answer(failure_from_events((event_of(payload),), RETRYABLE_CODES))
    assert failure.answer is not None
    assert (failure.answer.status, failure.answer.body) == (500, b'{"error":{"code":"x"}}')
