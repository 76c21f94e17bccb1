"""The two steps of the way down: first no new connections, then the end of those that are open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypercorn import Config

from gateway import limits
from gateway.lock.virtual import virtual_run
from gateway.server import hardened
from gateway.server.accepting import WayDown, accept_connections
from gateway.server.hardened.settings import HardenedConfig
from gateway.server.listening import listen
from gateway.server.sockets import Sockets

pytestmark = pytest.mark.trio(run=virtual_run)

GET = b"GET / HTTP/1.1\r\nhost: gateway.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: gateway.test\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Door:
    """An app that answers at once, and its way down."""

    port: int
    way_down: WayDown

    async def open(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Straight:
    """The same, which has its POSTs straight."""

    def __init__(self) -> None:
        self.straight_posts = {b"/": hello}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        assert scope["type"] == "lifespan"
        await hello(scope, receive, send)


@asynccontextmanager
async def open_door(
    sockets_max: int = limits.SOCKETS_MAX, app: Any = hello, config: Config | None = None
) -> AsyncIterator[Door]:
    """For the block, which is to take both steps."""
    listeners = await listen("127.0.0.1", 0)
    door = Door(listeners[0].socket.getsockname()[1], WayDown())
    opened = trio.Event()
    async with trio.open_nursery() as nursery:
        place = listeners, None, door.way_down
        nursery.start_soon(accept_connections, app, config or Config(), *place, opened.set, Sockets(sockets_max))
        await opened.wait()
        yield door


async def get(stream: trio.SocketStream, request: bytes = GET) -> bytes:
    await stream.send_all(request)
    answer = b""
    while not answer.endswith(b"hello"):
        answer += await stream.receive_some()
    return answer.lower()


async def test_the_first_step_refuses_new_connections_and_serves_the_open_ones() -> None:
    async with open_door() as door, await door.open() as used, await door.open() as unused:
        assert b"connection: close" not in await get(used)
        door.way_down.close()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="all attempts to connect"):
            await door.open()
        await trio.sleep(3)
        for stream in (used, unused):
            assert b"connection: close" in await get(stream)
            assert await stream.receive_some() == b""
        door.way_down.end()


async def test_an_app_that_is_asked_straight_says_so_too() -> None:
    """Without a layer that would."""
    hardened.install()
    config = HardenedConfig()
    config.is_fast = True
    async with open_door(app=Straight(), config=config) as door, await door.open() as used:
        assert b"connection: close" not in await get(used, POST)
        door.way_down.close()
        assert b"connection: close" in await get(used, POST)
        assert await used.receive_some() == b""
        door.way_down.end()


async def test_the_second_step_closes_what_idles() -> None:
    async with open_door() as door, await door.open() as idle:
        await get(idle)
        door.way_down.close()
        with trio.move_on_after(3):
            await idle.receive_some()
        assert trio.current_time() == 3
        door.way_down.end()
        assert await idle.receive_some() == b""
        assert trio.current_time() == 3


async def test_the_second_step_alone_takes_both() -> None:
    async with open_door() as door, await door.open() as idle:
        door.way_down.end()
        assert await idle.receive_some() == b""
        with pytest.raises(OSError, match="all attempts to connect"):
            await door.open()
