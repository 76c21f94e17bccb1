"""A turn's client while the turn writes to it: by the writer's task, or past it while the writer has nothing to write.

    frames --run--> client.write         one after the other, each as long as it takes (T6)
    events --pass_on--> client.pass_on   now or not at all

- Only one of them writes at a time: `took` says that the writer has frames, and nothing passes it until it wrote them.
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
from gateway.core.messages import Deliver, DeliverFailure, Taken
from gateway.ports import Downstream

Frames = Deliver | DeliverFailure


class Writing:
    """One turn's. `must_wake_by` hears by when the client must have taken what is being written to it, `failed` that it
    cannot be written to."""

    def __init__(
        self,
        client: Downstream,
        seconds: float,
        must_wake_by: Callable[[float], None],
        failed: Callable[[], None],
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._must_wake_by = must_wake_by
        self._failed = failed
        self._scope = trio.CancelScope()
        self._quiet = trio.CancelScope()
        self._is_writing = False
        self._owed = 0
        """Frames that it was given and has not written; for an instant, less than none: it may have written them before
        the task that gave them says so."""
        self._rest_waits = False
        self.stalls_at = math.inf
        """T6: when the client must have taken what is being written; infinity while nothing is."""

    def __repr__(self) -> str:
        return f"<Writing to {self._client!r}, writing={self._is_writing}>"

    async def run(self, frames: trio.MemoryReceiveChannel[Frames]) -> None:
        """Write all that comes, then the end, unless it is cancelled."""
        with self._scope:
            async with frames:
                try:
                    await self._write_frames(frames)
                    await self._client.end()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._failed()

    def cancel(self) -> None:
        """There is nobody to write to any more."""
        self._scope.cancel()

    def gives_up(self) -> None:
        """The client had its time, and is not waited for any more."""
        self.stalls_at = math.inf

    def took(self) -> None:
        """The writer was given frames."""
        self._owed += 1

    def pass_on(self, events: Sequence[Event], now: float) -> bool:
        """Write events past the writer; False if that cannot be done now."""
        if self._is_writing or self._owed or now >= self._client.quiet_deadline:
            return False
        taken = self._client.pass_on(events, now)
        if taken is Taken.PART:
            self._is_writing = self._rest_waits = True
            self._begins()
            self._quiet.cancel()
        return taken is not Taken.NOTHING

    def turn_has_ended(self) -> None:
        """Nobody listens any more. What refers back to the turn would keep its request, which may be megabytes, until
        the collector of circles comes by."""
        self._must_wake_by = self._failed = _nobody

    async def _write_frames(self, frames: trio.MemoryReceiveChannel[Frames]) -> None:
        while True:  # noqa: ASYNC913 - it goes round only behind a wait for frames
            taken: Frames | None = None
            with trio.CancelScope(deadline=self._client.quiet_deadline) as self._quiet:
                try:
                    taken = await frames.receive()
                except trio.EndOfChannel:
                    return
            if taken is not None or self._rest_waits or trio.current_time() >= self._client.quiet_deadline:
                await self._write(taken)

    async def _write(self, taken: Frames | None) -> None:
        """Frames; without any, the rest of what passed, or what a quiet client is told."""
        self._is_writing = True
        self._begins()
        if taken is not None:
            await self._client.write(taken)
            self._owed -= 1
        elif self._rest_waits:
            await self._client.write_rest()
        else:
            await self._client.write_quiet()
        self._is_writing = self._rest_waits = False
        self.stalls_at = math.inf

    def _begins(self) -> None:
        """T6: from here the client has `write_timeout`; a wait that began before must know."""
        self.stalls_at = trio.current_time() + self._seconds
        self._must_wake_by(self.stalls_at)


def _nobody(*_told: float) -> None:
    """Who is told once the turn has ended."""
