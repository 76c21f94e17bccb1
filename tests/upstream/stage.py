"""An SSE upstream on either face of a scripted one, and what an attempt on it tells its turn.

The two faces play the same `Reply`: in memory below the client (`memory`), and on a real loopback socket (`socket`).
Both run on the virtual clock.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import trio

from gateway import limits
from gateway.core.events import EventClass
from gateway.core.failures import Failure
from gateway.core.messages import AttemptEnded, Batch, Headers, Opened
from gateway.ports import Stamped, Upstream, UpstreamCall
from gateway.upstream.calls import Caller
from gateway.upstream.conversation import Converse
from gateway.upstream.direct import DirectCaller
from gateway.upstream.direct_conversation import DirectConversation, dial
from gateway.upstream.httpx_calls import HTTPXCaller
from gateway.upstream.library_conversation import LibraryConversation, StreamDial
from gateway.upstream.scripted import Reply, Script, ScriptedTransport, serve_scripted
from gateway.upstream.scripted_sockets import ScriptedDial
from gateway.upstream.scripted_websocket import scripted_converse, serve_scripted_websocket
from gateway.upstream.sse import SSESettings, SSEUpstream
from gateway.upstream.websocket import WebSocketSettings, WebSocketUpstream

FACES = ("memory", "socket")
CALL = UpstreamCall("turn", b'{"model":"gpt-test","stream":true}')
TLS = ssl.create_default_context()
FRAMING = ("transfer-encoding", "content-length", "connection", "date", "server")
"""Headers that a server adds to frame its body: only a socket has them."""


@asynccontextmanager
async def upstream_on(face: str, script: Script, **settings: Any) -> AsyncIterator[SSEUpstream]:
    """The scripted upstream behind a real adapter. Closing it ends the server."""
    async with trio.open_nursery() as nursery:
        if face == "memory":
            url = "http://upstream.test/v1"
            settled = SSESettings(url, **settings)
            upstream = SSEUpstream(settled, _scripted(url, settled.connect_seconds, script))
        else:
            port = await nursery.start(serve_scripted, script, "127.0.0.1", 0)
            upstream = upstream_at(port, **settings)
        yield upstream
        await upstream.aclose()
        nursery.cancel_scope.cancel()


class Planes:
    """How an adapter calls, and whether its turn takes what it can, unless a test says so itself
    (tests/upstream/conftest.py)."""

    chosen = "fast"
    takes_at_once = False


def _scripted(url: str, connect_seconds: float, script: Script) -> Caller:
    if Planes.chosen == "fast":
        return DirectCaller(url, connect_seconds, ScriptedDial(script))
    return HTTPXCaller(url, connect_seconds, ScriptedTransport(script))


def upstream_at(port: int, scheme: str = "http", **settings: Any) -> SSEUpstream:
    """An adapter that calls a port of this machine."""
    settled = SSESettings(f"{scheme}://127.0.0.1:{port}/v1", **settings)
    return SSEUpstream(settled, caller_at(settled.base_url, settled.connect_seconds))


def caller_at(url: str, connect_seconds: float, connections_max: int | None = None) -> Caller:
    """The real network, called in the way that is chosen."""
    if Planes.chosen == "fast":
        return DirectCaller(url, connect_seconds)
    return HTTPXCaller(url, connect_seconds, network(connections_max))


def network(connections_max: int | None = None) -> httpx2.AsyncBaseTransport:
    """The real network as the adapter uses it, but for the certificates: to read them anew for each test costs more
    than all that the test does."""
    return httpx2.AsyncHTTPTransport(verify=TLS, limits=httpx2.Limits(max_connections=connections_max))


@asynccontextmanager
async def websocket_on(face: str, script: Script, **settings: Any) -> AsyncIterator[WebSocketUpstream]:
    """The same over WebSocket."""
    async with trio.open_nursery() as nursery:
        if face == "memory":
            settled = WebSocketSettings("http://upstream.test/v1", **settings)
            upstream = WebSocketUpstream(settled, scripted_converse(script, is_plain=Planes.chosen == "plain"))
        else:
            port = await nursery.start(serve_scripted_websocket, script, "127.0.0.1", 0)
            settled = WebSocketSettings(f"http://127.0.0.1:{port}/v1", **settings)
            upstream = WebSocketUpstream(settled, converse_with(settled.base_url))
        yield upstream
        await upstream.aclose()
        nursery.cancel_scope.cancel()


def converse_with(url: str, tls: ssl.SSLContext | None = None) -> Converse:
    """Conversations over the real network, on the plane that is chosen."""
    if Planes.chosen == "plain":
        return partial(LibraryConversation, StreamDial(url, tls))
    return partial(DirectConversation, dial(url, tls))


def script_of(*replies: Reply, is_cycle: bool = False) -> Script:
    """A script by the name of `a`."""
    return Script("a", replies, is_cycle=is_cycle)


class Inputs:
    """What one attempt told its turn, with the times at which it was seen."""

    def __init__(self, stamped: Sequence[Stamped]) -> None:
        self.stamped = list(stamped)

    @property
    def words(self) -> list[str]:
        """Kinds in order, batches by their events: how a read is cut into batches is the network's."""
        return [word for arrived, _ in self.stamped for word in _words(arrived)]

    @property
    def blocks(self) -> list[bytes]:
        """The bytes of each event."""
        return [event.block for arrived, _ in self.stamped if isinstance(arrived, Batch) for event in arrived.events]

    @property
    def head(self) -> Headers:
        """The headers of the stream, less those that frame it."""
        heads = [arrived.head for arrived, _ in self.stamped if isinstance(arrived, Opened)]
        return tuple((name, value) for name, value in heads[0].headers if name not in FRAMING)

    @property
    def failure(self) -> Failure:
        """Why it ended."""
        (failure,) = [arrived.failure for arrived, _ in self.stamped if isinstance(arrived, AttemptEnded)]
        return failure

    @property
    def ended_as(self) -> tuple[str, str]:
        """The kind and code of why it ended."""
        return self.failure.kind.value, self.failure.code

    @property
    def told(self) -> tuple[list[str], list[bytes], str]:
        """All that does not depend on times or on the network's ways."""
        ends = [_ending(arrived.failure) for arrived, _ in self.stamped if isinstance(arrived, AttemptEnded)]
        return self.words, self.blocks, "".join(ends)


def _words(arrived: object) -> list[str]:
    if isinstance(arrived, Batch):
        return [event.type for event in arrived.events]
    return ["opened"] if isinstance(arrived, Opened) else ["ended"] if isinstance(arrived, AttemptEnded) else ["?"]


def _ending(failure: Failure) -> str:
    answer = failure.answer
    told = "" if answer is None else f" {answer.status} {answer.header('content-type')} {answer.body!r}"
    return f"{failure.kind.value} {failure.code} {failure.status}{told}"


async def attempt(upstream: Upstream, call: UpstreamCall = CALL) -> Inputs:
    """Run one attempt as a turn does: behind a terminal event the upstream has a moment to end its body (E9)."""
    with trio.CancelScope() as patience:
        turn = Listener(patience)
        await upstream.attempt(call, turn)
    return Inputs(turn.stamped)


class Listener:
    """A turn, as its upstream sees it (ports.Inputs): it takes output behind output at once, if that is asked for."""

    def __init__(self, patience: trio.CancelScope) -> None:
        self.stamped: list[Stamped] = []
        self.taken_at_once = 0
        self._patience = patience
        self._takes_at_once = Planes.takes_at_once
        self._has_output = False

    def take(self, batch: Batch, at: float) -> bool:
        is_output = all(event.kind is EventClass.OUTPUT for event in batch.events)
        if not (self._takes_at_once and self._has_output and is_output):
            return False
        self.taken_at_once += 1
        self.stamped.append((batch, at))
        return True

    async def send(self, value: Stamped, /) -> None:
        await trio.lowlevel.checkpoint()
        self.stamped.append(value)
        if _is_terminal(value):
            self._patience.deadline = trio.current_time() + limits.UPSTREAM_DRAIN_SECONDS_MAX
        arrived, _ = value
        self._has_output |= isinstance(arrived, Batch) and arrived.events[-1].kind is EventClass.OUTPUT


async def attempt_at(port: int, call: UpstreamCall = CALL, **settings: Any) -> Inputs:
    """One attempt on a port of this machine, by an adapter of its own."""
    upstream = upstream_at(port, **settings)
    try:
        return await attempt(upstream, call)
    finally:
        with trio.move_on_after(1, shield=True):
            await upstream.aclose()


def _is_terminal(stamped: Stamped) -> bool:
    arrived, _ = stamped
    return isinstance(arrived, Batch) and any(event.kind is EventClass.TERMINAL for event in arrived.events)


async def settle() -> None:
    """Let the server see what the client did: on a loopback socket it needs no time, but a few passes."""
    await trio.sleep(0.01)
