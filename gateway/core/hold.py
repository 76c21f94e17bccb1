"""The hold: lifecycle and neutral events kept back until the turn is committed or failed (T1, R7).

Its clock starts with the turn's first held lifecycle event and runs on across a replay: holding never costs a turn more
than its ten seconds. Neutral events keep their places among the others but neither start the clock nor obey it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gateway.core.events import Event, EventClass, parse_object
from gateway.core.sse import block_data


class Hold:
    """One turn's held events, with the bounds of R7."""

    __slots__ = (
        *("_bytes", "_bytes_max", "_ends_at", "_events", "_events_max", "_holds_lifecycle", "_resting", "_seconds"),
    )

    def __init__(self, seconds: float, bytes_max: int, events_max: int) -> None:
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._events_max = events_max
        self._ends_at = math.inf
        self._events: list[Event] = []
        self._resting = 0
        """How many of them have been looked at, the first ones."""
        self._bytes = 0
        self._holds_lifecycle = False

    def __repr__(self) -> str:
        return f"<Hold {len(self._events)} events, until {self._ends_at}>"

    @property
    def deadline(self) -> float:
        """When what is held must go; infinity while no lifecycle event is held."""
        return self._ends_at if self._holds_lifecycle else math.inf

    @property
    def is_too_large(self) -> bool:
        """R7: the prefix passed a bound."""
        return self._bytes > self._bytes_max or len(self._events) > self._events_max

    def is_over(self, at: float) -> bool:
        """Whether the clock has run out, even if nothing was held when it did."""
        return at >= self._ends_at

    def add(self, event: Event, at: float) -> None:
        """Keep an event seen at `at`."""
        if event.kind is EventClass.LIFECYCLE:
            self._ends_at = min(self._ends_at, at + self._seconds)
            self._holds_lifecycle = True
        self._events.append(event)
        self._bytes += len(event.block)

    def rest(self) -> None:
        """Nothing else has come yet. What is held has been looked at, and may wait for long: payloads stand in their
        blocks, too, and parsed ones take five times as much as the bytes; both can be made of them again."""
        for place in range(self._resting, len(self._events)):
            self._events[place] = _folded(self._events[place])
        self._resting = len(self._events)

    def take(self) -> Sequence[Event]:
        """All that is held, in order; nothing is held any more."""
        events, resting, self._events, self._resting = self._events, self._resting, [], 0
        self._bytes = 0
        self._holds_lifecycle = False
        if not resting:
            return events
        return [*map(_unfolded, events[:resting]), *events[resting:]]


class NoHold(Hold):
    """In the place of one that is seldom needed: all turns share it, so nothing may be held there."""

    __slots__ = ()

    def add(self, event: Event, at: float) -> None:
        """Never."""
        raise RuntimeError("this hold is everybody's")

    def take(self) -> Sequence[Event]:
        """Nothing."""
        return ()


NOTHING_HELD: Final = NoHold(0.0, 0, 0)


def _folded(event: Event) -> Event:
    """Without its payload, where that is the one `data` line of its block, byte for byte (P5)."""
    is_plain = event.block.endswith(b"\ndata: %b\n\n" % event.data) and b"\r" not in event.data
    return event._replace(data=b"" if is_plain else event.data, body=None)


def _unfolded(event: Event) -> Event:
    data = event.data or block_data(event.block)
    return event._replace(data=data, body=parse_object(data))
