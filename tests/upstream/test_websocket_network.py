"""WebSocket upstreams on real loopback sockets: TLS, resets, floods, peers that read slowly or not at all."""

from __future__ import annotations

import socket
import ssl
import tracemalloc

import pytest
import trio
import trustme
from trio_websocket import ConnectionClosed, WebSocketRequest, WebSocketServer, serve_websocket
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Ping, Pong, Request, TextMessage

from gateway import limits
from gateway.core.messages import Batch
from gateway.lock.virtual import virtual_run
from gateway.ports import Stamped, UpstreamCall
from gateway.turn.passing import OneByOne
from gateway.upstream.scripts import event, prelude, response_object
from gateway.upstream.websocket import WebSocketSettings, WebSocketUpstream
from upstream.peers import FIN, OPEN, RESET, head, raw_peer
from upstream.stage import CALL, attempt, converse_with, settle

pytestmark = pytest.mark.trio(run=virtual_run)

NEVER_SENT = ("never_sent", "upstream_connect_error")
CREATED, _ = prelude("resp_a")
COMPLETED = event("response.completed", response=response_object("resp_a", "completed"))


def payload_of(block: bytes) -> str:
    return block.split(b"data: ")[1].strip().decode()


def upstream_at(port: int, tls: ssl.SSLContext | None = None) -> WebSocketUpstream:
    """An adapter that calls a port of this machine."""
    url = f"{'http' if tls is None else 'https'}://localhost:{port}/v1"
    return WebSocketUpstream(WebSocketSettings(url), converse_with(url.replace("localhost", "127.0.0.1"), tls))


# --- connecting (F2, T3) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (b"", FIN),
        (b"", RESET),
        (b"HTTP/1.1 101 Swi", FIN),
        (b"\x00\x01 no HTTP \xff\r\n\r\n", FIN),
        (b"SSH-2.0-OpenSSH_9.6\r\n", OPEN),
        (head("x: " + "y" * 200_000), FIN),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", OPEN),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", OPEN),
        (b"HTTP/1.1 101 S\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: x\r\n\r\n", OPEN),
        (b"HTTP/1.1 100 Continue\r\n\r\n", FIN),
    ],
    ids=[
        "closed",
        "reset",
        "half a status line",
        "garbage",
        "another protocol",
        "an endless head",
        "an upgrade to nothing",
        "no accept key",
        "a wrong accept key",
        "only a 100",
    ],
)
async def test_an_answer_that_is_no_handshake_was_never_sent(answer: bytes, ending: str) -> None:
    """F2: not a byte of the create left, whatever the peer is; and nothing is raised (E8)."""
    async with raw_peer((answer, ending), reads_requests=False) as peer:
        inputs = await attempt(upstream_at(peer.port))
        await settle()
        assert (inputs.words, inputs.ended_as) == (["ended"], NEVER_SENT)
        assert (peer.connections, trio.current_time() <= limits.CONNECT_SECONDS + 0.02) == (1, True)


async def test_a_name_that_does_not_resolve_was_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """F2: and no host is named to the client."""

    async def unknown(*_arguments: object, **_options: object) -> None:
        await trio.lowlevel.checkpoint()
        raise socket.gaierror("name or service not known")

    monkeypatch.setattr(trio.socket, "getaddrinfo", unknown)
    url = "http://nowhere.test/v1"
    inputs = await attempt(WebSocketUpstream(WebSocketSettings(url), converse_with(url)))
    assert inputs.ended_as == NEVER_SENT
    assert "nowhere" not in inputs.failure.message


async def serve_tls(context: ssl.SSLContext, task_status: trio.TaskStatus[int]) -> None:
    listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
    port: int = listeners[0].transport_listener.socket.getsockname()[1]  # type: ignore[attr-defined]  # of TCP
    task_status.started(port)
    await serve_on(listeners)


async def serve_on(listeners: list[trio.SSLListener[trio.SocketStream]]) -> None:
    await WebSocketServer(answer_all, listeners).run()


async def answer_all(request: WebSocketRequest) -> None:
    """An answer to each create."""
    connection = await request.accept()
    try:
        while await connection.get_message():
            await connection.send_message(payload_of(CREATED))
            await connection.send_message(payload_of(COMPLETED))
    except ConnectionClosed:
        return


@pytest.mark.parametrize("trusts", [True, False])
async def test_tls_is_verified_before_anything_is_sent(trusts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2: a certificate that nobody vouches for is a route at fault."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("upstream.test").configure_cert(server)
    client = ssl.create_default_context()
    if trusts:
        authority.configure_trust(client)
    connect_to = trio.open_tcp_stream

    async def loopback(_host: str, port: int) -> trio.SocketStream:
        return await connect_to("127.0.0.1", port)

    monkeypatch.setattr(trio, "open_tcp_stream", loopback)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_tls, server)
        url = f"https://upstream.test:{port}/v1"
        upstream = WebSocketUpstream(WebSocketSettings(url), converse_with(url, client))
        inputs = await attempt(upstream)
        if trusts:
            assert inputs.blocks == [CREATED, COMPLETED]
            assert (await attempt(upstream)).blocks == [CREATED, COMPLETED]
            assert upstream.idle_sockets == 1
        else:
            assert inputs.ended_as == NEVER_SENT
        await upstream.aclose()
        nursery.cancel_scope.cancel()


# --- floods and slow sides (case 32, case 56) ---------------------------------------------------------------------


async def serve(handler: object, task_status: trio.TaskStatus[int]) -> None:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve_websocket, handler, "127.0.0.1", 0, None)
        task_status.started(server.port)


async def test_a_flood_of_pings_is_answered_beside_the_frames() -> None:
    """Case 32: a thousand pings between two events; each has its pong before the turn is over."""
    pongs = 0

    async def handler(request: WebSocketRequest) -> None:
        nonlocal pongs
        connection = await request.accept()
        await connection.get_message()
        await connection.send_message(payload_of(CREATED))
        for _ in range(1000):
            await connection.ping()
            pongs += 1
        await connection.send_message(payload_of(COMPLETED))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, handler)
        upstream = upstream_at(port)
        assert (await attempt(upstream)).blocks == [CREATED, COMPLETED]
        assert pongs == 1000
        await upstream.aclose()
        nursery.cancel_scope.cancel()


async def test_of_thousands_of_pings_in_one_read_the_last_have_their_pongs(plane: str) -> None:
    """Case 32; RFC 6455, 5.5.3: an answer to each would hold the loop."""
    pongs: list[bytes] = []

    async def peer(listener: trio.SocketListener) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        async with await listener.accept() as stream:
            while b"last" not in pongs:
                connection.receive_data(bytes(await stream.receive_some(65_536)))
                for got in connection.events():
                    if isinstance(got, Request):
                        await stream.send_all(connection.send(AcceptConnection()))
                    elif isinstance(got, Pong):
                        pongs.append(bytes(got.payload))
                    elif isinstance(got, TextMessage):
                        await stream.send_all(b"\x89\x00" * 8000 + b"\x89\x04last")
            await stream.send_all(connection.send(TextMessage(payload_of(COMPLETED))))

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer, listener)
        upstream = upstream_at(listener.socket.getsockname()[1])
        assert (await attempt(upstream)).words == ["opened", "response.completed"]
        assert len(pongs) < 1000 or plane == "plain"
        await upstream.aclose()
        nursery.cancel_scope.cancel()
    await listener.aclose()


async def test_pings_are_answered_while_a_client_takes_nothing() -> None:
    """Case 56: what is read ahead has room for many frames, and a ping behind them is seen."""
    was_answered = trio.Event()

    async def handler(request: WebSocketRequest) -> None:
        connection = await request.accept()
        await connection.get_message()
        for _ in range(200):
            await connection.send_message(payload_of(CREATED))
        await connection.ping()
        was_answered.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, handler)
        sending, _receiving = trio.open_memory_channel[Stamped](0)
        nursery.start_soon(upstream_at(port).attempt, CALL, OneByOne(sending))
        with trio.fail_after(5):
            await was_answered.wait()
        nursery.cancel_scope.cancel()


async def test_a_client_that_takes_nothing_stops_the_upstreams_socket() -> None:
    """Backpressure: of 64 MiB that the upstream has to say, a few are read ahead; the rest waits in its kernel."""
    sent_bytes = 0
    large = payload_of(event("response.output_text.delta", delta="x" * 65_536))

    async def handler(request: WebSocketRequest) -> None:
        nonlocal sent_bytes
        connection = await request.accept()
        await connection.get_message()
        for _ in range(1000):
            await connection.send_message(large)
            sent_bytes += len(large)

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, handler)
        sending, receiving = trio.open_memory_channel[Stamped](0)
        tracemalloc.start()
        nursery.start_soon(upstream_at(port).attempt, CALL, OneByOne(sending))
        await receiving.receive()
        await trio.sleep(30)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert sent_bytes < 16 * limits.MIB
        assert peak < 4 * limits.UPSTREAM_BUFFER_BYTES_MAX
        got = 0
        while got < 1000:
            arrived, _ = await receiving.receive()
            got += len(arrived.events) if isinstance(arrived, Batch) else 0
        nursery.cancel_scope.cancel()


async def _slow_peer(listener: trio.SocketListener, seen: list[str]) -> None:
    async with await listener.accept() as stream:
        await _read_slowly(stream, seen)


async def _read_slowly(stream: trio.SocketStream, seen: list[str]) -> None:
    """Reads a create at 1 MiB a second, pings every 2 s, gives up 4 s after a ping without a pong."""
    connection = WSConnection(ConnectionType.SERVER)
    next_ping, waiting_since, text_bytes = 2.0, float("inf"), 0
    while True:  # it ends when its test does
        connection.receive_data(bytes(await stream.receive_some(65_536)))
        await trio.sleep(1 / 16)
        for got in connection.events():
            if isinstance(got, Request):
                await stream.send_all(connection.send(AcceptConnection()))
            elif isinstance(got, Pong):
                waiting_since = float("inf")
                seen.append("pong")
            elif isinstance(got, TextMessage):
                text_bytes += len(got.data)
                if got.message_finished:
                    seen.append(f"create of {text_bytes}")
                    answer = f"{payload_of(COMPLETED)}".encode()
                    await stream.send_all(b"\x81\x7e" + len(answer).to_bytes(2, "big") + answer)
        if trio.current_time() - waiting_since > 4:
            seen.append("gave up")
            return
        if trio.current_time() >= next_ping:
            await stream.send_all(connection.send(Ping(b"x")))
            next_ping, waiting_since = next_ping + 2, min(waiting_since, trio.current_time())


async def test_pongs_go_between_the_fragments_of_a_large_create() -> None:
    """Case 32: 12 MiB over a line of 1 MiB a second, with pings every 2 s that want their pong within 4 s."""
    seen: list[str] = []
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_slow_peer, listener, seen)
        upstream = upstream_at(listener.socket.getsockname()[1])
        inputs = await attempt(upstream, UpstreamCall("turn", b"x" * (12 * limits.MIB)))
        assert inputs.words == ["opened", "response.completed"]
        assert seen.count("pong") >= 4
        assert seen[-1] == f"create of {12 * limits.MIB}"
        await upstream.aclose()
        nursery.cancel_scope.cancel()
    await listener.aclose()


async def test_an_upstream_that_neither_reads_nor_closes_is_left_at_once() -> None:
    """Case 56, H7: with a create half written, no close frame is waited for."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def accept_and_be_silent() -> None:
        connection = WSConnection(ConnectionType.SERVER)
        async with await listener.accept() as stream:
            connection.receive_data(bytes(await stream.receive_some(65_536)))
            list(connection.events())
            await stream.send_all(connection.send(AcceptConnection()))
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept_and_be_silent)
        upstream = upstream_at(listener.socket.getsockname()[1])
        with trio.move_on_after(3):
            await attempt(upstream, UpstreamCall("turn", b"x" * 30_000_000))
        assert trio.current_time() == pytest.approx(3.0, abs=0.01)
        nursery.cancel_scope.cancel()
    await listener.aclose()
