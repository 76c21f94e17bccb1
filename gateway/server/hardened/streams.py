"""A request and its answer as Hypercorn's layers serve them: what they do not tell the app, or tell it wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from gateway.server.hardened.direct import DirectBody


class HardenedHTTPStream(HTTPStream):
    """One request and its response."""

    direct: DirectBody | None = None
    _tell_left: Callable[[], None] | None = None

    def when_left(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when the peer leaves (beside_asgi.WhenLeft)."""
        if self.closed:
            tell()
        else:
            self._tell_left = tell

    async def handle(self, event: Any) -> None:
        """What the protocol makes of the peer's bytes. What closes before the response has ended was closed by the
        peer, or for it."""
        if isinstance(event, StreamClosed) and self._tell_left is not None:
            tell, self._tell_left = self._tell_left, None
            if self.state is not ASGIHTTPState.CLOSED:
                tell()
        await super().handle(event)

    async def app_send(self, message: Any) -> None:
        """What the app sends; to a peer that has left it goes nowhere, but it yields."""
        if self.closed:
            await trio.lowlevel.checkpoint()
            return
        await super().app_send(message)
        if self.direct is not None and message is not None and message["type"] == "http.response.start":
            self.direct.head_was_sent(int(message["status"]), message.get("headers", ()))
