"""A plain POST and its answer (plain_posts.py), for an app that takes it straight: no h11, no layers, one object.

To the protocol it is what h11's connection and Hypercorn's stream are for any other request, and speaks of itself in
h11's states; to the app it is ASGI's `receive` and `send`, and its short ways (beside_asgi.py).

    bring(), handle() <-- the peer's bytes, and its leaving      REQUEST --head--> RESPONSE --last piece--> CLOSED
    receive(), send(), write(), write_at_once() <-- the app
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import h11
import trio
from hypercorn.config import Config
from hypercorn.protocol.http_stream import ASGIHTTPState
from hypercorn.utils import UnexpectedMessageError

from gateway.beside_asgi import BODY, DIRECT, LEAVING, Straight, straight_posts
from gateway.core.messages import Taken
from gateway.server.hardened.direct import BODILESS, ShortWay, chunk
from gateway.server.hardened.inbox import Inbox
from gateway.server.hardened.plain_posts import Post, answer_head

END: Final = b"0\r\n\r\n"
DISCONNECT: Final = {"type": "http.disconnect"}
ASGI: Final = {"spec_version": "2.1", "version": "3.0"}
FAILED: Final = [(b"content-length", b"0"), (b"connection", b"close")]
"""What an app that fails before its answer is answered with, as Hypercorn does."""
FAILED_STATUS: Final = 500
OUR_STATES: Final = {ASGIHTTPState.REQUEST: h11.SEND_RESPONSE, ASGIHTTPState.RESPONSE: h11.SEND_BODY}

Address = tuple[str, int] | None


class Ground(Protocol):
    """The protocol of the connection."""

    config: Config

    def ending_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """An answer's headers, and the server's own."""
        ...

    async def recycle(self) -> None:
        """The answer has ended."""
        ...


def straight_apps(app: object, config: Config) -> Mapping[bytes, Straight]:
    """By the paths of their POSTs; none where Hypercorn's layers have more to do with a request than to pass it on."""
    is_passed_on = not (config.root_path or config.server_names or config.accesslog)
    return straight_posts(app) if is_passed_on else {}


def scope_of(post: Post, is_tls: bool, client: Address, server: Address) -> dict[str, Any]:
    """ASGI's, as Hypercorn has it, but for its state."""
    return {
        "type": "http",
        "http_version": "1.1",
        "asgi": ASGI,
        "method": "POST",
        "scheme": "https" if is_tls else "http",
        "path": post.path.decode("ascii"),
        "raw_path": post.path,
        "query_string": b"",
        "root_path": "",
        "headers": post.headers,
        "client": client,
        "server": server,
        "extensions": {},
    }


class NothingRead:
    """In the place of h11's connection until a head comes: only then is it known who reads it."""

    their_state = our_state = h11.IDLE
    trailing_data = b"", False


NOTHING_READ: Final = NothingRead()


class Exchange:
    """One request and its answer."""

    __slots__ = (
        *("_ground", "_inbox", "_is_bodiless", "_is_last", "_owed_bytes", "_tell_left", "_way"),
        *("__weakref__", "closed", "missing_bytes", "state", "state_of_scope"),
    )
    trailing_data = b"", False

    def __init__(self, ground: Ground, way: ShortWay, post: Post, state_of_scope: dict[str, Any]) -> None:
        self._ground = ground
        self._way = way
        self._tell_left: Callable[[], None] | None = None
        self._inbox: Inbox | None = None
        self._owed_bytes: int | None = None
        """What is left of an answer's announced length; None: it has none, and goes in chunks."""
        self._is_bodiless = False
        self._is_last = False
        self.missing_bytes = post.body_bytes
        """Of the request's body."""
        self.state = ASGIHTTPState.REQUEST
        self.closed = False
        self.state_of_scope = state_of_scope
        """What the app is told beside ASGI, and may forget; nothing else of its scope is kept here."""
        state_of_scope |= {DIRECT: self, LEAVING: self.when_left}

    def __repr__(self) -> str:
        return f"<Exchange {self.state.name}, {self.missing_bytes} bytes missing>"

    # --- the protocol's -------------------------------------------------------------------------------------------

    @property
    def their_state(self) -> Any:
        """h11's name for how far the request has come."""
        return h11.SEND_BODY if self.missing_bytes else h11.DONE

    @property
    def our_state(self) -> Any:
        """h11's name for how far the answer has come."""
        return OUR_STATES.get(self.state) or (h11.MUST_CLOSE if self._is_last else h11.DONE)

    async def bring(self, piece: bytes) -> None:
        """A piece of the body has come. One that is all of it waits for whoever takes it; others may wait for room."""
        is_whole = len(piece) == self.missing_bytes
        if is_whole and self._inbox is None:
            self.state_of_scope[BODY] = piece
        else:
            await self._events.put({"type": "http.request", "body": piece, "more_body": not is_whole})
        self.missing_bytes -= len(piece)

    async def handle(self, _closed: object) -> None:
        """Nothing more comes, and nothing more is sent. What closes before the answer has ended was closed by the peer,
        or for it."""
        tell, self._tell_left = self._tell_left, None
        if tell is not None and self.state is not ASGIHTTPState.CLOSED:
            tell()
        self.closed = True
        if self._inbox is not None:
            self._inbox.end(DISCONNECT)

    async def run(self, app: Straight, scope: Any) -> None:
        """The request's task, for its whole life. What the app does not keep of its scope is not kept for it."""
        try:
            answering = app(scope, self.receive, self.send)
            del scope
            await answering
        except trio.Cancelled:
            raise
        except BaseExceptionGroup as group:
            _, errors = group.split(trio.Cancelled)
            if errors is None:
                raise
            await self._fail()
        except Exception:  # as Hypercorn's own task does: the app's bug is logged, and ends its request
            await self._fail()
        finally:
            await self._end_early()  # noqa: ASYNC102 - its writes and closes have their own bounds
            self.state_of_scope, self._inbox = {}, None  # the connection keeps this, in a ring, until something follows

    async def _fail(self) -> None:
        await self._ground.config.log.exception("Error in ASGI Framework")

    async def _end_early(self) -> None:
        """The app has ended; its answer may not have."""
        if self.closed:
            return
        if self.state is ASGIHTTPState.REQUEST:
            self._start(FAILED_STATUS, FAILED)
            self.state = ASGIHTTPState.CLOSED
            await self._way.write(b"")
        await self._ground.recycle()

    # --- the app's ------------------------------------------------------------------------------------------------

    def when_left(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when the peer leaves (beside_asgi.WhenLeft)."""
        if self.closed:
            tell()
        else:
            self._tell_left = tell

    async def receive(self) -> Any:
        """ASGI's."""
        return await self._events.receive()

    async def send(self, message: Any) -> None:
        """ASGI's; to a peer that has left it goes nowhere, but it yields."""
        kind = message["type"]
        if self.closed:
            await trio.lowlevel.checkpoint()
        elif kind == "http.response.start" and self.state is ASGIHTTPState.REQUEST:
            self._start(message["status"], [*message.get("headers", ())])
        elif kind == "http.response.body" and self.state is ASGIHTTPState.RESPONSE:
            piece = message.get("body", b"")
            await (self.write((piece,)) if message.get("more_body", False) else self._end(piece))
        else:
            raise UnexpectedMessageError(self.state, kind)

    async def write(self, pieces: Sequence[bytes]) -> None:
        """A piece of the body (beside_asgi.Direct)."""
        if self.closed:
            await trio.lowlevel.checkpoint()
        elif self.state is not ASGIHTTPState.RESPONSE:
            raise UnexpectedMessageError(self.state, "http.response.body")
        else:
            await self._way.write(self._framed(pieces[0] if len(pieces) == 1 else b"".join(pieces)))

    def write_at_once(self, pieces: Sequence[bytes]) -> Taken:
        """The same, if it takes no wait."""
        if self._owed_bytes is not None or self.closed or self.state is not ASGIHTTPState.RESPONSE:
            return Taken.NOTHING
        return self._way.write_at_once(chunk(b"".join(pieces)))

    # --- its own --------------------------------------------------------------------------------------------------

    @property
    def _events(self) -> Inbox:
        """What the app receives: it seldom asks, where all has come at once."""
        if self._inbox is None:
            self._inbox = Inbox(self._ground.config.max_app_queue_size)
            body = self.state_of_scope.pop(BODY, None)
            if body is not None:
                self._inbox.put_first({"type": "http.request", "body": body, "more_body": False})
            if self.closed:
                self._inbox.end(DISCONNECT)
        return self._inbox

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head leaves with what comes next, which is at hand."""
        head = answer_head(status, self._ground.ending_headers(headers))
        self._is_bodiless, self._owed_bytes = status in BODILESS, head.body_bytes
        self._is_last = head.is_last
        self._way.hold_back(head.data)
        self.state = ASGIHTTPState.RESPONSE

    def _framed(self, data: bytes) -> bytes:
        """A piece of the body, within its announced length."""
        if not data or self._is_bodiless:
            return b""
        if self._owed_bytes is None:
            return chunk(data)
        if len(data) > self._owed_bytes:
            raise h11.LocalProtocolError("more than the announced length")
        self._owed_bytes -= len(data)
        return data

    async def _end(self, data: bytes) -> None:
        """The last piece, which is not cancelled: what makes the connection ready for its next request is to come."""
        piece = self._framed(data)
        if self._owed_bytes:
            await self._way.write(piece)
            raise h11.LocalProtocolError("less than the announced length")
        last = piece if self._owed_bytes == 0 else piece + END
        taken = self._way.write_at_once(last)
        if taken is not Taken.ALL:
            with trio.CancelScope(shield=True):  # a write has a bound of its own
                await self._way.write(last if taken is Taken.NOTHING else b"")
        self.state = ASGIHTTPState.CLOSED
        await self._ground.recycle()
