"""What a failure looks like on the wire, in the shapes that real clients read (X2–X5, E10; protocol.md, 1.4 and 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.events import Event, read_event
from gateway.core.failures import (
    PUBLIC_CODES,
    Failure,
    FailureKind,
    Refusal,
    UpstreamAnswer,
    failure_from_answer,
    gateway_failure,
)
from gateway.core.messages import DeliverFailure
from gateway.core.sse import sse_block
from gateway.downstream.errors import (
    failure_body,
    refusal_body,
    sse_failure,
    websocket_event,
    websocket_failure,
    websocket_refusal,
)

READ_ERROR = gateway_failure(FailureKind.READ_ERROR, "stream_read_error", "the stream broke")
CREATED: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "in_progress",
    "model": "m",
    "output": [],
    "error": None,
}
PRETTY_ERROR = (
    b'{\n    "message": "No caf\xc3\xa9",\r\n    "type": "invalid_request_error",  "param": null,\n "code":"c1"\n  }'
)
PRETTY_BODY = b'{\n  "error": ' + PRETTY_ERROR + b"\n}\n"


def answered(body: bytes, status: int = 400) -> Failure:
    """A failure that is an upstream's HTTP answer."""
    answer = UpstreamAnswer(status, (("content-type", "application/json"),), body)
    return failure_from_answer(answer, frozenset())


def events_of(stream: bytes) -> list[tuple[str, dict[str, Any]]]:
    """What an SSE client reads: each event's name and payload, its data lines joined by LF."""
    events = []
    for block in stream.split(b"\n\n")[:-1]:
        fields = [line.partition(b": ")[::2] for line in block.split(b"\n")]
        name = b"".join(value for field, value in fields if field == b"event").decode()
        events.append((name, json.loads(b"\n".join(value for field, value in fields if field == b"data"))))
    return events


def event_of(payload: bytes) -> Event:
    """The event in a payload."""
    event = read_event(payload, b"data: " + payload + b"\n\n")
    assert event is not None
    return event


# --- HTTP bodies (X2) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(PUBLIC_CODES))
def test_every_code_has_one_shape_on_all_doors(code: str) -> None:
    """X: message, type, code, param, whether to send again, and the request's id, for every row of the table."""
    public = PUBLIC_CODES[code]
    body = json.loads(refusal_body(Refusal(code, "what is wrong", "input"), "req_1"))
    frame = json.loads(websocket_refusal(Refusal(code, "what is wrong", "input"), "req_1", {}))

    assert body["error"] == {
        "message": "what is wrong",
        "type": public.type,
        "code": code,
        "param": "input",
        "retryable": public.retry_after_seconds is not None,
        **({} if public.retry_after_seconds is None else {"retry_after": public.retry_after_seconds}),
        "request_id": "req_1",
    }
    assert frame["error"] == body["error"]
    assert frame["status"] == public.status


def test_a_failure_of_the_gateway_has_the_same_shape_as_a_refusal() -> None:
    """X2."""
    assert json.loads(failure_body(READ_ERROR, "req_1")) == {
        "error": {
            "message": "the stream broke",
            "type": "upstream_error",
            "code": "stream_read_error",
            "param": None,
            "retryable": False,
            "request_id": "req_1",
        }
    }


def test_a_turn_that_was_cut_does_not_ask_to_be_sent_again() -> None:
    """X2, T7: its attempt was sent; only a refusal, with nothing sent, is retryable."""
    cut = gateway_failure(FailureKind.DRAINING, "server_draining", "the gateway is shutting down")
    told = DeliverFailure(cut, None)
    bodies = [
        failure_body(cut, "req_1"),
        websocket_failure(told, "req_1"),
        sse_failure(told, "req_1").split(b"data: ")[1],
    ]
    assert [json.loads(body)["error"]["retryable"] for body in bodies] == [False, False, False]


@pytest.mark.parametrize("text", ["\u2028 \u2029 \x85 \x0b", "北🙂", "\ud83d", "a\r\nb\n\nc"])
def test_no_text_breaks_a_frame_or_a_block(text: str) -> None:
    """Case 53: a lone surrogate in a message is an escape, and no line end splits a payload."""
    refusal = Refusal("invalid_request", text)
    told = DeliverFailure(gateway_failure(FailureKind.READ_ERROR, "stream_read_error", text), None, CREATED, 3)

    for payload in (refusal_body(refusal, "r"), websocket_refusal(refusal, "r", {}), websocket_failure(told, "r")):
        assert payload.isascii()
        assert json.loads(payload)["error"]["message"] == text
    assert [payload["type"] for _, payload in events_of(sse_failure(told, "r"))] == ["error", "response.failed"]


# --- on a started SSE stream (X3) -----------------------------------------------------------------------------------


def test_a_failure_on_a_started_stream_is_an_error_both_nested_and_flat() -> None:
    """X3: some clients raise on a truthy `error`, some on the event's name, some read flat fields."""
    ((name, payload),) = events_of(sse_failure(DeliverFailure(READ_ERROR, None), "req_1"))

    assert name == "error"
    assert payload["type"] == "error"
    assert payload["error"]["code"] == payload["code"] == "stream_read_error"
    assert payload["error"]["message"] == payload["message"] == "the stream broke"
    assert payload["error"]["param"] is None
    assert payload["param"] is None
    assert payload["status"] == 502
    assert "sequence_number" not in payload


def test_a_client_that_knows_its_response_sees_it_fail_under_its_own_id() -> None:
    """X3; case 14: agents ignore an `error` altogether and wait for `response.failed`."""
    told = DeliverFailure(READ_ERROR, None, CREATED, 4)
    (_, error), (name, failed) = events_of(sse_failure(told, "req_1"))

    assert (error["sequence_number"], failed["sequence_number"]) == (4, 5)
    assert name == failed["type"] == "response.failed"
    assert failed["response"] == {
        **CREATED,
        "status": "failed",
        "error": {"code": "stream_read_error", "message": "the stream broke"},
    }


def test_numbers_are_not_invented_for_an_upstream_that_has_none() -> None:
    """X3; case 14."""
    blocks = events_of(sse_failure(DeliverFailure(READ_ERROR, None, CREATED, None), "req_1"))

    assert ["sequence_number" in payload for _, payload in blocks] == [False, False]


def test_a_payload_of_several_lines_is_a_block_of_as_many_data_lines() -> None:
    """E10: any line end; what a client joins by LF is the same JSON."""
    block = sse_block("error", b'{"a":\n1,\r\n"b":\r2}')

    assert block == b'event: error\ndata: {"a":\ndata: 1,\ndata: "b":\ndata: 2}\n\n'
    assert events_of(block) == [("error", {"a": 1, "b": 2})]


# --- on a WebSocket (X4) --------------------------------------------------------------------------------------------


def test_a_failure_on_a_websocket_is_one_frame_with_its_status() -> None:
    """X4: agents stall on an error without a status; others read the request's id at the top or in the error."""
    frame = json.loads(websocket_failure(DeliverFailure(READ_ERROR, None, CREATED, 4), "req_1.1"))

    assert frame["type"] == "error"
    assert frame["status"] == 502
    assert frame["error"]["code"] == frame["code"] == "stream_read_error"
    assert frame["message"] == "the stream broke"
    assert frame["error"]["request_id"] == "req_1.1"
    assert frame["sequence_number"] == 4


def test_a_refused_frame_s_answer_repeats_what_tells_it_apart() -> None:
    """W5."""
    frame = json.loads(websocket_refusal(Refusal("invalid_json", "no"), "req_1", {"event_id": "e", "stream_id": "s"}))

    assert (frame["event_id"], frame["stream_id"], frame["type"], frame["status"]) == ("e", "s", "error", 400)


# --- across doors (X5) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_upstream_s_http_failure_becomes_an_event_with_its_status_and_its_error_to_the_byte(status: int) -> None:
    """X5."""
    told = DeliverFailure(answered(PRETTY_BODY, status), None, None, None)
    frame = websocket_failure(told, "req_1")
    ((name, payload),) = events_of(sse_failure(told, "req_1"))

    assert PRETTY_ERROR in frame
    assert json.loads(frame) == payload
    assert name == "error"
    assert (payload["type"], payload["status"], payload["code"], payload["message"]) == (
        "error",
        status,
        "c1",
        "No café",
    )
    assert payload["error"] == json.loads(PRETTY_ERROR)


@pytest.mark.parametrize(
    "error",
    [
        b'{"message":"x","code":null,"type":null,"param":null}',
        b'{"code":7,"message":["x"]}',
        b"{}",
        b'{"message":"\\ud83d","code":"c"}',
        b'{"error":{"code":"inner"}}',
    ],
)
def test_an_error_object_of_any_kind_passes(error: bytes) -> None:
    """X5, E8; case 16: null, missing and odd values are legal everywhere."""
    told = DeliverFailure(answered(b'{"error":' + error + b"}"), None, CREATED, 2)
    frame = websocket_failure(told, "req_1")

    assert b'"error":' + error in frame
    assert json.loads(frame)["status"] == 400
    assert len(events_of(sse_failure(told, "req_1"))) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>bad gateway</html>",
        b'{"error":"text"}',
        b'{"error":null}',
        b'{"detail":"no"}',
        b"[1]",
        b'{"error":{"code":"a"},"error":{"code":"b"}}',
        b'{"error":{"message":"\xff"}}',
        b'{"error":{"code":"c"}',
    ],
)
def test_an_answer_without_a_readable_error_object_is_a_bad_response_with_its_status(body: bytes) -> None:
    """X5."""
    told = DeliverFailure(answered(body, 500), None, None, None)
    frame = json.loads(websocket_failure(told, "req_1"))
    ((_, payload),) = events_of(sse_failure(told, "req_1"))

    assert frame == payload
    assert (frame["status"], frame["code"], frame["error"]["code"]) == (500, *["upstream_bad_response"] * 2)


# --- an upstream's own events on a WebSocket (E10) ------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"response.created","response":{"id":"r"}}',
        b'{"type" : "response.output_text.delta", "delta":"\xc3\xa9 1.0"}',
        b'{"type":"response.failed","response":{"error":{"code":"server_error"}}}',
        b'{"type":"error","status":429,"error":{"code":"x"}}',
        b'{"error":{"code":"x"},"type":"error","status":400}',
        b'{"type":"codex.rate_limits","plan":"plus"}',
    ],
)
def test_an_event_is_a_frame_of_its_payload_as_it_came(payload: bytes) -> None:
    """E10."""
    assert websocket_event(event_of(payload)) == payload


@pytest.mark.parametrize(
    ("payload", "frame"),
    [
        (
            b'{"type":"error","error":{"code":"server_is_overloaded"}}',
            b'{"status":503,"type":"error","error":{"code":"server_is_overloaded"}}',
        ),
        (b'{"type":"error","code":"invalid_prompt"}', b'{"status":400,"type":"error","code":"invalid_prompt"}'),
        (b'{"type":"error","status":null,"code":"x"}', b'{"type":"error","status":500,"code":"x"}'),
        (b'{"type":"error","status":"429","code":"x"}', b'{"type":"error","status":429,"code":"x"}'),
        (b'{"type":"error","status":true,"code":"x"}', b'{"type":"error","status":500,"code":"x"}'),
        (b'{"type":"error","status_code":402}', b'{"status":402,"type":"error","status_code":402}'),
        (b'{"error":{"code":"slow_down"} }', b'{"type":"error","status":429,"error":{"code":"slow_down"} }'),
        (b'{"type":null,"error":{"status":418}}', b'{"status":418,"type":"error","error":{"status":418}}'),
    ],
)
def test_an_error_frame_gets_the_type_and_the_status_it_lacks_and_nothing_else(payload: bytes, frame: bytes) -> None:
    """E10: agents ignore an error without `status` and stall; a missing `type` is some upstreams' habit."""
    assert websocket_event(event_of(payload)) == frame


def test_an_error_that_two_readers_would_read_as_two_gets_its_status_all_the_same() -> None:
    """E8: a key that stands twice, NaN: whatever it is, the frame goes out."""
    for payload in (b'{"type":"error","code":"a","code":"b"}', b'{"type":"error","x":NaN}'):
        frame = websocket_event(event_of(payload))
        assert frame == b'{"status":500,' + payload[1:]


def test_a_client_may_send_again_what_nobody_was_called_for_through_either_door() -> None:
    """X2, §0: an attempt that could not be recorded was not sent (L2)."""
    told = DeliverFailure(gateway_failure(FailureKind.INTERNAL, "ledger_unavailable", "it is away"), None)
    ((_, event),) = events_of(sse_failure(told, "req_1"))
    bodies = [event, json.loads(websocket_failure(told, "req_1")), json.loads(failure_body(told.failure, "req_1"))]

    assert [(body["error"]["retryable"], body["error"]["retry_after"]) for body in bodies] == [(True, 1)] * 3
