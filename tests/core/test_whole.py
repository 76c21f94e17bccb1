"""A body that comes whole as an event, and an event's response as a body (H1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.alias import with_model
from gateway.core.crossing import as_answer
from gateway.core.events import Event, EventClass, read_event
from gateway.core.failures import RETRYABLE_CODES, Failure, FailureKind, failure_from_events
from gateway.core.whole import bare_response, is_cut_short, output_text_bytes, whole_event


@pytest.mark.parametrize(
    ("body", "event_type"),
    [
        ('{"status":"completed","output":[]}', "response.completed"),
        ('{"status":"incomplete"}', "response.incomplete"),
        ('{"status":"failed","error":{"code":"server_error"}}', "response.failed"),
        ('{"status":"cancelled"}', "response.cancelled"),
        ('{"status":"queued"}', "response.queued"),
        ('{"object":"response.compaction","output":[]}', "response.completed"),
        ('{"status":7,"output":[],"error":{}}', "response.completed"),
        ('{"status":"unheard of"}', "response.completed"),
        ('{"object":"response.input_tokens","input_tokens":5}', "response.completed"),
        ('{"object":"response.compaction","error":null}', "response.completed"),
    ],
)
def test_a_response_is_read_as_its_terminal_event(body: str, event_type: str) -> None:
    """H1: its bytes stay as they came."""
    event = whole_event(body.encode())
    assert event is not None
    assert (event.kind, event.type, event.data, event.is_whole) == (
        EventClass.TERMINAL,
        event_type,
        body.encode(),
        True,
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"error":{"code":"x"}}',
        '{"object":"response.compaction","error":{"code":"x"}}',
        '{"object":"list","data":[]}',
        '{"object":null}',
        '{"status":null,"output":{}}',
        "<html>",
        '{"status":"c',
    ],
)
def test_what_is_no_response_is_no_event(body: str) -> None:
    """P9."""
    assert whole_event(body.encode()) is None


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        (b'{"status":"comp', True),
        (b" \r\n\t{", True),
        (b"\v{", False),
        (b"{}", False),
        (b"<html>", False),
        (b"[1", False),
        (b"", False),
    ],
)
def test_a_cut_object_is_told_from_what_never_was_one(data: bytes, cut: bool) -> None:
    """R4: a result had begun."""
    assert is_cut_short(data) is cut


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        ('{"type":"response.completed","response":{"b":1.50,"a": [ ]},"x":1}', '{"b":1.50,"a": [ ]}'),
        ('{"type":"response.completed","response":{"a":1,"a":2}}', '{"a": 2}'),
        ('{"type":"response.completed"}', "{}"),
        ('{"type":"response.completed","response":null}', "null"),
    ],
)
def test_a_terminal_event_s_response_is_the_body(payload: str, body: str) -> None:
    """H1, E10: in the upstream's own bytes; one that is ambiguous as it was read."""
    event = read_event(payload.encode(), b"")
    assert event is not None
    assert bare_response(event).decode() == body


def whole(**fields: Any) -> Event:
    event = whole_event(json.dumps({"status": "completed", **fields}).encode())
    assert event is not None
    return event


@pytest.mark.parametrize(
    ("output", "count"),
    [
        (None, 0),
        ("text", 0),
        ([], 0),
        ([{"type": "message", "content": [{"type": "output_text", "text": "hé"}, {"refusal": "no"}]}], 5),
        ([{"type": "function_call", "arguments": "{}", "name": "f"}, {"type": "custom_tool_call", "input": "ls"}], 4),
        ([{"type": "reasoning", "summary": [{"text": "abc"}], "encrypted_content": "zzzz"}], 3),
        ([{"type": "image_generation_call", "result": "aGk="}], 0),
        ([{"text": "\ud800"}], 3),
        ([{"content": [{"text": "a"}], "summary": [{"text": "bc"}, {"text": "def"}]}, {"text": "ghij"}], 10),
    ],
)
def test_the_text_of_output_items_is_what_deltas_would_have_brought(output: Any, count: int) -> None:
    """B4: no ids, no types, no base64."""
    assert output_text_bytes(whole(output=output)) == count
    assert output_text_bytes(whole(output=output, text="as asked for", input=[{"text": "of the client"}])) == count


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        ('{"status":"completed", "model" : "real","n":1.0}\n', '{"status":"completed", "model" : "mine","n":1.0}\n'),
        ('{"status":"completed","model":"mine"}', '{"status":"completed","model":"mine"}'),
        ('{"status":"completed","model":null}', '{"status":"completed","model":null}'),
        ('{"status":"completed","response":{"model":"real"}}', '{"status":"completed","response":{"model":"real"}}'),
        ('{"status":"completed","model":"a","model":"b"}', '{"status":"completed","model":"a","model":"b"}'),
    ],
)
def test_an_alias_is_spliced_into_a_body_at_its_top(body: str, seen: str) -> None:
    """M3, H1: every other byte as it came."""
    event = whole_event(body.encode())
    assert event is not None
    renamed = with_model(event, "mine")
    assert (renamed.data.decode(), renamed.block.decode()) == (seen, seen)
    assert bare_response(renamed).decode() == seen


def told(*payloads: dict[str, Any]) -> Failure:
    events = [read_event(json.dumps(payload).encode(), b"") for payload in payloads]
    return failure_from_events(tuple(event for event in events if event is not None), RETRYABLE_CODES)


FAILED = {"type": "response.failed", "response": {"error": {"code": "server_error"}}}


def test_a_failed_response_is_the_body_itself() -> None:
    """H1: with or without an `error` before it."""
    for failure in (told(FAILED), told({"type": "error", "error": {"code": "x"}}, FAILED)):
        assert as_answer(failure) is failure


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"error": {"code": "server_error"}}, 500, "server_error"),
        ({"error": {"code": "invalid_prompt"}}, 400, "invalid_prompt"),
        ({"status": 429, "error": {"code": "slow_down"}}, 429, "slow_down"),
        ({"status": 200, "error": {"code": "server_is_overloaded"}}, 503, "server_is_overloaded"),
        ({"status": 399, "error": {"code": "server_is_overloaded"}}, 503, "server_is_overloaded"),
        ({"status": 400, "error": {"code": "server_is_overloaded"}}, 400, "server_is_overloaded"),
        ({"status": 599, "error": {"code": "server_is_overloaded"}}, 599, "server_is_overloaded"),
        ({"status": 600, "error": {"code": "server_is_overloaded"}}, 503, "server_is_overloaded"),
    ],
)
def test_an_error_alone_is_a_status_with_its_object(error: dict[str, Any], status: int, code: str) -> None:
    """H1, X5."""
    failure = as_answer(told({"type": "error", **error}))
    assert failure.answer is not None
    assert (failure.status, failure.answer.status, failure.code) == (status, status, code)
    assert json.loads(failure.answer.body) == {"error": error["error"]}
    assert failure.answer.headers == (("content-type", "application/json"),)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_an_error_that_blames_the_gateways_account_is_not_the_clients(status: int) -> None:
    """F2."""
    failure = as_answer(told({"type": "error", "status": status, "error": {"code": "some_code"}}))
    text = "the upstream refused the gateway's own credential"
    assert failure == Failure(FailureKind.ROUTE_FAULT, "upstream_auth_error", 502, text)
