"""How the house stands, asked directly (R12, R13, C3, C4, C6, M1)."""

from __future__ import annotations

from weakref import ref

import pytest
import trio

from gateway import limits
from gateway.core.failures import Failure, FailureKind
from gateway.core.routing import draw_of
from gateway.turn.house import StandingHouse
from support.virtual import in_orders

FAULT = Failure(FailureKind.RETRYABLE, "server_error", 500, "")


@in_orders(1)
async def test_a_drain_begins_once_and_whoever_waits_for_it_goes_on() -> None:
    """T7, R12."""
    house = StandingHouse()
    assert not house.is_draining()
    with trio.move_on_after(1) as waited:
        await house.wait()
    assert waited.cancelled_caught
    house.begin_drain()
    await house.wait()
    assert house.is_draining()


@pytest.mark.parametrize(("workers", "replays"), [(1, 10), (2, 5), (100, 1)])
@in_orders(1)
async def test_a_process_has_its_part_of_the_replays_of_a_second(workers: int, replays: int) -> None:
    """C4, C6, R13: and gets it back when the second is over."""
    house = StandingHouse(workers)
    assert limits.REPLAYS_PER_SECOND_MIN == 10
    spent = []
    for _ in range(replays):
        spent.append(house.is_throttled())
        house.replay_began()
    assert (spent, house.is_throttled()) == ([False] * replays, True)
    await trio.sleep(0.999)
    assert house.is_throttled()
    await trio.sleep(0.001)
    assert not house.is_throttled()


@in_orders(1)
async def test_by_itself_a_process_has_all_of_them() -> None:
    """C4, C6."""
    house = StandingHouse()
    for _ in range(limits.REPLAYS_PER_SECOND_MIN - 1):
        house.replay_began()
    assert not house.is_throttled()


@in_orders(1)
async def test_a_fifth_of_the_turns_may_be_replayed_beyond_it() -> None:
    """C4: each turn counts."""
    house = StandingHouse()
    for _ in range(60):
        house.turn_began()
    for _ in range(11):
        house.replay_began()
    assert not house.is_throttled()
    house.replay_began()
    assert house.is_throttled()


@in_orders(1)
async def test_what_is_set_from_outside_stands_beside_what_is_seen() -> None:
    """R13, C3: an operator's word."""
    house = StandingHouse()
    house.throttled = True
    house.cooling.add("a")
    assert (house.is_throttled(), house.is_cooling("a"), house.is_cooling("b")) == (True, True, False)
    shown = house.as_shown()
    assert {name: (row["is_cooling"], row["state"]) for name, row in shown.items()} == {"b": (False, "serving")}
    house.take("a").leave()
    assert house.as_shown()["a"]["is_cooling"] is True


@in_orders(1)
async def test_nobody_knows_for_how_long_somebody_has_a_route_left_alone() -> None:
    """X2: also where it would be back in a second by itself."""
    house = StandingHouse()
    for _ in range(limits.ROUTE_FAULTS_MAX):
        house.take("a").ended(FAULT)
    assert house.cools_for_seconds("a") == 1.0
    house.cooling.add("a")
    assert house.cools_for_seconds("a") is None


class UpstreamAccount:
    """Who a route calls; told apart by being another."""


@in_orders(1)
async def test_of_an_account_that_a_route_left_nothing_is_kept_once_nobody_is_there() -> None:
    """C2, C6: names and accounts come and go."""
    house, account = StandingHouse(), UpstreamAccount()
    is_left = ref(account)
    house.forget("a", account)
    place = house.take("a")
    del account
    house.forget("a")
    assert is_left() is not None
    place.leave()
    del place
    house.forget("a")
    assert is_left() is None


@in_orders(1)
async def test_an_edit_of_one_route_loses_no_other_s_count() -> None:
    """C6: also of one on which nobody was when the first was edited."""
    house = StandingHouse()
    house.take("b").leave()
    house.forget("a")
    house.take("b")
    house.forget("b")
    assert house.open_attempts("b") == 1


@in_orders(1)
async def test_each_route_has_a_health_of_its_own_until_its_name_stands_for_another() -> None:
    """C2, C3: it begins as sound, and what is open on the former ends with it."""
    house = StandingHouse()
    for _ in range(limits.ROUTE_FAULTS_MAX):
        house.take("a").ended(FAULT)
    still = house.take("a")
    house.take("b")
    assert (house.is_cooling("a"), house.cools_for_seconds("a"), house.open_attempts("b")) == (True, 1.0, 1)
    assert list(house.routes) == ["a", "b"]
    house.forget("a")
    house.forget("c")
    still.ended(FAULT)
    assert (house.is_cooling("a"), house.cools_for_seconds("a"), house.open_attempts("a")) == (False, None, 0)


@in_orders(1)
async def test_draws_go_on_from_one_to_the_next() -> None:
    """M1."""
    house = StandingHouse()
    assert [house.draw() for _ in range(3)] == [draw_of(0), draw_of(1), draw_of(2)]
