"""What the events of an attempt's failure make of it, asked directly (X5, H1, E6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.attempt import Attempt
from gateway.core.events import Event, JsonObject
from gateway.core.failures import Failure, FailureKind
from gateway.core.messages import AttemptEnded, Head
from gateway.core.money import Usage
from support.machine import CREATED, DELTA, KEEPALIVE, START, error, failed

FRAMED, PLAIN = Head(is_framed=True), Head()
REFUSED = error("slow_down", status=429)


def told(*events: Event, head: Head | None = FRAMED, is_whole: bool = False, codes: str = "slow_down") -> Attempt:
    """An attempt that saw these events, whose failure its errors and what followed them are."""
    terms = replace(START, retryable_codes=frozenset({codes}))
    attempt = Attempt(terms, started_at=0.0, quiet_since=0.0, is_whole=is_whole, head=head)
    for event in events:
        attempt.observe(event, 1.0)
        if event not in (CREATED, KEEPALIVE):
            attempt.telling.append(event)
    return attempt


def test_a_first_frame_with_a_status_is_a_refusal_by_that_status() -> None:
    """X5: both its event and the answer that it stands for are kept."""
    failure = told(REFUSED).told_failure()
    assert (failure.kind, failure.code, failure.status, failure.events) == (
        FailureKind.RETRYABLE,
        "slow_down",
        429,
        (REFUSED,),
    )
    assert failure.answer is not None
    assert failure.answer.status == 429


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(told(REFUSED, head=PLAIN), id="no frame"),
        pytest.param(told(REFUSED, head=None), id="no head"),
        pytest.param(told(CREATED, REFUSED), id="not the first event"),
        pytest.param(told(KEEPALIVE, REFUSED), id="not the first frame"),
        pytest.param(told(error("slow_down")), id="no status"),
    ],
)
def test_any_other_error_is_told_by_its_event_alone(attempt: Attempt) -> None:
    """X5."""
    failure = attempt.told_failure()
    assert (failure.kind, failure.code, failure.answer) == (FailureKind.RETRYABLE, "slow_down", None)
    assert failure.events == tuple(attempt.telling)


def test_a_first_frame_that_is_not_alone_is_told_in_two_steps() -> None:
    """E6."""
    attempt = told(REFUSED)
    attempt.telling.append(failed("server_is_overloaded"))
    failure = attempt.told_failure()
    assert (failure.code, failure.answer, len(failure.events)) == ("server_is_overloaded", None, 2)


@pytest.mark.parametrize(("codes", "kind"), [("mine", FailureKind.RETRYABLE), ("other", FailureKind.NOT_RETRYABLE)])
def test_a_routes_own_codes_count_either_way(codes: str, kind: FailureKind) -> None:
    """F: row 5."""
    assert told(error("mine", status=300), codes=codes).told_failure().kind is kind
    assert told(error("mine"), codes=codes, head=PLAIN).told_failure().kind is kind


def test_a_first_frame_is_judged_by_the_routes_own_codes() -> None:
    """F, X5: before its status."""
    deterministic = told(error("mine", status=418), codes="other").told_failure()
    retryable = told(error("mine", status=418), codes="mine").told_failure()
    assert (deterministic.kind, retryable.kind) == (FailureKind.DETERMINISTIC, FailureKind.RETRYABLE)


def test_who_gets_one_body_gets_an_answer() -> None:
    """H1."""
    failure = told(error("slow_down"), is_whole=True, head=PLAIN).told_failure()
    assert failure.answer is not None
    assert (failure.answer.status, failure.status) == (429, 429)


@pytest.mark.parametrize("is_whole", [True, False])
def test_output_that_is_kept_for_a_body_is_a_result_that_was_seen(is_whole: bool) -> None:
    """H1, R4: elsewhere what is out needs no second reason."""
    assert told(DELTA, is_whole=is_whole).result_was_observed is is_whole


USAGE = {"input_tokens": 5, "output_tokens": 1}
ZEROS = {"input_tokens": 0, "output_tokens": 0}


def after_status(told: JsonObject | None, *, was_begun: bool = False, read: Usage | None = None) -> Attempt:
    """An attempt that an answer with a status ended, which told this; a usage may have been read before."""
    attempt = Attempt(START, started_at=0.0, quiet_since=0.0, usage=read)
    failure = Failure(FailureKind.RETRYABLE, "server_error", 500, "", told=told)
    attempt.read_end(AttemptEnded(failure, result_was_begun=was_begun))
    return attempt


@pytest.mark.parametrize(
    ("told", "was_observed", "usage"),
    [
        (None, False, None),
        ({"error": {}}, False, None),
        ({"usage": USAGE}, True, Usage(5, 1)),
        ({"response": {"usage": USAGE}}, True, Usage(5, 1)),
        ({"usage": {"total_tokens": "many"}}, True, None),
        ({"usage": ZEROS}, False, Usage(0, 0)),
    ],
    ids=["nothing", "no usage", "a usage", "a response's", "malformed", "zeros"],
)
def test_what_came_with_a_status_may_have_been_metered(
    told: JsonObject | None, was_observed: bool, usage: Usage | None
) -> None:
    """R4, B5: as its last event would tell; zeros count where nothing else was read."""
    attempt = after_status(told)
    assert (attempt.usage_was_observed, attempt.usage) == (was_observed, usage)


def test_zeros_that_come_with_a_status_take_nothing_back() -> None:
    """B5."""
    assert after_status({"usage": ZEROS}, read=Usage(5, 1)).usage == Usage(5, 1)


@pytest.mark.parametrize(
    ("told", "was_begun", "was_observed"),
    [
        (None, False, False),
        (None, True, True),
        ({"output": []}, False, False),
        ({"output": [{"id": "msg_1"}]}, False, True),
        ({"response": {"output": [{"id": "msg_1"}]}}, False, True),
        ({"output": [{"id": "msg_1"}]}, True, True),
    ],
    ids=["nothing", "a body that broke", "no output", "output", "a response's output", "output of one that broke"],
)
def test_what_came_with_a_status_may_be_a_result(told: JsonObject | None, was_begun: bool, was_observed: bool) -> None:
    """R4, H1."""
    assert after_status(told, was_begun=was_begun).result_was_observed is was_observed
