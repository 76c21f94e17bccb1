"""A scripted WebSocket upstream: the same `Reply`s as over SSE, one frame for each event.

    Reply(steps=(event("response.created", ...), 1.5, event(...), Break()))

In memory it is the network below the real adapter (`ScriptedNetwork`), on a loopback socket a real peer
(`serve_scripted_websocket`). A connection takes its first reply as it is opened: `refuses` and `connect_seconds` are
the connect's, and a reply that is no event stream answers its handshake. Then each create takes a reply of its own; its
`head_seconds` delays its first frame. The bytes of the steps are read as SSE: a block's data becomes a text frame, one
without data a ping (both stop no clock). `Close(code)` is a close frame, `Break()` the connection's end without one,
`Raw(data)` bytes that are written as they are. After a reply that ended in a terminal event the connection waits for
the next create, which also cuts short what the script has to say behind it; after any other it closes 1000.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio
from trio.testing import memory_stream_pair
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, Request, TextMessage
from wsproto.utilities import ProtocolError

from gateway.core.events import EventClass, parse_object, read_event
from gateway.core.messages import Headers
from gateway.upstream.calls import Take
from gateway.upstream.conversation import Converse
from gateway.upstream.direct_conversation import DirectConversation
from gateway.upstream.scripted import Break, Call, Close, Raw, Reply, Script, Silence, Step, reset_on_close

BLANK_LINE: Final = re.compile(rb"(?:\r\n|\r|\n){2}")
LINE_END: Final = re.compile(rb"\r\n|\r|\n")
TEXT, CLOSE, PING = 0x81, 0x88, 0x89
READ_BYTES_MAX: Final = 65_536
FRAMING: Final = ("content-type", "content-length", "content-encoding", "transfer-encoding")


class ScriptedNetwork:
    """The network's place below a WebSocket upstream: opens a stream to the script, in memory."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def __call__(self) -> trio.abc.Stream:
        """Connect as the next reply has it. Raises OSError."""
        reply = self._script.next_reply()
        await trio.sleep(reply.connect_seconds)
        if reply.refuses:
            raise ConnectionRefusedError("connection refused")
        near, far = memory_stream_pair()
        peer = _Peer(self._script, far, reply)
        trio.lowlevel.spawn_system_task(peer.serve)
        return _NearEnd(near, peer)


class _NearEnd(trio.abc.Stream):
    """The gateway's end: what it closes is over for the upstream at once, as a cancelled HTTP body is."""

    def __init__(self, stream: trio.abc.Stream, peer: _Peer) -> None:
        self._stream = stream
        self._peer = peer

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """To the script."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Memory never blocks."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """From the script."""
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """The gateway is done with it."""
        self._peer.was_left()
        await self._stream.aclose()


class StreamSocket:
    """A stream in the place of a socket below a direct conversation (direct_conversation.Socket)."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    @property
    def has_unread(self) -> bool:
        """Its reader is woken with what comes."""
        return False

    async def receive(self) -> bytes:
        """What has come. Raises OSError."""
        try:
            return bytes(await self._stream.receive_some(READ_BYTES_MAX))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionResetError("connection reset by peer") from None

    async def pass_on(self, take: Take) -> None:
        """What comes, until `take` has enough. Raises OSError."""
        while take(await self.receive(), trio.current_time()):
            pass

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """All of it. Raises OSError."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionResetError("connection reset by peer") from None

    def close(self) -> None:
        """The gateway is done with it."""
        trio.lowlevel.spawn_system_task(trio.aclose_forcefully, self._stream)


def scripted_converse(script: Script, *, is_plain: bool = False) -> Converse:
    """Conversations with the script, on either data plane (upstream/conversation.py)."""
    return converse_over(ScriptedNetwork(script), is_plain=is_plain)


def converse_over(connect: Callable[[], Awaitable[trio.abc.Stream]], *, is_plain: bool = False) -> Converse:
    """The same over any streams."""
    if is_plain:
        from gateway.upstream.library_conversation import LibraryConversation  # the plain plane's library

        return partial(LibraryConversation, connect)

    async def dial() -> StreamSocket:
        return StreamSocket(await connect())

    return partial(DirectConversation, dial)


async def serve_scripted_websocket(
    script: Script, host: str, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the script on a real socket until cancelled; reports its port. Raises OSError if it cannot listen."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(partial(_serve_connection, script), listeners)


async def _serve_connection(script: Script, stream: trio.SocketStream) -> None:
    reply = script.next_reply()
    if reply.refuses:
        reset_on_close(stream)
        await stream.aclose()
    else:
        await _Peer(script, stream, reply).serve()


class _Peer:
    """One connection's upstream side."""

    def __init__(self, script: Script, stream: trio.abc.Stream, first: Reply) -> None:
        self._script = script
        self._stream = stream
        self._first: Reply | None = first
        self._connection = WSConnection(ConnectionType.SERVER)
        self._headers: Headers = ()
        self._call: Call | None = None
        self._creates, self._created = trio.open_memory_channel[bytes](16)
        self._writing = trio.Lock()
        self._playing = trio.CancelScope()
        self._is_finished = False

    def was_left(self) -> None:
        """The conversation is over."""
        if self._call is not None and self._call.closed_at is None:
            self._call.closed_at = trio.current_time()

    async def serve(self) -> None:
        """Until either side ends it."""
        try:
            async with self._stream:
                if await self._shake_hands():
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._read, nursery.cancel_scope)
                        await self._play_replies()
                        nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            pass
        self.was_left()

    # --- the handshake ------------------------------------------------------------------------------------------

    async def _shake_hands(self) -> bool:
        request = await self._request()
        if request is None:
            return False
        self._headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in request.extra_headers)
        reply = self._first
        if reply is not None and not _is_stream(reply):
            await self._refuse(reply)
            return False
        passed = [] if reply is None else [(n, v) for n, v in reply.headers if n.lower() not in FRAMING]
        extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in passed]
        await self._stream.send_all(self._connection.send(AcceptConnection(extra_headers=extra)))
        return True

    async def _request(self) -> Request | None:
        while True:  # noqa: ASYNC913 - it goes round only behind a read
            data = await self._stream.receive_some(READ_BYTES_MAX)
            if not data:
                return None
            self._connection.receive_data(bytes(data))
            for event in self._connection.events():
                if isinstance(event, Request):
                    return event

    async def _refuse(self, reply: Reply) -> None:
        """The reply's status, headers and body in the place of the upgrade; a body that breaks is shorter than said."""
        self._call = self._script.note_call(self._headers, b"")
        await trio.sleep(reply.head_seconds)
        body = b"".join(step for step in reply.steps if isinstance(step, bytes))
        length = len(body) + any(isinstance(step, Break | Silence) for step in reply.steps)
        lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in reply.headers)]
        head = "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode("latin-1")
        await self._stream.send_all(head + body)
        if any(isinstance(step, Silence) for step in reply.steps):
            await self._stream.receive_some(1)

    # --- replies ------------------------------------------------------------------------------------------------

    async def _read(self, scope: trio.CancelScope) -> None:
        """Creates go to the line, pings are answered, an end ends it all."""
        text = ""
        while (data := await self._receive()) != b"":
            self._connection.receive_data(bytes(data))
            for event in self._connection.events():
                if isinstance(event, Ping):
                    await self._send(self._connection.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self.was_left()
                    with suppress(ProtocolError):
                        await self._send(self._connection.send(event.response()))
                    scope.cancel()
                elif isinstance(event, TextMessage):
                    text += event.data
                    if event.message_finished:
                        self._creates.send_nowait(text.encode())
                        text = ""
                        if self._is_finished:
                            self._playing.cancel()
                elif isinstance(event, Message):
                    scope.cancel()
        scope.cancel()

    async def _receive(self) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(READ_BYTES_MAX)
        except trio.BrokenResourceError:
            return b""

    async def _play_replies(self) -> None:
        async for body in self._created:
            reply, self._first = self._first or self._script.next_reply(), None
            self._call = self._script.note_call(self._headers, body)
            self._is_finished, goes_on = False, True
            with trio.CancelScope() as self._playing:
                goes_on = await self._play(reply)
            self.was_left()
            if not goes_on:
                return

    async def _play(self, reply: Reply) -> bool:
        """Whether the connection waits for another create."""
        await trio.sleep(reply.head_seconds)
        if not _is_stream(reply):
            await self._send(_frame(TEXT, _error_frame(reply)))
            return True
        pending = b""
        for step in reply.steps:
            if isinstance(step, bytes):
                blocks, pending = _split(pending + step)
                for block in blocks:
                    await self._send_block(block)
            elif not await self._act(step):
                return False
        if pending and parse_object(_data_of(pending)) is not None:
            await self._send_block(pending)
        if not self._is_finished:
            await self._send(_close_frame(1000))
        return self._is_finished

    async def _send_block(self, block: bytes) -> None:
        """Behind a terminal event the conversation is over, whatever the script has to say."""
        data = _data_of(block)
        if _is_terminal(data):
            self._is_finished = True
            self.was_left()
        await self._send(_frame(TEXT, data) if data else _frame(PING, b"scripted"))

    async def _act(self, step: Step) -> bool:
        """A pause, an end, or bytes as they are; whether it goes on."""
        if isinstance(step, Break):
            if isinstance(self._stream, trio.SocketStream):
                reset_on_close(self._stream)
            return False
        if isinstance(step, Close):
            await self._send(_close_frame(step.code, step.reason))
            return False
        if isinstance(step, Raw):
            await self._send(step.data)
        elif isinstance(step, Silence):
            await trio.sleep_forever()
        elif isinstance(step, int | float):
            await trio.sleep(step)
        return True

    async def _send(self, data: bytes) -> None:
        async with self._writing:
            await self._stream.send_all(data)


def _is_stream(reply: Reply) -> bool:
    content = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
    encoding = next((value for name, value in reply.headers if name.lower() == "content-encoding"), "identity")
    return 200 <= reply.status <= 299 and content.lower().startswith("text/event-stream") and encoding == "identity"


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole blocks, and what is left."""
    blocks, at = [], 0
    for end in BLANK_LINE.finditer(data):
        blocks.append(data[at : end.start()])
        at = end.end()
    return blocks, data[at:]


def _data_of(block: bytes) -> bytes:
    return b"\n".join(_data_lines(block))


def _data_lines(block: bytes) -> Iterator[bytes]:
    for line in LINE_END.split(block):
        if line.startswith(b"data:"):
            yield line[5:].removeprefix(b" ")


def _is_terminal(data: bytes) -> bool:
    event = read_event(data, b"")
    return event is not None and event.kind is EventClass.TERMINAL


def _error_frame(reply: Reply) -> bytes:
    """A status as a WebSocket tells it: an `error` frame."""
    body = b"".join(step for step in reply.steps if isinstance(step, bytes))
    error = body[body.index(b":") + 1 : body.rindex(b"}")] if parse_object(body) else b"null"
    return b'{"type":"error","status":%d,"error":%s}' % (reply.status, error.strip())


def _frame(opcode: int, payload: bytes) -> bytes:
    """A server's frame, whatever the payload: unmasked, in one piece."""
    if len(payload) < 126:
        return struct.pack("!BB", opcode, len(payload)) + payload
    if len(payload) < 65_536:
        return struct.pack("!BBH", opcode, 126, len(payload)) + payload
    return struct.pack("!BBQ", opcode, 127, len(payload)) + payload


def _close_frame(code: int, reason: str = "") -> bytes:
    return _frame(CLOSE, struct.pack("!H", code) + reason.encode() if code else b"")


def frames(payloads: Sequence[bytes]) -> bytes:
    """Text frames, one behind the other."""
    return b"".join(_frame(TEXT, payload) for payload in payloads)
