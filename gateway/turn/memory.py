"""What WebSocket connections remember of their latest responses (W10): for each lane one, within bounds, gone with it.

    a create leaves the line --recall--> what it goes on from, if that is remembered  --> the engine (Order.remembered)
    its turn has ended       --learn---> its response in the place of the lane's last one, or nothing in its place

A lane is a `stream_id`, or none. A response can be gone on from on any lane of its connection; only a continuation on
its own lane that fails evicts it. Nothing is kept beyond a connection's bound, nor beyond what all of them share: what
was not gone on from for the longest makes room, and its client sends its whole input again, as it does on a new socket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from gateway import limits
from gateway.core.continuation import PREVIOUS, Heard, Remembered, remembered
from gateway.core.request import TurnRequest

Lane = str | None


class Memories:
    """All that a process remembers for its connections."""

    def __init__(
        self,
        connection_bytes_max: int = limits.REMEMBERED_BYTES_MAX,
        bytes_max: int = limits.ALL_REMEMBERED_BYTES_MAX,
    ) -> None:
        self.connection_bytes_max = connection_bytes_max
        self.size_bytes = 0
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[ConnectionMemory, Lane], int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Memories, {len(self._kept)} responses, {self.size_bytes} bytes>"

    def connection(self) -> ConnectionMemory:
        """The memory of a new connection, empty."""
        return ConnectionMemory(self)

    def keep(self, memory: ConnectionMemory, lane: Lane, size_bytes: int) -> None:
        """Count a response in, as the newest; the oldest ones make room. The lane has no other."""
        self._kept[memory, lane] = size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self._bytes_max:
            oldest, its_lane = next(iter(self._kept))
            oldest.forget(its_lane)

    def drop(self, memory: ConnectionMemory, lane: Lane) -> None:
        """Count a response out."""
        self.size_bytes -= self._kept.pop((memory, lane))


class ConnectionMemory:
    """One connection's latest responses, one for each lane."""

    def __init__(self, all_of_them: Memories) -> None:
        self._all = all_of_them
        self._lanes: OrderedDict[Lane, Remembered] = OrderedDict()

    def __repr__(self) -> str:
        return f"<ConnectionMemory of {len(self._lanes)} lanes, {self.size_bytes} bytes>"

    @property
    def size_bytes(self) -> int:
        """What its responses take."""
        return sum(held.size_bytes for held in self._lanes.values())

    def heard(self) -> Heard:
        """The ears of a new turn."""
        return Heard(self._all.connection_bytes_max)

    def recall(self, request: TurnRequest) -> Remembered | None:
        """What the request goes on from, if it is remembered, on whichever lane."""
        named = request.body.get(PREVIOUS)
        return next((held for held in self._lanes.values() if held.response_id == named), None)

    def remembers(self, response_id: str) -> bool:
        """Whether it can be gone on from here."""
        return any(held.response_id == response_id for held in self._lanes.values())

    def made_of(self, request: TurnRequest, parent: Remembered | None, heard: Heard) -> Remembered | None:
        """What is to be remembered of a turn; reads all its items, which may be megabytes."""
        return remembered(request, parent, heard, self._all.connection_bytes_max)

    def learn(self, lane: Lane, parent: Remembered | None, heard: Heard, made: Remembered | None) -> None:
        """A turn has ended: its response is its lane's latest one if it completed; a continuation that failed evicts
        what it went on from, if that was its own lane's."""
        if heard.ending is not None:
            self.forget(lane)
            if made is not None:
                self._keep(lane, made)
        elif heard.has_failed and parent is not None and self._lanes.get(lane) is parent:
            self.forget(lane)

    def _keep(self, lane: Lane, made: Remembered) -> None:
        self._lanes[lane] = made
        self._all.keep(self, lane, made.size_bytes)
        for oldest in self._too_many():
            self.forget(oldest)

    def _too_many(self) -> Iterable[Lane]:
        """The lanes that make room for the newest."""
        while len(self._lanes) > limits.REMEMBERED_LANES_MAX or self.size_bytes > self._all.connection_bytes_max:
            yield next(iter(self._lanes))

    def forget(self, lane: Lane) -> None:
        """Nothing is remembered of the lane any more."""
        if self._lanes.pop(lane, None) is not None:
            self._all.drop(self, lane)

    def close(self) -> None:
        """The connection has ended."""
        for lane in [*self._lanes]:
            self.forget(lane)
