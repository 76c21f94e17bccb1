"""Pings that end with their connection (W7).

Hypercorn sends a ping and sleeps for the interval, and goes on sleeping when the connection is over: its task then
keeps the socket of a client that left, and a drained process, for up to one interval. Here the wait ends with the
connection.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import trio
from hypercorn.protocol import h11, ws_stream
from hypercorn.protocol.events import Event, StreamClosed
from wsproto.events import Ping

HYPERCORN: Final = "0.18.0"
"""The version whose private names are used here."""


class PingingStream(ws_stream.WSStream):
    """Hypercorn's WebSocket stream, but for its pings."""

    _over: trio.Event | None = None

    async def handle(self, event: Event) -> None:
        """What comes from the connection; its end ends the pings."""
        if isinstance(event, StreamClosed) and self._over is not None:
            self._over.set()
        await super().handle(event)

    async def _send_pings(self) -> None:
        self._over = trio.Event()
        while not self.closed and not self._over.is_set():
            await self._send_wsproto_event(Ping())
            with trio.move_on_after(self.config.websocket_ping_interval or 0):
                await self._over.wait()


def install_pings() -> None:
    """Have Hypercorn's HTTP/1.1 connections use it. Raises RuntimeError under any other Hypercorn."""
    if version("hypercorn") != HYPERCORN:
        raise RuntimeError(f"gateway.server patches Hypercorn {HYPERCORN}, but {version('hypercorn')} is installed")
    h11.WSStream = PingingStream  # type: ignore[attr-defined]  # the name under which a connection makes its stream
