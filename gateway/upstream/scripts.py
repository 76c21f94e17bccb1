"""Events and whole replies for scripted upstreams, in the shapes that real upstreams send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.upstream.scripted import JSON_BODY, Break, Reply, Step


def event(event_type: str, **fields: Any) -> bytes:
    """One SSE block: `event: T`, one data line, a blank line."""
    payload = json.dumps({"type": event_type, **fields}, separators=(",", ":"), ensure_ascii=False)
    return f"event: {event_type}\ndata: {payload}\n\n".encode()


def response_object(response_id: str, status: str, model: str = "gpt-demo", **fields: Any) -> dict[str, Any]:
    """A response as lifecycle and terminal events carry it."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "metadata": {},
        **fields,
    }


def usage_object(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """A usage as a completed response carries it."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def prelude(response_id: str, model: str = "gpt-demo") -> tuple[bytes, bytes]:
    """`response.created` and `response.in_progress`, numbered 0 and 1."""
    response = response_object(response_id, "in_progress", model)
    return (
        event("response.created", sequence_number=0, response=response),
        event("response.in_progress", sequence_number=1, response=response),
    )


def text_answer(
    words: list[str], *, response_id: str, model: str = "gpt-demo", pause: float = 0.0, first_pause: float = 0.0
) -> Reply:
    """A whole answer of one message, a delta for each word, with its usage."""
    item_id = response_id.replace("resp_", "msg_")
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    text = "".join(words)
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    opened = {**item, "status": "in_progress", "content": []}
    events: list[tuple[str, Mapping[str, Any]]] = [
        ("response.output_item.added", {"output_index": 0, "item": opened}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": word, "logprobs": []}) for word in words),
        ("response.output_text.done", {**place, "text": text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
    ]
    steps: list[Step] = [*prelude(response_id, model), first_pause]
    for number, (event_type, fields) in enumerate(events, start=2):
        steps += [event(event_type, sequence_number=number, **fields)]
        steps += [pause] if event_type == "response.output_text.delta" and pause else []
    done = response_object(response_id, "completed", model, output=[item], usage=usage_object(12, len(words)))
    steps.append(event("response.completed", sequence_number=len(events) + 2, response=done))
    return Reply(steps)


def two_step_failure(code: str, message: str, *, response_id: str, model: str = "gpt-demo") -> Reply:
    """Created, in progress, `error`, `response.failed` in one burst, as upstreams under load send it."""
    failed = response_object(response_id, "failed", model, error={"code": code, "message": message})
    error = {"type": "server_error", "code": code, "message": message, "param": None}
    return Reply(
        (
            b"".join(prelude(response_id, model))
            + event("error", sequence_number=2, error=error)
            + event("response.failed", sequence_number=3, response=failed),
        )
    )


def http_failure(status: int, code: str, message: str, error_type: str = "server_error") -> Reply:
    """An HTTP status with an error object."""
    error = {"error": {"message": message, "type": error_type, "param": None, "code": code}}
    return Reply((json.dumps(error).encode(),), status=status, headers=JSON_BODY)


def broken(*steps: Step) -> Reply:
    """A stream that is reset after `steps`."""
    return Reply((*steps, Break()))
