"""A turn's client while the turn writes to it: what it is given, one piece after the other, or past it.

    frames --give--> run: client.write   one after the other, each as long as it takes (T6)
    events --pass_on--> client.pass_on   now or not at all

- Only one of them writes at a time: nothing passes frames that are given and not written.
- Nothing is queued. Who gives frames while others are written waits until Handed says that the last of them is taken
  up: so a client that reads slowly slows the upstream down.
- What passes takes no wait. Of what the client's transport took in part the writer sees to the rest, as if it had been
  given the whole: T6 runs, and nothing passes meanwhile.
- A quiet client is told that the gateway lives (H6, H9). Events that pass move that instant; the writer looks when it
  comes to the one that it knew. At the instant itself it is the writer's turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from gateway.core.events import Event
from gateway.core.messages import ClientLeft, Deliver, DeliverFailure, Handed, Input, Taken
from gateway.ports import Downstream

Frames = Deliver | DeliverFailure


class Writing:
    """One turn's. `must_wake_by` hears by when the client must have taken what is being written to it, `tell` that
    frames which had to wait are taken up, and that the client cannot be written to."""

    __slots__ = (
        *("_client", "_has_all", "_is_cancelled", "_is_writing", "_must_wake_by", "_quiet", "_rest_waits", "_scope"),
        *("_seconds", "_tell", "is_behind", "stalls_at", "waiting"),
    )

    def __init__(
        self,
        client: Downstream,
        seconds: float,
        must_wake_by: Callable[[float], None],
        tell: Callable[[Input], None],
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._must_wake_by = must_wake_by
        self._tell = tell
        self._scope: trio.CancelScope | None = None
        self._quiet: trio.CancelScope | None = None
        self._is_writing = False
        self._rest_waits = False
        self._has_all = False
        self._is_cancelled = False
        self.waiting: list[Frames] = []
        """Given, and not being written yet."""
        self.is_behind = False
        """Whether frames wait for what is written before them."""
        self.stalls_at = math.inf
        """T6: when the client must have taken what is being written; infinity while nothing is."""

    def __repr__(self) -> str:
        return f"<Writing to {self._client!r}, writing={self._is_writing}, {len(self.waiting)} waiting>"

    async def run(self) -> None:
        """Write all that comes, then the end, unless it is cancelled."""
        if self._is_cancelled:
            return
        with trio.CancelScope(deadline=self.stalls_at if self._has_all else math.inf) as self._scope:
            try:
                while await self._has_more():
                    await self._write()
                await self._client.end()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._tell(ClientLeft("write failed"))

    def give(self, frames: Frames) -> bool:
        """Write these next; False if they have to wait for others."""
        self.is_behind = self._is_writing or bool(self.waiting)
        self.waiting.append(frames)
        if not self.is_behind:
            self.stalls_at = trio.current_time() + self._seconds
            self._look_up()
        return not self.is_behind

    def end(self) -> None:
        """Nothing follows. From here on nobody else looks after a client that stalls."""
        self._has_all = True
        self._stalls(self.stalls_at)
        self._look_up()

    def cancel(self) -> None:
        """There is nobody to write to any more."""
        self.waiting.clear()
        self.is_behind = False
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def gives_up(self) -> None:
        """The client had its time, and is not waited for any more."""
        self.stalls_at = math.inf

    def pass_on(self, events: Sequence[Event], now: float) -> bool:
        """Write events past the writer; False if that cannot be done now."""
        if self._is_writing or self.waiting or now >= self._client.quiet_deadline:
            return False
        taken = self._client.pass_on(events, now)
        if taken is Taken.PART:
            self._is_writing = self._rest_waits = True
            self._begins()
            self._look_up()
        return taken is not Taken.NOTHING

    def turn_has_ended(self) -> None:
        """Nobody listens any more. What refers back to the turn would keep its request, which may be megabytes, until
        the collector of circles comes by."""
        self._must_wake_by = self._tell = _nobody

    # --- the writer's task --------------------------------------------------------------------------------------

    async def _has_more(self) -> bool:
        """Wait for something to write; False if there will be nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._is_wanted():
            with trio.CancelScope(deadline=self._client.quiet_deadline) as self._quiet:
                await trio.sleep_forever()
            if not self._is_wanted() and trio.current_time() >= self._client.quiet_deadline:
                return True
        return self._rest_waits or bool(self.waiting)

    def _is_wanted(self) -> bool:
        return self._rest_waits or self._has_all or bool(self.waiting)

    def _look_up(self) -> None:
        """The writer need not wait any longer."""
        if self._quiet is not None:
            self._quiet.cancel()

    async def _write(self) -> None:
        """The rest of what passed, or frames; without any, what a quiet client is told."""
        self._is_writing = True
        if self._rest_waits:
            await self._client.write_rest()
        elif self.waiting:
            frames = self.waiting.pop(0)
            await self._client.write(frames, is_last=self._has_all and not self.waiting)
        else:
            self._begins()
            await self._client.write_quiet()
        self._is_writing = self._rest_waits = False
        self._stalls(math.inf)
        if self.waiting:
            self._takes_up()

    def _takes_up(self) -> None:
        """The next of those that had to wait."""
        self._begins()
        if len(self.waiting) == 1:
            self.is_behind = False
            self._tell(Handed())

    # --- T6 -----------------------------------------------------------------------------------------------------

    def _begins(self) -> None:
        """From here the client has `write_timeout`; a wait that began before must know."""
        self._stalls(trio.current_time() + self._seconds)
        self._must_wake_by(self.stalls_at)

    def _stalls(self, at: float) -> None:
        self.stalls_at = at
        if self._has_all and self._scope is not None:
            self._scope.deadline = at


def _nobody(*_told: object) -> None:
    """Who is told once the turn has ended."""
