"""The replay budget, and a day of bad weather: many turns on routes that die, throttle and recover (C3, C4, R13)."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import trio

from gateway.lock.driver import post
from gateway.upstream.scripted import Reply, Script, ScriptedTransport
from support.gateways import World, create, turn_beside, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

LATE = A.reply(1.0, A.failed("server_is_overloaded"))
"""Fails a second after it was called: so all turns of an instant fail at one instant, with no circuit open before."""


async def at_once(w: World, door: str, turns: int) -> Counter[str]:
    """So many turns beside each other, to their ends: how often each attempt ended in which way."""

    async def one() -> None:
        async with turn_beside(w, door):
            pass

    async with trio.open_nursery() as nursery:
        for _ in range(turns):
            nursery.start_soon(one)
    w.assert_at_rest()
    return Counter(w.attempts)


@pytest.mark.parametrize(
    ("turns", "replayed"),
    [
        pytest.param(9, 9, id="fewer-than-the-floor"),
        pytest.param(10, 10, id="just-the-floor"),
        pytest.param(11, 10, id="one-more"),
        pytest.param(50, 10, id="a-fifth-is-the-floor"),
        pytest.param(100, 20, id="a-fifth"),
    ],
)
@in_every_order
async def test_r13_a_burst_of_failures_is_replayed_up_to_a_fifth_or_ten(door: str, turns: int, replayed: int) -> None:
    """C4: the others keep their own failure."""
    w = world(LATE, B.answer())
    ends = await at_once(w, door, turns)
    assert ends["a server_is_overloaded (replay)"] == ends["b completed"] == replayed
    assert ends["a server_is_overloaded (replay_throttled)"] == turns - replayed


@pytest.mark.parametrize(("at", "replayed"), [(1.999, 10), (2.0, 20)])
@in_every_order
async def test_r13_a_second_later_ten_more_may_be(at: float, replayed: int) -> None:
    """C4: the first burst fails at 1 s; never less than ten a second, however many there were before."""
    w = world([LATE] * 20 + [A.status(500)], B.answer())
    await at_once(w, "http", 20)
    await trio.sleep_until(at)
    w.house.forget("a")
    ends = await at_once(w, "http", 20)
    assert ends["b completed"] == replayed


# --- weather ----------------------------------------------------------------------------------------------------

Weather = Callable[[float], Reply]


class Changeable(Script):
    """An upstream whose replies depend on the time."""

    def __init__(self, name: str, weather: Weather) -> None:
        super().__init__(name, [Reply()])
        self._weather = weather

    def next_reply(self) -> Reply:
        """As the weather is."""
        return self._weather(trio.current_time())


def weather_of_a(now: float) -> Reply:
    """Dead from 10 to 25 s, throttling from 35 to 40 s, dead with `b` from 50 to 55 s."""
    if 10 <= now < 25 or 50 <= now < 55:
        return A.status(500)
    return A.status(429, headers=(("retry-after", "8"),)) if 35 <= now < 40 else A.answer()


def weather_of_b(now: float) -> Reply:
    """Well, but for those five seconds."""
    return B.reply(0.2, B.failed("server_error")) if 50 <= now < 55 else B.answer()


TURNS_A_SECOND = 8
SECONDS = 70


@in_orders(1)
async def test_c3_a_route_that_dies_is_left_within_its_threshold_and_found_again() -> None:
    """C3, C4: 560 turns, of which only those of the five seconds in which nobody is there fail."""
    a, b = Changeable("a", weather_of_a), Changeable("b", weather_of_b)
    w = world(A.answer(), B.answer(), transports={"a": ScriptedTransport(a), "b": ScriptedTransport(b)})
    failed: list[float] = []

    async def one(number: int) -> None:
        begins_at = number / TURNS_A_SECOND
        await trio.sleep_until(begins_at)
        client = await post(w.app, create())
        if client.told[-1] != "completed":
            failed.append(begins_at)

    async with trio.open_nursery() as nursery:
        for number in range(TURNS_A_SECOND * SECONDS):
            nursery.start_soon(one, number)
    calls = [call.at for call in a.calls]

    def called(since: float, until: float) -> list[float]:
        return [at for at in calls if since <= at < until]

    dead = called(10, 25)
    assert dead == [10, 10.125, 10.25, 10.375, 10.5, 11.5, 13.5, 17.5]
    assert [later - earlier for earlier, later in pairwise(dead[4:])] == [1, 2, 4]
    assert called(25, 35)[0] == 25.5
    assert len(called(25.5, 35)) == 9.5 * TURNS_A_SECOND
    assert called(35, 50)[:2] == [35, 43]
    assert failed
    assert 50 <= min(failed) <= max(failed) < 60
    assert called(60, 70) == [number / TURNS_A_SECOND for number in range(60 * TURNS_A_SECOND, 70 * TURNS_A_SECOND)]
    w.assert_at_rest()


@in_orders(1)
async def test_c4_when_all_routes_are_down_upstreams_see_few_calls_more_than_turns() -> None:
    """C4: 60 turns a second for five seconds, none of which can succeed; no circuit would hold them back."""
    w = world(A.reply(0.5, A.failed("server_error")), B.reply(0.5, B.failed("server_error")))

    async def one(number: int) -> None:
        await trio.sleep_until(number / 60)
        w.house.forget("a")
        w.house.forget("b")
        await post(w.app, create())

    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(one, number)
    replays = [call.at for call in w.scripts["b"].calls]
    turns = [call.at for call in w.scripts["a"].calls]
    for at in replays:
        of_turns = sum(at - 10 < began <= at for began in turns)
        assert sum(at - 1 < began <= at for began in replays) <= max(0.2 * of_turns + 1, 10)
    assert 60 <= len(replays) <= 70
    w.assert_at_rest()
