"""TLS: HTTP/1.1 is all that is offered, and a peer that takes nothing is dropped there, too."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hypercorn.config
import pytest
import trio
import trustme
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from trio.testing import open_stream_to_socket_listener

from gateway.beside_asgi import DIRECT
from gateway.server import hardened
from gateway.server.hardened.connection import HardenedServer
from gateway.server.hardened.settings import HardenedConfig
from server.attacks.wire import request
from server.hardened.test_framing import received_by_h11

HOST = "gateway.test"
POURED = [b"%d" % number * 1000 for number in range(200)]


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's, made as Hypercorn makes one, and a client's that would rather speak HTTP/2."""
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(HOST).configure_cert(server)
    authority.configure_trust(client)
    hardened.install()
    server.set_alpn_protocols(hypercorn.config.Config().alpn_protocols)
    client.set_alpn_protocols(["h2", "http/1.1"])
    return server, client


async def flood(_scope: Any, _receive: Any, send: Any) -> None:
    """Sends until nobody takes it."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(100):
        await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})


async def pour(scope: Any, _receive: Any, send: Any) -> None:
    """Sends all it has the short way."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in POURED:
        await scope["state"][DIRECT].write((piece,))
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def encrypted(
    has_ended: trio.Event, app: Any = flood, *, is_fast: bool = True
) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    """A client of the app on real sockets, its handshake done; the event is set when its connection has ended."""
    server, client = contexts()
    config = HardenedConfig()
    config.write_seconds, config.errorlog, config.is_fast = 0.5, None, is_fast

    async def serve(stream: Any) -> None:
        wrapped: Any = wrap_app(app, config.wsgi_max_body_size, "asgi")
        await HardenedServer(wrapped, config, WorkerContext(None), LifespanState(), stream)
        has_ended.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_ssl_over_tcp_listeners(0, server, host="127.0.0.1", https_compatible=True)
            nursery.start_soon(trio.serve_listeners, serve, listeners)  # noqa: ASYNC113 - the sockets listen already
            listener: Any = listeners[0].transport_listener
            tcp = await open_stream_to_socket_listener(listener)
            stream = trio.SSLStream(tcp, client, server_hostname=HOST, https_compatible=True)
            await stream.do_handshake()
            yield stream
            await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.trio(run=trio.run)
async def test_http1_is_agreed_on_and_a_stalled_peer_is_dropped(is_fast: bool) -> None:
    """T6, on real sockets."""
    has_ended = trio.Event()
    async with encrypted(has_ended, is_fast=is_fast) as stream:
        assert stream.selected_alpn_protocol() == "http/1.1"
        await stream.send_all(request("GET / HTTP/1.1"))
        await has_ended.wait()


@pytest.mark.trio(run=trio.run)
async def test_what_goes_the_short_way_is_encrypted_too() -> None:
    """Its bytes are framed as ever, and TLS has them to itself: nothing is written past it."""
    async with encrypted(trio.Event(), pour) as stream:
        await stream.send_all(request("GET / HTTP/1.1", "connection: close"))
        answer = b"".join([piece async for piece in stream])
    assert received_by_h11(answer, []) == (b"".join(POURED), True)


@pytest.mark.trio(run=trio.run)
async def test_a_refused_peer_sees_the_end_of_its_answer_at_once() -> None:
    """And not when the moment is over in which it is read."""
    has_ended = trio.Event()
    async with encrypted(has_ended) as stream:
        await stream.send_all(b"garbage\r\n\r\n")
        answer = b"".join([piece async for piece in stream])
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert not has_ended.is_set()
