"""No more TCP connections than the bound: one beyond it gets a whole answer, or at least its end, and takes nothing."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
from hypercorn import Config

from gateway.lock.virtual import virtual_run
from gateway.server import sockets
from gateway.server.sockets import Sockets
from server.test_accepting import get, open_door

pytestmark = pytest.mark.trio(run=virtual_run)


async def all_of(stream: trio.SocketStream) -> bytes:
    return b"".join([piece async for piece in stream])


async def test_at_the_bound_all_are_served_and_one_beyond_is_told_and_closed() -> None:
    async with open_door(sockets_max=2) as door, await door.open() as one, await door.open() as two:
        assert [(await get(stream))[:12] for stream in (one, two)] == [b"http/1.1 200"] * 2
        async with await door.open() as beyond:
            head, _, body = (await all_of(beyond)).partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
        assert {b"retry-after: 1", b"connection: close", b"content-length: %d" % len(body)} < set(lines)
        error = json.loads(body)["error"]
        assert (error["code"], error["type"]) == ("too_many_turns", "service_unavailable_error")
        assert (error["retryable"], error["retry_after"]) == (True, 1)
        assert b"200" in await get(one)
        door.way_down.end()


async def test_a_place_that_was_freed_is_taken_again() -> None:
    async with open_door(sockets_max=1) as door:
        for _ in range(3):
            async with await door.open() as stream:
                assert b"200" in await get(stream)
                async with await door.open() as beyond:
                    assert b" 503 " in await all_of(beyond)
            await trio.sleep(2 * Config().keep_alive_timeout)  # Hypercorn that is not hardened keeps it that long
        door.way_down.end()


async def test_a_place_is_freed_however_its_connection_ends() -> None:
    async def fail(_: object) -> None:
        raise OSError("gone")

    async def last(_: object) -> None:
        await trio.sleep_forever()

    bound = Sockets(1)
    async with socket_pair() as (ours, _):
        with pytest.raises(OSError, match="gone"):
            await bound.serve(fail, ours)
        with trio.move_on_after(1):
            await bound.serve(last, ours)
        assert repr(bound) == "<Sockets, 0 of 1>"


async def test_a_refused_peer_that_stays_is_waited_for_a_moment_only() -> None:
    async with socket_pair() as (ours, _):
        await Sockets(0).serve(unserved, ours)
        assert trio.current_time() == sockets.REFUSING_SECONDS_MAX


async def test_a_refused_peer_that_still_sends_gets_its_answer() -> None:
    async with socket_pair() as (ours, theirs), trio.open_nursery() as nursery:
        await theirs.send_all(b"x" * 100_000)
        nursery.start_soon(Sockets(0).serve, unserved, ours)
        assert b"too_many_turns" in await all_of(theirs)
        await theirs.aclose()


async def test_more_refused_peers_than_may_be_answered_are_just_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "REFUSING_MAX", 1)
    bound = Sockets(0)
    async with socket_pair() as (one, _), socket_pair() as (two, _), trio.open_nursery() as nursery:
        nursery.start_soon(bound.serve, unserved, one)
        await trio.testing.wait_all_tasks_blocked()
        await bound.serve(unserved, two)
        assert trio.current_time() == 0


async def test_a_refused_tls_peer_is_just_closed() -> None:
    async with socket_pair() as (ours, _):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        await Sockets(0).serve(unserved, trio.SSLStream(ours, context, server_side=True))
        assert trio.current_time() == 0


async def test_a_flood_is_one_line_a_second() -> None:
    bound = Sockets(0)
    with structlog.testing.capture_logs() as lines:
        for wait in (0, 0, 0, 1):
            async with socket_pair() as (ours, theirs):
                await theirs.aclose()
                await trio.sleep(wait)
                await bound.serve(unserved, ours)
    assert [(line["event"], line["refused"]) for line in lines] == [("sockets_refused", 1), ("sockets_refused", 3)]


async def unserved(_: object) -> None:
    raise AssertionError("it was served")


@asynccontextmanager
async def socket_pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Both ends of a connection on loopback."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        theirs = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        ours = await listener.accept()
    async with ours, theirs:
        yield ours, theirs
