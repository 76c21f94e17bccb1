"""A turn's client behind the WebSocket door (ports.Downstream): what it is told, frame by frame (X4, W8, T6), and what
its connection hears of it, to remember (W10)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from gateway.beside_asgi import Direct
from gateway.core.continuation import Heard
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
        heard: Heard,
        was_told: Callable[[str | None], Awaitable[None]],
    ) -> None:
        self._send = send
        self._direct = direct
        self._departure = departure
        self.departure_passes = departure.passes
        self._turn_id = turn_id
        self._stream = {} if stream_id is None else {"stream_id": stream_id}
        self._heard = heard
        self._was_told = was_told
        self.failure_code: str | None = None
        self.is_cut_off = False
        """T6: a turn's frames have begun and not ended. No other turn may follow on the same socket."""

    def __repr__(self) -> str:
        return f"<WebSocketClient {self._turn_id}>"

    async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
        """One text frame for each event; exactly one for a failure (X4)."""
        self.is_cut_off = True
        if isinstance(frames, Deliver):
            self._heard.note(frames.events)
            await self._send(*self._texts(frames.events))
        else:
            self.failure_code = frames.failure.code
            self._heard.has_failed = True
            await self._send(insert_members(websocket_failure(frames, self._turn_id), self._stream))

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        """One text frame for each event, behind others."""
        taken = Taken.NOTHING if self._direct is None else self._direct.write_at_once(self._texts(events))
        if taken is not Taken.NOTHING:
            self._heard.note(events)
        return taken

    def _texts(self, events: Sequence[Event]) -> list[bytes]:
        """W8."""
        return [insert_members(websocket_event(event), self._stream) for event in events]

    async def write_rest(self) -> None:
        """A frame that was taken in part."""
        await self._send()

    async def write_quiet(self) -> None:
        """A WebSocket has pings for that (W7)."""

    async def end(self) -> None:
        """The connection stays for the next turn, unless it has to end."""
        self.is_cut_off = False
        await self._was_told(self.failure_code)

    def watch(self, tell: Callable[[str], None]) -> None:
        """H7."""
        self._departure.watch(tell)

    def unwatch(self, tell: Callable[[str], None]) -> None:
        """The turn is over."""
        self._departure.unwatch(tell)
