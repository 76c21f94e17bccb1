"""How many TCP connections may be open at once: one beyond the bound is turned away before it costs a protocol.

    a free place ------------> served, until it ends
    none, few are refused ---> 503 `too_many_turns`, and closed when the peer has it; over TLS just closed
    none, many are refused --> closed

Connections are counted from their accept on: a stranger who only ever connects takes a descriptor as a client does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Final

import structlog
import trio

from gateway.server.hardened.refusals import raw_refusal

logger = structlog.get_logger("gateway.server")

REFUSING_SECONDS_MAX: Final = 1.0
"""How long a peer that is turned away is read: closed at once, a reset could overtake the answer."""
REFUSING_MAX: Final = 256
"""Peers that are being turned away with an answer, beyond the sockets that are served; more are just closed."""
LINE_SECONDS: Final = 1.0
"""Between two log lines: a flood of connections is none of lines."""
READ_BYTES: Final = 65_536

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Sockets:
    """The connections of one process. Whoever calls `serve` closes the stream when it returns."""

    def __init__(self, sockets_max: int, on_refused: Callable[[], None] = lambda: None) -> None:
        self._sockets_max = sockets_max
        self._on_refused = on_refused
        self._open = 0
        self._refusing = 0
        self._refused = 0
        self._last_line_at = -inf

    def fit(self, sockets_max: int) -> None:
        """Serve no more than that."""
        self._sockets_max = sockets_max

    @property
    def open(self) -> int:
        """How many are served, or wait to be."""
        return self._open

    def __repr__(self) -> str:
        return f"<Sockets, {self._open} of {self._sockets_max}>"

    async def serve(self, serve: Callable[[Stream], Awaitable[None]], stream: Stream) -> None:
        """Serve it on a place of its own, or turn it away."""
        if self._open >= self._sockets_max:
            await self._turn_away(stream)
            return
        self._open += 1
        try:
            await serve(stream)
        finally:
            self._open -= 1

    async def _turn_away(self, stream: Stream) -> None:
        self._note_refused()
        if isinstance(stream, trio.SSLStream) or self._refusing >= REFUSING_MAX:
            return
        self._refusing += 1
        try:
            with trio.move_on_after(REFUSING_SECONDS_MAX), suppress(trio.BrokenResourceError):
                await _answer(stream)
        finally:
            self._refusing -= 1

    def _note_refused(self) -> None:
        self._refused += 1
        self._on_refused()
        now = trio.current_time()
        if now - self._last_line_at >= LINE_SECONDS:
            logger.warning("sockets_refused", open=self._open, refused=self._refused)
            self._last_line_at, self._refused = now, 0


async def _answer(stream: trio.SocketStream) -> None:
    """Until the peer closes, too."""
    await stream.send_all(raw_refusal(503))
    await stream.send_eof()
    while await stream.receive_some(READ_BYTES):
        pass
