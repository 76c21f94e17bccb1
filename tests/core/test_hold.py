"""The hold on its own: order, clock and bounds (T1, R7)."""

import math

import pytest

from gateway.core.events import Event
from gateway.core.hold import Hold
from support.machine import CREATED, IN_PROGRESS, KEEPALIVE, METADATA, QUEUED


def holding(*events: tuple[Event, float], seconds: float = 10.0, bytes_max: int = 10**6, events_max: int = 100) -> Hold:
    """A hold that was given these events at these times."""
    hold = Hold(seconds, bytes_max, events_max)
    for event, at in events:
        hold.add(event, at)
    return hold


def test_what_is_held_comes_out_in_order_and_once() -> None:
    """T1: in order, unchanged."""
    hold = holding((KEEPALIVE, 0), (CREATED, 1), (METADATA, 2), (IN_PROGRESS, 3))
    assert (hold.take(), hold.take()) == ([KEEPALIVE, CREATED, METADATA, IN_PROGRESS], [])


def test_the_clock_runs_from_the_first_lifecycle_event() -> None:
    """T1."""
    assert holding((KEEPALIVE, 0), (CREATED, 1.5), (IN_PROGRESS, 3)).deadline == 11.5


@pytest.mark.parametrize("event", [CREATED, QUEUED, IN_PROGRESS], ids=lambda event: event.type)
def test_any_lifecycle_event_starts_the_clock(event: Event) -> None:
    """E1, T1."""
    assert holding((event, 2)).deadline == 12


@pytest.mark.parametrize("event", [KEEPALIVE, METADATA], ids=lambda event: event.type)
def test_a_neutral_event_starts_no_clock(event: Event) -> None:
    """E2."""
    assert holding((event, 2)).deadline == math.inf


def test_an_emptied_hold_has_no_deadline_but_its_clock_runs_on() -> None:
    """T1: counted per turn, across a replay."""
    hold = holding((CREATED, 1))
    hold.take()
    between = (hold.deadline, hold.is_over(10.999), hold.is_over(11))
    hold.add(CREATED, 4)
    assert (between, hold.deadline) == ((math.inf, False, True), 11)


def test_neutral_events_alone_do_not_expire_after_a_replay() -> None:
    """T1: if the clock ran out while nothing was held, it waits for the next lifecycle event."""
    hold = holding((CREATED, 1))
    hold.take()
    hold.add(KEEPALIVE, 30)
    assert (hold.deadline, hold.is_over(30)) == (math.inf, True)


def test_a_hold_that_never_held_lifecycle_events_is_never_over() -> None:
    """T1."""
    assert not holding((KEEPALIVE, 1)).is_over(10**9)


SIZE = len(CREATED.block)


@pytest.mark.parametrize(("bytes_max", "is_too_large"), [(2 * SIZE, False), (2 * SIZE - 1, True)])
def test_the_byte_bound_may_be_met_but_not_passed(bytes_max: int, is_too_large: bool) -> None:
    """R7: "passed `hold_bytes_max`"."""
    assert holding((CREATED, 1), (CREATED, 1), bytes_max=bytes_max).is_too_large is is_too_large


@pytest.mark.parametrize(("events_max", "is_too_large"), [(2, False), (1, True)])
def test_the_event_bound_may_be_met_but_not_passed(events_max: int, is_too_large: bool) -> None:
    """R7: "passed `hold_events_max`"."""
    assert holding((CREATED, 1), (KEEPALIVE, 1), events_max=events_max).is_too_large is is_too_large


def test_what_was_taken_counts_no_more() -> None:
    """R7: the bounds are for one attempt's prefix."""
    hold = holding((CREATED, 1), (CREATED, 1), bytes_max=2 * SIZE, events_max=2)
    hold.take()
    hold.add(CREATED, 2)
    hold.add(CREATED, 2)
    assert not hold.is_too_large


def test_its_repr_tells_how_much_and_until_when() -> None:
    """Style: a repr is an instrument."""
    assert repr(holding((CREATED, 1))) == "<Hold 1 events, until 11.0>"
