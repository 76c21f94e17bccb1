"""What all connections of a process are told, without a task in each that waits for it: that the process ends (the idle
ones close), and that it ends now (what is still being written has a moment left).

Under Hypercorn's own command there is no such context, and each connection waits for itself (connection.py).
"""

from __future__ import annotations

from typing import Protocol

import trio
from hypercorn.trio.worker_context import WorkerContext


class Told(Protocol):
    """A connection."""

    def hear_the_end(self) -> None:
        """The process takes no more requests."""
        ...

    def end_writes(self) -> None:
        """The connection is cancelled, and what it shields from that has a moment left."""
        ...


class TellingContext(WorkerContext):
    """Hypercorn's, which knows the connections that are open."""

    def __init__(self, closing: trio.Event) -> None:
        super().__init__(None)
        self._closing = closing
        self._open: set[Told] = set()

    @property
    def is_closing(self) -> bool:
        """Whether each connection's next answer is its last."""
        return self._closing.is_set()

    def tell(self, connection: Told) -> None:
        """From now on."""
        self._open.add(connection)

    def forget(self, connection: Told) -> None:
        """It is closed."""
        self._open.discard(connection)

    def end(self) -> None:
        """Nothing new begins."""
        for connection in [*self._open]:
            connection.hear_the_end()

    async def watch(self) -> None:
        """To be cancelled with the connections."""
        try:
            await trio.sleep_forever()
        finally:
            for connection in [*self._open]:
                connection.end_writes()
