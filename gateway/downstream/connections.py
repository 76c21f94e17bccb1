"""How Quart-Trio's connections serve turns: a disconnect is told, not turned into a cancellation in mid-turn (H7, T10).

Quart-Trio cancels a handler when its client disconnects, and reads the server's message after the last body byte as a
disconnect too. A turn wants to know instead: it has an upstream to close and books to keep. So here a disconnect sets
`Departure`; only a request whose body is not whole and which is not being answered yet is cancelled by it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, WebsocketScope
from quart.typing import ResponseTypes
from quart.wrappers import Request
from quart_trio.asgi import TrioASGIHTTPConnection, TrioASGIWebsocketConnection
from quart_trio.wrappers import TrioResponse

from gateway.beside_asgi import DIRECT, Direct
from gateway.core.messages import Taken

Send = Callable[[dict[str, Any]], Awaitable[None]]
RawHeaders = Iterable[tuple[str, str]]

TLS_SCHEMES: Final = ("https", "wss")
HELD: Final = "gateway.held"
"""The name under which a request's scope carries what it holds."""


class Departure:
    """Whether and how the client has left. So that whoever asks is told it crosses as many tasks as `passes`: of the
    server, which always is one of them, of the app, and of the door."""

    __slots__ = ("_how", "_watchers", "passes")

    def __init__(self, passes: int = 2) -> None:
        self.passes = passes
        self._how: str | None = None
        self._watchers: tuple[Callable[[str], None], ...] = ()

    def __repr__(self) -> str:
        return f"<Departure {self._how if self.has_left else 'no'}>"

    @property
    def has_left(self) -> bool:
        """Whether the client is gone."""
        return self._how is not None

    def tell(self, how: str = "disconnected") -> None:
        """The client is gone."""
        if self._how is None:
            self._how = how
            watchers, self._watchers = self._watchers, ()
            for tell in watchers:
                tell(how)

    def watch(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called when it leaves, with how; now if it has left."""
        if self._how is None:
            self._watchers += (tell,)
        else:
            tell(self._how)

    def unwatch(self, tell: Callable[[str], None]) -> None:
        """It need not be told any more."""
        self._watchers = tuple(watcher for watcher in self._watchers if watcher != tell)


def departure_of(scope: Any, passes: int) -> Departure:
    """One connection's. Over TLS a client that leaves without a goodbye is told of a pass later: the stream yields."""
    return Departure(passes + (scope["scheme"] in TLS_SCHEMES))


class Wire:
    """An HTTP response in the hands of a turn: its head and body as they come, and the client's departure."""

    __slots__ = ("_direct", "departure", "has_started", "send")

    def __init__(self, send: Send, departure: Departure, direct: Direct | None = None) -> None:
        self.send = send
        self._direct = direct
        self.departure = departure
        self.has_started = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        """Send the head."""
        await self.start_with(status, encoded(headers))

    def start_with(self, status: int, headers: list[tuple[bytes, bytes]]) -> Awaitable[None]:
        """The same with headers as they are sent."""
        self.has_started = True
        return self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        if self._direct is None:
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
        else:
            await self._direct.write((data,))

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """Send a part of the body if that takes no wait; the rest of one that was taken in part leaves with the next,
        an empty one too."""
        return Taken.NOTHING if self._direct is None else self._direct.write_at_once(pieces)

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece of the body."""
        await self.send({"type": "http.response.body", "body": data, "more_body": False})


def encoded(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """As they are sent."""
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]


class TurnResponse(TrioResponse):
    """A response that a coroutine writes, so that a turn's nursery may live in it. It has no time limit (T8), and none
    of the parts that a response is made of: nobody reads them."""

    def __init__(self, run: Callable[[Wire], Awaitable[None]]) -> None:
        self.run = run
        self.timeout = None

    def __repr__(self) -> str:
        return "<TurnResponse>"


class HTTPConnection(TrioASGIHTTPConnection):
    """One HTTP request and its response."""

    _departure: Departure
    _is_answering = False

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve it. What it holds is given back at the end, whether or not its handler came to its answer."""
        self._departure = Departure()
        with ExitStack() as held:
            cast(dict[str, Any], self.scope)[HELD] = held
            await super().__call__(receive, send)

    async def handle_messages(  # type: ignore[override]  # as Quart-Trio itself overrides it
        self, nursery: trio.Nursery, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        """Feed the body, then wait for the disconnect."""
        is_whole = False
        while True:
            message = await receive()
            if message["type"] == "http.request":
                request.body.append(message.get("body", b""))
                if not message.get("more_body", False):
                    is_whole = True
                    request.body.set_complete()
            elif message["type"] == "http.disconnect":
                break
        self._departure.tell()
        if not (is_whole or self._is_answering):
            nursery.cancel_scope.cancel()

    def request_of(self, send: Send) -> Request:
        """What Quart makes of the scope."""
        return self._create_request_from_scope(cast(ASGISendCallable, send))

    async def send_response(self, send: Send, response: ResponseTypes) -> None:
        """Send a whole response."""
        await self._send_response(cast(ASGISendCallable, send), response)

    async def _send_response(self, send: ASGISendCallable, response: ResponseTypes) -> None:
        self._is_answering = True
        if isinstance(response, TurnResponse):
            await response.run(Wire(cast(Send, send), self._departure, direct_of(self.scope)))
        else:
            await super()._send_response(send, response)


def direct_of(scope: Any) -> Direct | None:
    """The short way to the client, if the server has one."""
    direct: Direct | None = (scope.get("state") or {}).get(DIRECT)
    return direct


def held_by(request: Request) -> ExitStack:
    """What a request holds until it was answered, or was given up."""
    return cast(ExitStack, cast(dict[str, Any], request.scope)[HELD])


class WebSocketConnection(TrioASGIWebsocketConnection):
    """One WebSocket. Messages keep their type, and a disconnect ends `receive` with trio.EndOfChannel."""

    def __init__(self, app: Any, scope: WebsocketScope) -> None:
        super().__init__(app, scope)
        self.send_channel, self.receive_channel = trio.open_memory_channel[str | bytes](0)

    async def handle_messages(  # type: ignore[override]  # as Quart-Trio itself overrides it
        self, nursery: trio.Nursery, receive: ASGIReceiveCallable
    ) -> None:
        """Pass messages on as they come; the door's own reader takes each at once."""
        async with self.send_channel:
            while True:
                event = await receive()
                if event["type"] == "websocket.disconnect":
                    return
                if event["type"] == "websocket.receive":
                    text = event.get("text")
                    await self.send_channel.send(event.get("bytes") or b"" if text is None else text)
