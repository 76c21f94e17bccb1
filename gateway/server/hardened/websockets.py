"""A WebSocket: frames before the accept wait, nothing is inflated, each close has its code, a dead peer is found."""

from __future__ import annotations

from typing import Any, Final

import structlog
import trio
from hypercorn.protocol.events import Data, Event, Request, StreamClosed
from hypercorn.protocol.ws_stream import ASGIWebsocketState, FrameTooLargeError, WSStream
from hypercorn.typing import WebsocketAcceptEvent
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping
from wsproto.events import Event as WebSocketEvent
from wsproto.frame_protocol import CloseReason

from gateway import limits
from gateway.server.hardened.inbound import Share
from gateway.server.hardened.messages import MessageBuffer
from gateway.server.hardened.patience import Patience
from gateway.server.hardened.settings import Cut, settings_of

logger = structlog.get_logger("gateway.server")

SILENT_PINGS_MAX: Final = 3
"""How many pings in a row may go without any sign of life."""
EARLY_BYTES_MAX: Final = 65_536
"""What is kept for the accept: the first frames of a client that does not wait. More waits in the kernel."""
OPENING_SECONDS_MAX: Final = 10.0
"""How long more than that waits for the accept: unread, it hides its sender's leaving."""
EVENTS_PER_PASS: Final = 64
"""Frames of a few bytes come in thousands with one read; after so many others have their turn."""
PEER_AT_FAULT: Final = frozenset({1002, 1003, 1007, 1008, 1009})
"""Closes of a peer that most likely goes on sending."""
DROPPED: Final = b"sec-websocket-extensions"
"""No extension is ever negotiated: a compressed frame of kilobytes inflates to gigabytes."""
LISTS: Final = (b"connection", b"sec-websocket-protocol")
"""Headers that may come on several lines; Hypercorn knows the last one only."""


class HardenedWebSocket(WSStream):
    """Hypercorn's WebSocket stream."""

    def __init__(self, *arguments: Any, patience: Patience, share: Share) -> None:
        super().__init__(*arguments)
        self._patience = patience
        self._share = share
        self.buffer: MessageBuffer = MessageBuffer(self.config.websocket_max_message_size)  # type: ignore[assignment]  # nobody else's
        self.peer_is_at_fault = False
        self._early = bytearray()
        self._inbound = trio.Lock()
        self._opened = trio.Event()
        self._over = trio.Event()
        self._silent_pings = 0

    async def handle(self, event: Event) -> None:
        """What comes from the connection."""
        if isinstance(event, Request):
            await super().handle(_plain(event))
            if self.closed:  # it was refused before there was an app for it
                await self._give_up()
        elif isinstance(event, Data):
            await self._handle_data(event.data)
        else:
            if isinstance(event, StreamClosed):
                self._over.set()
                self._opened.set()
                self.buffer.clear()  # what refers to it is a ring, which may not be collected for minutes
            await super().handle(event)

    async def app_send(self, message: Any) -> None:
        """What the app sends; to a peer that has left it goes nowhere, but it yields."""
        if self.closed:
            await trio.lowlevel.checkpoint()
            return
        if message is not None and message["type"] == "websocket.close":
            self.peer_is_at_fault = message.get("code") in PEER_AT_FAULT
        await super().app_send(message)

    # --- inbound ----------------------------------------------------------------------------------------------------

    async def _handle_data(self, data: bytes) -> None:
        """Frames in their order, also those that came before the accept (W1)."""
        self._silent_pings = 0
        if not self._opened.is_set() and len(self._early) + len(data) <= EARLY_BYTES_MAX:
            self._early += data
            return
        if not self._opened.is_set():
            with trio.move_on_after(OPENING_SECONDS_MAX):
                await self._opened.wait()
        if self._opened.is_set():
            await self._deliver(data)
        else:
            await self._give_up()

    async def _give_up(self) -> None:
        """There will be no WebSocket, and whoever sends frames all the same is not read any more."""
        self._opened.set()
        self._over.set()
        self.peer_is_at_fault = True
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _accept(self, message: WebsocketAcceptEvent) -> None:
        await super()._accept(message)
        self._opened.set()
        if self._early:
            self.task_group.spawn(self._deliver)  # the app may have to receive before it takes them all

    async def _deliver(self, data: bytes = b"") -> None:
        async with self._inbound:
            data, self._early = bytes(self._early) + data, bytearray()
            if self.closed or self.connection.state is ConnectionState.CLOSED:
                return
            was_open, begun = self.buffer.is_open, trio.current_time()
            self.connection.receive_data(data)
            await self._handle_events()
            self._await_the_rest(len(data), begun, was_open=was_open)

    def _await_the_rest(self, size_bytes: int, begun: float, *, was_open: bool) -> None:
        """A message keeps the pace of a body, in whatever parts it comes; the app's own waits are none of its."""
        now = trio.current_time()
        if self.closed or not self.buffer.is_open:
            self._patience.rest()
        elif was_open:
            self._patience.advance(size_bytes, now, now - begun)
        else:
            self._patience.expect_message(now)

    async def time_out(self) -> None:
        """The message has not gone on in time."""
        await self._fail(CloseReason.POLICY_VIOLATION, "the message did not arrive in time", Cut.SLOW)

    async def _handle_events(self) -> None:
        for number, event in enumerate(self.connection.events(), start=1):
            if not await self._handle_one(event):
                return
            if number % EVENTS_PER_PASS == 0:
                await trio.lowlevel.checkpoint()

    async def _handle_one(self, event: WebSocketEvent) -> bool:
        """Whether the connection goes on."""
        if isinstance(event, Message):
            return await self._handle_message(event)
        if isinstance(event, Ping):
            await self._send_wsproto_event(event.response())
        elif isinstance(event, CloseConnection):
            await self._handle_close(event)
            return False
        return True

    async def _handle_message(self, event: Message[Any]) -> bool:
        """Pass a whole message on. Behind the app's close there is no one to pass it to: it must not fill a queue."""
        if self.state is not ASGIWebsocketState.CONNECTED:
            return True
        try:
            kept_bytes = self.buffer.extend(event)
        except FrameTooLargeError:
            await self._fail(CloseReason.MESSAGE_TOO_BIG, "message too big")
            return False
        if not self._share.take(kept_bytes):
            await self._fail(CloseReason.TRY_AGAIN_LATER, "too many bytes wait in the gateway", Cut.NO_MEMORY)
            return False
        message = self.buffer.next_message()
        if message is not None and self.app_put is not None:
            await self.app_put(message)
        return True

    async def _handle_close(self, event: CloseConnection) -> None:
        """Answer the peer's close; tell a peer that broke the protocol (1002) or its text (1007) so."""
        if self.connection.state is ConnectionState.OPEN:
            await self._fail(event.code, event.reason)
            return
        if self.connection.state is ConnectionState.REMOTE_CLOSING:
            await self._send_wsproto_event(event.response())
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _fail(self, code: int, reason: str | None, why: Cut = Cut.BAD_FRAME) -> None:
        self.peer_is_at_fault = True
        settings_of(self.config).on_cut(why)
        await self._send_wsproto_event(CloseConnection(code=code, reason=reason))
        await self.send(StreamClosed(stream_id=self.stream_id))

    # --- signs of life ----------------------------------------------------------------------------------------------

    def note_sign_of_life(self) -> None:
        """Something is written: the peer may have to read much before it comes to a ping; its reading has a bound
        (T6)."""
        self._silent_pings = 0

    async def _send_wsproto_event(self, event: WebSocketEvent) -> None:
        if not isinstance(event, Ping):
            self.note_sign_of_life()
        await super()._send_wsproto_event(event)

    async def _send_pings(self) -> None:
        """W7: a peer that shows no sign of life is dropped; the wait ends with the connection."""
        seconds = self.config.websocket_ping_interval or limits.PING_SECONDS
        while not self.closed and not self._over.is_set():
            if self._silent_pings >= SILENT_PINGS_MAX:
                settings_of(self.config).on_cut(Cut.SILENT)
                logger.info("peer_silent", seconds=seconds * SILENT_PINGS_MAX)
                await self.send(StreamClosed(stream_id=self.stream_id))
                return
            if not self._inbound.locked():  # while the app lets it wait, its pong waits behind
                self._silent_pings += 1
            await self._send_wsproto_event(Ping())
            with trio.move_on_after(seconds):
                await self._over.wait()


def _plain(request: Request) -> Request:
    """The handshake without extensions, its lists on one line each."""
    kept = [(name, value) for name, value in request.headers if name not in (DROPPED, *LISTS)]
    for wanted in LISTS:
        tokens = [part.strip() for name, value in request.headers if name == wanted for part in value.split(b",")]
        if any(tokens):
            kept.append((wanted, b", ".join(filter(None, tokens))))
    return Request(
        stream_id=request.stream_id,
        headers=kept,
        http_version=request.http_version,
        method=request.method,
        raw_path=request.raw_path,
        state=request.state,
    )
