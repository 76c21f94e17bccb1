"""A conversation that trio-websocket reads: the plain way, which everything is compared with.

What the library does not tell of a connection is seen below it (wire.py). It answers pings as it reads, and it reads
while the line has room.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import h11
import trio
from trio_websocket import CloseReason, ConnectionClosed, HandshakeError, WebSocketConnection, wrap_client_stream
from wsproto.utilities import ProtocolError

from gateway import limits
from gateway.core.failures import Failure, failure_from_close
from gateway.upstream.answers import WireHeaders, headers_of, never_sent, why
from gateway.upstream.conversation import (
    ABNORMAL,
    Hearer,
    LineSettings,
    NothingWritten,
    binary_frame,
    frame_too_large,
    no_frames,
)
from gateway.upstream.sockets import PORTS
from gateway.upstream.trust import trusted
from gateway.upstream.upgrade import refusal
from gateway.upstream.wire import Wire

Connect = Callable[[], Awaitable[trio.abc.Stream]]
"""Open the stream that a WebSocket runs on: TCP, and TLS on it. Raises OSError or BrokenResourceError."""

RECEIVE_BYTES: Final = 65_536
TOO_BIG: Final = 1009
UNCONNECTED: Final = (OSError, trio.BrokenResourceError, trio.TooSlowError, ssl.CertificateError, UnicodeError)
OF_THE_PEER: Final = (HandshakeError, ConnectionClosed, ProtocolError, h11.ProtocolError)
"""What trio-websocket raises out of its reader where a peer breaks the protocol (its issue 184 among them)."""


class LibraryConversation:
    """One connection's (conversation.Conversation)."""

    def __init__(self, connect: Connect, settings: LineSettings, headers: WireHeaders) -> None:
        self._connect = connect
        self._settings = settings
        self._headers = headers
        self._wire: Wire | None = None
        self._connection: WebSocketConnection | None = None

    def __repr__(self) -> str:
        return f"<LibraryConversation over {self._wire!r}>"

    async def run(self, hearer: Hearer) -> Failure:
        """Connect, shake hands, and tell what is heard (conversation.Conversation)."""
        deadline = trio.current_time() + self._settings.connect_seconds
        try:
            with trio.fail_at(deadline):
                wire = self._wire = Wire(await self._connect())
        except UNCONNECTED as error:
            return never_sent(why(error))
        try:
            async with trio.open_nursery() as nursery:
                failure = await self._converse(nursery, wire, deadline, hearer)
                nursery.cancel_scope.cancel()
        except (*OF_THE_PEER, ExceptionGroup) as error:
            errors = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
            if not all(isinstance(found, OF_THE_PEER) for found in errors):
                raise
            failure = failure_from_close(ABNORMAL) if self._connection else self._refusal(wire)
        return failure

    async def _converse(self, nursery: trio.Nursery, wire: Wire, deadline: float, hearer: Hearer) -> Failure:
        connection = self._connection = await self._shake_hands(nursery, wire, deadline)
        if connection is None:
            return self._refusal(wire)
        hearer.opened(headers_of(list(connection.handshake_headers)))
        while True:
            try:
                message = await connection.get_message()
            except ConnectionClosed as closed:
                return self._why_closed(closed.reason, wire)
            if not isinstance(message, str):
                return binary_frame()
            payload = message.encode()
            if len(payload) > self._settings.event_bytes_max:
                return frame_too_large(self._settings.event_bytes_max)
            hearer.hear([payload], wire.received_at)
            await hearer.wait_for_room()

    async def _shake_hands(self, nursery: trio.Nursery, wire: Wire, deadline: float) -> WebSocketConnection | None:
        with trio.CancelScope(deadline=deadline) as patience:
            wire.upgrades(patience.cancel)
            connection = await wrap_client_stream(
                nursery,
                wire,  # type: ignore[arg-type]  # any stream will do; the library's annotation names two
                self._settings.host,
                self._settings.resource,
                extra_headers=self._headers,
                message_queue_size=1,
                max_message_size=self._settings.event_bytes_max,
                receive_buffer_size=RECEIVE_BYTES,
            )
            wire.is_upgraded()
            return connection
        return None

    def _refusal(self, wire: Wire) -> Failure:
        return refusal(wire.answer, self._settings.retryable_codes)

    def _why_closed(self, reason: CloseReason | None, wire: Wire) -> Failure:
        """F4, and what is not the peer's close: a frame beyond the limit, bytes that are no frames."""
        code = ABNORMAL if reason is None else int(reason.code)
        if code == TOO_BIG and reason is not None and (reason.reason or "").startswith("Exceeded maximum message size"):
            return frame_too_large(self._settings.event_bytes_max)
        return failure_from_close(code) if wire.has_answered_close or code == ABNORMAL else no_frames(code)

    @property
    def is_quiet(self) -> bool:
        """Its library reads by a task of its own, which Trio wakes in time (conversation.Conversation)."""
        return True

    async def send_text(self, message: bytes) -> None:
        """Write one text message (conversation.Conversation)."""
        if self._wire is None:
            raise NothingWritten
        await self._wire.send_text(message)

    async def answers_ping(self) -> bool:
        """Whether it is there (conversation.Conversation)."""
        with trio.move_on_after(limits.UPSTREAM_PONG_SECONDS_MAX):
            try:
                if self._connection is not None:
                    await self._connection.ping()
            except (ConnectionClosed, ProtocolError):
                return True  # its reader tells why
            return True
        return False

    async def leave(self) -> None:
        """Say goodbye and close (conversation.Conversation)."""
        if self._wire is not None:
            await self._wire.say_goodbye()
            await trio.aclose_forcefully(self._wire)


class StreamDial:
    """TCP to a base URL's host, with TLS if it is https, trusting whom the HTTP client trusts."""

    def __init__(self, base_url: str, tls: ssl.SSLContext | None = None) -> None:
        url = urlsplit(base_url)
        self._host = url.hostname or ""
        self._port = url.port or PORTS[url.scheme]
        self._tls = (tls or trusted()) if url.scheme == "https" else None

    async def __call__(self) -> trio.abc.Stream:
        """Raises OSError, or BrokenResourceError where TLS fails."""
        stream = await trio.open_tcp_stream(self._host, self._port)
        if self._tls is None:
            return stream
        secured = trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)
        is_secured = False
        try:
            await secured.do_handshake()
            is_secured = True
        finally:
            if not is_secured:
                await trio.aclose_forcefully(stream)
        return secured
