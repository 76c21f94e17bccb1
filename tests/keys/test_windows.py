"""Spend windows by a key's own calendar (B6); bug case 31: a budget that was reset late by the zone's offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.accounts import SpendLimit
from gateway.core.keys import Key, KeyLimits
from gateway.keys.windows import spend_limits


def at(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def day_of(instant: str, time_zone: str) -> str:
    """The name of the day's window."""
    (limit,) = spend_limits(Key("ci", "main", limits=KeyLimits(None, None, 1, None, time_zone)), at(instant))
    return limit.window


def hours_of_day(date: str, time_zone: str) -> int:
    """How many hours of two days around it lie in the window of this date."""
    noon = datetime.fromisoformat(f"{date} 12:00:00+00:00")
    instants = [noon + timedelta(hours=hour) for hour in range(-36, 37)]
    windows = [day_of(instant.isoformat(), time_zone) for instant in instants]
    return windows.count(f"main/ci:day:{date}@{time_zone}")


@pytest.mark.parametrize(
    ("instant", "date"),
    [
        ("2026-11-30T14:59:59Z", "2026-11-30"),
        ("2026-11-30T14:59:59.999Z", "2026-11-30"),
        ("2026-11-30T15:00:00Z", "2026-12-01"),
        ("2026-12-01T14:59:59Z", "2026-12-01"),
    ],
)
def test_case_31_a_day_in_tokyo_begins_at_15_00_utc(instant: str, date: str) -> None:
    """B6: the instant is converted, its offset not stripped."""
    assert day_of(instant, "Asia/Tokyo") == f"main/ci:day:{date}@Asia/Tokyo"


@pytest.mark.parametrize(("date", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)])
def test_case_31_a_day_of_23_or_25_hours_is_one_window(date: str, hours: int) -> None:
    """B6: the clocks of Berlin go forward and back."""
    assert hours_of_day(date, "Europe/Berlin") == hours


@pytest.mark.parametrize(
    ("instant", "date"),
    [
        ("2026-03-28T22:59:59Z", "2026-03-28"),
        ("2026-03-28T23:00:00Z", "2026-03-29"),
        ("2026-03-29T21:59:59Z", "2026-03-29"),
        ("2026-03-29T22:00:00Z", "2026-03-30"),
        ("2026-10-24T21:59:59Z", "2026-10-24"),
        ("2026-10-24T22:00:00Z", "2026-10-25"),
        ("2026-10-25T22:59:59Z", "2026-10-25"),
        ("2026-10-25T23:00:00Z", "2026-10-26"),
    ],
)
def test_case_31_the_days_around_a_clock_change_begin_at_local_midnight(instant: str, date: str) -> None:
    """B6."""
    assert day_of(instant, "Europe/Berlin") == f"main/ci:day:{date}@Europe/Berlin"


def test_a_month_is_the_calendars() -> None:
    """B6: the same instant lies in November in one zone and in December in another."""
    limits = {
        zone: spend_limits(Key("ci", "main", limits=KeyLimits(None, None, 5, 70, zone)), at("2026-11-30T15:00:00Z"))
        for zone in ("UTC", "Asia/Tokyo")
    }
    assert limits["UTC"] == (
        SpendLimit("main/ci:day:2026-11-30@UTC", 5),
        SpendLimit("main/ci:month:2026-11@UTC", 70),
    )
    assert limits["Asia/Tokyo"] == (
        SpendLimit("main/ci:day:2026-12-01@Asia/Tokyo", 5),
        SpendLimit("main/ci:month:2026-12@Asia/Tokyo", 70),
    )


def test_a_key_without_a_limit_has_no_window() -> None:
    """B6."""
    assert spend_limits(Key("ci", "main"), at("2026-11-30T15:00:00Z")) == ()


def test_a_limit_of_nothing_is_a_limit() -> None:
    """B6: zero is not the absence of a limit."""
    key = Key("ci", "main", limits=KeyLimits(spend_per_month_nanodollars=0))
    assert spend_limits(key, 0.0) == (SpendLimit("main/ci:month:1970-01@UTC", 0),)


@given(
    st.floats(0, 4e9),
    st.sampled_from(
        ["UTC", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "Europe/Berlin", "Australia/Lord_Howe"]
    ),
)
def test_a_window_is_what_the_zones_calendar_shows(now: float, zone: str) -> None:
    """B6, against the library's own conversion from UTC."""
    key = Key("ci", "main", limits=KeyLimits(None, None, 1, 1, zone))
    local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(zone))
    day, month = spend_limits(key, now)
    assert day.window == f"main/ci:day:{local:%Y-%m-%d}@{zone}"
    assert month.window == f"main/ci:month:{local:%Y-%m}@{zone}"
    assert not any(character.isspace() for character in day.window + month.window), "the store separates by spaces"
