"""B9: when a background response has ended, and what of it is charged."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.background import (
    BackgroundTurn,
    Fingerprint,
    end_seen,
    end_unseen,
    goes_on,
    may_know,
    names,
    would_know,
)
from gateway.core.events import read_event
from gateway.core.failures import RETRYABLE_CODES, failure_from_events
from gateway.core.messages import AttemptReport, Finish
from gateway.core.money import Ended, EndedBy, Usage

USAGE = {"input_tokens": 5, "output_tokens": 1}
TURN = BackgroundTurn("turn", "main", "resp_1", "a", 9_000, 7, text_bytes=30)
REPORT = AttemptReport("stream_read_error", 0.0, 1.0, response_id="resp_1")
BROKE = Ended(EndedBy.UPSTREAM_OR_CLIENT, output_delivered=True, usage=None, failed=True)


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        ({"status": "completed", "usage": USAGE}, Ended(EndedBy.TERMINAL, False, Usage(5, 1), failed=False)),
        ({"status": "incomplete", "output": [{}]}, Ended(EndedBy.TERMINAL, True, None, failed=False)),
        ({"status": "cancelled", "output": []}, Ended(EndedBy.TERMINAL, False, None, failed=False)),
        ({"status": "failed", "usage": {"x": 1}}, Ended(EndedBy.UPSTREAM_OR_CLIENT, False, None, failed=True)),
    ],
    ids=["completed", "incomplete", "cancelled", "failed"],
)
def test_a_state_that_is_not_left_is_the_end(response: dict[str, Any], ended: Ended) -> None:
    """B3, B5, B9."""
    assert end_seen(response, 0) == ended


def test_what_was_delivered_of_it_is_known_to_who_asks() -> None:
    """B4, B9: the estimate, where its end tells no usage."""
    ended = end_seen({"status": "completed", "output": [{}]}, 30)
    assert ended == Ended(EndedBy.TERMINAL, True, None, failed=False, delivered_text_bytes=30)


@pytest.mark.parametrize("status", ["queued", "in_progress", "unheard of", None, 5, ["completed"]])
def test_any_other_state_is_none(status: object) -> None:
    """B9, E8: whatever an upstream says."""
    assert end_seen({"status": status, "usage": USAGE}, 0) is None
    assert end_seen({}, 0) is None


def test_of_what_is_never_seen_the_estimate_is_charged() -> None:
    """B4, B9: by what was delivered."""
    assert end_unseen(TURN) == Ended(EndedBy.UPSTREAM_OR_CLIENT, True, None, failed=False, delivered_text_bytes=30)


def failed(*payloads: dict[str, Any]) -> Finish:
    events = tuple(event for p in payloads if (event := read_event(json.dumps(p).encode(), b"")) is not None)
    return Finish("server_error", REPORT, BROKE, failure_from_events(events, RETRYABLE_CODES))


def test_a_response_goes_on_behind_its_stream_unless_the_stream_has_told_its_end() -> None:
    """B9: an `error` alone is the stream's, a `response.failed` the response's."""
    completed = Ended(EndedBy.TERMINAL, output_delivered=True, usage=None, failed=False)
    assert goes_on(Finish("stream_read_error", REPORT, BROKE)) == "resp_1"
    assert goes_on(failed({"type": "error", "code": "server_error"})) == "resp_1"
    assert goes_on(failed({"type": "error"}, {"type": "response.failed", "response": {"id": "resp_1"}})) is None
    assert goes_on(Finish("completed", REPORT, completed)) is None
    assert goes_on(Finish("stream_read_error", AttemptReport("x", 0.0, 1.0), BROKE)) is None
    assert goes_on(Finish("internal_error", None, BROKE)) is None


def test_a_response_is_known_by_its_id() -> None:
    """B9."""
    assert names({"id": "resp_1"}, TURN)
    assert not any(names(other, TURN) for other in ({"id": "resp_2"}, {}, {"id": 5}))


@pytest.mark.parametrize(
    ("asked", "may", "would"),
    [
        (Fingerprint("here", "key"), True, True),
        (Fingerprint("here", "rotated"), True, False),
        (Fingerprint("there", "key"), False, False),
    ],
    ids=["the same", "another key", "another upstream"],
)
def test_whose_word_counts_is_told_by_upstream_and_key(asked: Fingerprint, may: bool, would: bool) -> None:
    """B9: who has another key may be another account, and knows nothing by not knowing the response."""
    turn = replace(TURN, fingerprint=Fingerprint("here", "key"))
    assert (may_know(asked, turn), would_know(asked, turn)) == (may, would)
    assert (may_know(asked, TURN), would_know(asked, TURN)) == (True, True)
