"""The short way from a door to its client: bytes are framed here and written at once, past ASGI, h11 and wsproto.

    door --pieces--> DirectBody   one chunk of a response's body (RFC 9112, 7.1)      --+
         --texts---> DirectTexts  one text frame each, all in one write (RFC 6455, 5) --+--> the connection

A plain POST's app has the same of its Exchange (exchange.py), which frames all of its answer. Elsewhere the protocols
keep their say: a response begins and ends with h11, a WebSocket opens, pings and closes with wsproto, and what they
write goes through the same `write`, in its order. So a piece goes direct only where the protocol would frame it in just
this way; anywhere else it goes as if there were no short way.

`write_at_once` is for whoever must not wait: it writes what the kernel takes there and then, or says that it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import trio
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream
from wsproto.connection import ConnectionState

from gateway.core.messages import Taken


class ShortWay(Protocol):
    """A connection on the fast plane, below the layers."""

    async def write(self, data: bytes) -> None:
        """All of it, in its place; returns when it is written, whether or not that took a wait."""
        ...

    def write_at_once(self, data: bytes) -> Taken:
        """The same, if it takes no wait and nothing else is being written. What is taken in part, the next write goes
        on with."""
        ...

    def hold_back(self, data: bytes) -> None:
        """Write it with what comes next, which is at hand."""
        ...


WHOLE_TEXT: Final = b"\x81"
"""A final frame of text: a message of its own, unmasked as a server's are."""
TINY_MAX, SHORT_MAX = 125, 0xFFFF
"""Payloads whose length stands in the frame's second byte, or in two more; of all others it takes eight."""
BODILESS: Final = frozenset({204, 304})
OWN_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body. Not of an empty one: that would be the body's end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def text_frame(payload: bytes) -> bytes:
    """One text message. That it is UTF-8, the core has seen to (E10)."""
    size = len(payload)
    if size <= TINY_MAX:
        return b"%b%c%b" % (WHOLE_TEXT, size, payload)
    if size <= SHORT_MAX:
        return b"%b\x7e%b%b" % (WHOLE_TEXT, size.to_bytes(2, "big"), payload)
    return b"%b\x7f%b%b" % (WHOLE_TEXT, size.to_bytes(8, "big"), payload)


def is_chunked(version: str, method: str, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether h11 sends the body of such a response in chunks."""
    has_body = method not in ("HEAD", "CONNECT") and status not in BODILESS
    return version == "1.1" and has_body and not any(name.lower() in OWN_FRAMING for name, _ in headers)


class DirectBody:
    """A response's (ports.Direct)."""

    def __init__(self, stream: HTTPStream, way: ShortWay) -> None:
        self._stream = stream
        self._way = way
        self._is_chunked = False

    def __repr__(self) -> str:
        return f"<DirectBody, chunked={self._is_chunked}>"

    def head_was_sent(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The response has begun."""
        scope = self._stream.scope
        self._is_chunked = is_chunked(scope["http_version"], scope["method"], status, headers)

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Send them as one chunk."""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._is_open:
            await self._way.write(chunk(data) if data else b"")
        elif self._stream.closed:
            await trio.lowlevel.checkpoint()
        else:
            message: Any = {"type": "http.response.body", "body": data, "more_body": True}
            await self._stream.app_send(message)

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """Send them as one chunk, if that takes no wait."""
        if not self._is_open:
            return Taken.NOTHING
        return self._way.write_at_once(chunk(b"".join(pieces)))

    @property
    def _is_open(self) -> bool:
        """Whether h11 would frame a piece in just this way."""
        stream = self._stream
        return self._is_chunked and stream.state is ASGIHTTPState.RESPONSE and not stream.closed


class DirectTexts:
    """A WebSocket's (ports.Direct). `on_write` is called before each write."""

    def __init__(self, stream: WSStream, way: ShortWay, on_write: Callable[[], None]) -> None:
        self._stream = stream
        self._way = way
        self._on_write = on_write

    def __repr__(self) -> str:
        return f"<DirectTexts, {self._stream.state.name}>"

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Send each as a message. Behind a close there are none, whoever began it."""
        if not self._is_open:
            await trio.lowlevel.checkpoint()
            return
        self._on_write()
        await self._way.write(b"".join([text_frame(piece) for piece in pieces]))

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """Send each as a message, if that takes no wait."""
        if not self._is_open:
            return Taken.NOTHING
        self._on_write()
        return self._way.write_at_once(b"".join([text_frame(piece) for piece in pieces]))

    @property
    def _is_open(self) -> bool:
        """Whether the handshake is over and no close was sent or received."""
        stream = self._stream
        is_connected = stream.state is ASGIWebsocketState.CONNECTED and not stream.closed
        return is_connected and stream.connection.state is ConnectionState.OPEN
