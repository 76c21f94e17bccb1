"""A warm-up that the gateway answers itself: `generate: false` on a route that knows no such thing (W9). Pure.

Agents wait for its end and read it as any response: it is complete in shape, has no output, and has used nothing. What
it prepared is remembered by whoever serves the connection (core.continuation).
"""

from __future__ import annotations

import json
from typing import Any, Final

from gateway.core.events import Event, EventClass
from gateway.core.request import TurnRequest
from gateway.core.sse import sse_block

NO_USAGE: Final = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


def warm_up_id(turn_id: str) -> str:
    """The id of the response to a warm-up: as hard to guess as its turn's."""
    return "resp_" + turn_id.removeprefix("req_").replace(".", "_")


def warm_up_events(turn_id: str, request: TurnRequest, previous: str | None, created_at: float) -> list[Event]:
    """`response.created` and `response.completed`; `previous` is the response that it goes on from, `created_at`
    wall-clock time, seconds since the epoch."""
    response = _response(warm_up_id(turn_id), request, previous, int(created_at))
    completed = {**response, "status": "completed", "completed_at": int(created_at), "usage": NO_USAGE}
    return [
        _event(EventClass.LIFECYCLE, "response.created", 0, response),
        _event(EventClass.TERMINAL, "response.completed", 1, completed),
    ]


def _response(response_id: str, request: TurnRequest, previous: str | None, created_at: int) -> dict[str, Any]:
    body = request.body
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": previous,
        "store": False,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "usage": None,
    }


def _event(kind: EventClass, event_type: str, number: int, response: dict[str, Any]) -> Event:
    body = {"type": event_type, "sequence_number": number, "response": response}
    data = json.dumps(body, separators=(",", ":")).encode()
    return Event(kind, event_type, data, sse_block(event_type, data), body)
