"""Bug cases 21, 24, 41, 54, 55 and O1 to O4 on the whole gateway behind its server.

Where time is long, the connection is in memory and the clock is virtual; where the kernel has a part, it is a socket.
"""

import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, overload

import httpx2
import pytest
import trio
from trio.testing import lockstep_stream_pair

from gateway.lock.driver import DEMO_KEY
from gateway.lock.virtual import virtual_run
from gateway.server.accepting import WayDown
from gateway.server.listening import listen
from gateway.server.place import DRAIN_MARGIN_SECONDS
from gateway.server.serve import KEEP_ALIVE_SECONDS, serve
from gateway.upstream.scripted import Reply, Script, Silence, Step, serve_scripted
from server.attacks.websocket_cases import HANDSHAKE, KEY, PATH
from server.attacks.wire import frame, request, text
from server.hardened.stage import connected
from support.gateways import DOORS, World, create, create_frame, world
from support.voices import A, repeat
from upstream.stage import network

in_memory = pytest.mark.trio(run=virtual_run)
on_sockets = pytest.mark.trio(run=trio.run)
both_doors = pytest.mark.parametrize("door", DOORS)

AUTHORIZED = f"authorization: Bearer {DEMO_KEY}"
OPENING = request(PATH, AUTHORIZED, *HANDSHAKE)
SOON_SECONDS = 5.0
WITHOUT_ADMIN = '\nmetrics_port = "off"'
FROM_A_CLIENT_THAT_DOES_NOT_READ_BYTES_MAX = 20_000_000
BODY_BYTES = 20 * 1024 * 1024
LAST_CHUNK = b"\r\n0\r\n\r\n"
HELD = A.reply(A.prelude, Silence())
SILENT_AFTER_OUTPUT = A.reply(A.prelude, A.delta(), Silence())


def post(**fields: Any) -> bytes:
    """A whole request for a turn."""
    return posted(json.dumps(create(**fields)).encode())


def posted(body: bytes) -> bytes:
    head = AUTHORIZED, "content-type: application/json", f"content-length: {len(body)}"
    return request("POST /v1/responses HTTP/1.1", *head, body=body)


def ask(door: str) -> bytes:
    """A turn through this door, from a new connection's first byte."""
    return post() if door == "http" else OPENING + text(json.dumps(create_frame()))


class Pulled(Sequence[Step]):
    """A reply's steps, and how many bytes of them were asked for: no more than that can be waiting anywhere."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Step]: ...
    def __getitem__(self, at: int | slice) -> Step | Sequence[Step]:
        return self._steps[at]

    def __iter__(self) -> Iterator[Step]:
        for step in self._steps:
            self.bytes += len(step) if isinstance(step, bytes) else 0
            yield step


def endless() -> Pulled:
    """300 MB of deltas."""
    return Pulled([A.prelude, *[A.delta("word " * 2000)] * 30_000, A.completed()])


async def read_head(stream: Any) -> bytes:
    """A response's head, and nothing behind it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = await stream.receive_some(1)
        assert byte, head
        head += byte
    return head


async def read_until(stream: Any, mark: bytes) -> bytes:
    received = b""
    with trio.fail_after(1000):
        while mark not in received:
            data = await stream.receive_some()
            assert data, received[-500:]
            received += data
    return received


async def read_on(stream: Any) -> None:
    while await stream.receive_some():
        pass


async def read_to_end(stream: Any) -> bytes:
    received = b""
    with trio.fail_after(SOON_SECONDS), suppress(trio.BrokenResourceError):  # by a reset or not
        while data := await stream.receive_some():
            received += data
    return received


async def eventually(holds: Callable[[], bool], seconds: float = SOON_SECONDS) -> None:
    with trio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110 - what it waits for has no event
            await trio.sleep(0.01)


@dataclass
class Served:
    """The gateway at a port. `running` are its app's connections."""

    world: World
    way_down: WayDown = field(default_factory=WayDown)
    port: int = 0
    running: int = 0
    is_open: trio.Event = field(default_factory=trio.Event)
    has_ended: trio.Event = field(default_factory=trio.Event)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += scope["type"] != "lifespan"
        try:
            await self.world.app(scope, receive, send)
        finally:
            self.running -= scope["type"] != "lifespan"

    async def run(self, drain_seconds: float, ping_seconds: float, write_seconds: float) -> None:
        listeners = await listen("127.0.0.1", 0)
        self.port = listeners[0].socket.getsockname()[1]
        await serve(
            self.app,
            listeners,
            on_drain=lambda: None,
            drain_seconds=drain_seconds,
            websocket_message_bytes_max=1_000_000,
            ping_seconds=ping_seconds,
            write_seconds=write_seconds,
            way_down=self.way_down,
            on_listening=self.is_open.set,
        )
        self.has_ended.set()

    async def connect(self, first: bytes, receive_buffer: int | None = None) -> trio.SocketStream:
        """A client's connection, and the first that it sends."""
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", self.port))
        stream = trio.SocketStream(sock)
        await stream.send_all(first)
        return stream

    def is_at_rest(self) -> bool:
        """No handler, no turn, no conversation with the upstream."""
        calls_are_over = all(call.closed_at is not None for call in self.world.calls)
        return calls_are_over and self.running == 0 and self.world.gateway.engine.running_turns == 0


@asynccontextmanager
async def served(
    w: World, drain_seconds: float = 1.0, ping_seconds: float = 20.0, write_seconds: float = 60.0
) -> AsyncIterator[Served]:
    """The gateway behind its server on a port, until the block ends."""
    place = Served(w)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(place.run, drain_seconds, ping_seconds, write_seconds)
        await place.is_open.wait()
        yield place
        nursery.cancel_scope.cancel()


async def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


# --- 21, O1: no limit on a whole response or request ------------------------------------------------------------


@in_memory
@both_doors
async def test_bug_21_a_stream_of_75_seconds_is_delivered_whole(door: str) -> None:
    deltas = [step for number in range(75) for step in (1.0, A.delta(f"<{number}>", number + 2))]
    w = world(A.reply(A.prelude, *deltas, A.completed(number=77)))
    async with connected(w.app) as stage:
        await stage.client.send_all(ask(door))
        received = await read_until(stage.client, LAST_CHUNK if door == "http" else b'"response.completed"')
        ended_at = trio.current_time()
        await stage.client.aclose()
        await stage.ended.wait()

    assert [received.count(f"<{number}>".encode()) for number in range(75)] == [1] * 75
    assert b"response.completed" in received
    assert ended_at == pytest.approx(75.0, abs=0.1)
    w.assert_at_rest()


@in_memory
async def test_bug_21_a_body_of_20_mib_that_takes_70_seconds_is_taken() -> None:
    body = json.dumps(create(input="x" * BODY_BYTES)).encode()
    whole = posted(body)
    w = world(A.answer())
    async with connected(w.app) as stage:
        await stage.dribble(whole, pieces_of=len(whole) // 70)
        received = await read_until(stage.client, LAST_CHUNK)

    assert received.startswith(b"HTTP/1.1 200 ")
    assert (w.called, w.calls[0].body == body) == (["a"], True)
    assert w.calls[0].at >= 70.0


@in_memory
async def test_bug_o1_no_response_timeout_cuts_a_stream() -> None:
    """Neither the library's default of 60 s nor one that is set."""
    pauses = [step for number in range(4) for step in (200.0, A.delta(f"<{number}>", number + 2))]
    w = world(A.reply(A.prelude, *pauses, A.completed(number=6)))
    w.app.config["RESPONSE_TIMEOUT"] = 2
    async with connected(w.app) as stage:
        await stage.client.send_all(post())
        received = await read_until(stage.client, LAST_CHUNK)
        ended_at = trio.current_time()

    assert [received.count(f"<{number}>".encode()) for number in range(4)] == [1] * 4
    assert b"response.completed" in received
    assert ended_at == pytest.approx(800.0, abs=0.1)


# --- 24, O3: clients that read nothing --------------------------------------------------------------------------


@in_memory
@both_doors
async def test_bug_24_a_client_that_reads_the_head_and_then_nothing_is_gone_at_the_write_timeout(door: str) -> None:
    deltas = endless()
    w = world(Reply(deltas, headers=A.headers), server="write_timeout = 30")
    async with connected(w.app, pair=lockstep_stream_pair, write_seconds=31.0) as stage:
        await stage.client.send_all(ask(door))
        await read_head(stage.client)
        await stage.ended.wait()
        ended_at = trio.current_time()

    assert ended_at == pytest.approx(30.0, abs=1.1)
    assert deltas.bytes < FROM_A_CLIENT_THAT_DOES_NOT_READ_BYTES_MAX
    assert w.called == ["a"], "not replayed"
    assert w.closed_at[0] == pytest.approx(30.0, abs=1.1)
    w.assert_at_rest()


@on_sockets
@both_doors
async def test_bug_24_on_a_socket_others_do_not_notice_and_it_is_gone(door: str) -> None:
    deltas = endless()
    w = world([Reply(deltas, headers=A.headers), A.answer()], server=f"write_timeout = 1{WITHOUT_ADMIN}")
    async with (
        served(w, write_seconds=1) as place,
        await place.connect(ask(door), receive_buffer=4096) as stalled,
    ):
        await read_head(stalled)
        await eventually(lambda: w.called == ["a"])
        async with await place.connect(post()) as other:
            with trio.fail_after(1):
                assert b"response.completed" in await read_until(other, LAST_CHUNK)
        await eventually(place.is_at_rest)
        received = await read_to_end(stalled)

    assert b"response.completed" not in received
    assert not received.endswith(LAST_CHUNK), "it cannot be taken for a whole answer"

    assert deltas.bytes < FROM_A_CLIENT_THAT_DOES_NOT_READ_BYTES_MAX
    w.assert_at_rest()


@on_sockets
@both_doors
async def test_bug_24_a_client_that_stalls_is_reset(door: str) -> None:
    """An orderly end would look like an answer's, and leave what was sent in the kernel."""
    w = world(Reply(endless(), headers=A.headers), server=f"write_timeout = 1{WITHOUT_ADMIN}")
    async with (
        served(w, write_seconds=1) as place,
        await place.connect(ask(door), receive_buffer=4096) as stalled,
    ):
        await read_head(stalled)
        await eventually(lambda: w.called == ["a"])
        await eventually(place.is_at_rest)
        with pytest.raises(trio.BrokenResourceError):
            await read_on(stalled)


@on_sockets
async def test_bug_o3_clients_that_read_nothing_do_not_block_the_shutdown() -> None:
    """One at each door: the drain's time, its margin and a moment are all that they get."""
    w = world([Reply(endless(), headers=A.headers)], server=WITHOUT_ADMIN)
    async with served(w, drain_seconds=0) as place:
        async with (
            await place.connect(ask("http"), receive_buffer=4096),
            await place.connect(ask("websocket"), receive_buffer=4096),
        ):
            await eventually(lambda: w.called == ["a", "a"])
            await trio.sleep(0.3)
            place.way_down.end()
            begun = trio.current_time()
            with trio.fail_after(SOON_SECONDS):
                await place.has_ended.wait()
            assert trio.current_time() - begun < DRAIN_MARGIN_SECONDS + 1
        assert place.is_at_rest()
    w.assert_at_rest()


# --- 41: what is no upgrade -------------------------------------------------------------------------------------

REFUSED = {
    "a plain GET": request(PATH, AUTHORIZED),
    "connection: close": request(PATH, AUTHORIZED, "connection: close", *HANDSHAKE[1:]),
    "no connection header": request(PATH, AUTHORIZED, *HANDSHAKE[1:]),
    "no upgrade header": request(PATH, AUTHORIZED, HANDSHAKE[0], *HANDSHAKE[2:]),
    "an upgrade to something else": request(PATH, AUTHORIZED, HANDSHAKE[0], "upgrade: h2c", *HANDSHAKE[2:]),
    "HTTP/1.0": request("GET /v1/responses HTTP/1.0", AUTHORIZED, *HANDSHAKE),
    "no key": request(PATH, AUTHORIZED, *HANDSHAKE[:3]),
    "version 8": request(PATH, AUTHORIZED, *HANDSHAKE[:2], "sec-websocket-version: 8", KEY),
    "no version": request(PATH, AUTHORIZED, *HANDSHAKE[:2], KEY),
}
ACCEPTED = {
    "several tokens": ("connection: keep-alive, Upgrade", *HANDSHAKE[1:]),
    "capitals": (HANDSHAKE[0], "upgrade: WebSocket", *HANDSHAKE[2:]),
}


async def answer_to(place: Served, sent: bytes) -> tuple[bytes, Any]:
    """The head, in small letters, and the error object of a refusal, which comes at once."""
    with trio.fail_after(1):
        async with await place.connect(sent) as client:
            head = (await read_head(client)).lower()
            body = b""
            length = int(head.partition(b"content-length: ")[2].split()[0])
            while len(body) < length:
                body += await client.receive_some(length - len(body))
    return head, json.loads(body)["error"]


@on_sockets
@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_bug_41_what_is_no_valid_upgrade_is_answered_426_at_once(sent: bytes) -> None:
    async with served(world(A.answer(), server=WITHOUT_ADMIN)) as place:
        head, error = await answer_to(place, sent)

    assert head.split()[1] == b"426"
    assert b"\r\nupgrade: websocket\r\n" in head
    assert b"\r\ncontent-type: application/json" in head
    assert error["code"] == "invalid_request"


@on_sockets
async def test_bug_41_another_version_is_told_the_supported_one() -> None:
    async with served(world(A.answer(), server=WITHOUT_ADMIN)) as place:
        head, _ = await answer_to(place, REFUSED["version 8"])

    assert b"\r\nsec-websocket-version: 13\r\n" in head


@on_sockets
@pytest.mark.parametrize("key", [(), ("authorization: Bearer wrong",)], ids=["no key", "a wrong key"])
async def test_bug_41_a_bad_key_is_refused_before_the_upgrade(key: Sequence[str]) -> None:
    w = world(A.answer(), server=WITHOUT_ADMIN)
    async with served(w) as place:
        head, error = await answer_to(place, request(PATH, *key, *HANDSHAKE) + text(json.dumps(create_frame())))

    assert head.split()[1] == b"401"
    assert error["code"] == "invalid_api_key"
    assert w.called == []


@on_sockets
@pytest.mark.parametrize("headers", ACCEPTED.values(), ids=ACCEPTED)
async def test_bug_41_a_valid_upgrade_in_other_words_is_one(headers: Sequence[str]) -> None:
    sent = request(PATH, AUTHORIZED, *headers)
    async with served(world(A.answer(), server=WITHOUT_ADMIN)) as place, await place.connect(sent) as client:
        assert (await read_head(client)).startswith(b"HTTP/1.1 101 ")
        await client.send_all(text(json.dumps(create_frame())))
        assert b"response.completed" in await read_until(client, b'"response.completed"')


# --- 54: cancelled requests -------------------------------------------------------------------------------------


CALLS_MIN = 20


class Redirected(httpx2.AsyncBaseTransport):
    """The real network with five places, for an upstream at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._network = network(connections_max=5)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(host="127.0.0.1", port=self._port)
        return await self._network.handle_async_request(request)

    async def aclose(self) -> None:
        await self._network.aclose()


@on_sockets
async def test_bug_54_clients_that_leave_at_any_moment_take_no_place_from_the_next_one() -> None:
    """12 at a time against five places, each gone after up to 10 or 100 ms; then one request works at once."""
    chance = random.Random(54)
    script = Script("a", [A.reply(A.created, 0.004, A.in_progress, A.delta(), Silence(), head_seconds=0.002)])
    async with trio.open_nursery() as upstream:
        port = await upstream.start(serve_scripted, script, "127.0.0.1", 0)
        w = world(A.answer(), server=WITHOUT_ADMIN, transports={"a": Redirected(port)})
        async with served(w) as place:

            async def come_and_leave() -> None:
                rounds = 0
                while rounds < 25 or len(script.calls) <= CALLS_MIN:
                    rounds += 1
                    client = await place.connect(post())
                    stay = chance.uniform(0, chance.choice([0.01, 0.1]))
                    await trio.sleep(stay * (1 + rounds // 25))  # on a machine under load few come far at first
                    await (reset(client) if chance.random() < 0.5 else client.aclose())

            async with trio.open_nursery() as clients:
                for _ in range(12):
                    clients.start_soon(come_and_leave)
            await eventually(place.is_at_rest)
            await eventually(lambda: all(call.closed_at is not None for call in script.calls))
            before = len(script.calls)

            async with await place.connect(post()) as client:
                with trio.fail_after(1):
                    assert b"output_text.delta" in await read_until(client, b"output_text.delta")
            assert len(script.calls) == before + 1
            await eventually(place.is_at_rest)
        upstream.cancel_scope.cancel()

    assert before > CALLS_MIN, "many came as far as the upstream"
    w.assert_at_rest()


# --- 55, O2: clients that leave ---------------------------------------------------------------------------------


@on_sockets
@both_doors
@pytest.mark.parametrize("reply", [HELD, SILENT_AFTER_OUTPUT], ids=["during the hold", "in silence after output"])
@pytest.mark.parametrize("leave", [reset, trio.aclose_forcefully], ids=["reset", "closed"])
async def test_bug_55_a_client_that_leaves_is_seen_at_once(door: str, reply: Reply, leave: Any) -> None:
    w = world(reply, server=WITHOUT_ADMIN)
    async with served(w) as place:
        client = await place.connect(ask(door))
        await eventually(lambda: w.called == ["a"])
        if reply is SILENT_AFTER_OUTPUT:
            await read_until(client, b"output_text.delta")
        await trio.sleep(0.05)
        assert w.closed_at == [None]
        await leave(client)
        await eventually(place.is_at_rest, 1)

    assert w.called == ["a"], "not replayed"
    w.assert_at_rest()


@on_sockets
@pytest.mark.parametrize("replies", [[A.answer(), HELD], [HELD]], ids=["in the second request", "in the first one"])
async def test_bug_55_a_client_that_has_pipelined_its_next_request_is_seen_leaving(replies: Sequence[Reply]) -> None:
    """The bytes of the second request do not hide the end behind them."""
    w = world(replies, server=WITHOUT_ADMIN)
    async with served(w) as place:
        client = await place.connect(post() + post())
        await eventually(lambda: len(w.called) == len(replies))
        await trio.sleep(0.05)
        await reset(client)
        await eventually(place.is_at_rest, 1)

    assert len(w.called) <= 2
    w.assert_at_rest()


@on_sockets
async def test_bug_o2_40_frames_to_a_busy_connection_and_then_its_end_leave_nothing_behind() -> None:
    w = world(A.reply(A.prelude, *repeat(20_000, A.delta(), 0.002)), server=WITHOUT_ADMIN)
    async with served(w) as place:
        client = await place.connect(ask("websocket"))
        await read_until(client, b"output_text.delta")
        await client.send_all(text("{}") * 40)
        await trio.sleep(0.1)
        assert (place.running, w.closed_at) == (1, [None])
        await reset(client)
        await eventually(place.is_at_rest, 1)

    w.assert_at_rest()


# --- O4: small ones ---------------------------------------------------------------------------------------------


@on_sockets
async def test_bug_o4_an_empty_binary_frame_is_answered_and_the_connection_lives() -> None:
    w = world(A.answer(), server=WITHOUT_ADMIN)
    async with served(w) as place, await place.connect(OPENING + frame(2)) as client:
        assert b'"invalid_request"' in await read_until(client, b'"invalid_request"')
        await client.send_all(text(json.dumps(create_frame())))
        assert b"response.completed" in await read_until(client, b'"response.completed"')


@on_sockets
async def test_bug_o4_a_websocket_is_pinged_and_never_compressed() -> None:
    offer = request(PATH, AUTHORIZED, *HANDSHAKE, "sec-websocket-extensions: permessage-deflate")
    async with (
        served(world(A.answer(), server=WITHOUT_ADMIN), ping_seconds=0.1) as place,
        await place.connect(offer) as client,
    ):
        head = await read_head(client)
        with trio.fail_after(1):
            assert await client.receive_some(2) == b"\x89\x00"

    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"permessage-deflate" not in head


@on_sockets
@pytest.mark.parametrize(("header_bytes", "status"), [(40_000, b"200"), (70_000, b"431")])
async def test_bug_o4_a_head_of_more_than_16_kib_is_taken_and_one_above_the_bound_refused(
    header_bytes: int, status: bytes
) -> None:
    body = json.dumps(create()).encode()
    sent = posted(body).replace(b"\r\n", b"\r\nx-large: " + b"x" * header_bytes + b"\r\n", 1)
    async with served(world(A.answer(), server=WITHOUT_ADMIN)) as place, await place.connect(sent) as client:
        assert (await read_head(client)).split()[1] == status


@in_memory
async def test_bug_o4_an_idle_connection_is_kept_for_more_than_5_seconds() -> None:
    async with connected(world(A.answer()).app, keep_alive_timeout=KEEP_ALIVE_SECONDS) as stage:
        for _ in range(2):
            await stage.client.send_all(post())
            assert b"response.completed" in await read_until(stage.client, LAST_CHUNK)
            await trio.sleep(60)
