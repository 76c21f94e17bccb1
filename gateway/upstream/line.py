"""One WebSocket to an upstream, for its whole life: opened, used by one response after another, left.

    OPENING --> BUSY --rest()--> IDLE --send()--> BUSY ...      whatever ends it: `failure` says why
                  |                |
                  +----------------+--> ENDED

A line outlives the attempt that opened it, so its tasks are its own: one that reads for as long as the line lives (a
ping is answered whether or not a turn runs), and one that pings while it idles. What is read ahead is bounded in bytes;
beyond the bound the socket is not read. A line whose response is unfinished is never used again: it is left, with a
close frame if one can still be written, and without waiting for its answer (case 56).
"""

from __future__ import annotations

import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
import trio
from trio_websocket import CloseReason, ConnectionClosed, HandshakeError, WebSocketConnection, wrap_client_stream
from wsproto.utilities import ProtocolError

from gateway import limits
from gateway.core.failures import RETRYABLE_CODES, Failure, failure_from_close
from gateway.core.messages import Headers
from gateway.upstream.answers import WireHeaders, headers_of, never_sent, read_error, refused, too_large, why
from gateway.upstream.wire import CutOff, NothingWritten, Wire

logger = structlog.get_logger("gateway.upstream")

Connect = Callable[[], Awaitable[trio.abc.Stream]]
"""Open the stream that a WebSocket runs on: TCP, and TLS on it. Raises OSError or BrokenResourceError."""

RECEIVE_BYTES: Final = 65_536
ABNORMAL: Final = 1006
TOO_BIG: Final = 1009
UNCONNECTED: Final = (OSError, trio.BrokenResourceError, trio.TooSlowError, ssl.CertificateError, UnicodeError)
OF_THE_PEER: Final = (HandshakeError, ConnectionClosed, ProtocolError)
"""What trio-websocket raises out of its reader where a peer breaks the protocol (its issue 184 among them)."""


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What differs from route to route. Durations are seconds; `host` is the header's value."""

    name: str
    host: str
    resource: str
    connect_seconds: float = limits.CONNECT_SECONDS
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    age_seconds_max: float = limits.UPSTREAM_SOCKET_SECONDS_MAX
    idle_seconds_max: float = limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX
    retryable_codes: frozenset[str] = field(default=RETRYABLE_CODES, repr=False)


@dataclass(frozen=True, slots=True)
class Frames:
    """Text frames that one read completed, and when that was."""

    payloads: list[bytes]
    size_bytes: int
    at: float


class Line:
    """One WebSocket. Used by one task at a time."""

    def __init__(self, settings: LineSettings, connect: Connect, headers: WireHeaders) -> None:
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
        self._connect = connect
        self._is_busy = True
        self._opened_at = trio.current_time()
        self._idle_since = math.inf
        self._life = trio.CancelScope()
        self._is_open = trio.Event()
        self._wire: Wire | None = None
        self._inbox: deque[tuple[bytes, float]] = deque()
        self._inbox_bytes = 0
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
        """Let what the kernel knows of its end be seen, before it is used again."""
        for _ in range(limits.INSTANT_PASSES):
            await trio.lowlevel.checkpoint()

    async def send(self, create: bytes) -> bool:
        """Write a create; False if the line was dead before anything of it was written. Cancelled in it, the line can
        only be left."""
        self._is_busy = True
        self.has_finished = False
        self.response_id = None
        if self._wire is None or self.failure is not None:
            return False
        try:
            await self._wire.send_text(create)
        except NothingWritten:
            return False
        except CutOff:
            self._fails(failure_from_close(ABNORMAL))
        return True

    async def take(self) -> Frames | None:
        """The next frames; None when nothing more will come, and why is in `failure`."""
        while not self._inbox:
            if self.failure is not None:
                await trio.lowlevel.checkpoint()
                return None
            self._news = trio.Event()
            await self._news.wait()
        at = self._inbox[0][1]
        payloads: list[bytes] = []
        while self._inbox and self._inbox[0][1] == at and len(payloads) < limits.BATCH_EVENTS_MAX:
            payloads.append(self._inbox.popleft()[0])
        size_bytes = sum(map(len, payloads))
        self._inbox_bytes -= size_bytes
        self._room.set()
        return Frames(payloads, size_bytes, at)

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
                await self._connect_and_converse()
        except Exception as error:
            self._broke(error)
        finally:
            self._fails(never_sent("the connection was left"))
            self._is_open.set()
            self.on_end(self)
            await self._close()  # noqa: ASYNC102 - it shields and bounds itself

    async def _close(self) -> None:
        with trio.CancelScope(shield=True):
            if self._wire is not None:
                await self._wire.say_goodbye()
                await trio.aclose_forcefully(self._wire)
        self.has_ended.set()

    async def _connect_and_converse(self) -> None:
        deadline = self._opened_at + self.settings.connect_seconds
        try:
            with trio.fail_at(deadline):
                wire = self._wire = Wire(await self._connect())
        except UNCONNECTED as error:
            self._fails(never_sent(why(error)))
            return
        async with trio.open_nursery() as nursery:
            connection = await self._shake_hands(nursery, wire, deadline)
            if connection is not None:
                self._is_open.set()
                nursery.start_soon(self._keep_alive, connection)
                await self._read(connection, wire)
            nursery.cancel_scope.cancel()

    async def _shake_hands(self, nursery: trio.Nursery, wire: Wire, deadline: float) -> WebSocketConnection | None:
        with trio.CancelScope(deadline=deadline) as patience:
            wire.upgrades(patience.cancel)
            connection = await wrap_client_stream(
                nursery,
                wire,  # type: ignore[arg-type]  # any stream will do; the library's annotation names two
                self.settings.host,
                self.settings.resource,
                extra_headers=self.headers,
                message_queue_size=1,
                max_message_size=self.settings.event_bytes_max,
                receive_buffer_size=RECEIVE_BYTES,
            )
            wire.is_upgraded()
            self.handshake = headers_of(list(connection.handshake_headers))
            return connection
        self._fails(self._refusal(wire))
        return None

    def _refusal(self, wire: Wire) -> Failure:
        """§5: a status decides; without one nothing was sent, and nobody knows why."""
        found = wire.refusal()
        if found is None:
            return never_sent("the upstream did not complete the WebSocket handshake")
        answer, is_whole = found
        body = answer.body if is_whole else None
        return refused(answer.status, answer.headers, body, self.settings.retryable_codes)

    def _broke(self, error: Exception) -> None:
        """E8: nothing that an upstream sends is the gateway's crash. What is no peer's doing is logged whole."""
        errors = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
        if not all(isinstance(found, OF_THE_PEER) for found in errors):
            logger.error("internal_error", upstream=self.settings.name, exc_info=error)
        if self._wire is not None and not self._is_open.is_set():
            self._fails(self._refusal(self._wire))
        self._fails(failure_from_close(ABNORMAL))

    def _fails(self, failure: Failure) -> None:
        """The first reason is the reason."""
        if self.failure is None:
            self.failure = failure
        self._news.set()

    # --- reading ------------------------------------------------------------------------------------------------

    async def _read(self, connection: WebSocketConnection, wire: Wire) -> None:
        """For the line's whole life. trio-websocket answers pings as it reads, and it reads while there is room."""
        while self.failure is None:
            try:
                message = await connection.get_message()
            except ConnectionClosed as closed:
                self._fails(self._why_closed(closed.reason, wire))
                return
            self._put(message, wire.received_at)
            while self._inbox_bytes >= limits.UPSTREAM_BUFFER_BYTES_MAX:
                self._room = trio.Event()
                await self._room.wait()

    def _put(self, message: str | bytes, at: float) -> None:
        payload = message.encode() if isinstance(message, str) else message
        if not self._is_busy:
            self._fails(read_error("the upstream sent a frame that nobody asked for"))
        elif not isinstance(message, str):
            self._fails(read_error("the upstream sent a binary frame"))
        elif len(payload) > self.settings.event_bytes_max:
            self._fails(too_large(f"one frame has more than {self.settings.event_bytes_max} bytes"))
        else:
            self._inbox.append((payload, at))
            self._inbox_bytes += len(payload)
            self._news.set()

    def _why_closed(self, reason: CloseReason | None, wire: Wire) -> Failure:
        """F4, and what is not the peer's close: a frame beyond the limit, bytes that are no frames."""
        code = ABNORMAL if reason is None else int(reason.code)
        if code == TOO_BIG and reason is not None and (reason.reason or "").startswith("Exceeded maximum message size"):
            return too_large(f"one frame has more than {self.settings.event_bytes_max} bytes")
        if wire.has_answered_close or code == ABNORMAL:
            return failure_from_close(code)
        return read_error(f"the upstream's bytes are no WebSocket frames (code {code})")

    # --- idling -------------------------------------------------------------------------------------------------

    async def _keep_alive(self, connection: WebSocketConnection) -> None:
        """Ping while it idles; leave it when no pong comes, or before the upstream would end it."""
        while True:
            look_at = trio.current_time() + limits.PING_SECONDS
            await trio.sleep_until(look_at if self._is_busy else min(look_at, self._stale_at))
            if self._is_busy:
                continue
            if self.is_spent:
                self.leave()
            elif not await _answers_ping(connection) and not self._is_busy:
                logger.info("upstream_socket_lost", upstream=self.settings.name, why="no pong")
                self.leave()


async def _answers_ping(connection: WebSocketConnection) -> bool:
    with trio.move_on_after(limits.UPSTREAM_PONG_SECONDS_MAX):
        try:
            await connection.ping()
        except ConnectionClosed:
            return True  # its reader tells why
        return True
    return False
