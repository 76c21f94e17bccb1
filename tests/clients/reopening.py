"""A WebSocket that a program keeps for all its turns, and opens again where the gateway has closed it between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from websockets.exceptions import ConnectionClosed

from clients.conversation import CONNECTION_LIMIT, Ear

PASSING_CLOSES = frozenset({1001, 1012})
"""The connection's time was over; the gateway restarts."""


class Closable(Protocol):
    """What every library's connection has."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Reopened(Generic[C]):
    """`opens` makes a connection, `asks` plays a turn on it."""

    def __init__(self, opens: Callable[[], C], asks: Callable[[C, dict[str, Any]], Ear]) -> None:
        self._opens = opens
        self._asks = asks
        self._connection: C | None = None

    def close(self) -> None:
        """Done with it."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def turn(self, request: dict[str, Any]) -> Ear:
        """One turn; once more on a new connection if the old one was closed before it said anything. A connection
        whose time is over is left."""
        try:
            ear = self._turn(request)
        except ConnectionClosed as closed:
            if closed.rcvd is None or closed.rcvd.code not in PASSING_CLOSES:
                raise
            self.close()
            return self._turn(request)
        if ear.code == CONNECTION_LIMIT:
            self.close()
        return ear

    def _turn(self, request: dict[str, Any]) -> Ear:
        if self._connection is None:
            self._connection = self._opens()
        return self._asks(self._connection, request)
