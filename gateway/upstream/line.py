"""One WebSocket to an upstream, for its whole life: opened, used by one response after another, left.

    OPENING --> BUSY --rest()--> IDLE --send()--> BUSY ...      whatever ends it: `failure` says why
                  |                |
                  +----------------+--> ENDED

A line outlives the attempt that opened it, so its tasks are its own: one that has the conversation for as long as it
lasts (a ping is answered whether or not a turn runs), and one that pings while it idles. What is heard goes straight to
the attempt that waits for it, in the conversation's task; else it is kept, bounded in bytes, and beyond the bound the
socket is not read. A line whose response is unfinished is never used again: it is left, with a close frame if one can
still be written, and without waiting for its answer (case 56).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog
import trio

from gateway import limits
from gateway.core.failures import Failure, failure_from_close
from gateway.core.messages import Headers
from gateway.upstream.answers import WireHeaders, never_sent, read_error
from gateway.upstream.conversation import ABNORMAL, Converse, CutOff, LineSettings, NothingWritten

logger = structlog.get_logger("gateway.upstream")

MESSAGE_OBJECT_BYTES: Final = 64
"""What a message takes beside its bytes."""

TakeMessages = Callable[[Sequence[bytes], float], bool]
"""Given text messages and when they were seen, without a wait; returns whether it can take more in this way."""


class Line:
    """One WebSocket. Used by one task at a time."""

    def __init__(self, settings: LineSettings, converse: Converse, headers: WireHeaders) -> None:
        self.settings = settings
        self.headers = headers
        self.failure: Failure | None = None
        """Why nothing more will come of it; what came before is still taken first."""
        self.response_id: str | None = None
        """The response it completed last: a continuation of it is best sent here (W10)."""
        self._may_go_on: Callable[[str], bool] | None = None
        self.handshake: Headers = ()
        self.has_finished = False
        """Whether the response of its latest create was read to its end."""
        self.has_ended = trio.Event()
        self.on_end: Callable[[Line], None] = lambda _line: None
        self._conversation = converse(settings, headers)
        self._is_busy = True
        self._opened_at = trio.current_time()
        self._idle_since = math.inf
        self._life = trio.CancelScope()
        self._is_open = trio.Event()
        self._inbox: deque[tuple[Sequence[bytes], float]] = deque()
        self._inbox_bytes = 0
        self._take: TakeMessages | None = None
        """The attempt's that waits for what is heard."""
        self._error: Exception | None = None
        """What it raised, in another's task."""
        self._news = trio.Event()
        self._room = trio.Event()

    def __repr__(self) -> str:
        state = "ended" if self.failure is not None else "busy" if self._is_busy else "idle"
        return f"<Line {self.settings.name}, {state}, {self._inbox_bytes} bytes read ahead>"

    # --- what an attempt does -----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and shake hands; afterwards `failure` is None, or why it could not be."""
        trio.lowlevel.spawn_system_task(self._live, name=f"websocket to {self.settings.name}")
        await self._is_open.wait()

    async def let_die(self) -> None:
        """Let what the kernel knows of its end be seen, before it is used again; where many sockets have something to
        say, it may be read as the last of them."""
        for passes in range(limits.LAST_LOOKS_MAX):
            if self.failure is not None or (passes >= limits.INSTANT_PASSES and self._conversation.is_quiet):
                return
            await trio.lowlevel.checkpoint()

    async def send(self, create: bytes) -> bool:
        """Write a create; False if the line was dead before anything of it was written. Cancelled in it, the line can
        only be left."""
        self._is_busy = True
        self.has_finished = False
        self.response_id = None
        if self.failure is not None:
            return False
        try:
            await self._conversation.send_text(create)
        except NothingWritten:
            return False
        except CutOff:
            self._fails(failure_from_close(ABNORMAL))
        return True

    async def pass_on(self, take: TakeMessages) -> tuple[Sequence[bytes], float] | None:
        """What was read ahead, and when, if there is something: it is to be seen to first, at its leisure. Else hand
        over what is heard, as it is heard, until `take` returns False; or until nothing more will come, and why is in
        `failure`. Raises what `take` raises."""
        if self._inbox or self.failure is not None:
            await trio.lowlevel.checkpoint()
            return self._next_heard() if self._inbox else None
        self._take, self._news = take, trio.Event()
        try:
            await self._news.wait()
        finally:
            self._take = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return None

    def _next_heard(self) -> tuple[list[bytes], float]:
        """What came with one read, up to a batch of it."""
        at = self._inbox[0][1]
        payloads: list[bytes] = []
        while self._inbox and self._inbox[0][1] == at and len(payloads) < limits.BATCH_EVENTS_MAX:
            payloads += self._inbox.popleft()[0]
        self._inbox_bytes -= _size_of(payloads)
        self._room.set()
        return payloads, at

    def finish(self, response_id: str | None, may_go_on: Callable[[str], bool] | None = None) -> None:
        """A terminal event was read, and nothing behind it. `may_go_on` is its call's (ports.UpstreamCall)."""
        self.has_finished = True
        self.response_id = response_id
        self._may_go_on = may_go_on

    @property
    def is_awaited(self) -> bool:
        """Whether a client may still go on from what it completed last."""
        return self.response_id is not None and self._may_go_on is not None and self._may_go_on(self.response_id)

    def rest(self) -> bool:
        """Its response is finished, and nothing came behind it: it may serve again. False if it may not."""
        self._is_busy = False
        self._idle_since = trio.current_time()
        return not self._inbox and not self.is_spent

    def leave(self) -> None:
        """Close it, now; `has_ended` tells when that is done."""
        self._life.cancel()

    @property
    def is_spent(self) -> bool:
        """Whether it must not serve again: dead, too old, or idle for too long."""
        return self.failure is not None or trio.current_time() >= self._stale_at

    @property
    def _stale_at(self) -> float:
        """Before the upstream's own limits: what it closes itself, it may close as a create is on its way."""
        return min(self._opened_at + self.settings.age_seconds_max, self._idle_since + self.settings.idle_seconds_max)

    # --- its life -----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """The line's own task. It is nobody's child: nothing may be raised out of it."""
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_alive)
                    self._fails(await self._conversation.run(self))
                    nursery.cancel_scope.cancel()
        except Exception as error:  # E8: nothing that an upstream sends is the gateway's crash
            logger.exception("internal_error", upstream=self.settings.name, exc_info=error)
            is_lost = self._is_open.is_set()
            self._fails(failure_from_close(ABNORMAL) if is_lost else never_sent("the handshake failed"))
        finally:
            self._fails(never_sent("the connection was left"))
            self._is_open.set()
            self.on_end(self)
            with trio.CancelScope(shield=True):
                await self._conversation.leave()
            self.has_ended.set()

    def _fails(self, failure: Failure) -> None:
        """The first reason is the reason."""
        if self.failure is None:
            self.failure = failure
        self._news.set()

    # --- what its conversation tells (conversation.Hearer) ------------------------------------------------------

    def opened(self, handshake: Headers) -> None:
        """The handshake is over (Hearer)."""
        self.handshake = handshake
        self._is_open.set()

    def hear(self, payloads: Sequence[bytes], at: float) -> bool:
        """Text messages that one read completed; whether there is room for more (Hearer)."""
        if not self._is_busy:
            self._fails(read_error("the upstream sent a frame that nobody asked for"))
            self.leave()
            return False
        if self._take is not None:
            try:
                if self._take(payloads, at):
                    return True
            except Exception as error:  # it is raised where its attempt waits
                self._error = error
            self._take = None
            self._news.set()
            return True
        self._inbox.append((payloads, at))
        self._inbox_bytes += _size_of(payloads)
        return self._inbox_bytes < limits.UPSTREAM_BUFFER_BYTES_MAX

    async def wait_for_room(self) -> None:
        """Return when there is (Hearer)."""
        while self._inbox_bytes >= limits.UPSTREAM_BUFFER_BYTES_MAX:
            self._room = trio.Event()
            await self._room.wait()

    # --- idling -------------------------------------------------------------------------------------------------

    async def _keep_alive(self) -> None:
        """Ping while it idles; leave it when no pong comes, or before the upstream would end it."""
        await self._is_open.wait()
        while True:
            look_at = trio.current_time() + limits.PING_SECONDS
            await trio.sleep_until(look_at if self._is_busy else min(look_at, self._stale_at))
            if self._is_busy:
                continue
            if self.is_spent:
                self.leave()
            elif not await self._conversation.answers_ping() and not self._is_busy:
                logger.info("upstream_socket_lost", upstream=self.settings.name, why="no pong")
                self.leave()


def _size_of(payloads: Sequence[bytes]) -> int:
    """What they take: one that is empty, too."""
    return sum(map(len, payloads)) + len(payloads) * MESSAGE_OBJECT_BYTES
