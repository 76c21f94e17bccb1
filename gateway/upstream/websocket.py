"""An upstream that answers in text frames over a WebSocket (C5 `websocket`, F4, X5, §4).

    attempt --> pool: an idle line, or a new one --> one `response.create` --> frames --> events, until a terminal one
                  ^                                                                             |
                  +---------------------- the line, if its response is finished <---------------+

The same port as SSE, and no clock here either. What goes wrong becomes a Failure:

    no DNS, no connect, no TLS, no answer to the handshake      never sent
    a status instead of the upgrade                             the upstream's own failure (§5), its answer kept
    a close, or a drop, before a terminal event                 by its code (F4)
    a binary frame, bytes that are no frames or no text         read error
    a frame beyond the limit                                    R7

An idle line that is found dead before the create was written is opened anew, once, and is no attempt (§4).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.core.failures import RETRYABLE_CODES, Failure
from gateway.core.messages import AttemptEnded, Head, Headers, Opened
from gateway.core.request import RESPONSES, TurnRequest
from gateway.ports import Inputs, Upstream, UpstreamCall
from gateway.upstream.answers import CallHeaders, Credential, WireHeaders, never_sent
from gateway.upstream.conversation import Converse, LineSettings
from gateway.upstream.frame_stream import FrameStream
from gateway.upstream.line import Line
from gateway.upstream.pool import Pool

logger = structlog.get_logger("gateway.upstream")


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """What differs from route to route. Durations are seconds; the base URL is the one of HTTP."""

    base_url: str
    credential: Credential | None = None
    headers: Headers = ()
    connect_seconds: float = limits.CONNECT_SECONDS
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    retryable_codes: frozenset[str] = RETRYABLE_CODES
    age_seconds_max: float = limits.UPSTREAM_SOCKET_SECONDS_MAX
    idle_seconds_max: float = limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX
    idle_sockets_max: int = limits.UPSTREAM_IDLE_SOCKETS_MAX


class OverHTTP(Upstream, Protocol):
    """The way to the endpoints that a WebSocket does not have."""

    async def aclose(self) -> None:
        """Close the pooled connections."""
        ...


class WebSocketUpstream:
    """One route's upstream. `over_http` is the way for what a WebSocket does not have: other endpoints (H2),
    responses that go on in the background (B9)."""

    def __init__(
        self,
        settings: WebSocketSettings,
        converse: Converse,
        name: str = "upstream",
        over_http: OverHTTP | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._settings = settings
        self._headers = CallHeaders({}, settings.credential, settings.headers)
        self._aside = aside or Aside()
        self._converse_by = converse
        self._line_settings = _line_settings(settings, name)
        self._pool = Pool(settings.idle_sockets_max)
        self._over_http = over_http

    def __repr__(self) -> str:
        return f"<WebSocketUpstream {self._line_settings.name}, {self._pool}>"

    @property
    def idle_sockets(self) -> int:
        """How many wait for a turn."""
        return len(self._pool)

    def drain(self) -> None:
        """T7: nothing is kept for turns that will not come."""
        self._pool.drain()

    def resume(self) -> None:
        """C2: the route stands again, before its last turn has ended."""
        self._pool.resume()

    async def aclose(self) -> None:
        """Close the idle sockets, and the connections beside them."""
        await self._pool.aclose()
        if self._over_http is not None:
            await self._over_http.aclose()

    def body_of(self, request: TurnRequest, upstream_model: str | None) -> bytes:
        """H3 (ports.Upstream)."""
        if self._over_http is not None and _has_no_frame(request):
            return self._over_http.body_of(request, upstream_model)
        return request.body_for_websocket(upstream_model)

    def holds(self, response_id: str, headers: Headers) -> bool:
        """W10 (ports.Upstream)."""
        return self._pool.holds(self._handshake_headers(headers), response_id)

    async def attempt(self, call: UpstreamCall, inputs: Inputs) -> None:
        """Run one attempt (ports.Upstream). What no frame can ask for goes over HTTP."""
        if self._over_http is not None and _has_no_frame(call):
            await self._over_http.attempt(call, inputs)
            return
        try:
            failure = await self._converse(call, inputs)
            if failure is not None:
                await inputs.send((AttemptEnded(failure), trio.current_time()))
        except trio.BrokenResourceError:
            return  # the turn is decided: nobody listens any more

    async def _converse(self, call: UpstreamCall, inputs: Inputs) -> Failure | None:
        """The call, to its end: None after a terminal event, else why it ended without one."""
        headers = self._handshake_headers(call.headers)
        idle = self._pool.take(headers, call.continues)
        if idle is not None:
            async with self._held(idle):
                await idle.let_die()
                if await idle.send(await _create_on(idle, call)):
                    return await self._listen(idle, Head(is_framed=True), call, inputs)
            logger.info("upstream_socket_lost", upstream=self._line_settings.name, why="found dead")
        line = Line(self._line_settings, self._converse_by, headers)
        async with self._held(line):
            await line.open()
            if line.failure is None and await line.send(await _create_on(line, call)):
                return await self._listen(line, Head(line.handshake, is_framed=True), call, inputs)
            return line.failure or never_sent("the upstream closed the connection as it was opened")

    def _handshake_headers(self, own: Headers) -> WireHeaders:
        return self._headers.behind(own)

    @asynccontextmanager
    async def _held(self, line: Line) -> AsyncIterator[None]:
        """Whatever happens to the attempt, its line goes back to the pool or is closed, and that soon (H7)."""
        try:
            yield
        finally:
            if line.has_finished:
                self._pool.put(line)
            else:
                line.leave()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + limits.UPSTREAM_CLOSE_SECONDS_MAX):
                    await line.has_ended.wait()

    async def _listen(self, line: Line, head: Head, call: UpstreamCall, inputs: Inputs) -> Failure | None:
        """`head` is the handshake's for the line's first response: its headers speak of no other."""
        await inputs.send((Opened(head), trio.current_time()))
        return await FrameStream(line, call, inputs, self._aside, self._settings.retryable_codes).run()


def _has_no_frame(asked: TurnRequest | UpstreamCall) -> bool:
    """Whether no `response.create` can ask for it: another endpoint, or a response that goes on (B9), to which a
    WebSocket has no way back."""
    return asked.path != RESPONSES or asked.is_background


async def _create_on(line: Line, call: UpstreamCall) -> bytes:
    """W10: the line that holds what the call goes on from gets it as it is; any other knows nothing of that."""
    if call.elsewhere is None or line.response_id == call.continues:
        return call.body
    return await call.elsewhere()


def _line_settings(settings: WebSocketSettings, name: str) -> LineSettings:
    url = urlsplit(settings.base_url)
    return LineSettings(
        name=name,
        host=url.netloc,
        resource=url.path.rstrip("/") + "/responses",
        connect_seconds=settings.connect_seconds,
        event_bytes_max=settings.event_bytes_max,
        age_seconds_max=settings.age_seconds_max,
        idle_seconds_max=settings.idle_seconds_max,
        retryable_codes=settings.retryable_codes,
    )
