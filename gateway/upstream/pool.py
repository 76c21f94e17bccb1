"""A route's idle WebSockets: kept for the next turn, bounded in number, given out once (C5, §4, W10).

A line comes here only after a finished response. A continuation gets the line that holds its response; whatever else
is sent gets one that no client can go on from, the one that has idled longest first. A line that is awaited by its
client is given to another only where there is no room for one more: else two conversations would take each other's line
away, turn by turn, and neither would ever find its response again. Lines with other handshake headers are another
client's: they are not given out.
"""

from __future__ import annotations

from gateway.upstream.answers import WireHeaders
from gateway.upstream.line import Line


class Pool:
    """Idle lines of one route, the longest idle first."""

    def __init__(self, idle_max: int) -> None:
        self._idle_max = idle_max
        self._idle: list[Line] = []
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Pool of {len(self)} idle lines>"

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, headers: WireHeaders, continues: object = None) -> Line | None:
        """An idle line, which is then the caller's."""
        fitting = [line for line in self._idle if self._fits(line, headers)]
        holding = [line for line in fitting if continues is not None and line.response_id == continues]
        is_full = len(self._idle) >= self._idle_max
        line = next(iter(holding or [line for line in fitting if is_full or not line.is_awaited]), None)
        if line is not None:
            self._idle.remove(line)
        return line

    def holds(self, headers: WireHeaders, response_id: str) -> bool:
        """Whether an idle line for these headers completed this response last."""
        return any(line.response_id == response_id and self._fits(line, headers) for line in self._idle)

    def _fits(self, line: Line, headers: WireHeaders) -> bool:
        return line.headers == headers and not line.is_spent

    def put(self, line: Line) -> None:
        """A line whose response is finished; it is left instead if there is no room for it."""
        if self._is_closed or self._idle_max == 0 or not line.rest():
            line.leave()
            return
        line.on_end = self._forget
        self._idle.append(line)
        if len(self._idle) > self._idle_max:
            self._idle.pop(0).leave()

    def drain(self) -> None:
        """No turn will come: idle lines are left, and so is each that comes to rest from now on."""
        self._is_closed = True
        for line in self._idle:
            line.leave()

    def resume(self) -> None:
        """Turns come again: lines are kept."""
        self._is_closed = False

    async def aclose(self) -> None:
        """Leave all idle lines, and return when they are closed."""
        self.drain()
        for line in [*self._idle]:
            await line.has_ended.wait()

    def _forget(self, line: Line) -> None:
        if line in self._idle:
            self._idle.remove(line)
