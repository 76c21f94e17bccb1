"""What the hold keeps of an event while the turn waits (T1): its bytes."""

from __future__ import annotations

import json

import pytest

from gateway.core.events import Event, EventClass, parse_object, read_event
from gateway.core.hold import NOTHING_HELD, Hold
from gateway.core.sse import sse_block


def made(event_type: str) -> Event:
    data = json.dumps({"type": event_type, "response": {"id": "resp_1", "n": 1.5}}).encode()
    event = read_event(data, b"data: " + data + b"\n\n")
    assert event is not None
    assert event.body is not None
    return event


def test_at_rest_it_holds_bytes_and_gives_back_what_it_was_given() -> None:
    """Thousands of turns wait at once: a parsed payload takes five times its bytes."""
    events = [made("response.created"), made("ping"), made("response.in_progress")]
    hold = Hold(10.0, 10_000, 10)
    for event in events:
        hold.add(event, 0.0)
    hold.rest()
    assert [event.body for event in hold._events] == [None] * 3
    assert hold.deadline == 10.0
    assert hold.take() == events


def test_the_hold_that_all_turns_share_holds_nothing() -> None:
    """Else one client would be told what another's upstream said."""
    with pytest.raises(RuntimeError):
        NOTHING_HELD.add(made("response.created"), 0.0)
    assert NOTHING_HELD.take() == ()


def test_what_comes_behind_what_rests_is_all_that_is_looked_at() -> None:
    """A thousand events may be held (R7), and each is followed by a rest: each is let go once."""
    hold = Hold(10.0, 100_000, 1000)
    for _ in range(3):
        hold.add(made("ping"), 0.0)
        before = [*hold._events]
        hold.rest()
        assert [kept is known for kept, known in zip(hold._events, before, strict=True)].count(False) == 1
    assert hold.take() == [made("ping")] * 3
    hold.add(made("ping"), 0.0)
    hold.rest()
    assert [event.body for event in hold._events] == [None], "it begins anew"
    assert hold.take() == [made("ping")]


def test_once_all_is_taken_the_bounds_are_as_wide_as_before() -> None:
    """R7: of what is held, byte by byte."""
    one = made("response.created")
    hold = Hold(10.0, len(one.block), 1)
    for _ in range(2):
        hold.add(one, 0.0)
        assert not hold.is_too_large
        hold.take()
    hold.add(one._replace(block=one.block + b"\n"), 0.0)
    assert hold.is_too_large


PAYLOAD = b'{"type": "response.created", "n": 1.5}'


@pytest.mark.parametrize(
    ("data", "block", "is_folded"),
    [
        (PAYLOAD, sse_block("response.created", PAYLOAD), True),
        (PAYLOAD, b"data: " + PAYLOAD + b"\n\n", False),
        (PAYLOAD, b"event: response.created\r\ndata: " + PAYLOAD + b"\r\n\r\n", False),
        (PAYLOAD, b"event: response.created\ndata:" + PAYLOAD + b"\n\n", False),
        (b"{\n}", sse_block("response.created", b"{\n}"), False),
        (b"{\r}", sse_block("response.created", b"{\r}"), False),
        (b"{\r}", b"event: x\ndata: {\r}\n\n", False),
    ],
)
def test_a_payload_that_its_block_says_as_it_is_is_held_once(data: bytes, block: bytes, is_folded: bool) -> None:
    """What comes back is what was given, byte for byte: the other door sends payloads, and this one blocks."""
    event = Event(EventClass.LIFECYCLE, "response.created", data, block, parse_object(data))
    hold = Hold(10.0, 10_000, 10)
    hold.add(event, 0.0)
    hold.rest()
    assert [kept.data for kept in hold._events] == [b"" if is_folded else data]
    assert hold.take() == [event]
