"""What a key of the file may be given beside its secret (B6, C6)."""

from __future__ import annotations

from datetime import datetime

import pytest

from config.samples import ACCOUNT, ENVIRON, MODEL, ROUTE, key, parsed, problems
from gateway import limits
from gateway.core.keys import Key, KeyLimits

SECRET = 'secret = { env = "GATEWAY_KEY" }'


def limited(line: str) -> Key:
    """The key of a file that gives it this line."""
    return parsed(key(f"{SECRET}\n{line}")).keys[0].key


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_a_key_takes_all_it_is_given() -> None:
    """B6."""
    lines = (
        'expires = "2027-01-31"',
        'models = ["gpt-5.6"]',
        "requests_per_minute = 60",
        'spend_per_day = "5"',
        'spend_per_month = "0.000000001"',
        'time_zone = "Asia/Tokyo"',
        'replay = "never"',
    )
    assert limited("\n".join(lines)) == Key(
        "laptop",
        "main",
        replay_never=True,
        expires_at=instant("2027-01-30T15:00:00Z"),
        limits=KeyLimits(frozenset({"gpt-5.6"}), 60, 5_000_000_000, 1, "Asia/Tokyo"),
    )


@pytest.mark.parametrize(
    ("written", "expires_at"),
    [
        ('"2027-01-31"', "2027-01-31T00:00:00+01:00"),
        ("2027-01-31", "2027-01-31T00:00:00+01:00"),
        ('"2027-07-31"', "2027-07-31T00:00:00+02:00"),
        ("2027-01-31T12:30:00", "2027-01-31T12:30:00+01:00"),
        ('"2027-01-31T12:30"', "2027-01-31T12:30:00+01:00"),
        ('"2027-01-31T12:30:00Z"', "2027-01-31T12:30:00+00:00"),
        ("2027-01-31T12:30:00-05:00", "2027-01-31T12:30:00-05:00"),
        ('"2026-10-25T02:30:00"', "2026-10-25T02:30:00+02:00"),
    ],
)
def test_an_end_without_a_zone_is_the_key_s_own(written: str, expires_at: str) -> None:
    """B6; case 31: in the key's zone, summer or winter; of a time that comes twice the first."""
    assert limited(f'expires = {written}\ntime_zone = "Europe/Berlin"').expires_at == instant(expires_at)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('expires = "soon"', "expires: is neither a date nor a time; write a date like"),
        ("expires = 30", "expires: is neither a date nor a time; write a date like"),
        ('expires = ""', "expires: is neither a date nor a time; write a date like"),
        ("models = []", "models: is empty; add at least one entry"),
        ('models = "gpt-5.6"', 'models: must be a list; write it as ["first", "second"]'),
        ('models = ["gpt-5"]', 'models[0]: names no model of this file; did you mean "gpt-5.6"?'),
        ("requests_per_minute = 0", "requests_per_minute: is 0, which is too low; write 1 or more"),
        (
            f"requests_per_minute = {limits.REQUESTS_PER_MINUTE_MAX + 1}",
            f"requests_per_minute: is {limits.REQUESTS_PER_MINUTE_MAX + 1}, which is too high",
        ),
        ("spend_per_day = 5", "spend_per_day: must be text, not a number or another type; write dollars"),
        ('spend_per_month = "-1"', "spend_per_month: must not be negative; write dollars"),
        ('spend_per_month = "nan"', "spend_per_month: is not an amount of money; write dollars"),
        ('time_zone = "Europe/Berln"', 'time_zone: is no time zone that is known here; did you mean "Europe/Berlin"?'),
        ('time_zone = "../../etc/passwd"', "time_zone: is no time zone that is known here; use a name like UTC"),
        ('time_zone = "+01:00"', "time_zone: is no time zone that is known here; use a name like UTC"),
        ("time_zone = 1", "time_zone: must be text; write the name of a time zone"),
        ('spend_per_dya = "1"', 'spend_per_dya: is not a known key; did you mean "spend_per_day"?'),
    ],
)
def test_what_no_key_can_have_is_named(line: str, problem: str) -> None:
    """C1: file, key path and fix."""
    (told,) = problems(key(f"{SECRET}\n{line}"))
    assert told.startswith(f"gateway.toml: keys.laptop.{problem}")


@pytest.mark.parametrize("year", ["0001", "1969", "9999"])
def test_an_end_beyond_all_calendars_is_told_as_such(year: str) -> None:
    """C1: no traceback where a zone's own arithmetic does not reach."""
    (told,) = problems(key(f'{SECRET}\nexpires = "{year}-12-31"\ntime_zone = "Asia/Tokyo"'))
    assert told.startswith("gateway.toml: keys.laptop.expires: is in a year that no zone's calendar is sure of; write")


def test_no_limit_shows_a_secret() -> None:
    """L1."""
    config = parsed(ACCOUNT + f'[keys.laptop]\naccount = "main"\n{SECRET}\nrequests_per_minute = 1\n' + ROUTE + MODEL)
    assert ENVIRON["GATEWAY_KEY"] not in repr(config)
