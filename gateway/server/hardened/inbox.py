"""What waits for the app: bounded in events and in bytes, and the peer's leaving never waits.

Hypercorn hands events over by a memory channel of ten. If an app does not receive, the eleventh event blocks the
connection's reader; then a send that fails wants to hand the disconnect over, blocks as well, and the app's send never
returns (bug case O2). And ten messages may be ten times their bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

WAITING_BYTES_MAX: Final = 1_048_576
"""One larger event may wait alone. The doors read at once, so more than one seldom waits."""
LAST: Final = ("http.disconnect", "websocket.disconnect")

Event = Any


class Inbox:
    """Events for one request or WebSocket, in their order."""

    def __init__(self, events_max: int, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._events: list[Event] = []  # at most ten; a deque of none takes more
        self._bytes = 0
        self._is_over = False
        self._news = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<Inbox {len(self._events)} events, {self._bytes} bytes>"

    async def put(self, event: Event) -> None:
        """Hand an event over, once there is room; where there is, it does not yield: whoever brings events waits for
        the peer's next bytes. The disconnect needs no room, and what follows it is dropped."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if event["type"] in LAST:
            self.end(event)
            return
        while not self._is_over and self._is_full_for(_size_of(event)):
            await self._room.park()
        if not self._is_over:
            self.put_first(event)

    def put_first(self, event: Event) -> None:
        """Hand an event over when none waits: there is room for one."""
        self._events.append(event)
        self._bytes += _size_of(event)
        self._news.unpark_all()

    def end(self, event: Event) -> None:
        """Hand the disconnect over."""
        if not self._is_over:
            self._is_over = True
            self._events.append(event)
            self._news.unpark_all()
        self._room.unpark_all()

    async def receive(self) -> ASGIReceiveEvent:
        """The next event, at once if it is there. The disconnect is told as often as it is asked for, and yields unless
        it was waited for: whoever waits hears of it a pass of the scheduler after it has come."""
        await trio.lowlevel.checkpoint_if_cancelled()
        has_waited = not self._events
        while not self._events:
            await self._news.park()
        event: ASGIReceiveEvent = self._events[0]
        if event["type"] in LAST:
            if not has_waited:
                await trio.lowlevel.checkpoint()
        else:
            self._events.pop(0)
            self._bytes -= _size_of(event)
            self._room.unpark_all()
        return event

    def _is_full_for(self, size: int) -> bool:
        is_crowded = len(self._events) >= self._events_max
        return is_crowded or (len(self._events) > 0 and self._bytes + size > self._bytes_max)


def _size_of(event: Event) -> int:
    """What an event's payload takes; a text's characters are its bytes within a small factor."""
    return len(event.get("body") or event.get("bytes") or event.get("text") or b"")


class InboxTaskGroup(TaskGroup):
    """Hypercorn's, whose apps have an inbox in the place of a channel, and whose tasks share one name: Trio would make
    one for each."""

    def spawn(self, func: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start a task."""
        cast(trio.Nursery, self._nursery).start_soon(func, *args, name="request")

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the app for one scope; returns what hands events to it."""
        inbox = Inbox(config.max_app_queue_size)
        threads = trio.to_thread.run_sync, trio.from_thread.run
        self.spawn(_handle, app, config, scope, inbox.receive, send, *threads)
        return inbox.put
