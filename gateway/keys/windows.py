"""Spend windows: the day and the month of an instant, in a key's own time zone (B6, bug case 31).

A window is named by its key, its local date and its zone: `ACCOUNT/KEY:day:2026-11-30@Asia/Tokyo`. The instant is
converted, never shifted, so that a day that a clock change makes 23 or 25 hours long is one window all the same.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from gateway.core.accounts import SpendLimit
from gateway.core.keys import Key


def spend_limits(key: Key, now: float) -> tuple[SpendLimit, ...]:
    """What the key may spend in the windows that this wall-clock instant, seconds since the epoch, lies in."""
    limits = key.limits
    per_day, per_month = limits.spend_per_day_nanodollars, limits.spend_per_month_nanodollars
    if per_day is None and per_month is None:
        return ()
    date = datetime.fromtimestamp(now, ZoneInfo(limits.time_zone)).date().isoformat()
    windows = (("day", date, per_day), ("month", date[: len("2026-11")], per_month))
    return tuple(
        SpendLimit(f"{key.label}:{length}:{begins}@{limits.time_zone}", nanodollars_max)
        for length, begins, nanodollars_max in windows
        if nanodollars_max is not None
    )
