"""A scripted upstream's connections in memory, below `direct.DirectCaller`: the same `Reply`s as over a real network.

A connection serves one call, and says so: whatever the next reply is, it is told by a connection of its own. What it
reads is HTTP/1.1 to the byte, and so is what it says: a head, then each step's bytes as a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final

import h11
import trio

from gateway.upstream.calls import Take
from gateway.upstream.scripted import Break, Call, Close, Raw, Reply, Script, Silence, Step, as_asked

OWN_FRAMING: Final = ("content-length", "transfer-encoding", "connection")
LAST_CHUNK: Final = b"0\r\n\r\n"


class ScriptedDial:
    """The network's place below a direct caller (direct.Dial)."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def __call__(self) -> ScriptedSocket:
        """Connect as the next reply has it. Raises OSError."""
        reply = self._script.next_reply()
        await trio.sleep(reply.connect_seconds)
        if reply.refuses:
            raise ConnectionRefusedError("connection refused")
        return ScriptedSocket(self._script, reply)


class ScriptedSocket:
    """One connection, for one call (direct.Socket)."""

    def __init__(self, script: Script, reply: Reply) -> None:
        self._script = script
        self._reply = reply
        self._request = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._call: Call | None = None
        self._pieces: Iterator[Step] = iter(())

    @property
    def is_quiet(self) -> bool:
        """It serves no second call."""
        return False

    async def send_all(self, data: bytes | memoryview) -> bool:
        """The request, in any pieces."""
        await trio.lowlevel.checkpoint()
        self._request.receive_data(bytes(data))
        while (event := self._request.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage) and self._head is not None:
                self._was_called(self._head)
        return True

    def _was_called(self, head: h11.Request) -> None:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        method, path = head.method.decode("ascii"), head.target.decode("ascii")
        self._call = self._script.note_call(headers, bytes(self._body), method=method, path=path)
        self._pieces = _pieces(as_asked(self._reply, self._call))

    async def receive(self) -> bytes:
        """What the script says next. Raises OSError."""
        for step in self._pieces:
            if isinstance(step, bytes):
                await trio.lowlevel.checkpoint()
                return step
            if isinstance(step, Break):
                raise ConnectionResetError("connection reset by peer")
            if isinstance(step, Silence):
                await trio.sleep_forever()
            elif isinstance(step, int | float):
                await trio.sleep(step)
        await trio.lowlevel.checkpoint()
        return b""

    async def pass_on(self, take: Take) -> None:
        """What the script says, until `take` has enough. Raises OSError."""
        while take(await self.receive(), trio.current_time()):
            pass

    def close(self) -> None:
        """The gateway is done with it."""
        if self._call is not None and self._call.closed_at is None:
            self._call.closed_at = trio.current_time()


def _pieces(reply: Reply) -> Iterator[Step]:
    """The answer, framed. A `Close` ends it, as a body's end does."""
    yield reply.head_seconds
    yield _head(reply)
    for step in reply.steps:
        if isinstance(step, Close):
            break
        if isinstance(step, bytes):
            if step:
                yield b"%x\r\n%b\r\n" % (len(step), step)
        elif not isinstance(step, Raw):
            yield step
    yield LAST_CHUNK


def _head(reply: Reply) -> bytes:
    phrase = HTTPStatus(reply.status).phrase if reply.status in set(HTTPStatus) else "Scripted"
    passed: Sequence[tuple[str, str]] = [pair for pair in reply.headers if pair[0].lower() not in OWN_FRAMING]
    own = (("transfer-encoding", "chunked"), ("connection", "close"))
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in (*passed, *own)), "", ""]
    return "\r\n".join(lines).encode("latin-1")
