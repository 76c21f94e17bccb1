"""One TCP connection: whatever happens on it stays on it, and nothing on it waits for ever.

_run --+-- _read_data    reads for the connection's whole life, each wait bounded by the protocol's patience, and by how
       |                 long a connection may idle
       +-- TaskGroup     the requests' apps, pings

At the process's end those that idle close; and writes are shielded: when the connection is cancelled, they have a
moment left. Both are told by the context (context.py); a stock one has to be watched, by one task more.

All that is written goes through `write`. On the fast plane it tries the socket first: what the kernel takes at once
needs no lock, no deadline and no wait. What it does not take at once waits as on the plain plane, in the same order.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable
from contextlib import suppress
from math import inf
from typing import Any, Final

import structlog
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.typing import ConnectionState

from gateway.core.messages import Taken
from gateway.server.hardened.addresses import Address, addresses_of
from gateway.server.hardened.context import TellingContext
from gateway.server.hardened.http1 import HardenedHTTP1
from gateway.server.hardened.inbox import InboxTaskGroup
from gateway.server.hardened.settings import Cut, settings_of

logger = structlog.get_logger("gateway.server")

CLOSE_SECONDS_MAX: Final = 1.0
"""TLS says goodbye before it closes; a peer that takes nothing does not hold that up."""
LINGER_SECONDS_MAX: Final = 2.0
"""How long a refused peer that still sends is read: closed at once, a reset could overtake the answer."""
NEWCOMER_SECONDS_MAX: Final = 0.5
"""At the process's end: what a connection may take from its accept to its first request. It was accepted before anybody
could tell its client not to come, and closed at once it would look like a reset."""
LAST_WRITE_SECONDS_MAX: Final = 0.25
"""What a write has left when its connection is cancelled: at the drain's end, or on a second signal."""

WRITES_PER_PASS: Final = 32
"""So many writes that did not have to wait; then others have their turn."""

RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing sends a reset."""

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)


class HardenedServer(TCPServer):
    """Hypercorn's connection, with HTTP/1.1 only."""

    protocol: HardenedHTTP1  # type: ignore[assignment]  # in the place of Hypercorn's choice of three
    _write_scope: trio.CancelScope | None = None
    _writes_end_at = inf
    _has_ended = False
    _newcomer_until = -inf
    _stream: Any = None
    _socket: socket.socket | None = None
    """What may be tried first."""
    _held_back = b""
    """What the next write begins with: a head whose first piece of body comes at once, or what the kernel did not take
    of the piece before."""
    _writing: trio.Lock | None = None
    """Held by a write that waits."""
    _unwaited = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        del self.idle_task  # Hypercorn's timer: the connection idles in its read
        del self.send_lock  # Hypercorn's: few writes wait, and the first that does makes one

    async def run(self) -> None:
        """Serve the connection; an exception ends it and nothing else."""
        dropped: BaseException | None = None
        try:
            try:
                peer, is_tls = await self._open()
                if peer is not None:
                    await self._serve(is_tls, *addresses_of(peer))
            except* OSError:
                pass  # the peer was gone before it was asked for its name
            finally:
                if isinstance(self.context, TellingContext):
                    self.context.forget(self)
                await self._close()  # noqa: ASYNC102 - it is shielded and bounded within
        except BaseExceptionGroup as group:
            ours, dropped = group.split((trio.Cancelled, KeyboardInterrupt, SystemExit))
            if ours is not None:
                raise ours from None
        except Exception as error:  # the connection's edge: a bug in a protocol layer ends one connection
            dropped = error
        if dropped is not None:
            await self._drop(dropped)

    async def _open(self) -> tuple[trio.socket.SocketType | socket.socket | None, bool]:
        """The socket, its TLS handshake done; None if that failed."""
        stream = self.stream
        if not isinstance(stream, trio.SSLStream):
            if settings_of(self.config).is_fast and isinstance(stream, trio.SocketStream):
                return self._own_socket(stream), False
            return stream.socket, False
        with trio.move_on_after(self.config.ssl_handshake_timeout):
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError:
                return None, True
            return stream.transport_stream.socket, True
        return None, True

    def _own_socket(self, stream: trio.SocketStream) -> socket.socket:
        """Take the socket over from its stream. A socket object, never a descriptor's number: closed it writes to
        nobody, whoever has the number by then."""
        given = stream.socket
        kind = given.family, given.type, given.proto
        self._socket = socket.socket(*kind, fileno=given.detach())
        del self._stream
        return self._socket

    @property
    def stream(self) -> Any:
        """The connection, TLS or not. Over a socket that was taken over it is made when a write waits, or it ends."""
        if self._stream is None and self._socket is not None:
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))
        return self._stream

    @stream.setter
    def stream(self, stream: Any) -> None:
        self._stream = stream

    def _serve(self, is_tls: bool, client: Address, server: Address) -> Awaitable[None]:
        self._newcomer_until = trio.current_time() + NEWCOMER_SECONDS_MAX
        is_told = isinstance(self.context, TellingContext)
        return (self._serve_requests if is_told else self._serve_watching)(is_tls, client, server)

    async def _serve_watching(self, is_tls: bool, client: Address, server: Address) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await self._serve_requests(is_tls, client, server)
            nursery.cancel_scope.cancel()

    async def _serve_requests(self, is_tls: bool, client: Address, server: Address) -> None:
        async with InboxTaskGroup() as self._task_group:
            self._begin(is_tls, client, server)
            try:
                await self._read_data()
            except trio.Cancelled:
                self.end_writes()
                raise
            self._has_ended = True

    def _begin(self, is_tls: bool, client: Address, server: Address) -> None:
        self.protocol = HardenedHTTP1(
            self.app,
            self.config,
            self.context,
            self._task_group,
            ConnectionState(self.state),
            is_tls,
            client,
            server,
            self.protocol_send,
            short_way=self if settings_of(self.config).is_fast else None,
        )
        self.protocol.patience.idle(trio.current_time() + self.config.keep_alive_timeout)
        if isinstance(self.context, TellingContext):
            self.context.tell(self)
        if self.context.terminated.is_set():
            self.hear_the_end()

    async def _watch(self) -> None:
        """What a context that tells would tell."""
        try:
            await self.context.terminated.wait()
            self.hear_the_end()
            await trio.sleep_forever()
        finally:
            self.end_writes()

    def hear_the_end(self) -> None:
        """Close if it idles; a newcomer has a moment to say what it wants."""
        patience = self.protocol.patience
        if patience.idle_until < inf:
            patience.idle(max(trio.current_time(), self._newcomer_until))

    # --- writing ----------------------------------------------------------------------------------------------------

    async def protocol_send(self, event: Event) -> None:
        """What the protocol wants done. Bytes are written with a deadline (T6)."""
        if isinstance(event, Updated):  # first, for it comes twice with each request, and each look costs six calls
            self._note_idle(is_idle=event.idle)
        elif isinstance(event, RawData):
            await self.write(event.data)
        elif isinstance(event, Closed):
            if self._held_back:
                await self.write(b"")
            await self._end()
            await self.protocol.handle(Closed())

    def _note_idle(self, *, is_idle: bool) -> None:
        """Between two requests, or not."""
        if not self._has_ended:
            self._newcomer_until = -inf  # it has said what it wants
            self.protocol.patience.idle(trio.current_time() + self.config.keep_alive_timeout if is_idle else inf)

    def hold_back(self, data: bytes) -> None:
        """Write it with what comes next, which is at hand."""
        self._held_back += data

    async def write(self, data: bytes) -> None:
        """All of it, in its place. The wait before it may be cancelled, it may not. A peer that has left, or that takes
        nothing, is told to the protocol."""
        if self._unwaited >= WRITES_PER_PASS:
            self._unwaited = 0
            await trio.lowlevel.checkpoint()
        if self._socket is None or (self._writing is not None and self._writing.locked()):
            async with self._write_lock():
                is_written = await self._write(self._behind_held_back(data))
        else:
            is_written = await self._write_at_once(self._socket, self._behind_held_back(data))
        if not is_written:
            await self.protocol.handle(Closed())

    def write_at_once(self, data: bytes) -> Taken:
        """What the kernel takes without a wait; of what it takes in part, the next write goes on with the rest. A peer
        that has left takes nothing: the next write finds that out."""
        if self._socket is None or self._held_back or (self._writing is not None and self._writing.locked()):
            return Taken.NOTHING
        try:
            sent = self._socket.send(data)
        except OSError:
            return Taken.NOTHING
        self._held_back = data[sent:]
        return Taken.PART if self._held_back else Taken.ALL

    def _behind_held_back(self, data: bytes) -> bytes:
        if self._held_back:
            data, self._held_back = self._held_back + data, b""
        return data

    async def _write_at_once(self, sock: socket.socket, data: bytes) -> bool:
        """What the kernel takes; the rest waits, and holds the lock. It is free, and there is no wait before it is
        taken: nothing comes between the two parts."""
        if not data:
            return True
        self._unwaited += 1
        try:
            sent = sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the peer has left, or the connection was closed on this side
            return False
        if sent == len(data):
            return True
        lock = self._write_lock()
        lock.acquire_nowait()
        try:
            return await self._write(data[sent:])
        finally:
            lock.release()

    def _write_lock(self) -> trio.Lock:
        if self._writing is None:
            self._writing = trio.Lock()
        return self._writing

    async def _write(self, data: bytes) -> bool:
        """Shielded, so that no cancellation leaves half a frame behind. A peer that takes nothing is dropped."""
        begun = trio.current_time()
        deadline = min(begun + settings_of(self.config).write_seconds, self._writes_end_at)
        with trio.CancelScope(shield=True, deadline=deadline) as self._write_scope:
            try:
                await self.stream.send_all(data)
            except GONE:
                return False
            return True
        settings_of(self.config).on_cut(Cut.STALLED)
        logger.warning("client_stalled", seconds=round(trio.current_time() - begun, 3))
        self._reset_on_close()
        await trio.aclose_forcefully(self.stream)
        return False

    def _reset_on_close(self) -> None:
        """A peer that takes nothing gets a reset: an orderly end would leave what it was sent in the kernel for
        minutes, and look like an answer's end."""
        stream = self.stream
        stream = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        if isinstance(stream, trio.SocketStream):
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    def end_writes(self) -> None:
        """The connection is cancelled: its writes, which do not see it, end soon too."""
        self._writes_end_at = trio.current_time() + LAST_WRITE_SECONDS_MAX
        if self._write_scope is not None:
            self._write_scope.deadline = min(self._write_scope.deadline, self._writes_end_at)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read_data(self) -> None:
        """Until nothing more comes: all of a connection's life is spent here, so the wait has no frame of its own."""
        patience = self.protocol.patience
        data: bytes | None = None
        while data != b"":
            data = None  # it may be a request: nothing of it is kept here while more is waited for
            with patience.scope() as waiting:
                try:
                    if self._socket is None:
                        data = bytes(await self.stream.receive_some(MAX_RECV))
                    elif self._socket.fileno() < 0:  # it was closed on this side
                        data = b""
                    else:
                        await trio.lowlevel.wait_readable(self._socket)
                        data = self._socket.recv(MAX_RECV)
                except BlockingIOError:  # it was nothing
                    continue
                except (*GONE, OSError):
                    data = b""
                finally:
                    patience.was_read()
            if data and not patience.is_ending:
                await self.protocol.handle(RawData(data))
            elif waiting.cancelled_caught and patience.is_ending:
                break
            elif waiting.cancelled_caught:
                await self._time_out()
        if not patience.is_ending:
            await self.protocol.handle(RawData(b""))
        await self.protocol.handle(Closed())

    async def _time_out(self) -> None:
        """The peer has not gone on in time, or has idled for too long."""
        patience = self.protocol.patience
        if patience.deadline <= trio.current_time():
            await self.protocol.time_out()
            return
        if patience.idle_until > trio.current_time():  # a request that waited behind an answer has begun meanwhile
            return
        patience.idle(inf)
        with trio.CancelScope(shield=True):  # a close is bounded
            await self._initiate_server_close()

    # --- ending -----------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Close; but read a peer that still sends for a moment, so that it sees its answer."""
        patience = self.protocol.patience
        if patience.is_ending:
            return
        if not self.protocol.peer_may_be_sending:
            await self._close()
            return
        patience.end(trio.current_time() + LINGER_SECONDS_MAX)
        # TLS cannot be closed by half, but the connection below it can: the answer's own framing says that it is whole.
        stream = self.stream
        stream = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        if isinstance(stream, trio.abc.HalfCloseableStream):
            with suppress(*GONE):
                await stream.send_eof()

    async def _initiate_server_close(self) -> None:
        await self.protocol.handle(Closed())
        await self._close()

    async def _close(self) -> None:
        """Say goodbye, bounded; then drop the socket."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS_MAX):
            with suppress(*GONE, OSError):
                await super()._close()
            return
        await trio.aclose_forcefully(self.stream)

    async def _drop(self, error: BaseException) -> None:
        """Only where it happened is told: an exception's own words may be what the peer sent."""
        settings_of(self.config).on_cut(Cut.FAULT)
        logger.warning("connection_dropped", **_where(error))
        await trio.aclose_forcefully(self.stream)


def _where(error: BaseException) -> dict[str, str]:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    at = "" if traceback is None else f"{traceback.tb_frame.f_code.co_qualname}:{traceback.tb_lineno}"
    return {"error": type(error).__name__, "at": at}
