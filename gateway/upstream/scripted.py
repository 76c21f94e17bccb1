"""A scripted upstream: plays replies on the current clock, in memory or on a loopback socket.

In memory it replaces the network below the real adapter (`ScriptedTransport`), so that what is tested is what runs; on
a socket (`serve_scripted`) it is a real HTTP/1.1 peer for the demo and for clients. Both play the same `Reply`s:

    Reply(steps=(event("response.created", ...), 1.5, event(...), Break()))

A step is bytes to send, seconds to wait, `Silence()` for ever, or `Break()`, a reset. After the last step the body ends
cleanly. A `Script` hands out its replies in order and keeps the last one; `is_cycle` starts again at the first.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import h11
import httpx2
import trio

from gateway import limits
from gateway.core.events import EventClass
from gateway.core.messages import Headers
from gateway.core.sse import SSEParser
from gateway.core.whole import bare_response

EVENT_STREAM: Final[Headers] = (("content-type", "text/event-stream; charset=utf-8"),)
TURN_PATH: Final = "/v1/responses"
JSON_BODY: Final[Headers] = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Break:
    """The connection is reset here."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing more comes, and the connection stays open."""


@dataclass(frozen=True, slots=True)
class Close:
    """A WebSocket is closed with this code, 0 for none; over HTTP the body ends."""

    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes on a WebSocket's wire, whatever they are; HTTP has no use for them."""

    data: bytes


Step = bytes | float | Break | Silence | Close | Raw


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `refuses` fails the connect; `connect_seconds` delays it (in memory); `head_seconds` delays the
    status line. An event stream is told in one JSON body to who asks for one (H1), unless it `is_verbatim`."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Headers = EVENT_STREAM
    refuses: bool = False
    connect_seconds: float = 0.0
    head_seconds: float = 0.0
    is_verbatim: bool = False


@dataclass(slots=True)
class Call:
    """What was asked of the upstream, and when; `closed_at` is when the conversation was over for it."""

    upstream: str
    at: float
    headers: Headers
    body: bytes = field(repr=False)
    closed_at: float | None = None
    method: str = "POST"
    path: str = TURN_PATH
    """With its query."""

    @property
    def fields(self) -> dict[str, Any]:
        """The body as an object."""
        value = json.loads(self.body)
        return value if isinstance(value, dict) else {}


class Script:
    """An upstream's replies and the calls it got."""

    def __init__(self, name: str, replies: Sequence[Reply], *, is_cycle: bool = False) -> None:
        if not replies:
            raise ValueError(f"the script of {name!r} has no replies")
        self.name = name
        self.calls: list[Call] = []
        self._replies = tuple(replies)
        self._is_cycle = is_cycle
        self._played = 0

    def __repr__(self) -> str:
        return f"<Script {self.name}, {len(self.calls)} calls>"

    def next_reply(self) -> Reply:
        """The reply to the next call."""
        index = self._played % len(self._replies) if self._is_cycle else min(self._played, len(self._replies) - 1)
        self._played += 1
        return self._replies[index]

    def note_call(self, headers: Headers, body: bytes, *, method: str = "POST", path: str = TURN_PATH) -> Call:
        """A call came in."""
        call = Call(self.name, trio.current_time(), headers, body, method=method, path=path)
        self.calls.append(call)
        return call


def as_asked(reply: Reply, call: Call) -> Reply:
    """H1: a caller that takes no events gets the terminal one's response, at its time, or an `error` in its place."""
    is_stream = reply.status == 200 and dict(reply.headers).get("content-type", "").startswith("text/event-stream")
    if reply.is_verbatim or not is_stream or ("accept", "application/json") not in call.headers:
        return reply
    kept = tuple((name, value) for name, value in reply.headers if name != "content-type")
    return replace(reply, steps=tuple(_whole_steps(reply.steps)), headers=(*JSON_BODY, *kept))


def _whole_steps(steps: Sequence[Step]) -> Iterator[Step]:
    parser, told = SSEParser(limits.EVENT_BYTES_MAX), b""
    for step in steps:
        if not isinstance(step, bytes):
            yield step
            continue
        parser.receive_data(step)
        while (event := parser.next_event()) is not None:
            if event.kind is EventClass.TERMINAL:
                yield bare_response(event)
                told = b""
            elif event.kind is EventClass.ERROR:
                told = event.data
    if told:
        yield told


# --- in memory --------------------------------------------------------------------------------------------------


class ScriptedTransport(httpx2.AsyncBaseTransport):
    """The network's place below an httpx2 client."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Play the next reply."""
        reply = self._script.next_reply()
        await self._connect(request, reply)
        body = await request.aread()
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
        path = request.url.raw_path.decode("ascii")
        call = self._script.note_call(headers, body, method=request.method, path=path)
        reply = as_asked(reply, call)
        try:
            await trio.sleep(reply.head_seconds)
        except trio.Cancelled:
            call.closed_at = trio.current_time()
            raise
        return httpx2.Response(
            reply.status, headers=_encoded(reply.headers), stream=_ScriptedBody(reply.steps, call), request=request
        )

    async def _connect(self, request: httpx2.Request, reply: Reply) -> None:
        limit = request.extensions.get("timeout", {}).get("connect")
        with trio.move_on_after(float("inf") if limit is None else limit) as scope:
            await trio.sleep(reply.connect_seconds)
        if scope.cancelled_caught:
            raise httpx2.ConnectTimeout("the connect took too long", request=request)
        if reply.refuses:
            raise httpx2.ConnectError("connection refused", request=request)


class _ScriptedBody(httpx2.AsyncByteStream):
    def __init__(self, steps: Sequence[Step], call: Call) -> None:
        self._steps = steps
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - httpx2's own interface; nothing is held over a yield
        for step in self._steps:
            if isinstance(step, bytes):
                await trio.lowlevel.checkpoint()
                yield step
            elif isinstance(step, Break):
                raise httpx2.ReadError("connection reset by peer")
            elif isinstance(step, Close):
                return
            else:
                await _pause(step)

    async def aclose(self) -> None:
        """The gateway is done with it."""
        if self._call.closed_at is None:
            self._call.closed_at = trio.current_time()


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    """As they go over the wire: any byte of latin-1."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _pause(step: float | Silence | Raw) -> None:
    if isinstance(step, Silence):
        await trio.sleep_forever()
    elif not isinstance(step, Raw):
        await trio.sleep(step)


# --- on a loopback socket ---------------------------------------------------------------------------------------

READ_BYTES_MAX: Final = 65_536
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing sends a reset."""


async def serve_scripted(
    script: Script, host: str, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the script on a real socket until cancelled; reports its port. Raises OSError if it cannot listen."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(partial(_serve_connection, script), listeners)


async def _serve_connection(script: Script, stream: trio.SocketStream) -> None:
    connection = h11.Connection(h11.SERVER)
    async with stream:
        try:
            while await _serve_request(script, stream, connection):
                connection.start_next_cycle()
        except (h11.ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
            return


async def _serve_request(script: Script, stream: trio.SocketStream, connection: h11.Connection) -> bool:
    """Answer one request; whether the connection can serve another."""
    request = await _receive_request(stream, connection)
    if request is None:
        return False
    headers, body, method, path = request
    call = script.note_call(headers, body, method=method, path=path)
    reply = as_asked(script.next_reply(), call)
    is_whole = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_peer_leaves, stream, nursery.cancel_scope)
        with suppress(trio.BrokenResourceError, h11.LocalProtocolError):  # the peer left, or the reply is a broken one
            is_whole = await _play(reply, stream, connection)
        nursery.cancel_scope.cancel()
    call.closed_at = trio.current_time()
    return is_whole and connection.our_state is h11.DONE and connection.their_state is h11.DONE


async def _receive_request(
    stream: trio.SocketStream, connection: h11.Connection
) -> tuple[Headers, bytes, str, str] | None:
    """Headers, body, method and path; None if the connection ended before."""
    head: h11.Request | None = None
    body = bytearray()
    while True:  # noqa: ASYNC913 - without data it waits, with data it advances
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(READ_BYTES_MAX))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
            return headers, bytes(body), head.method.decode("ascii"), head.target.decode("latin-1")
        else:
            return None


async def _until_peer_leaves(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    """A peer that closes ends the reply; one that sends early is not listened to."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stream.receive_some(1)
    scope.cancel()


async def _play(reply: Reply, stream: trio.SocketStream, connection: h11.Connection) -> bool:
    if reply.refuses:
        reset_on_close(stream)
        return False
    await trio.sleep(reply.head_seconds)
    await _send(stream, connection, h11.Response(status_code=reply.status, headers=_encoded(reply.headers)))
    for step in reply.steps:
        if isinstance(step, bytes):
            await _send(stream, connection, h11.Data(data=step))
        elif isinstance(step, Break):
            reset_on_close(stream)
            return False
        elif isinstance(step, Close):
            break
        else:
            await _pause(step)
    await _send(stream, connection, h11.EndOfMessage())
    return True


async def _send(stream: trio.SocketStream, connection: h11.Connection, event: h11.Event) -> None:
    data = connection.send(event)
    if data:
        await stream.send_all(data)


def reset_on_close(stream: trio.SocketStream) -> None:
    """Its close is a reset."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
