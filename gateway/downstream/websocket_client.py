"""One turn's client on a WebSocket: its events as text frames, and at most one frame for a failure (X4, E10, W8)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from gateway.beside_asgi import Direct
from gateway.core.events import Event, insert_members
from gateway.core.messages import Deliver, DeliverFailure, Door, Taken
from gateway.downstream.connections import Departure
from gateway.downstream.errors import websocket_event, websocket_failure


class WebSocketClient:
    """One turn's client on a WebSocket (ports.Downstream)."""

    door = Door.WEBSOCKET
    quiet_deadline = math.inf

    def __init__(
        self,
        send: Callable[..., Awaitable[None]],
        direct: Direct | None,
        departure: Departure,
        turn_id: str,
        stream_id: str | None,
    ) -> None:
        self._send = send
        self._direct = direct
        self._departure = departure
        self._turn_id = turn_id
        self._stream = {} if stream_id is None else {"stream_id": stream_id}
        self.failure_code: str | None = None
        self.is_cut_off = False
        """T6: a turn's frames have begun and not ended. No other turn may follow on the same socket."""

    def __repr__(self) -> str:
        return f"<WebSocketClient {self._turn_id}>"

    async def write(self, frames: Deliver | DeliverFailure) -> None:
        """One text frame for each event; exactly one for a failure (X4)."""
        self.is_cut_off = True
        if isinstance(frames, Deliver):
            await self._send(*self._texts(frames.events))
        else:
            self.failure_code = frames.failure.code
            await self._send(insert_members(websocket_failure(frames, self._turn_id), self._stream))

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        """One text frame for each event, behind others."""
        return Taken.NOTHING if self._direct is None else self._direct.write_at_once(self._texts(events))

    def _texts(self, events: Sequence[Event]) -> list[bytes]:
        """W8."""
        return [insert_members(websocket_event(event), self._stream) for event in events]

    async def write_rest(self) -> None:
        """A frame that was taken in part."""
        await self._send()

    async def write_quiet(self) -> None:
        """A WebSocket has pings for that (W7)."""

    async def end(self) -> None:
        """The connection stays for the next turn."""
        self.is_cut_off = False

    async def wait_left(self) -> str:
        """H7."""
        return await self._departure.wait()
