"""The short way to a client that is driven in memory (beside_asgi.Direct), as the fast plane of a server has it.

What is written at once arrives at once. A client that does not read takes nothing so, and one that chokes takes a part:
the rest arrives, whole, when it reads again and the write is gone on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gateway.core.messages import Taken

Messages = list[dict[str, Any]]


class Transport(Protocol):
    """What it asks of a client (driver.Client)."""

    kind: str

    async def send(self, message: dict[str, Any]) -> None:
        """ASGI send."""
        ...

    def takes_at_once(self, messages: Messages) -> Taken:
        """What it takes without a wait."""
        ...


class InMemoryDirect:
    """One client's."""

    def __init__(self, client: Transport) -> None:
        self._client = client
        self._rest: Messages = []

    def __repr__(self) -> str:
        return f"<InMemoryDirect to {self._client!r}>"

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Behind the rest of what was begun."""
        rest, self._rest = self._rest, []
        for message in (*rest, *self._messages(pieces)):
            await self._client.send(message)

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """Nothing while the rest of a piece waits."""
        messages = self._messages(pieces)
        taken = Taken.NOTHING if self._rest else self._client.takes_at_once(messages)
        if taken is Taken.PART:
            self._rest = messages
        return taken

    def _messages(self, pieces: Sequence[bytes]) -> Messages:
        if self._client.kind == "websocket":
            return [
                {"type": "websocket.send", "bytes": None, "text": text.decode("utf-8", "surrogatepass")}
                for text in pieces
            ]
        body = b"".join(pieces)
        return [{"type": "http.response.body", "body": body, "more_body": True}] if body else []
