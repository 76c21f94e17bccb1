"""Where an attempt's inputs go (ports.Inputs): to the task that steps the turn machine, or past it to the client.

    reader --take, send--+-- output behind output, nothing queued --> the client's transport, now
           --send--------+-- a head --> kept for what comes behind it
                         +-- anything else, or it would take a wait --> channel --> hold_buffer --> writer

Output that comes behind output leaves nothing to decide: two hops from task to task would cost more than all that is
done with it. So it is handed straight to the client, if that takes no wait. Otherwise it goes the ordinary way, where
the clocks run and a slow client slows the reader down. Nothing overtakes: what went through the channel is seen to
before anything passes. A head alone decides nothing either: it wakes nobody.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from gateway import limits
from gateway.core.messages import Batch, Opened
from gateway.ports import Stamped

Passes = Callable[[Batch, float, float], bool]
"""A batch, when it was seen, and now."""
Keeps = Callable[[Opened, float], bool]
"""A head, and when it was seen."""


class OneByOne:
    """Inputs that are all waited for."""

    def __init__(self, channel: trio.MemorySendChannel[Stamped]) -> None:
        self._channel = channel

    def __repr__(self) -> str:
        return "<OneByOne>"

    def take(self, _batch: Batch, _at: float) -> bool:
        """None passes (ports.Inputs)."""
        return False

    async def send(self, value: Stamped, /) -> None:
        """Hand an input over (ports.Inputs)."""
        await self._channel.send(value)


class Inlet:
    """One attempt's. `passes` hands a batch straight to the client, `keeps` leaves a head with its turn, or they say
    that they cannot."""

    __slots__ = ("_channel", "_keeps", "_on_their_way", "_passed_events", "_passes", "is_closed")

    def __init__(self, channel: trio.MemorySendChannel[Stamped], passes: Passes, keeps: Keeps) -> None:
        self._channel = channel
        self._passes = passes
        self._keeps = keeps
        self._passed_events = 0
        self._on_their_way = 0
        """Inputs that were sent, and nobody has looked at."""
        self.is_closed = False
        """Whether the attempt has told all that it will."""

    def __repr__(self) -> str:
        return f"<Inlet, {self._on_their_way} on their way>"

    def take(self, batch: Batch, at: float) -> bool:
        """Hand a batch past the turn's tasks, if it may pass (ports.Inputs)."""
        return not self._on_their_way and self._passes(batch, at, at)

    def was_looked_at(self) -> None:
        """An input that was sent is seen to: what comes behind it may pass."""
        self._on_their_way -= 1

    async def send(self, value: Stamped, /) -> None:
        """Hand an input over (ports.Inputs)."""
        arrived, at = value
        if isinstance(arrived, Batch) and not self._on_their_way and self._passes(arrived, at, trio.current_time()):
            self._passed_events += len(arrived.events)
            if self._passed_events >= limits.BATCH_EVENTS_MAX:  # an adapter may not have waited for what it sends
                self._passed_events = 0
                await trio.lowlevel.checkpoint()
        elif not (isinstance(arrived, Opened) and self._keeps(arrived, at)):
            self._on_their_way += 1
            await self._channel.send(value)

    def close(self) -> None:
        """The attempt is over: what refers back to its turn is let go (`Writing.turn_has_ended`)."""
        self.is_closed = True
        self._channel.close()
        self._passes = self._keeps = _nothing


def _nothing(*_passed: object) -> bool:
    return False
