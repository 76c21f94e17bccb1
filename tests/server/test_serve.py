"""The process's way up and down, on the virtual clock and real loopback sockets; any ASGI app will do."""

import errno
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import open_stream_to_socket_listener

from gateway.lock.virtual import virtual_run
from gateway.server.hardened.connection import NEWCOMER_SECONDS_MAX
from gateway.server.listening import CannotListen, listen, url_of
from gateway.server.place import DRAIN_MARGIN_SECONDS
from gateway.server.serve import CUT_SHORT_SECONDS_MAX, give_up_dead_peers, serve

pytestmark = pytest.mark.trio(run=virtual_run)

GET = b"GET / HTTP/1.1\r\nhost: gateway.test\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: gateway.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n\r\n"
)
PING = b"\x89\x00"
CLOSE_1012 = b"\x88\x02\x03\xf4"
DRAIN_SECONDS = 30.0
WAITING = 200


# --- the port ---------------------------------------------------------------------------------------------------


async def test_a_taken_port_is_named_with_the_fix() -> None:
    (taken,) = await listen("127.0.0.1", 0)
    async with taken:
        port = taken.socket.getsockname()[1]
        with pytest.raises(CannotListen) as raised:
            await listen("127.0.0.1", port)
    assert str(raised.value) == (
        f"cannot listen on 127.0.0.1, port {port}: Address already in use; "
        "stop what listens there, or choose another port (0 takes any free one)"
    )


async def test_an_address_of_another_machine_is_named_with_the_fix() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 192\.0\.2\.1, port 0: .*; choose an address of this"):
        await listen("192.0.2.1", 0)


class NoResolver(trio.abc.HostnameResolver):
    """Knows no name."""

    async def getaddrinfo(self, *_arguments: Any, **_options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *_arguments: Any) -> Any:
        raise NotImplementedError


async def test_a_name_that_resolves_to_nothing_is_named_with_the_fix() -> None:
    trio.socket.set_custom_hostname_resolver(NoResolver())
    with pytest.raises(CannotListen, match="Name or service not known; choose a host name that resolves, or an add"):
        await listen("gateway.invalid", 8080)


@pytest.mark.parametrize(
    ("number", "fix"),
    [(errno.EACCES, "choose a port above 1023, or give"), (errno.EMFILE, "choose another host or port")],
)
async def test_whatever_the_reason_there_is_a_fix(number: int, fix: str) -> None:
    assert fix in str(CannotListen("127.0.0.1", 80, OSError(number, "why")))


async def test_an_open_port_has_a_url() -> None:
    (listener,) = await listen("127.0.0.1", 0)
    async with listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.socket.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 on this machine")
async def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    (listener,) = await listen("::1", 0)
    async with listener:
        assert url_of(listener) == f"http://[::1]:{listener.socket.getsockname()[1]}"


async def test_accepted_sockets_give_up_dead_peers() -> None:
    """W7: the kernel does it, and hands the options on to every accepted socket."""
    (listener,) = await listen("127.0.0.1", 0)
    give_up_dead_peers(listener.socket, silent_seconds=61, ping_seconds=20)
    async with listener, await open_stream_to_socket_listener(listener), await listener.accept() as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 61_000
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20


# --- the way down -----------------------------------------------------------------------------------------------

App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass
class House:
    """What a served app has seen, with its times."""

    port: int
    seen: list[tuple[float, str]] = field(default_factory=list)
    drains: trio.Event = field(default_factory=trio.Event)
    is_cut_short: trio.Event = field(default_factory=trio.Event)
    streams: list[trio.SocketStream] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.seen.append((trio.current_time(), what))

    def drain(self) -> None:
        self.note("drain")
        self.drains.set()

    def cut_short(self) -> None:
        self.note("cut short")
        self.is_cut_short.set()

    async def say(self, request: bytes) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        await stream.send_all(request)
        return stream


@asynccontextmanager
async def served(make_app: Callable[[House], App]) -> AsyncIterator[House]:
    """The app, served until the block's end or a signal; what `serve` returned is the last thing seen."""
    listeners = await listen("127.0.0.1", 0)
    house = House(listeners[0].socket.getsockname()[1])

    async def run() -> None:
        ended = await serve(
            _with_lifespan(make_app(house)),
            listeners,
            on_drain=house.drain,
            on_cut_short=house.cut_short,
            drain_seconds=DRAIN_SECONDS,
            websocket_message_bytes_max=1000,
        )
        house.note(f"ended by itself: {ended}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield house
    for stream in house.streams:
        await stream.aclose()


async def test_the_url_is_reported_once_it_is_served() -> None:
    listeners = await listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        served_at = await nursery.start(
            partial(
                serve,
                _with_lifespan(streaming_for(0)(House(0))),
                listeners,
                on_drain=lambda: None,
                drain_seconds=DRAIN_SECONDS,
                websocket_message_bytes_max=1000,
            )
        )
        stream = await trio.open_tcp_stream("127.0.0.1", int(served_at.removeprefix("http://127.0.0.1:")))
        async with stream:
            await stream.send_all(GET)
            head = await stream.receive_some()
        signal.raise_signal(signal.SIGTERM)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"server:" not in head.lower()


def _with_lifespan(app: App) -> App:
    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            return await app(scope, receive, send)
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    return wrapped


def streaming_for(seconds: float) -> Callable[[House], App]:
    """An app whose answers take that long."""

    def make(house: House) -> App:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            try:
                await trio.sleep(seconds)
            except trio.Cancelled:
                house.note("cut")
                raise
            await send({"type": "http.response.body", "body": b"last"})
            house.note("answered")

        return app

    return make


async def read_all(stream: trio.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def test_running_answers_end_by_themselves_and_then_serving_ends() -> None:
    """T7."""
    async with served(streaming_for(20)) as house:
        stream = await house.say(GET)
        await stream.receive_some()
        await trio.sleep(5)
        signal.raise_signal(signal.SIGTERM)
        await house.drains.wait()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="all attempts to connect"):
            await house.say(GET)
        assert b"last" in await read_all(stream)
    assert house.seen == [(5, "drain"), (20, "answered"), (20, "ended by itself: True")]


async def test_who_waits_in_the_kernel_at_the_signal_is_answered() -> None:
    """T7: closing a listener resets what waits in it; these clients were accepted as far as they can tell."""
    async with served(streaming_for(0)) as house:
        await trio.sleep(1)
        waiting = [socket.create_connection(("127.0.0.1", house.port)) for _ in range(WAITING)]
        for sock in waiting:
            sock.sendall(GET)
        signal.raise_signal(signal.SIGTERM)
        for sock in waiting:
            sock.setblocking(False)
            async with trio.SocketStream(trio.socket.from_stdlib_socket(sock)) as stream:
                answer = await read_all(stream)
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert b"connection: close" in answer
        with pytest.raises(OSError, match="all attempts to connect"):
            await house.say(GET)
    assert house.seen[-1] == (1, "ended by itself: True")


async def test_a_newcomer_has_a_moment_for_its_request_and_no_more() -> None:
    """T7: its request may be on its way; one that says nothing does not hold the process."""
    async with served(streaming_for(0)) as house:
        slow, mute = await house.say(b""), await house.say(b"")
        await trio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep(0.3)
        await slow.send_all(GET)
        assert b"last" in await read_all(slow)
        assert trio.current_time() == 0.4
        assert await read_all(mute) == b""
    assert house.seen[-1] == (NEWCOMER_SECONDS_MAX, "ended by itself: True")


async def test_one_that_was_served_is_no_newcomer() -> None:
    async with served(streaming_for(0)) as house:
        stream = await house.say(GET)
        await trio.sleep(0.1)
        signal.raise_signal(signal.SIGTERM)
        assert b"last" in await read_all(stream)
    assert house.seen[-1] == (0.1, "ended by itself: True")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_with_nothing_running_serving_ends_at_once(number: signal.Signals) -> None:
    async with served(streaming_for(0)) as house:
        idle = await house.say(b"")
        await trio.sleep(1)
        signal.raise_signal(number)
        assert await read_all(idle) == b""
    assert house.seen == [(1, "drain"), (1, "ended by itself: True")]


async def test_what_outlasts_the_drain_and_its_margin_is_cut() -> None:
    async with served(streaming_for(1000)) as house:
        stream = await house.say(GET)
        await stream.receive_some()
        signal.raise_signal(signal.SIGTERM)
        await read_all(stream)
    end = DRAIN_SECONDS + DRAIN_MARGIN_SECONDS
    assert house.seen == [(0, "drain"), (end, "cut"), (end, "ended by itself: True")]


async def second_signal(house: House) -> bytes:
    """What an answer's client reads that has one signal at 0 s and another at 2 s."""
    stream = await house.say(GET)
    await trio.testing.wait_all_tasks_blocked()
    signal.raise_signal(signal.SIGTERM)
    await trio.sleep(2)
    signal.raise_signal(signal.SIGINT)
    return await read_all(stream)


async def test_what_outlasts_a_second_signal_and_a_moment_is_cut() -> None:
    """T7."""
    async with served(streaming_for(1000)) as house:
        await second_signal(house)
    end = 2 + CUT_SHORT_SECONDS_MAX
    assert house.seen == [(0, "drain"), (2, "cut short"), (end, "cut"), (end, "ended by itself: False")]


def answering_when_cut_short(house: House) -> App:
    """An app that says so when its drain is cut short, and nothing before."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await house.is_cut_short.wait()
        await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"why"})

    return app


async def test_what_ends_at_a_second_signal_is_written_and_ends_serving_at_once() -> None:
    """T7."""
    async with served(answering_when_cut_short) as house:
        answer = await second_signal(house)
    assert (answer[:12], answer[-3:]) == (b"HTTP/1.1 503", b"why")
    assert house.seen == [(0, "drain"), (2, "cut short"), (2, "ended by itself: False")]


# --- WebSockets -------------------------------------------------------------------------------------------------


def closing_at_drain(house: House) -> App:
    """A WebSocket app that closes when the house drains."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await house.drains.wait()
        await send({"type": "websocket.close", "code": 1012})

    return app


async def frames(stream: trio.SocketStream) -> Sequence[tuple[float, bytes]]:
    """What follows the handshake, with its times."""
    return [(trio.current_time(), bytes(chunk)) async for chunk in stream]


async def test_pings_leave_every_20_seconds_and_hold_nothing_back(nursery: trio.Nursery) -> None:
    """W7: Hypercorn's own would keep the process until the next one is due."""
    seen: list[tuple[float, bytes]] = []

    async def read(stream: trio.SocketStream) -> None:
        seen.extend(await frames(stream))

    async with served(closing_at_drain) as house:
        stream = await house.say(UPGRADE)
        handshake = await stream.receive_some()
        nursery.start_soon(read, stream)
        await trio.sleep(50)
        signal.raise_signal(signal.SIGTERM)
    pings = [(0.0, PING)] if not handshake.endswith(PING) else []
    assert seen == [*pings, (20, PING), (40, PING), (50, CLOSE_1012)]
    assert house.seen == [(50, "drain"), (50, "ended by itself: True")]


async def test_a_frame_above_the_doors_limit_still_reaches_the_door() -> None:
    """W1: the door answers it before it closes."""
    lengths: list[int] = []

    def measuring(house: House) -> App:
        async def app(_scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] != "websocket.disconnect":
                if message["type"] == "websocket.receive":
                    lengths.append(len(message["text"]))
                    house.drains.set()

        return app

    async with served(measuring) as house:
        stream = await house.say(UPGRADE)
        await stream.receive_some()
        await stream.send_all(b"\x81\xfe" + (1500).to_bytes(2) + bytes(4) + b"x" * 1500)
        await house.drains.wait()
        await stream.aclose()
        signal.raise_signal(signal.SIGTERM)
    assert lengths == [1500]


# --- a client that reads nothing --------------------------------------------------------------------------------


@pytest.mark.trio(run=trio.run)
async def test_a_client_that_reads_nothing_cannot_hold_the_process() -> None:
    """T6, in real time: Hypercorn shields its writes; the kernel ends them."""

    async def flood(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        with trio.move_on_after(0.2):
            while True:
                await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})

    async def run() -> None:
        await serve(
            _with_lifespan(flood),
            listeners,
            on_drain=lambda: None,
            drain_seconds=1,
            websocket_message_bytes_max=1000,
            write_seconds=0,
        )
        has_ended.set()

    has_ended = trio.Event()
    listeners = await listen("127.0.0.1", 0)
    address = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(GET)
            await trio.sleep(0.5)
            signal.raise_signal(signal.SIGTERM)
            with trio.fail_after(60):
                await has_ended.wait()
