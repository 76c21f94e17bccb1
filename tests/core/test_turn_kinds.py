"""Turns that are not streams from beginning to end: one body (H1), a response in the background (B9)."""

import math

import pytest

from gateway.core.eligibility import BACKGROUND
from gateway.core.failures import FailureKind
from gateway.core.messages import AttemptStarted, Door
from gateway.core.rules import TurnRules
from support.machine import COMPLETED, CREATED, DELTA, DOORS, HTTP, RESET, START, Player, sends

ONE_BODY = TurnRules(is_whole=True, hold_seconds=math.inf)
WITH_CLOCKS = AttemptStarted(first_event_seconds=5.0, idle_seconds=5.0, response_seconds=20.0)


def test_who_asked_for_one_body_gets_the_terminal_event_alone() -> None:
    """H1."""
    player = Player(HTTP, rules=ONE_BODY).plays((0, START), (1, sends(CREATED, DELTA)), (2, sends(COMPLETED)))
    assert player.types == ["completed"]


def test_one_body_has_one_clock() -> None:
    """H1, T2, T4: neither its first event nor silence is waited for, only its end."""
    player = Player(HTTP, rules=ONE_BODY).plays((0, WITH_CLOCKS))
    assert player.turn.deadline == 20.0
    player.plays((15, sends(CREATED))).waits(19.999)
    assert not player.is_done
    player.waits(20.0)
    assert (player.is_done, player.failure.failure.kind) == (True, FailureKind.FIRST_EVENT_TIMEOUT)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("reasons", "number"), [((), 3), (("stored", BACKGROUND), None)])
def test_a_response_in_the_background_has_not_failed_with_its_stream(
    door: Door, reasons: tuple[str, ...], number: int | None
) -> None:
    """B9, X3: the number that comes next is its next event's."""
    player = Player(door, stateful=reasons).plays((0, START), (1, sends(CREATED, DELTA)), (2, RESET))
    assert player.failure.next_sequence_number == number
    assert (player.failure.response is None) == bool(reasons)
