"""When a key ends, and by which calendar: time zones by name, instants as dates or times of a zone.

"2027-01-31"                   the beginning of that day in the key's time zone
"2027-01-31T12:00"             that time there; the first of the two where a clock is set back
"2027-01-31T12:00:00+01:00"    that instant, wherever
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator

from gateway.config.problems import refusal, suggestion

EXPIRY_FIX: Final = 'write a date like "2027-01-31", or a time like "2027-01-31T12:00:00+01:00"'
ZONES_NEAR: Final = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
"""What a name that is like no other may have meant: there are some 600."""

YEAR_MIN, YEAR_MAX = 1970, 9998
"""A year's distance to what instants and calendars can hold, so that every zone can show it."""


def parse_time_zone(value: object) -> str:
    """The name of a zone that this machine knows."""
    if not isinstance(value, str):
        raise refusal("must be text", 'write the name of a time zone, like "Europe/Berlin"')
    known = available_timezones()
    if value not in known:
        near = suggestion(value, sorted(known))
        fix = near if near.startswith("did you mean") else f"use a name like {', '.join(ZONES_NEAR)}"
        raise refusal("is no time zone that is known here", fix)
    return value


def parse_expiry(value: object) -> datetime:
    """A date's beginning or a time; without a zone if none is written: it is the key's own."""
    try:
        expiry = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise refusal("is neither a date nor a time", EXPIRY_FIX) from None
    if not YEAR_MIN <= expiry.year <= YEAR_MAX:
        raise refusal("is in a year that no zone's calendar is sure of", EXPIRY_FIX)
    return expiry


def instant_of(expiry: datetime, time_zone: str) -> float:
    """Seconds since the epoch."""
    local = expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=ZoneInfo(time_zone))
    return local.timestamp()


TimeZone = Annotated[str, BeforeValidator(parse_time_zone)]
Expiry = Annotated[datetime, BeforeValidator(parse_expiry)]
