"""A connection in memory, on whatever clock the test has: the stock server or the hardened one, any ASGI app."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import trio
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from trio.testing import memory_stream_pair

from gateway.server.hardened.connection import HardenedServer
from gateway.server.hardened.settings import HardenedConfig

App = Callable[[Any, Any, Any], Awaitable[None]]
KINDS: dict[str, type[TCPServer]] = {"stock": TCPServer, "hardened": HardenedServer}


@dataclass
class Plane:
    """What the server's connections are served on (`[server] data_plane`)."""

    is_fast: bool = False
    is_straight: bool = False
    """Whether the app takes plain POSTs for `/` straight."""


PLANE = Plane()
"""The running test's: the fixture `plane` runs a test on each."""


def socket_stream_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Two ends of a real connection, whose bytes arrive at once on any clock. It takes little before it is full."""
    ends = socket.socketpair()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    first, second = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in ends)
    return first, second


class _NoSocket:
    """What a server asks of a socket, besides bytes."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.1", 1

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.2", 80


@dataclass
class Stage:
    """One connection; `outcome` is how serving it ended."""

    client: Any
    nursery: trio.Nursery
    context: WorkerContext
    outcome: list[BaseException | None] = field(default_factory=list)
    ended: trio.Event = field(default_factory=trio.Event)

    async def say(self, data: bytes) -> bytes:
        """Send it; what comes back at once."""
        await self.client.send_all(data)
        return await self.hear()

    async def dribble(self, data: bytes, *, pieces_of: int) -> None:
        """A piece each second, until all is sent or nobody takes it."""
        with suppress(trio.BrokenResourceError):
            for at in range(0, len(data), pieces_of):
                await self.client.send_all(data[at : at + pieces_of])
                await trio.sleep(1)

    async def hear(self) -> bytes:
        """What comes at once."""
        heard = b""
        with trio.move_on_after(0.01), suppress(trio.BrokenResourceError):
            while data := await self.client.receive_some():
                heard += data
        return heard


@asynccontextmanager
async def connected(
    app: App, kind: str = "hardened", pair: Callable[[], Any] = memory_stream_pair, **settings: Any
) -> AsyncIterator[Stage]:
    """A client of the app. Leaving the block cancels what still runs. On the fast plane it has a socket."""
    config = HardenedConfig()
    config.errorlog = None
    if PLANE.is_fast and kind == "hardened":
        pair, config.is_fast = socket_stream_pair, True
    for name, value in settings.items():
        setattr(config, name, value)
    client, server_end = pair()
    if not isinstance(server_end, trio.SocketStream):
        server_end.socket = _NoSocket()
    wrapped = wrap_app(app, config.wsgi_max_body_size, "asgi")
    if PLANE.is_straight:
        cast(Any, app).straight_posts = {b"/": app}
    context = WorkerContext(None)
    server = KINDS[kind](wrapped, config, context, LifespanState(), server_end)
    try:
        async with trio.open_nursery() as nursery:
            stage = Stage(client, nursery, context)

            async def serve() -> None:
                try:
                    await server.run()
                    stage.outcome.append(None)
                except Exception as error:
                    stage.outcome.append(error)
                finally:
                    stage.ended.set()

            nursery.start_soon(serve)  # noqa: ASYNC113 - it needs no start: what a client sends waits for it
            yield stage
            nursery.cancel_scope.cancel()
    finally:
        if isinstance(client, trio.SocketStream):
            client.socket.close()


async def answering(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, answers `done`; accepts a WebSocket and echoes until its client leaves."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"]})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})
