"""What passes the turn machine leaves it as a step would have, and only what leaves it nothing to decide may pass."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.events import Event
from gateway.core.messages import AttemptStarted, Batch, Command, Door, DrainStarted, Input
from gateway.core.rules import TurnRules
from gateway.core.turn import Turn
from support.machine import (
    COMPLETED,
    CREATED,
    DELTA,
    DOORS,
    HANDED,
    HTTP,
    KEEPALIVE,
    LEFT,
    METADATA,
    NOT_TEXT,
    RESET,
    START,
    TICK,
    error,
    event,
    failed,
    starts,
)

UNNUMBERED = event("response.output_text.delta", delta="no number")
LATER = event("response.output_text.delta", sequence_number=41, delta="hello again")
DONE = event("response.output_text.done", sequence_number=7, text="hello")
OUTPUT = (DELTA, UNNUMBERED, LATER, DONE)


def committed(door: Door, rules: TurnRules | None = None, start: AttemptStarted = START) -> Turn:
    """A turn at 1 s whose output has begun, and was handed over."""
    turn = Turn(door, rules or TurnRules())
    for at, arrived in ((0.0, start), (0.5, Batch([CREATED])), (1.0, Batch([DELTA])), (1.0, HANDED)):
        turn.step(arrived, at)
    return turn


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("events", [[DELTA], [UNNUMBERED, LATER], [DONE]])
def test_output_behind_output_may_pass(door: Door, events: Sequence[Event]) -> None:
    assert committed(door).lets_pass(events, 2.0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("other", [CREATED, KEEPALIVE, METADATA, COMPLETED, failed(), error()])
def test_nothing_with_an_event_of_another_class_may(door: Door, other: Event) -> None:
    """E1, E2, E4, E5."""
    assert not committed(door).lets_pass([DELTA, other], 2.0)
    assert not committed(door).lets_pass([other, DELTA], 2.0)


def test_what_is_no_text_may_on_http_alone() -> None:
    """E10."""
    assert [committed(door).lets_pass([NOT_TEXT], 2.0) for door in DOORS] == [door is HTTP for door in DOORS]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("at", "may_pass"), [(1.499, True), (1.5, False), (1.501, False)])
def test_nothing_may_from_the_instant_of_a_deadline_on(door: Door, at: float, may_pass: bool) -> None:
    """T5, T4: however early it comes."""
    assert committed(door, TurnRules(cut_at=1.5)).lets_pass([DELTA], at) == may_pass
    assert committed(door, start=starts(idle=0.75)).lets_pass([DELTA], at + 0.25) == may_pass


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("before", [
    [],
    [(0.0, START)],
    [(0.0, START), (0.5, Batch([CREATED]))],
    [(0.0, START), (0.5, Batch([CREATED])), (10.5, TICK), (10.5, HANDED)],
    [(0.0, START), (1.0, Batch([DELTA]))],
    [(0.0, START), (1.0, Batch([DELTA])), (1.0, HANDED), (1.5, Batch([DELTA]))],
    [(0.0, START), (1.0, Batch([DELTA])), (1.0, HANDED), (1.9, Batch([error()]))],
    [(0.0, START), (1.0, Batch([DELTA])), (1.0, HANDED), (1.9, RESET)],
    [(0.0, START), (1.0, Batch([DELTA])), (1.0, HANDED), (1.9, LEFT)],
    [(0.0, START), (1.0, Batch([DELTA])), (1.0, HANDED), (1.9, Batch([COMPLETED]))],
])  # fmt: skip
def test_nothing_may_before_output_while_frames_wait_or_when_it_fails_or_is_over(
    door: Door, before: Sequence[tuple[float, Input]]
) -> None:
    """R2, T4, E6, E9."""
    turn = Turn(door, TurnRules())
    for at, arrived in before:
        turn.step(arrived, at)
    assert not turn.lets_pass([DELTA], 11.0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("at", "may"), [(300.999, True), (301.0, False), (301.001, False)])
def test_at_a_deadline_the_clock_wins(door: Door, at: float, may: bool) -> None:
    """T4."""
    assert committed(door).lets_pass([DELTA], at) is may


@pytest.mark.parametrize("door", DOORS)
def test_at_the_end_of_the_drain_and_of_the_connection_too(door: Door) -> None:
    """T5, T7."""
    drained, limited = committed(door), committed(door, TurnRules(cut_at=30.0))
    drained.step(DrainStarted(30.0), 2.0)
    for turn in (drained, limited):
        assert [turn.lets_pass([DELTA], at) for at in (29.999, 30.0)] == [True, False]


@pytest.mark.parametrize("door", DOORS)
def test_what_passed_is_heard(door: Door) -> None:
    """T4: silence is counted from there."""
    turn = committed(door)
    turn.passed([DELTA], 200.0)
    assert turn.deadline == 500.0
    assert turn.lets_pass([DELTA], 499.999)


ENDS: Sequence[Sequence[tuple[float, Input]]] = (
    [(0.0, RESET)],
    [(0.0, LEFT)],
    [(400.0, TICK)],
    [(1.0, Batch([COMPLETED]))],
    [(1.0, Batch([failed()]))],
    [(1.0, Batch([error()])), (1.25, TICK)],
    [(1.0, Batch([NOT_TEXT])), (2.0, HANDED), (2.0, RESET)],
)


def told(turn: Turn, end: Sequence[tuple[float, Input]], since: float) -> list[list[Command]]:
    return [turn.step(arrived, since + at) for at, arrived in end]


batches = st.lists(st.tuples(st.floats(0.001, 299.0), st.lists(st.sampled_from(OUTPUT), min_size=1, max_size=4)))


@given(st.sampled_from(DOORS), batches, st.sampled_from(ENDS))
def test_the_machine_ends_as_if_it_had_been_stepped(
    door: Door, sent: list[tuple[float, list[Event]]], end: Sequence[tuple[float, Input]]
) -> None:
    """R2, B4, L1, X3: outcome, text, times and number of the failure."""
    stepped, passed = committed(door), committed(door)
    now = 1.0
    for pause, events in sent:
        now += pause
        assert passed.lets_pass(events, now)
        passed.passed(events, now)
        stepped.step(Batch(events), now)
        stepped.step(HANDED, now)
        assert passed.deadline == stepped.deadline
    assert told(passed, end, now) == told(stepped, end, now)
