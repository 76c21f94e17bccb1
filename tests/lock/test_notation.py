"""What an upstream does, from a scenario's few words to the steps of the scripted upstream."""

import json
import math
from datetime import date
from typing import Any

import pytest

from gateway.lock.notation import NotationError, Speaker, Written
from gateway.upstream.scripted import Break, Silence, Step


def steps(*written: Written, is_numbered: bool = True) -> list[Step]:
    return Speaker("a1", "gpt-test", is_numbered).steps(written)


def payloads(*written: Written, is_numbered: bool = True) -> list[dict[str, Any]]:
    found = steps(*written, is_numbered=is_numbered)
    return [json.loads(step.split(b"data: ")[1]) for step in found if isinstance(step, bytes)]


def test_an_answer_is_four_events_numbered_as_they_are_sent() -> None:
    assert [(one["type"], one["sequence_number"]) for one in payloads("answer")] == [
        ("response.created", 0),
        ("response.in_progress", 1),
        ("response.output_text.delta", 2),
        ("response.completed", 3),
    ]


def test_what_is_no_event_is_a_step_of_its_own() -> None:
    assert steps(1, 2.5, "comment", "done", "break", "silence") == [
        1.0,
        2.5,
        b": ping\n\n",
        b"data: [DONE]\n\n",
        Break(),
        Silence(),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("delta two words", {"delta": "two words"}),
        ("delta", {"delta": ""}),
        ("failed slow_down", {"type": "response.failed"}),
        ("error -", {"error": {"type": "some_type", "code": None, "message": "the words of a1", "param": None}}),
        ({"type": "keepalive"}, {"type": "keepalive", "sequence_number": 0}),
        ({"type": "keepalive", "sequence_number": 7}, {"sequence_number": 7}),
    ],
)
def test_words_and_tables_become_events(written: Written, expected: dict[str, Any]) -> None:
    (payload,) = payloads(written)
    assert {name: payload[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("written", "response"),
    [
        ("created", {"id": "resp_a1", "status": "in_progress", "usage": None}),
        ("queued", {"status": "queued"}),
        ("incomplete", {"status": "incomplete", "usage": None}),
        ("failed slow_down", {"status": "failed", "error": {"code": "slow_down", "message": "the words of a1"}}),
        ({"type": "response.cancelled", "response": {"output": [1]}}, {"status": "cancelled", "output": [1]}),
    ],
)
def test_lifecycle_and_terminal_events_carry_a_response(written: Written, response: dict[str, Any]) -> None:
    (payload,) = payloads(written)
    assert {name: payload["response"][name] for name in response} == response


def test_a_usage_stands_behind_a_terminal_word() -> None:
    usages = [one["response"]["usage"] for one in payloads("completed 5/1", "failed x 3/0")]
    assert [(usage["input_tokens"], usage["output_tokens"]) for usage in usages] == [(5, 1), (3, 0)]


def test_an_upstream_may_not_number_its_events() -> None:
    assert "sequence_number" not in payloads("created", is_numbered=False)[0]


def test_bytes_may_be_written_as_they_are_joined_and_cut() -> None:
    assert steps({"raw": "data: ü\n"}, {"hex": "fffe"}) == ["data: ü\n".encode(), b"\xff\xfe"]
    assert steps({"together": ["comment", "done"]}) == [b": ping\n\ndata: [DONE]\n\n"]
    assert steps({"bytewise": [{"raw": "abc"}]}) == [b"a", b"b", b"c"]
    assert steps({"times": 2, "does": [1.0, "comment"]}) == [1.0, b": ping\n\n", 1.0, b": ping\n\n"]


def test_a_payload_may_be_written_as_json() -> None:
    assert steps({"json": '{"type":"error","error":null}'}) == [
        b'event: error\ndata: {"type":"error","error":null}\n\n'
    ]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("create", "'create' is not in the notation"),
        ("created now", "'created' takes nothing behind it"),
        ("failed", "'failed' names no code"),
        ("completed five", "'five' is no usage"),
        (True, "is no step"),
        (-1, "is a pause of less than nothing"),
        ({"text": "x"}, "the table is no step"),
        ({"hex": "xyz"}, "has a `hex` that is none"),
        ({"json": "{"}, "has a `json` that is none"),
        ({"times": 2}, "has `times` and not `does`"),
        ({"together": [1.0]}, "joins what are no bytes"),
        ({"together": "done"}, "has a `together` that is no list"),
        ({"bytewise": 5}, "has a `bytewise` that is no list"),
        ([1], "is no step"),
        (date(1979, 5, 27), "is no step"),
        ({"type": "x", "at": date(1979, 5, 27)}, "holds a date"),
        (math.nan, "is a pause without an end"),
        (math.inf, "is a pause without an end"),
        (1e308, "is a pause without an end"),
        ({"type": 5}, "has a `type` that is no text"),
        ({"json": 5}, "has a `json` that is no text"),
        ({"json": "[" * 200_000}, "has a `json` that is none"),
        ({"raw": 5}, "has a `raw` that is no text"),
        ({"hex": 55}, "has a `hex` that is no text"),
        ({"type": "response.created", "response": 5}, "has a `response` that is no table"),
        ({"type": "response.created", "response": {"status": "x"}}, "has a `response` that is no table, or sets its"),
        ({"type": "x", "event_type": "y"}, "has `event_type` beside `type`"),
        ({"times": -1, "does": ["done"]}, "has `times` that are no number of times"),
        ({"times": True, "does": ["done"]}, "has `times` that are no number of times"),
        ({"times": 10**12, "does": ["done"]}, "has `times` that are no number of times"),
        ({"times": 2, "does": []}, "has `times` and not `does`"),
        ({"times": 2, "does": ["done"], "do": []}, "has 'do' beside `times`"),
        ({"times": 200, "does": [{"times": 200, "does": ["done"]}]}, "has more than 10000 steps"),
        ({"bytewise": [{"raw": "x" * 10_001}]}, "has more than 10000 steps"),
    ],
)
def test_a_step_that_is_none_is_told_with_its_fix(written: Any, problem: str) -> None:
    with pytest.raises(NotationError) as raised:
        steps(written)
    assert raised.value.problem.startswith(problem)
    assert raised.value.fix
