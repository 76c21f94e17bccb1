"""The short way from a door to its client: bytes are framed here and written at once, past ASGI, h11 and wsproto.

    door --pieces--> DirectBody   one chunk of a response's body (RFC 9112, 7.1)      --+
         --texts---> DirectTexts  one text frame each, all in one write (RFC 6455, 5) --+--> the connection's `write`

The protocols keep their say: a response begins and ends with h11, a WebSocket opens, pings and closes with wsproto, and
what they write goes through the same `write`, in its order. So a piece goes direct only where the protocol would frame
it in just this way; anywhere else it goes as if there were no short way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import trio
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream
from wsproto.connection import ConnectionState

Write = Callable[[bytes], Awaitable[None]]

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

    def __init__(self, stream: HTTPStream, write: Write) -> None:
        self._stream = stream
        self._write = write
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
        if self._stream.closed:
            await trio.lowlevel.checkpoint()
        elif data and self._is_chunked and self._stream.state is ASGIHTTPState.RESPONSE:
            await self._write(chunk(data))
        else:
            message: Any = {"type": "http.response.body", "body": data, "more_body": True}
            await self._stream.app_send(message)


class DirectTexts:
    """A WebSocket's (ports.Direct). `on_write` is called before each write."""

    def __init__(self, stream: WSStream, write: Write, on_write: Callable[[], None]) -> None:
        self._stream = stream
        self._write = write
        self._on_write = on_write

    def __repr__(self) -> str:
        return f"<DirectTexts, {self._stream.state.name}>"

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Send each as a message. Behind a close there are none, whoever began it."""
        stream = self._stream
        is_open = stream.state is ASGIWebsocketState.CONNECTED and stream.connection.state is ConnectionState.OPEN
        if stream.closed or not is_open:
            await trio.lowlevel.checkpoint()
            return
        self._on_write()
        await self._write(b"".join([text_frame(piece) for piece in pieces]))
