"""The probe's timeline and summary, from recorded moments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cli.timeline import Answered, Came, Ended, Moment, Refused, Timeline, is_completed, summary
from gateway.core.events import read_event

HEAD = Answered(0.233, 200, {"x-request-id": "req_1", "x-upstream-request-id": "up_1", "content-type": "text/plain"})


def came(at: float, event_type: str | None, **fields: Any) -> Came:
    """An event at `at` seconds."""
    data = json.dumps(({} if event_type is None else {"type": event_type}) | fields).encode()
    event = read_event(data, data)
    assert event is not None
    return Came(at, event)


def created(at: float) -> Came:
    return came(at, "response.created", response={"id": "resp_1"})


def in_progress(at: float) -> Came:
    return came(at, "response.in_progress", response={"id": "resp_1"})


def delta(at: float, text: str) -> Came:
    return came(at, "response.output_text.delta", delta=text)


def completed(at: float) -> Came:
    usage = {"input_tokens": 12, "output_tokens": 3}
    return came(at, "response.completed", response={"id": "resp_1", "usage": usage})


def failed(at: float) -> Came:
    return came(
        at, "response.failed", response={"id": "resp_1", "error": {"code": "server_error", "message": "broken"}}
    )


def error(at: float, **fields: Any) -> Came:
    return came(at, "error", error={"code": "stream_read_error", "message": "it broke", **fields})


WHOLE: list[Moment] = [
    HEAD,
    created(0.233),
    in_progress(0.234),
    came(0.235, "response.output_item.added"),
    delta(0.24, "A "),
    delta(0.5, "short  "),
    delta(1.04, "answer."),
    completed(1.045),
]


def lines(moments: list[Moment]) -> list[str]:
    timeline = Timeline()
    return [line for moment in moments for line in timeline.add(moment)] + timeline.finish()


def section(moments: list[Moment], heading: str) -> list[str]:
    """The lines of one section of the summary, without the heading."""
    found: list[str] = []
    current = ""
    for line in summary(moments):
        current = line[:9].strip() or current
        if current == heading:
            found.append(line[9:])
    return found


# --- line by line -----------------------------------------------------------------------------------------------


def test_each_moment_is_a_line_and_a_run_is_one() -> None:
    assert lines(WHOLE) == [
        "     233 ms  status 200",
        "     233 ms  response.created",
        "     234 ms  response.in_progress",
        "     235 ms  response.output_item.added",
        "     240 ms  response.output_text.delta × 3, until 1040 ms",
        "    1045 ms  response.completed",
    ]


def test_a_line_is_there_as_soon_as_it_is_complete() -> None:
    timeline = Timeline()
    assert [timeline.add(moment) for moment in (HEAD, created(0.3), in_progress(0.4))] == [
        ["     233 ms  status 200"],
        [],
        ["     300 ms  response.created"],
    ]
    assert timeline.finish() == ["     400 ms  response.in_progress"]
    assert timeline.finish() == []


def test_what_is_no_event_is_told_too() -> None:
    assert lines(
        [Answered(0.01, 401, {}), Refused(0.02, b"{}"), came(0.03, None, x=1), Ended(0.5, "the stream ended")]
    ) == [
        "      10 ms  status 401",
        "      20 ms  a body that is no stream",
        "      30 ms  (an event without a type)",
        "     500 ms  the stream ended",
    ]


# --- what was held ----------------------------------------------------------------------------------------------


def test_lifecycle_events_that_came_with_the_first_output_were_held() -> None:
    """T1: seen from the client's side."""
    assert section(WHOLE, "held") == [
        "response.created, response.in_progress came together with the first output: held at most 233 ms"
    ]


def test_lifecycle_events_that_came_with_the_end_were_held() -> None:
    assert section([HEAD, created(2), in_progress(2), failed(2.01)], "held") == [
        "response.created, response.in_progress came together with response.failed: held at most 2000 ms"
    ]
    assert section([HEAD, created(2), error(2.01), failed(2.01)], "held") == [
        "response.created came together with error: held at most 2000 ms"
    ]


def test_lifecycle_events_that_came_long_before_were_held_no_longer_than_that() -> None:
    assert section([HEAD, created(0.02), delta(1.02, "x")], "held") == [
        "response.created came 1000 ms before the first output: held at most 20 ms"
    ]


def test_neutral_events_are_not_what_a_hold_waits_for() -> None:
    """E2."""
    assert section([created(0.02), came(0.03, "keepalive"), delta(1.02, "x")], "held") == [
        "response.created came 1000 ms before the first output: held at most 20 ms"
    ]


def test_lifecycle_events_alone_and_none_at_all() -> None:
    assert section([HEAD, created(10)], "held") == ["response.created came alone: held at most 10000 ms"]
    assert section([HEAD, delta(1, "x")], "held") == []


# --- how it ended -----------------------------------------------------------------------------------------------

OUTCOMES: dict[str, tuple[list[Moment], bool, str]] = {
    "completed": (WHOLE, True, "response.completed after 1045 ms, 12 tokens in, 3 out"),
    "completed without usage": ([came(1, "response.completed")], True, "response.completed after 1000 ms"),
    "failed before output": (
        [HEAD, created(1), failed(1)],
        False,
        "response.failed before any output, after 1000 ms: server_error: broken",
    ),
    "failed after output": (
        [HEAD, delta(1, "x"), failed(2)],
        False,
        "response.failed after output, after 2000 ms: server_error: broken",
    ),
    "failed in two steps": (
        [HEAD, error(1), failed(1.1), Ended(1.2, "the stream ended")],
        False,
        "response.failed before any output, after 1200 ms: stream_read_error: it broke",
    ),
    "error alone": ([HEAD, error(1)], False, "error before any output, after 1000 ms: stream_read_error: it broke"),
    "incomplete": (
        [came(1, "response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}})],
        False,
        "response.incomplete before any output, after 1000 ms: max_output_tokens",
    ),
    "cut": (
        [HEAD, delta(1, "x"), Ended(2, "the connection broke (ReadError)")],
        False,
        "no terminal event, after output: the connection broke (ReadError); that is a failure",
    ),
    "silent": ([Ended(5, "nothing more within 5 s")], False, "no terminal event, before any output: nothing more"),
    "refused": (
        [Answered(0.01, 402, {}), Refused(0.01, b'{"error":{"code":"insufficient_balance","message":"no money"}}')],
        False,
        "status 402 after 10 ms: insufficient_balance: no money",
    ),
    "refused without an error object": (
        [Answered(0.01, 502, {}), Refused(0.01, b"<html>Bad gateway</html>")],
        False,
        "status 502 after 10 ms",
    ),
    "nothing at all": ([], False, "no terminal event, before any output: nothing came"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_only_a_completed_response_is_a_success(name: str) -> None:
    moments, success, words = OUTCOMES[name]
    (outcome,) = section(moments, "outcome")
    assert (is_completed(moments), outcome[: len(words)]) == (success, words)


def test_the_text_is_one_line_and_bounded() -> None:
    assert section(WHOLE, "text") == ["A short answer."]
    (text,) = section([delta(1, "x" * 1000)], "text")
    assert text == "x" * 400 + " …"


def test_what_the_answer_says_of_sending_again() -> None:
    head = Answered(0.01, 503, {"x-should-retry": "true", "retry-after": "5"})
    refused = Refused(0.01, b'{"error": {"code": "no_route_available", "retryable": true}}')
    assert section([head, refused], "retry") == ["x-should-retry: true", "retry-after: 5", "error.retryable: true"]
    assert section([HEAD, error(1, retryable=False)], "retry") == ["error.retryable: false"]
    assert section(WHOLE, "retry") == []


def test_ids_of_the_headers_the_response_and_the_error() -> None:
    assert section(WHOLE, "ids") == [
        "x-request-id              req_1",
        "x-upstream-request-id     up_1",
        "response.id               resp_1",
    ]
    assert section([error(1, request_id="req_1.1")], "ids") == ["error.request_id          req_1.1"]
    assert section([], "ids") == ["none came"]


def test_nothing_that_a_server_sends_breaks_the_summary() -> None:
    """E8."""
    odd: list[Moment] = [
        came(1, "response.created", response=None),
        came(1, "response.output_text.delta", delta=7),
        came(1, None, error=True),
        came(1, "response.failed", response={"error": {"code": 7}, "id": []}),
        Refused(1, b"\xff"),
    ]
    assert not is_completed(odd)
    assert summary(odd)
