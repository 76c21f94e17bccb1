"""An upstream that answers in text frames over a WebSocket, through trio-websocket (C5 `websocket`, F4, X5, §4).

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

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.core.events import Event, EventClass, member, read_event, response_id
from gateway.core.failures import RETRYABLE_CODES, Failure
from gateway.core.messages import AttemptEnded, Batch, Head, Headers, Opened
from gateway.core.request import RESPONSES, TurnRequest
from gateway.core.sse import sse_block
from gateway.ports import Inputs, Upstream, UpstreamCall
from gateway.upstream.answers import CallHeaders, Credential, WireHeaders, bad_response, never_sent
from gateway.upstream.line import Connect, Line, LineSettings
from gateway.upstream.pool import Pool
from gateway.upstream.trust import trusted

logger = structlog.get_logger("gateway.upstream")

PORTS: Final = {"http": 80, "https": 443}


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
    """One route's upstream. `connect` replaces the network (a scripted upstream in tests); `over_http` is the way for
    what a WebSocket does not have: other endpoints (H2), responses that go on in the background (B9)."""

    def __init__(
        self,
        settings: WebSocketSettings,
        connect: Connect | None = None,
        name: str = "upstream",
        over_http: OverHTTP | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._settings = settings
        self._headers = CallHeaders({}, settings.credential, settings.headers)
        self._aside = aside or Aside()
        self._connect = connect or Network(settings.base_url)
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
        line = Line(self._line_settings, self._connect, headers)
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
        reading = _Reading()
        try:
            while not reading.is_over and (frames := await line.take()) is not None:
                events = await self._aside.run(frames.size_bytes, partial(reading.events_of, frames.payloads))
                end = _bad_end(events, call)
                if end is not None:
                    await self._tell_bad(events[: end[0]], end[1], events[end[0]].data, frames.at, inputs)
                    return None
                if events and events[-1].kind is EventClass.TERMINAL and reading.behind == 0:
                    line.finish(response_id(events[-1].body), call.may_go_on)
                if events:
                    await inputs.send((Batch(events), frames.at))
        finally:
            reading.log(call)
        return None if reading.is_over else line.failure

    async def _tell_bad(self, sound: list[Event], why: str, data: bytes, at: float, inputs: Inputs) -> None:
        """P9: behind what was sound; a result was made that nobody asked for in this way (R4)."""
        if sound:
            await inputs.send((Batch(sound), at))
        failure = bad_response(why, self._settings.retryable_codes, data)
        await inputs.send((AttemptEnded(failure, result_was_begun=True), at))


def _has_no_frame(asked: TurnRequest | UpstreamCall) -> bool:
    """Whether no `response.create` can ask for it: another endpoint, or a response that goes on (B9), to which a
    WebSocket has no way back."""
    return asked.path != RESPONSES or asked.is_background


async def _create_on(line: Line, call: UpstreamCall) -> bytes:
    """W10: the line that holds what the call goes on from gets it as it is; any other knows nothing of that."""
    if call.elsewhere is None or line.response_id == call.continues:
        return call.body
    return await call.elsewhere()


class _Reading:
    """The frames of one response as events, and what is not forwarded of them (E7, E9)."""

    def __init__(self) -> None:
        self.is_over = False
        self.behind = 0
        self._not_events = 0

    def events_of(self, payloads: list[bytes]) -> list[Event]:
        """None behind a terminal one."""
        events: list[Event] = []
        for payload in payloads:
            event = None if self.is_over else _event_of(payload)
            if event is not None:
                events.append(event)
                self.is_over = event.kind is EventClass.TERMINAL
            elif self.is_over:
                self.behind += 1
            else:
                self._not_events += 1
        return events

    def log(self, call: UpstreamCall) -> None:
        """In numbers."""
        if self._not_events or self.behind:
            counts = {"blocks_without_event": self._not_events, "events_behind_the_end": self.behind}
            logger.info("not_forwarded", turn_id=call.turn_id, **counts)


def _bad_end(events: Sequence[Event], call: UpstreamCall) -> tuple[int, str] | None:
    """The first event that is no answer to the call, by its place, and why; None if there is none."""
    if not call.generates:
        for place, event in enumerate(events):
            if event.kind is EventClass.OUTPUT:
                return place, "it generates for a warm-up"
    if not call.streams and events and _lacks_response(events[-1]):
        return len(events) - 1, "its last event has no response"
    return None


def _lacks_response(event: Event) -> bool:
    """Of a failed response the client is told why (crossing.as_answer)."""
    is_result = event.kind is EventClass.TERMINAL and event.type != "response.failed"
    return is_result and not isinstance(member(event.body, "response"), Mapping)


def _event_of(payload: bytes) -> Event | None:
    """E10: the frame is the payload; an HTTP client gets it wrapped."""
    event = read_event(payload, b"")
    return None if event is None else event._replace(block=sse_block(event.type, payload))


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


class Network:
    """TCP to a base URL's host, with TLS if it is https, trusting whom the HTTP client trusts."""

    def __init__(self, base_url: str, tls: ssl.SSLContext | None = None) -> None:
        url = urlsplit(base_url)
        self._host = url.hostname or ""
        self._port = url.port or PORTS[url.scheme]
        self._tls = (tls or trusted()) if url.scheme == "https" else None

    async def __call__(self) -> trio.abc.Stream:
        """Raises OSError, or BrokenResourceError where TLS fails."""
        stream = await trio.open_tcp_stream(self._host, self._port)
        if self._tls is None:
            return stream
        secured = trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)
        is_secured = False
        try:
            await secured.do_handshake()
            is_secured = True
        finally:
            if not is_secured:
                await trio.aclose_forcefully(stream)
        return secured
