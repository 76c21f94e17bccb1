"""What the server lets a door do with one client beside ASGI, by the names under which its ASGI state has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from gateway.core.messages import Taken

INBOUND: Final = "gateway.inbound"
"""The name under which a WebSocket's ASGI state has its `Inbound`, where the server bounds what clients send."""


class Inbound(Protocol):
    """What one client's messages hold: the server counts them as they come, and whoever is done with one says so."""

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for so many bytes more, which is then taken."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Nobody holds a message of so many bytes any more."""
        ...


LEAVING: Final = "gateway.leaving"
"""The name under which an HTTP request's ASGI state has a `WhenLeft`, where the server has one."""
WhenLeft = Callable[[Callable[[], None]], None]
"""Has what it is given called at the instant at which the client leaves; whoever asked need not receive for that."""

BODY: Final = "gateway.body"
"""The name under which an HTTP request's ASGI state has its body, if it has come whole and was not received. Whoever
reads it takes it out."""

Straight = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI app of one path: scope, receive, send."""


def straight_posts(app: object) -> Mapping[bytes, Straight]:
    """What an app answers without its own layers, and so without the server's, if the request is a plain POST for just
    this path. Its attribute of this name says so, or that of the app which it is Hypercorn's wrapper of."""
    inner = app if hasattr(app, "straight_posts") else getattr(app, "app", None)
    found: Mapping[bytes, Straight] = getattr(inner, "straight_posts", {})
    return found


DIRECT: Final = "gateway.direct"
"""The name under which an ASGI state has its `Direct`, where the server lets a door write past ASGI."""


class Direct(Protocol):
    """The short way to one client, for what is small and comes often: the body of a response whose head was sent, or
    the text messages of a WebSocket that is open. It keeps its place among all else that is written to the client."""

    async def write(self, pieces: Sequence[bytes]) -> None:
        """Write parts of the body, or one text message each (UTF-8); returns when the transport has taken them, whether
        or not that took a wait. To a client that has left they go nowhere, but it yields."""
        ...

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """The same if it takes no wait. What is taken in part goes on with the next write, an empty one too. Nothing
        is taken where anything else is being written, or the short way is not open."""
        ...
