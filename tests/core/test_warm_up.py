"""A warm-up that the gateway answers itself (W9): a response in shape, whose only content is what was asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.events import Event, EventClass
from gateway.core.request import RequestBody, TurnRequest
from gateway.core.sse import read_block
from gateway.core.warm_up import warm_up_events, warm_up_id

NOTHING_ASKED = {
    "id": "resp_1_2",
    "object": "response",
    "created_at": 1790000000,
    "status": "in_progress",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "model": "m",
    "output": [],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "store": False,
    "tool_choice": "auto",
    "tools": [],
    "usage": None,
}
USED = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def told(previous: str | None = None, **fields: Any) -> list[Event]:
    body = RequestBody(json.dumps({"generate": False, **fields}).encode())
    return warm_up_events("req_1.2", TurnRequest(body, "m", (), splices_store=False), previous, 1790000000.9)


@pytest.mark.parametrize(
    ("turn_id", "name"), [("req_1", "resp_1"), ("req_a.2", "resp_a_2"), ("req_req_1.2.3", "resp_req_1_2_3")]
)
def test_its_id_is_its_turns(turn_id: str, name: str) -> None:
    """W9: no dot stands in a response's id."""
    assert warm_up_id(turn_id) == name


def test_it_is_created_and_completed_and_has_used_nothing() -> None:
    """W9, E1, E4: its numbers begin at nought."""
    created, completed = told()
    ended = {**NOTHING_ASKED, "status": "completed", "completed_at": 1790000000, "usage": USED}
    assert (created.kind, completed.kind) == (EventClass.LIFECYCLE, EventClass.TERMINAL)
    assert created.body == {"type": "response.created", "sequence_number": 0, "response": NOTHING_ASKED}
    assert completed.body == {"type": "response.completed", "sequence_number": 1, "response": ended}


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "be brief", "max_output_tokens": 5, "metadata": {"a": "b"}},
        {"tools": [{"type": "function", "name": "f"}], "tool_choice": "none", "parallel_tool_calls": False},
        {"previous_response_id": "resp_0"},
    ],
)
def test_it_says_what_was_asked(fields: dict[str, Any]) -> None:
    """W9: as any response does."""
    for event in told(fields.get("previous_response_id"), **fields):
        assert event.body is not None
        assert {name: event.body["response"][name] for name in fields} == fields


@pytest.mark.parametrize("name", ["metadata", "tool_choice", "tools", "parallel_tool_calls"])
def test_what_was_asked_as_null_is_as_if_it_was_not(name: str) -> None:
    """W9: an agent reads it as any response."""
    assert [event.body for event in told(**{name: None})] == [event.body for event in told()]


def test_its_events_are_written_as_an_upstream_would_write_them() -> None:
    """E10: compact, and each block is its event."""
    for event in told():
        assert json.dumps(event.body, separators=(",", ":")).encode() == event.data
        assert event.block == b"event: " + event.type.encode() + b"\ndata: " + event.data + b"\n\n"
        assert read_block(event.block) == event
