"""Values as a command line writes them: names, dollars, durations, times, remarks. What is no such value is a usage
error that says how to write one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import click
from pydantic_core import PydanticCustomError

from gateway.config.amounts import parse_nanodollars
from gateway.config.instants import parse_expiry, parse_time_zone
from gateway.store.store import CONFIGURATION

_NAME: Final = re.compile(r"[!-~]{1,128}")
_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_REMARK_CHARACTERS_MAX: Final = 500


class Written(click.ParamType[Any]):
    """A value that `read` takes from its text; what it raises as ValueError or as a refusal is the usage error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value (click.ParamType); a default may be one already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except PydanticCustomError as refused:
            words = refused.context or {}
            return self.fail(f"{words['problem']}; {words['fix']}", param, ctx)
        except ValueError as error:
            return self.fail(str(error), param, ctx)


def _name(text: str) -> str:
    """The same as in the configuration (config/tables.py)."""
    if _NAME.fullmatch(text) is None:
        raise ValueError("is not a usable name; use 1 to 128 visible ASCII characters without spaces")
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(_name(name) for name in text.split(","))


def _amount(text: str) -> int:
    nanodollars = parse_nanodollars(text)
    if nanodollars == 0:
        raise ValueError("is nothing; write more than 0")
    return nanodollars


def _signed_amount(text: str) -> int:
    if text[:1] not in ("+", "-"):
        raise ValueError("has no sign; write +5.00 to give and -5.00 to take")
    return _amount(text[1:]) * (-1 if text[0] == "-" else 1)


def _remark(text: str) -> str:
    if not text.isprintable() or not 1 <= len(text.strip()) <= _REMARK_CHARACTERS_MAX:
        raise ValueError(f"must be one line of 1 to {_REMARK_CHARACTERS_MAX} printable characters")
    return text.strip()


def _actor(text: str) -> str:
    """What the configuration granted is told from the rest by its actor (store.grant)."""
    if _remark(text) == CONFIGURATION:
        raise ValueError(f"{CONFIGURATION!r} is the actor of what the configuration grants; name a person or a program")
    return _remark(text)


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError('is no duration; write a whole number and its unit, like "24h", "30d", "90m" or "0s"')
    return float(int(found[1]) * _UNIT_SECONDS[found[2]])


@dataclass(frozen=True, slots=True)
class Until:
    """When a key is to end: after so many seconds, or at a time."""

    seconds: float | None = None
    at: datetime | None = None


def _until(text: str) -> Until:
    return Until(seconds=_duration(text)) if _DURATION.fullmatch(text) else Until(at=parse_expiry(text))


NAME: Final = Written("name", _name)
NAMES: Final = Written("name,…", _names)
DOLLARS: Final = Written("dollars", _amount)
SIGNED_DOLLARS: Final = Written("±dollars", _signed_amount)
REMARK: Final = Written("text", _remark)
ACTOR: Final = Written("text", _actor)
DURATION: Final = Written("duration", _duration)
UNTIL: Final = Written("duration|date", _until)
TIME_ZONE: Final = Written("zone", parse_time_zone)


def told_time(at: float | None, time_zone: str) -> str | None:
    """An instant by a zone's clock, with its offset."""
    return None if at is None else datetime.fromtimestamp(at, ZoneInfo(time_zone)).isoformat(timespec="seconds")
