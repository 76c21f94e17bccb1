"""A request for a turn as the server brings it (ASGI), read by its door and by nobody else.

Its body is asked for when the door wants it, and comes whole, in its time and within its bound. A client that leaves
before its body is whole has asked for nothing (`Gone`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final

import trio
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from gateway.beside_asgi import BODY, INBOUND, Inbound
from gateway.ports import NoBounds

Receive = Callable[[], Any]


class Gone(Exception):
    """The client left before its request was whole."""


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """What a body may be: bytes, and seconds from when it is asked for."""

    bytes_max: int | None = None
    seconds: float = inf


NO_BOUNDS: Final = BodyBounds()
READ: Final = MappingProxyType(
    {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "query_string": b"",
        "root_path": "",
        "headers": (),
    }
)
"""In the place of the scope of one that was read: with a path it is all that an error's page asks for."""


@dataclass(slots=True, eq=False)
class Asked:
    """One request."""

    scope: Any
    receive: Receive
    bounds: BodyBounds
    held: tuple[AbstractContextManager[object], ...] = ()
    """What is given back once it was answered."""
    is_logged: bool = False
    """Whether a server that is not the gateway's own may write a line of it when it was answered."""
    path: str = ""
    """Of one that was let go."""
    was_read: Callable[[], object] | None = None
    """Called when the body is whole: what comes then is the client's departure."""

    def hold(self, place: AbstractContextManager[object]) -> None:
        """Until it was answered. Raises what taking it raises."""
        place.__enter__()
        self.held = (place, *self.held)

    def give_back(self) -> None:
        """It was answered, or given up: what it holds goes, the latest first."""
        held, self.held = self.held, ()
        for place in held:
            place.__exit__(None, None, None)

    def let_go(self) -> None:
        """It was read: nobody here asks for what the server has told of it any more, and its turn may take long."""
        self.bounds = NO_BOUNDS
        if not self.is_logged:
            self.scope["headers"] = ()
            self.scope.get("state", {}).clear()
            self.path, self.scope = self.scope["path"], READ

    @property
    def scope_of_page(self) -> Any:
        """What the page of an error is made for."""
        return {**READ, "path": self.path} if self.scope is READ else self.scope

    def header(self, name: bytes) -> str | None:
        """The first of that name, which is given in lower case, as the server has it."""
        for known, value in self.scope["headers"]:
            if known == name:
                found: str = value.decode("latin-1")
                return found
        return None

    @property
    def inbound(self) -> Inbound:
        """Where the server counts what the client has sent."""
        found: Inbound = (self.scope.get("state") or {}).get(INBOUND) or NoBounds()
        return found

    async def body(self) -> bytes:
        """All of it. Raises RequestEntityTooLarge, RequestTimeout and Gone."""
        bytes_max = self.bounds.bytes_max
        if bytes_max is not None and int(self.header(b"content-length") or 0) > bytes_max:
            raise RequestEntityTooLarge
        at_hand: bytes | None = (self.scope.get("state") or {}).pop(BODY, None)
        body = await self._in_time(inf if bytes_max is None else bytes_max) if at_hand is None else at_hand
        if self.was_read is not None:
            self.was_read()
        return body

    async def _in_time(self, bytes_max: float) -> bytes:
        with trio.move_on_after(self.bounds.seconds):
            return await self._read(bytes_max)
        raise RequestTimeout

    async def _read(self, bytes_max: float) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:  # noqa: ASYNC913 - it goes round only behind a message
            message = await self.receive()
            if message["type"] != "http.request":
                raise Gone
            piece = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise RequestEntityTooLarge
            if piece:
                pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
