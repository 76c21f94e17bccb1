"""The app: Quart, but for the requests that are turns, which are answered before Quart sees them.

Quart has a nursery and two tasks for each request, makes a request object of it, opens an app's context and a session,
matches its path against every rule, and sends signals before and after it. A turn that waits for its output would hold
all that, and no door looks at it. So a request for a turn goes straight to its door. What goes wrong before its answer
begins is answered by the app's error pages, as everywhere.

Where the server tells of a departure by a call (`LEAVING`), no task waits for it either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any, NoReturn

import trio
from quart import abort
from quart.typing import ResponseTypes
from quart.wrappers import Request
from quart_trio import QuartTrio

from gateway.beside_asgi import LEAVING, Straight
from gateway.downstream.asked import Asked, BodyBounds, Gone, Receive
from gateway.downstream.connections import Departure, HTTPConnection, Send, Wire, departure_of, direct_of

Serve = Callable[[Asked, Wire], Awaitable[None]]


class StraightApp(QuartTrio):
    """Hooks and signals know nothing of what is served straight."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.url_map.merge_slashes = False  # it would redirect, in HTML; here an empty part of a path is none
        self.asgi_http_class = HTTPConnection
        self._straight: dict[tuple[str, str], Serve] = {}
        self.straight_posts: dict[bytes, Straight] = {}

    def add_straight(self, method: str, path: str, serve: Serve) -> None:
        """Have requests for exactly this answered by `serve`, all others of that path refused as Quart refuses them."""
        self._straight[method, path] = serve
        if method == "POST":
            self.straight_posts[path.encode()] = partial(self._serve, serve)
        self.add_url_rule(path, f"straight {method} {path}", _elsewhere, methods=[method])

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:  # type: ignore[override]  # a hop less
        """ASGI."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path") or "")
            serve = self._straight.get((scope["method"], path))
            if serve is not None:
                return self._serve(serve, scope, receive, send)
        return super().__call__(scope, receive, send)

    def _serve(self, serve: Serve, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        when_left = (scope.get("state") or {}).get(LEAVING)
        departure = departure_of(scope, passes=2 if when_left is None else 1)
        wire = Wire(send, departure, direct_of(scope))
        asked = Asked(scope, receive, self._bounds(), is_logged=when_left is None)
        if when_left is None:
            return self._answer_watched(serve, asked, wire)
        when_left(departure.tell)
        return self._answer(serve, asked, wire)

    async def _answer_watched(self, serve: Serve, asked: Asked, wire: Wire) -> None:
        async with trio.open_nursery() as nursery:
            asked.was_read = lambda: nursery.start_soon(_watch, asked.receive, wire.departure)
            await self._answer(serve, asked, wire)
            nursery.cancel_scope.cancel()

    def _bounds(self) -> BodyBounds:
        seconds = self.config["BODY_TIMEOUT"]
        return BodyBounds(self.config["MAX_CONTENT_LENGTH"], inf if seconds is None else seconds)

    async def _answer(self, serve: Serve, asked: Asked, wire: Wire) -> None:
        try:
            await serve(asked, wire)
        except Gone:
            return
        except Exception as error:
            if wire.has_started:
                raise
            await self._tell(error, asked.scope_of_page, wire)  # noqa: ASYNC120 - a cancellation is the better reason
        finally:
            asked.give_back()

    async def _tell(self, error: Exception, scope: Any, wire: Wire) -> None:
        """The error's page, as Quart-Trio finds it."""
        connection = HTTPConnection(self, scope)
        request = connection.request_of(wire.send)
        await connection.send_response(wire.send, await self._page_of(error, request))

    async def _page_of(self, error: Exception, request: Request) -> ResponseTypes:
        async with self.request_context(request) as context:
            try:
                result = await self.handle_user_exception(error)
                return await self.finalize_request(result, context)
            except Exception as failure:
                return await self.handle_exception(failure)


async def _watch(receive: Receive, departure: Departure) -> None:
    """Until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    departure.tell()


async def _elsewhere() -> NoReturn:  # noqa: ASYNC124 - Quart would run it in a thread if it were sync
    """Where Quart looks for what is answered before it is asked."""
    abort(404)
