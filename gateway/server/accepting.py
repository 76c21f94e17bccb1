"""Accepting connections for an ASGI app: what Hypercorn's own serving loop does, but for its end, which has two steps.

    open ---closing---> no connection is accepted any more; those that are open are served, and told to come anew
         ---ending----> connections that idle are closed, the others have the configured time to finish
         ------------->  the app's lifespan ends

Hypercorn takes both steps at one instant, and so closes connections that were accepted an instant ago, whose request is
still on its way. A worker that is being replaced leaves time between the two: its successor accepts from the same
sockets, so that nobody notices. Where both are taken at once there is no successor: what the kernel has accepted by
then is taken in before the listener closes, which would reset it, and gets its answer; so does who has come just before
(`NEWCOMER_SECONDS_MAX` of hardened/connection.py).
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import hypercorn.trio.run
import structlog
import trio
from hypercorn import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.typing import ConnectionState, LifespanState
from hypercorn.utils import wrap_app

from gateway import limits
from gateway.beside_asgi import straight_posts
from gateway.server.descriptors import Shortage
from gateway.server.hardened.connection import NEWCOMER_SECONDS_MAX
from gateway.server.hardened.context import TellingContext
from gateway.server.sockets import Sockets

logger = structlog.get_logger("gateway.server")

HANDSHAKE_SECONDS_MAX: Final = 10.0
"""A handshake takes two round trips; a peer that is slower than this is none."""

WAITING_MAX: Final = 4096
"""Beyond what the kernel keeps of them (net.core.somaxconn): taking them in ends, whoever else comes."""

Listener = trio.abc.Listener[trio.SocketStream] | trio.SSLListener[trio.SocketStream]
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
ServeOne = Callable[[Any], Awaitable[None]]


@dataclass(eq=False)
class WayDown:
    """The two steps of the end."""

    closing: trio.Event = field(default_factory=trio.Event)
    ending: trio.Event = field(default_factory=trio.Event)
    is_without_successor: bool = False
    """Both steps were taken at once: nobody else will accept what waits."""
    is_cut_short: bool = False
    """A second signal: nothing has the time any more to end by itself."""

    def close(self) -> None:
        """Accept no more connections."""
        self.closing.set()

    def end(self) -> None:
        """Close what idles, and give the rest its time. Without the first step before it, it takes both."""
        self.is_without_successor = not self.closing.is_set()
        self.closing.set()
        self.ending.set()


async def accept_connections(
    app: Any,
    config: Config,
    listeners: Sequence[trio.SocketListener],
    tls: ssl.SSLContext | None,
    way_down: WayDown,
    on_open: Callable[[], None],
    sockets: Sockets | None = None,
) -> None:
    """Serve `app` at the listeners, which are closed on the way down, until the end's two steps have been taken.
    `on_open` is called when the app has started. Connections for which `sockets` has no place are turned away."""
    wrapped = wrap_app(WholeAnswers(app, way_down.closing), config.wsgi_max_body_size, "asgi")
    state = LifespanState()
    lifespan = Lifespan(wrapped, config, state)
    async with trio.open_nursery() as living:
        await living.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        context = TellingContext(way_down.closing)
        # Looked up when it serves: the hardening puts its own under this name.
        server = hypercorn.trio.run.TCPServer  # type: ignore[attr-defined]  # an import of its, see above
        serve_one = partial(
            _serve_one, partial(server, wrapped, config, context, ConnectionState(state.copy())), way_down
        )
        serve_bounded = partial((sockets or Sockets(limits.SOCKETS_MAX)).serve, serve_one)
        async with trio.open_nursery() as watched:
            watched.start_soon(context.watch)
            async with trio.open_nursery() as connections:
                on_open()
                await _accept(serve_bounded, listeners, tls, connections, way_down)
                await way_down.ending.wait()
                await context.terminated.set()
                context.end()
                watched.cancel_scope.deadline = trio.current_time() + config.graceful_timeout
            watched.cancel_scope.cancel()
        await lifespan.wait_for_shutdown()
        living.cancel_scope.cancel()


class WholeAnswers:
    """The app, but for two things at an answer's ends. From `closing` on its head says that it is the connection's
    last: a client that knows it does not send its next request into a connection that is about to close. And its last
    piece is not cancelled: within that call Hypercorn tells the app of the disconnect, and only then makes the
    connection ready for its next request or closes it; an app that ended itself on the news would cut that off, and
    leave a connection that serves nobody and never idles. Where no layer of Hypercorn's is, the server sees to both."""

    def __init__(self, app: Any, closing: trio.Event) -> None:
        self._app = app
        self._closing = closing
        self.straight_posts = straight_posts(app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""

        async def send_whole(message: Any) -> None:
            if message["type"] == "http.response.start" and self._closing.is_set():
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                with trio.CancelScope(shield=True):  # writes and closes have their own bounds
                    await send(message)
            else:
                await send(message)

        await self._app(scope, receive, send_whole)


async def _accept(
    serve_one: ServeOne,
    listeners: Sequence[trio.SocketListener],
    tls: ssl.SSLContext | None,
    connections: trio.Nursery,
    way_down: WayDown,
) -> None:
    """Until the first step. Then the listeners are closed; what waits in them is a successor's, or is served first."""
    try:
        async with trio.open_nursery() as accepting:
            for listener in listeners:
                kept = _with_tls(KeptOpen(listener), tls)
                serve = partial(trio.serve_listeners, serve_one, [kept], handler_nursery=connections)
                accepting.start_soon(serve)
            await way_down.closing.wait()
            accepting.cancel_scope.cancel()
        for listener in listeners if way_down.is_without_successor else ():
            for stream in _waiting_at(listener):
                connections.start_soon(_serve_and_close, serve_one, _over_tls(stream, tls))
    finally:
        for listener in listeners:
            listener.socket.close()


class KeptOpen(trio.abc.Listener[trio.SocketStream]):
    """A listener that outlives whoever accepts from it: closing it is somebody else's."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self._shortage = Shortage()

    async def accept(self) -> trio.SocketStream:
        """The next connection, once there is a descriptor for it."""
        while True:
            try:
                return await self._listener.accept()
            except OSError as error:
                await self._shortage.wait(error)

    async def aclose(self) -> None:
        """Nothing."""
        await trio.lowlevel.checkpoint()


def _waiting_at(listener: trio.SocketListener) -> Iterator[trio.SocketStream]:
    """What the kernel has accepted, without a wait. Meanwhile it accepts no more, so that few come behind."""
    with socket.socket(fileno=os.dup(listener.socket.fileno())) as sock:
        sock.listen(0)
        for _ in range(WAITING_MAX):
            try:
                accepted, _ = sock.accept()
            except OSError:  # none is left, or no descriptor for one
                return
            accepted.setblocking(False)
            yield trio.SocketStream(trio.socket.from_stdlib_socket(accepted))


async def _serve_and_close(serve_one: ServeOne, stream: Stream) -> None:
    """As Trio serves what it accepts."""
    try:
        await serve_one(stream)
    finally:
        await trio.aclose_forcefully(stream)  # noqa: ASYNC102 - it does not wait


def _serve_one(serve: ServeOne, way_down: WayDown, stream: Stream) -> Awaitable[None]:
    return _serve_secured(serve, way_down, stream) if isinstance(stream, trio.SSLStream) else serve(stream)


async def _serve_secured(serve: ServeOne, way_down: WayDown, stream: trio.SSLStream[trio.SocketStream]) -> None:
    """A peer that has not shaken hands yet is nobody to wait for: its handshake ends with the process's way down."""
    if await _shake_hands(stream, way_down.ending):
        await serve(stream)
    else:
        await trio.aclose_forcefully(stream)


async def _shake_hands(stream: trio.SSLStream[trio.SocketStream], ending: trio.Event) -> bool:
    """Whether the handshake was done in time; at the end, in what every newcomer has then."""
    is_done = False
    begun = trio.current_time()
    with trio.move_on_after(HANDSHAKE_SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at, ending, nursery.cancel_scope, begun + NEWCOMER_SECONDS_MAX)
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError as error:
                logger.debug("handshake_failed", error=repr(error.__cause__)[:200])
            else:
                is_done = True
            nursery.cancel_scope.cancel()
    return is_done


async def _cancel_at(event: trio.Event, scope: trio.CancelScope, soonest: float) -> None:
    await event.wait()
    scope.deadline = min(scope.deadline, soonest)


def _with_tls(listener: trio.abc.Listener[trio.SocketStream], tls: ssl.SSLContext | None) -> Listener:
    """HTTPS ends without TLS's own goodbye in practice: the framing of HTTP tells a cut message."""
    return listener if tls is None else trio.SSLListener(listener, tls, https_compatible=True)


def _over_tls(stream: trio.SocketStream, tls: ssl.SSLContext | None) -> Stream:
    return stream if tls is None else trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
