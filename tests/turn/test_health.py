"""A route's health and the places on it, asked directly (C3, C6): what is counted, shown and logged, and when."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from gateway.core.failures import Failure, FailureKind, UpstreamAnswer, failure_from_answer
from gateway.core.health import State
from gateway.turn.health import RouteHealth
from support.virtual import in_orders

FAULT = Failure(FailureKind.RETRYABLE, "server_error", 500, "")
LIMITED = failure_from_answer(UpstreamAnswer(429, (("retry-after", "7"),), b""), frozenset({"x"}))
Log = list[MutableMapping[str, Any]]


def ends(health: RouteHealth, *failures: Failure | None) -> None:
    """An attempt for each, one after the other."""
    for failure in failures:
        health.take().ended(failure)


@in_orders(1)
async def test_a_place_is_given_back_once_however_it_ends() -> None:
    """C6: and what is told behind the end is not heard."""
    health = RouteHealth("a")
    one, other, third = health.take(), health.take(), health.take()
    assert health.open_attempts == 3
    one.ended(None)
    one.leave()
    one.ended(FAULT)
    one.delivered()
    assert (health.open_attempts, health.circuit.faults) == (2, 0)
    other.leave()
    other.leave()
    other.ended(FAULT)
    assert (health.open_attempts, health.circuit.faults) == (1, 0)
    third.ended(FAULT)
    third.ended(FAULT)
    assert (health.open_attempts, health.circuit.faults) == (0, 1)
    assert [repr(place) for place in (one, health.take())] == [
        "<OpenAttempt on a, over=True>",
        "<OpenAttempt on a, over=False>",
    ]


@in_orders(1)
async def test_a_row_of_faults_cools_the_route_and_is_logged(logged: Log) -> None:
    """C3: for a second, after five; by whose code, and whether it was asked for."""
    await trio.sleep(10)
    health = RouteHealth("a")
    ends(health, *[FAULT] * 4)
    assert (health.coolings, health.takes_turns, health.cools_for_seconds, logged) == (0, True, None, [])
    ends(health, FAULT)
    assert (health.coolings, health.takes_turns, health.cools_for_seconds) == (1, False, 1.0)
    expected = {"route": "a", "seconds": 1.0, "faults": 5, "code": "server_error", "was_asked": False}
    assert logged == [{"event": "route_cooling", "log_level": "warning", **expected}]
    await trio.sleep(0.2504)
    assert health.as_shown() == {
        "state": "cooling",
        "faults": 5,
        "cooled_by": "server_error",
        "was_asked": False,
        "cools_for_seconds": 0.75,
        "open_attempts": 0,
        "coolings": 1,
        "probes": 0,
    }


@in_orders(1)
async def test_a_route_that_is_back_shows_nothing_of_why_it_was_left_alone() -> None:
    """C3: while it is probed it does."""
    health = RouteHealth("a")
    ends(health, LIMITED)
    await trio.sleep(7)
    probe = health.take()
    assert [health.as_shown()[name] for name in ("state", "cooled_by", "was_asked")] == ["probing", LIMITED.code, True]
    probe.delivered()
    assert [health.as_shown()[name] for name in ("state", "cooled_by", "was_asked")] == ["trial", None, False]


@in_orders(1)
async def test_a_wait_that_was_asked_for_is_logged_as_such(logged: Log) -> None:
    """C3."""
    health = RouteHealth("a")
    ends(health, LIMITED)
    expected = {"route": "a", "seconds": 7.0, "faults": 1, "code": LIMITED.code, "was_asked": True}
    assert logged == [{"event": "route_cooling", "log_level": "warning", **expected}]


@in_orders(1)
async def test_a_time_that_was_asked_for_is_told_by_the_wall_clock(logged: Log) -> None:
    """C3: where the answer shows no clock of its own."""
    health = RouteHealth("a", wall_clock=lambda: 1_767_225_620.0)
    named = (("retry-after", "Mon, 01 Jan 2026 00:00:30 GMT"),)
    ends(health, failure_from_answer(UpstreamAnswer(429, named, b""), frozenset({"x"})))
    assert [(entry["seconds"], entry["was_asked"]) for entry in logged] == [(10.0, True)]


@pytest.mark.parametrize("is_delivered", [True, False])
@in_orders(1)
async def test_a_probe_is_counted_and_a_route_that_is_back_is_logged_once(is_delivered: bool, logged: Log) -> None:
    """C3: by its first delivery, or by a sound end without one."""
    health = RouteHealth("a")
    ends(health, *[FAULT] * 5)
    await trio.sleep(1)
    assert (health.takes_turns, health.cools_for_seconds) == (True, None)
    probe = health.take()
    assert (health.probes, health.takes_turns, health.cools_for_seconds) == (1, False, None)
    if is_delivered:
        probe.delivered()
        probe.delivered()
        assert health.circuit.state is State.TRIAL
    probe.ended(None)
    assert (health.circuit.state, health.probes, health.coolings) == (State.SERVING, 1, 1)
    assert logged[1:] == [
        {"event": "route_probed", "log_level": "info", "route": "a"},
        {"event": "route_back", "log_level": "info", "route": "a"},
    ]


@in_orders(1)
async def test_a_probe_that_saw_nothing_is_given_back_without_a_word(logged: Log) -> None:
    """C3: the next turn probes at once."""
    health = RouteHealth("a")
    ends(health, *[FAULT] * 5)
    await trio.sleep(1)
    health.take().leave()
    assert (health.circuit.state, health.takes_turns, health.coolings) == (State.COOLING, True, 1)
    health.take()
    assert (health.probes, [entry["event"] for entry in logged[1:]]) == (2, ["route_probed", "route_probed"])


@in_orders(1)
async def test_what_is_told_of_a_probe_that_was_given_back_is_not_the_next_one_s() -> None:
    """C3: it has no place any more."""
    health = RouteHealth("a")
    ends(health, *[FAULT] * 5)
    await trio.sleep(1)
    given_back = health.take()
    given_back.leave()
    health.take()
    given_back.delivered()
    assert health.circuit.state is State.PROBING


@in_orders(1)
async def test_how_long_a_route_cools_is_logged_in_milliseconds(logged: Log) -> None:
    """C3: a shorter wait does not shorten a longer one."""
    health = RouteHealth("a")
    early, late = health.take(), health.take()
    early.ended(LIMITED)
    await trio.sleep(1.23456)
    late.ended(failure_from_answer(UpstreamAnswer(429, (("retry-after", "2"),), b""), frozenset({"x"})))
    assert [entry["seconds"] for entry in logged] == [7.0, 5.765]


@in_orders(1)
async def test_a_probe_that_fails_cools_twice_as_long_and_one_in_trial_too(logged: Log) -> None:
    """C3."""
    health = RouteHealth("a")
    ends(health, *[FAULT] * 5)
    await trio.sleep(1)
    ends(health, FAULT)
    assert (health.cools_for_seconds, health.coolings) == (2.0, 2)
    await trio.sleep(2)
    probe, late = health.take(), health.take()
    probe.delivered()
    late.ended(FAULT)
    probe.ended(None)
    assert (health.cools_for_seconds, health.coolings, health.open_attempts) == (4.0, 3, 0)
    assert [entry["seconds"] for entry in logged if entry["event"] == "route_cooling"] == [1.0, 2.0, 4.0]
