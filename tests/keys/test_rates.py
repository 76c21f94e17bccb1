"""Requests per minute (C6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.keys import Key, KeyLimits
from gateway.keys.rates import MINUTE_SECONDS, RequestRates


def key(requests_per_minute: int | None, name: str = "ci") -> Key:
    return Key(name, "main", limits=KeyLimits(requests_per_minute=requests_per_minute))


def test_a_place_is_free_again_after_a_minute() -> None:
    """C6: at that very instant, and told exactly."""
    rates = RequestRates()
    assert [rates.take(key(2), now) for now in (0.0, 1.0, 1.0, 59.0, 59.75, 60.0, 60.0)] == [
        0.0,
        0.0,
        59.0,
        1.0,
        0.25,
        0.0,
        1.0,
    ]


@given(st.integers(1, 5), st.lists(st.floats(0, 30), max_size=60))
def test_no_minute_ever_holds_more_than_the_limit(limit: int, waits: list[float]) -> None:
    """C6: whenever it begins; and who waits as long as is said is let in."""
    rates, now, taken = RequestRates(), 0.0, list[float]()
    for wait in waits:
        now += wait
        seconds = rates.take(key(limit), now)
        if seconds:
            now += seconds + 1e-6  # the rounding of floats
            assert rates.take(key(limit), now) == 0.0
        taken.append(now)
    assert all(sum(start <= at < start + MINUTE_SECONDS - 1e-6 for at in taken) <= limit for start in taken)


def test_keys_are_counted_apart_and_rotated_ones_together() -> None:
    """B6: what counts is account and name."""
    rates = RequestRates()
    assert rates.take(key(1), 0.0) == 0.0
    assert rates.take(key(1, "other"), 0.0) == 0.0
    assert rates.take(Key("ci", "main", expires_at=1e9, limits=KeyLimits(requests_per_minute=1)), 0.0) == 60.0


def test_a_limit_that_was_lowered_holds_at_once() -> None:
    """W4: limits are read anew for each turn."""
    rates = RequestRates()
    assert [rates.take(key(3), now) for now in (0.0, 1.0, 2.0)] == [0.0, 0.0, 0.0]
    assert rates.take(key(1), 3.0) == 59.0


def test_workers_share_a_limit_and_each_has_one_at_least() -> None:
    """C6: limit / N."""
    rates = RequestRates(workers=4)
    assert [rates.take(key(8), 0.0) for _ in range(3)] == [0.0, 0.0, 60.0]
    assert [rates.take(key(3, "small"), 0.0) for _ in range(2)] == [0.0, 60.0]


def test_a_key_without_a_limit_leaves_no_trace() -> None:
    """C6."""
    rates = RequestRates()
    assert rates.take(key(None), 0.0) == 0.0
    assert repr(rates) == "<RequestRates, 0 requests of 0 keys>"


def test_keys_that_have_gone_are_forgotten() -> None:
    """House: what is kept is bounded by the last two minutes' requests."""
    rates = RequestRates()
    for number in range(100):
        rates.take(key(5, f"key-{number}"), float(number) / 10)
    rates.take(key(5), 200.0)
    assert repr(rates) == "<RequestRates, 1 requests of 1 keys>"
