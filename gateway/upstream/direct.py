"""Calls over connections of the gateway's own: one write for a request, one read for what has come of its answer.

    call --take--> an idle connection, if it is still quiet     else --connect--> a new one
         --send_all(head + body)-->  --receive--> ResponseDecoder --> a head, then body
    aclose --put--> idle again, if the answer is whole and nothing stands behind it     else --close-->

Taking and giving back cost the same however many connections there are. The one that came back last goes out first, so
that those a burst has left grow old, and are closed when the route is used next.
"""

from __future__ import annotations

import re
import ssl
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

import trio

from gateway.limits import (
    CONNECT_SECONDS,
    UPSTREAM_CONNECTION_IDLE_SECONDS_MAX,
    UPSTREAM_IDLE_CONNECTIONS_MAX,
)
from gateway.upstream.answers import WireHeaders, why
from gateway.upstream.calls import (
    CONNECT_ERROR,
    CONNECT_TIMEOUT,
    PROTOCOL_ERROR,
    READ_ERROR,
    Broken,
    Connected,
    NeverSent,
    Take,
)
from gateway.upstream.http1 import Cut, Malformed, ResponseDecoder, ResponseHead
from gateway.upstream.sockets import PORTS, UNCONNECTED, Address, NothingWritten, connect
from gateway.upstream.trust import trusted

UNFIT: Final = re.compile(rb"[\r\n\0]")
"""What would end a header, and begin another."""
HEADER: Final = b"%b: %b\r\n"
ODD: Final = re.compile(rb"\0|\r(?!\n)|(?<!\r)\n|: \s|[ \t\v\f]\r")
"""Where a header may be unfit, or has blanks around its value: then each is looked at by itself."""
BODILESS: Final = frozenset({"GET", "HEAD", "DELETE"})
"""Methods whose requests have no body unless they have one (RFC 9110, 9.3)."""
FIRST_PIECE_BYTES: Final = 262_144
"""Of a body, what is copied behind its head. To copy 30 MB held the loop for 40 ms."""


class Socket(Connected, Protocol):
    """What a call needs of a connection."""

    @property
    def is_quiet(self) -> bool:
        """Whether an idle one may be used."""
        ...

    async def send_all(self, data: bytes | memoryview) -> bool:
        """Write it, False if the peer answered first. Raises NothingWritten, OSError."""
        ...


class Dial(Protocol):
    """How a route is connected to."""

    async def __call__(self) -> Socket:
        """Raises one of UNCONNECTED."""
        ...


class DirectCaller:
    """Calls to the endpoints below one base URL (calls.Caller). `dial` replaces the network."""

    def __init__(self, base_url: str, connect_seconds: float = CONNECT_SECONDS, dial: Dial | None = None) -> None:
        self._place = _Place.of(base_url)
        self._connect_seconds = connect_seconds
        self._dial: Dial = dial or self._place.dial
        self._pool = ConnectionPool()

    def __repr__(self) -> str:
        return f"<DirectCaller {self._place.host}, {len(self._pool)} idle>"

    async def call(self, method: str, path: str, headers: WireHeaders, body: bytes) -> DirectAnswer:
        """Send the request, over an idle connection if there is one (calls.Caller)."""
        request = self._place.request(method, path, headers, body)
        idle = self._pool.take(trio.current_time())
        if idle is not None:
            try:
                return await self._ask(idle, request)
            except NothingWritten:
                pass  # it was dead before the request was written: another one, and no attempt (§4)
        try:
            return await self._ask(await self._connected(), request)
        except NothingWritten:
            raise NeverSent(why(CONNECT_ERROR)) from None

    async def _connected(self) -> Socket:
        try:
            with trio.fail_after(self._connect_seconds):
                return await self._dial()
        except trio.TooSlowError:
            raise NeverSent(why(CONNECT_TIMEOUT)) from None
        except UNCONNECTED:
            raise NeverSent(why(CONNECT_ERROR)) from None

    async def _ask(self, connection: Socket, request: Sequence[bytes | memoryview]) -> DirectAnswer:
        """Raises NothingWritten, Broken."""
        decoder = ResponseDecoder()
        try:
            is_whole = await _sent(connection, request)
            head = await _read_head(connection, decoder)
        except BaseException:
            connection.close()
            raise
        return DirectAnswer(connection, decoder, head, self._pool if is_whole else None)

    async def aclose(self) -> None:
        """Close what idles, and whatever comes back from now on."""
        self._pool.close()
        await trio.lowlevel.checkpoint()


async def _sent(connection: Socket, request: Sequence[bytes | memoryview]) -> bool:
    """Whether all of it was written: a peer that refuses a body may have answered before, and closed. Raises
    NothingWritten."""
    is_whole = True
    for place, piece in enumerate(request):
        try:
            is_whole = is_whole and await connection.send_all(piece)
        except OSError:
            return False
        except NothingWritten:
            if place == 0:
                raise
            return False
    return is_whole


async def _read_head(connection: Socket, decoder: ResponseDecoder) -> ResponseHead:
    while decoder.head is None:
        await _read_on(connection, decoder)
    return decoder.head


async def _read_on(connection: Socket, decoder: ResponseDecoder) -> None:
    """One read. Raises Broken."""
    try:
        decoder.receive(await connection.receive())
    except OSError:
        raise Broken(why(READ_ERROR)) from None
    except (Malformed, Cut):
        raise Broken(why(PROTOCOL_ERROR)) from None


class DirectAnswer:
    """An answer whose head is read (calls.Answer). `pool` takes the connection back; without one it is closed."""

    __slots__ = ("_connection", "_decoder", "_headers", "_pool", "status")

    def __init__(
        self, connection: Socket, decoder: ResponseDecoder, head: ResponseHead, pool: ConnectionPool | None
    ) -> None:
        self._connection: Socket | None = connection
        self._decoder = decoder
        self._pool = pool
        self.status = head.status
        self._headers = head.headers

    def __repr__(self) -> str:
        return f"<DirectAnswer {self.status}, {self._decoder}>"

    @property
    def headers(self) -> WireHeaders:
        """What the head says (calls.Answer)."""
        return self._headers

    def forget_headers(self) -> None:
        """They were read (calls.Answer)."""
        self._headers.clear()

    async def read(self) -> bytes:
        """What has come of the body (calls.Answer)."""
        decoder = self._decoder
        while not (decoder.body or decoder.is_over or self._connection is None):
            await _read_on(self._connection, decoder)
        try:
            return decoder.take()
        except Malformed:
            raise Broken(why(PROTOCOL_ERROR)) from None

    def pass_on(self, take: Take) -> Awaitable[None]:
        """Hand over what comes of the body (calls.Answer). What is here already needs no wait for the socket."""
        if self._decoder.is_over or self._decoder.body or self._connection is None:
            return self._pass_on_here(take)
        return self._connection.pass_on(_Passing(self, take))

    async def _pass_on_here(self, take: Take) -> None:
        take(await self.read(), trio.current_time())

    def decode(self, take: Take, data: bytes, at: float) -> bool:
        """Hand over what bytes off the connection hold of the body; whether more is to come in this way. Behind its end
        nothing is waited for: the next read tells of it. Raises Broken."""
        decoder = self._decoder
        try:
            decoder.receive(data)
            body = decoder.take()
        except (Malformed, Cut):
            raise Broken(why(PROTOCOL_ERROR)) from None
        return (not body or take(body, at)) and not decoder.is_over

    async def aclose(self) -> None:
        """Give the connection back, or close it (calls.Answer)."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._decoder.let_go()
        if self._pool is not None and self._decoder.may_serve_again:
            self._pool.put(connection, trio.current_time())
        else:
            connection.close()


@dataclass(slots=True, eq=False)
class _Passing:
    """What takes an answer's bytes; a partial would take four times as much, for as long as more is waited for."""

    answer: DirectAnswer
    take: Take

    def __call__(self, data: bytes, at: float) -> bool:
        return self.answer.decode(self.take, data, at)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the calls go."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    root: bytes
    """What every path begins with."""
    authority: bytes

    @classmethod
    def of(cls, base_url: str) -> _Place:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").encode("idna").decode()
        own_port = PORTS[parts.scheme]
        port = parts.port or own_port
        named = f"[{host}]" if ":" in host else host
        authority = named if port == own_port else f"{named}:{port}"
        tls = trusted() if parts.scheme == "https" else None
        return cls(host, port, tls, parts.path.rstrip("/").encode("ascii"), authority.encode("ascii"))

    def request(self, method: str, path: str, headers: WireHeaders, body: bytes) -> Sequence[bytes | memoryview]:
        """Head and body as one piece, for two small writes would wait for an acknowledgement in between; what is more
        than a write takes is not copied for it."""
        fields = b"".join([HEADER % header for header in headers])
        if fields.count(b"\r\n") != len(headers) or ODD.search(fields) is not None:
            fit = [(name, value) for name, value in headers if not (UNFIT.search(name) or UNFIT.search(value))]
            fields = b"".join([HEADER % (name, value.strip()) for name, value in fit])
        length = b"content-length: %d\r\n" % len(body) if body or method not in BODILESS else b""
        first = b"%b %b%b HTTP/1.1\r\nhost: %b\r\n%b%b\r\n%b" % (
            method.encode("ascii"),
            self.root,
            path.encode("ascii"),
            self.authority,
            fields,
            length,
            body[:FIRST_PIECE_BYTES],
        )
        return (first,) if len(body) <= FIRST_PIECE_BYTES else (first, memoryview(body)[FIRST_PIECE_BYTES:])

    async def dial(self) -> Socket:
        """A connection; its time is the caller's affair."""
        return await connect(Address(self.host, self.port, self.tls))


class ConnectionPool:
    """One route's idle connections, the one that idles longest first."""

    def __init__(self) -> None:
        self._idle: deque[tuple[Socket, float]] = deque()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<ConnectionPool, {len(self)} idle>"

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, now: float) -> Socket | None:
        """One that can be used, which is then the caller's."""
        self._drop_old(now)
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    def put(self, connection: Socket, now: float) -> None:
        """One whose answer is whole."""
        if self._is_closed:
            connection.close()
            return
        self._drop_old(now)
        self._idle.append((connection, now))
        if len(self._idle) > UPSTREAM_IDLE_CONNECTIONS_MAX:
            self._idle.popleft()[0].close()

    def close(self) -> None:
        """Close all, and those that come back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop()[0].close()

    def _drop_old(self, now: float) -> None:
        while self._idle and self._idle[0][1] + UPSTREAM_CONNECTION_IDLE_SECONDS_MAX <= now:
            self._idle.popleft()[0].close()
