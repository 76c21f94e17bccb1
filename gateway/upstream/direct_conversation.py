"""A conversation over a socket of the gateway's own: one read, its frames, and on to the turn without a wake-up.

socket --bytes--> FrameDecoder --texts--> line ...               for as long as nothing has to wait
                       |
                       +-- pings, a close, a full line --> the conversation's task, which writes, ends, or waits
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

import trio
from wsproto.frame_protocol import CloseReason, FrameProtocol

from gateway import limits
from gateway.core.failures import Failure, failure_from_close
from gateway.upstream.answers import WireHeaders, never_sent, why
from gateway.upstream.calls import Connected
from gateway.upstream.conversation import (
    ABNORMAL,
    BROKEN,
    FrameWriter,
    Hearer,
    LineSettings,
    binary_frame,
    frame_too_large,
    no_frames,
)
from gateway.upstream.frames import End, FrameDecoder
from gateway.upstream.sockets import PORTS, UNCONNECTED, Address, connect
from gateway.upstream.trust import trusted
from gateway.upstream.upgrade import Upgrade

PONGS_MAX: Final = 64
"""Of the pings of one read so many are answered, the last ones (RFC 6455, 5.5.3): it may hold thousands."""
OWN_PING: Final = b"are you there"
"""What a ping says: its pong says the same."""


class Socket(Connected, Protocol):
    """What a conversation needs of a connection."""

    @property
    def has_unread(self) -> bool:
        """Whether something has come, if only the end, that nobody has read."""
        ...

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """All of it, whatever the peer says meanwhile. Raises OSError."""
        ...


class Dial(Protocol):
    """How a route is connected to."""

    async def __call__(self) -> Socket:
        """Raises one of UNCONNECTED."""
        ...


def dial(base_url: str, tls: ssl.SSLContext | None = None) -> Dial:
    """To a base URL's host, with TLS if it is https, trusting whom the HTTP client trusts."""
    url = urlsplit(base_url)
    context = (tls or trusted()) if url.scheme == "https" else None
    return partial(connect, Address(url.hostname or "", url.port or PORTS[url.scheme], context))


class DirectConversation:
    """One connection's (conversation.Conversation)."""

    def __init__(self, dial: Dial, settings: LineSettings, headers: WireHeaders) -> None:
        self._dial = dial
        self._settings = settings
        self._headers = headers
        self._socket: Socket | None = None
        self._decoder = FrameDecoder(settings.event_bytes_max)
        self._writer = FrameWriter(self._write)
        self._is_open = False
        self._has_ended = False
        """Nothing more is read: the peer has closed, or broken the protocol."""
        self._goodbye: int = CloseReason.NORMAL_CLOSURE
        self._pong = trio.Event()

    def __repr__(self) -> str:
        return f"<DirectConversation open={self._is_open}, {self._decoder}>"

    async def run(self, hearer: Hearer) -> Failure:
        """Connect, shake hands, and tell what is heard (conversation.Conversation)."""
        deadline = trio.current_time() + self._settings.connect_seconds
        try:
            with trio.fail_at(deadline):
                socket = self._socket = await self._dial()
        except UNCONNECTED as error:
            return never_sent(why(error))
        failure = await self._shake_hands(socket, deadline, hearer)
        while failure is None and (failure := await self._see_to_what_came(hearer)) is None:
            try:
                await socket.pass_on(partial(self._take, hearer))
            except OSError:
                failure = failure_from_close(ABNORMAL)
        return failure

    async def _shake_hands(self, socket: Socket, deadline: float, hearer: Hearer) -> Failure | None:
        """Why there is no WebSocket. Nothing of the handshake is kept for as long as there is one."""
        upgrade = Upgrade(self._settings.host, self._settings.resource, self._headers)
        with trio.CancelScope(deadline=deadline), suppress(*BROKEN, OSError):  # what was answered before tells why
            await self._writer.send(upgrade.request)
            while not upgrade.is_over:
                upgrade.receive(await socket.receive())
        if upgrade.handshake is None:
            return upgrade.failure(self._settings.retryable_codes)
        self._is_open = True
        hearer.opened(upgrade.handshake)
        if upgrade.rest:
            self._take(hearer, upgrade.rest, trio.current_time())
        return None

    def _take(self, hearer: Hearer, data: bytes, at: float) -> bool:
        """What one read brought; whether there is nothing to see to before the next."""
        decoder = self._decoder
        texts = decoder.receive(data)
        has_room = not texts or hearer.hear(texts, at)
        if decoder.pongs:
            pongs, decoder.pongs = decoder.pongs, []
            if OWN_PING in pongs:
                self._pong.set()
        self._has_ended = not data or decoder.end is not None
        return has_room and not (self._has_ended or decoder.pings)

    async def _see_to_what_came(self, hearer: Hearer) -> Failure | None:
        """Pings are answered, the last of one read at once, and an end is told."""
        decoder = self._decoder
        if decoder.pings:
            frames = FrameProtocol(client=True, extensions=[])
            pongs, decoder.pings = b"".join(map(frames.pong, decoder.pings[-PONGS_MAX:])), []
            with suppress(*BROKEN):  # what the peer has said before it left tells more
                await self._writer.send(pongs)
        if self._has_ended:
            return self._failure(decoder.end)
        await hearer.wait_for_room()
        return None

    def _failure(self, end: End | None) -> Failure:
        """F4, and what is not the peer's close: a frame beyond the limit (R7), bytes that are no frames."""
        if end is None:
            return failure_from_close(ABNORMAL)
        self._goodbye = end.code
        if not end.is_fault:
            return failure_from_close(end.code)
        if end.code == CloseReason.MESSAGE_TOO_BIG:
            return frame_too_large(self._settings.event_bytes_max)
        return binary_frame() if end.code == CloseReason.UNSUPPORTED_DATA else no_frames(end.code)

    @property
    def is_quiet(self) -> bool:
        """Whether its reader has seen all that is there, and seen to it (conversation.Conversation)."""
        return self._socket is None or not (self._has_ended or self._decoder.pings or self._socket.has_unread)

    async def send_text(self, message: bytes) -> None:
        """Write one text message (conversation.Conversation)."""
        await self._writer.send_text(message)

    async def answers_ping(self) -> bool:
        """Whether it is there (conversation.Conversation)."""
        self._pong = trio.Event()
        with trio.move_on_after(limits.UPSTREAM_PONG_SECONDS_MAX):
            try:
                await self._writer.send(FrameProtocol(client=True, extensions=[]).ping(OWN_PING))
            except BROKEN:
                return True  # its reader tells why
            await self._pong.wait()
        return self._pong.is_set()

    async def leave(self) -> None:
        """Say goodbye and close (conversation.Conversation)."""
        if self._is_open:
            await self._writer.say_goodbye(self._goodbye)
        if self._socket is not None:
            self._socket.close()

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        if self._socket is None:
            raise trio.ClosedResourceError
        try:
            await self._socket.write(data)
        except OSError:
            raise trio.BrokenResourceError from None
