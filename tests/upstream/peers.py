"""A peer on a loopback socket that answers with exactly the bytes it is told, however wrong they are."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import trio

FIN, RESET, OPEN = "fin", "reset", "open"
"""How an answer ends: a clean close, a reset, or neither: the connection stays for the next request."""


@dataclass(frozen=True, slots=True)
class Late:
    """An answer that ends with more bytes, so many seconds later; then the connection stays open."""

    seconds: float
    data: bytes


Ending = str | Late

REQUEST_BYTES_MAX = 100_000


@dataclass
class RawPeer:
    """Each answer is bytes to send for one request, and how it ends. The last one is given again and again."""

    answers: Sequence[tuple[bytes, Ending]]
    reads_requests: bool = True
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    port: int = 0

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._converse, listeners)

    async def _converse(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open_connections += 1
        with suppress(trio.BrokenResourceError), stream.socket:
            goes_on = True
            while goes_on:
                goes_on = await self._answer(stream)
        self.open_connections -= 1

    async def _answer(self, stream: trio.SocketStream) -> bool:
        """Whether the connection goes on."""
        request = await _read_request(stream) if self.reads_requests else b"unread"
        if request is None:
            return False
        answer, ending = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        await stream.send_all(answer)
        if isinstance(ending, Late):
            await trio.sleep(ending.seconds)
            await stream.send_all(ending.data)
            return True
        if ending == RESET:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return ending == OPEN


async def _read_request(stream: trio.SocketStream) -> bytes | None:
    """A whole request with its `content-length` body; None when the client has closed."""
    data = b""
    while b"\r\n\r\n" not in data or len(data) < _length_of(data):
        more = await stream.receive_some(REQUEST_BYTES_MAX)
        if not more:
            return None
        data += more
    return data


def _length_of(data: bytes) -> int:
    head, _, _ = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + int(lengths[0])


@asynccontextmanager
async def raw_peer(*answers: tuple[bytes, Ending], reads_requests: bool = True) -> AsyncIterator[RawPeer]:
    """A peer that serves while the block runs."""
    peer = RawPeer(answers, reads_requests)
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.serve)
        yield peer
        nursery.cancel_scope.cancel()


def head(*headers: str, status: str = "200 OK") -> bytes:
    """A response's head; an event stream unless a header says otherwise."""
    content = () if any(line.lower().startswith("content-type") for line in headers) else _EVENT_STREAM
    return "\r\n".join([f"HTTP/1.1 {status}", *content, *headers, "", ""]).encode("latin-1")


_EVENT_STREAM = ("content-type: text/event-stream",)


def chunked(*pieces: bytes, ends: bool = True) -> bytes:
    """The pieces in chunked transfer coding, with the last chunk unless it is to be missing."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return body + b"0\r\n\r\n" if ends else body
