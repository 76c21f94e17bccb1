"""A socket to an upstream, plain or TLS, on Trio's loop: connected within a time, written whole, read as bytes come.

It is the standard library's own socket, non-blocking. A read waits until there is something and takes what is there:
one wait and one system call for each, no layer between. A wait may be cancelled at any time and loses nothing; a write
that is cancelled leaves a torn request behind, and its socket is dropped.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from gateway.upstream.calls import Take
from gateway.upstream.readiness import call_while_readable

RECORD_BYTES_MAX: Final = 16_384
"""What goes into one record of TLS (RFC 8446, 5.1). More than that may be written in part by a write that fails, and
then nobody could say that nothing was."""
READ_BYTES_MAX: Final = 32_768
"""Of a stalled client three reads are held, with the events in them: here, in the hold, at its writer."""
PORTS: Final = {"http": 80, "https": 443}
"""Where a base URL that names none leads."""
TLS_LOOK_SECONDS: Final = 0.005
"""How long a write waits for a read beside it, where TLS wants one first: that is, hardly ever."""
UNCONNECTED: Final = (OSError, trio.TooSlowError, UnicodeError, ValueError)
"""What `connect` raises: no address, no answer, no TLS; an address that cannot be one. All certificate errors are
OSErrors."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a route's upstream is; `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


class NothingWritten(Exception):
    """The peer was gone before it was sent a byte."""


class UpstreamSocket:
    """A connected socket. Used by one task at a time, and closed by whoever has it."""

    __slots__ = ("_early", "_pending", "_piece_bytes_max", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._pending = connected.pending if isinstance(connected, ssl.SSLSocket) else None
        self._piece_bytes_max = RECORD_BYTES_MAX if isinstance(connected, ssl.SSLSocket) else None
        self._early: bytes | None = None
        """What came while a request was still being written."""

    def __repr__(self) -> str:
        return f"<UpstreamSocket {self._socket!r}>"

    @property
    def is_quiet(self) -> bool:
        """Whether an idle socket may be used: one that has something to say has closed, or is out of step."""
        try:
            return self._early is None and self._take() is None
        except OSError:
            return False

    @property
    def has_unread(self) -> bool:
        """Whether something has come, if only the end, that nobody has read; of TLS whatever is on the wire."""
        try:
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def receive(self) -> bytes:
        """What has come; b"" at the peer's end. Raises OSError."""
        if self._early is not None:
            await trio.lowlevel.checkpoint()
            early, self._early = self._early, None
            return early
        if self._pending is not None and self._pending():
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.wait_readable(self._socket)
        while (data := self._take()) is None:
            await trio.lowlevel.wait_readable(self._socket)
        return data

    def pass_on(self, take: Take) -> Awaitable[None]:
        """Hand over what comes, as it comes, b"" at the peer's end, until `take` returns False: with no task woken for
        it. Raises OSError, and what `take` raises."""
        is_here = self._early is not None or (self._pending is not None and self._pending())
        return self._pass_on_behind(take) if is_here else self._pass_on_all(take)

    def _pass_on_all(self, take: Take) -> Awaitable[None]:
        return call_while_readable(self._socket, _Passing(self, take))

    async def _pass_on_behind(self, take: Take) -> None:
        """What is here needs no wait for the socket."""
        if take(await self.receive(), trio.current_time()):
            await self._pass_on_all(take)

    def hand_over(self, take: Take, now: float) -> bool:
        """What is there, and whether to go on. What is left of a TLS record is nothing that a socket tells of."""
        while (data := self._take()) is not None:
            if not take(data, now):
                return False
            if self._pending is None or not self._pending():
                break
        return True

    def _take(self) -> bytes | None:
        """What is there now; None if that is nothing. TLS has messages of its own, which are none."""
        try:
            return self._socket.recv(READ_BYTES_MAX)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLZeroReturnError:
            return b""

    async def send_all(self, data: bytes | memoryview) -> bool:
        """Write it; False if the peer spoke before it had all, and is not sent the rest. Raises NothingWritten, and
        OSError once a byte was written."""
        await trio.lowlevel.checkpoint_if_cancelled()
        view, sent, may_have_begun = memoryview(data), 0, False
        while sent < len(data):
            try:
                sent += self._socket.send(view[sent:][: self._piece_bytes_max])
                may_have_begun = True
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
                may_have_begun |= isinstance(error, ssl.SSLError)  # half a record may be on its way
                if not await self._wait_for_room():
                    return False
            except OSError:
                if may_have_begun:
                    raise
                raise NothingWritten from None
        return True

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write it, whatever the peer says meanwhile: that is for whoever reads. Raises OSError; then, or cancelled,
        a part of it may be on its way, and nothing more is to be written."""
        await trio.lowlevel.checkpoint_if_cancelled()
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view[: self._piece_bytes_max]) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                await trio.lowlevel.wait_writable(self._socket)
            except ssl.SSLWantReadError:  # TLS shakes hands anew: the next try, or whoever reads, sees to what has come
                await trio.sleep(TLS_LOOK_SECONDS)

    async def _wait_for_room(self) -> bool:
        """Whether there is room. A peer that speaks before it has all has made up its mind."""
        while True:
            has_room = await self._is_writable_first()
            if has_room:
                return True
            self._early = self._take()
            if self._early is not None:
                return False

    async def _is_writable_first(self) -> bool:
        """Whether there is room before there is something to read."""
        outcome: list[bool] = []

        async def wait(ready: Callable[[socket.socket], Awaitable[None]], *, is_room: bool) -> None:
            await ready(self._socket)
            outcome.append(is_room)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(wait, trio.lowlevel.wait_writable, is_room=True))
            nursery.start_soon(partial(wait, trio.lowlevel.wait_readable, is_room=False))
        return any(outcome)

    def close(self) -> None:
        """Close it. TLS is not said goodbye to: nothing waits for the peer, and no answer is cut by it."""
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()


@dataclass(slots=True, eq=False)
class _Passing:
    """What is called when the socket may be read; a partial would take four times as much, for each that waits."""

    socket: UpstreamSocket
    take: Take

    def __call__(self, now: float) -> bool:
        return self.socket.hand_over(self.take, now)


async def connect(address: Address) -> UpstreamSocket:
    """Connect, TLS included. Raises one of UNCONNECTED."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    connected = socket.socket(fileno=stream.socket.detach())
    connected.setblocking(False)
    if address.tls is None:
        return UpstreamSocket(connected)
    return UpstreamSocket(await _secured(connected, address.tls, address.host))


async def _secured(connected: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """The socket behind its TLS handshake."""
    try:
        secured = context.wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        connected.close()
        raise
    try:
        while True:  # noqa: ASYNC913 - it goes round only behind a wait
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(secured)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(secured)
            else:
                return secured
    except BaseException:
        secured.close()
        raise
