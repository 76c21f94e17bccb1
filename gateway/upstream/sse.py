"""An upstream that answers in server-sent events over HTTP, through httpx2 (C5 `sse`, P8, P9).

One client for each route, no resends by the transport, no redirects, no cookies (they would carry one account's state
to another), no deadline around a read: the clocks are the turn's. What the library raises becomes a Failure here:

    ConnectError, ConnectTimeout            never sent: no byte of the request was written
    any other TransportError                read error: reset, protocol error, a write that failed
    an end without a terminal event         read error; a pending event that is whole still counts (P6)
    a status of 4xx or 5xx                  the upstream's own failure, its answer kept for delivery
    a 2xx that is no event stream, a 3xx    upstream_bad_response; an empty 2xx is a read error
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, TypeVar

import httpx2
import structlog
import trio

from gateway import limits
from gateway.core.events import Event, EventClass
from gateway.core.failures import RETRYABLE_CODES, Failure, UpstreamAnswer
from gateway.core.messages import AttemptEnded, Batch, Head, Headers, Opened
from gateway.core.request import TurnRequest
from gateway.core.sse import BlockTooLarge, SSEParser
from gateway.ports import Stamped, UpstreamCall
from gateway.upstream.answers import (
    bad_response,
    headers_for,
    headers_of,
    never_sent,
    read_error,
    refused,
    too_large,
    why,
)
from gateway.upstream.encodings import Decoder, EncodingError, decoder_for

logger = structlog.get_logger("gateway.upstream")

T = TypeVar("T")
JSON: Final = "application/json"
ASKED_FOR: Final = {
    "content-type": JSON,
    "accept": "text/event-stream",
    "accept-encoding": "identity",
}
Inputs = trio.MemorySendChannel[Stamped]


@dataclass(frozen=True, slots=True)
class SSESettings:
    """What differs from route to route. Durations are seconds."""

    base_url: str
    credential: str | None = field(default=None, repr=False)
    headers: Headers = ()
    connect_seconds: float = limits.CONNECT_SECONDS
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    retryable_codes: frozenset[str] = RETRYABLE_CODES


class SSEUpstream:
    """One route's upstream. `transport` replaces the network (a scripted upstream in tests)."""

    def __init__(self, settings: SSESettings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self._url = settings.base_url.rstrip("/")
        self._client = httpx2.AsyncClient(
            transport=transport,
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx2.Timeout(None, connect=settings.connect_seconds),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,
            trust_env=False,
        )

    def __repr__(self) -> str:
        return f"<SSEUpstream {self._url}>"

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._client.aclose()

    def body_of(self, request: TurnRequest, upstream_model: str | None) -> bytes:
        """H3 (ports.Upstream)."""
        return request.body_for_sse(upstream_model)

    async def attempt(self, call: UpstreamCall, inputs: Inputs) -> None:
        """Run one attempt (ports.Upstream)."""
        try:
            failure = await self._converse(call, inputs)
            if failure is not None:
                await inputs.send((AttemptEnded(failure), trio.current_time()))
        except trio.BrokenResourceError:
            return  # the turn is decided: nobody listens any more

    async def _converse(self, call: UpstreamCall, inputs: Inputs) -> Failure | None:
        """The call, to its end: None after a terminal event, else why it ended without one."""
        return await self._ask(call, ASKED_FOR, partial(self._answer, call=call, inputs=inputs))

    async def fetch(self, call: UpstreamCall) -> UpstreamAnswer | Failure:
        """H2: the whole answer (ports.ByID)."""
        return await self._ask(call, {**ASKED_FOR, "accept": JSON}, self._whole_answer)

    async def _ask(
        self, call: UpstreamCall, own: Mapping[str, str], answer: Callable[[httpx2.Response], Awaitable[T]]
    ) -> T | Failure:
        """One request, and what `answer` makes of its response."""
        headers = headers_for(call.headers, own, self._settings.credential, self._settings.headers)
        request = self._client.build_request(call.method, self._url + call.path, content=call.body, headers=headers)
        try:
            response = await self._client.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return never_sent(why(error))
        except httpx2.TransportError as error:
            return read_error(why(error))
        try:
            return await answer(response)
        except (httpx2.TransportError, EncodingError) as error:
            return read_error(why(error))
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + limits.UPSTREAM_CLOSE_SECONDS_MAX):
                await response.aclose()

    async def _whole_answer(self, response: httpx2.Response) -> UpstreamAnswer | Failure:
        decoder = decoder_for(response.headers.get("content-encoding", ""))
        if response.is_error:
            body = await _read_error_body(response, decoder)
            return refused(response.status_code, _headers_of(response), body, self._settings.retryable_codes)
        if not response.is_success or decoder is None:
            return self._bad_response(f"status {response.status_code}, or an encoding that was not asked for")
        body = await _read_body(response, decoder, self._settings.event_bytes_max)
        if body is None:
            return too_large(f"the answer is larger than {self._settings.event_bytes_max} bytes")
        return UpstreamAnswer(response.status_code, _headers_of(response), body)

    async def _answer(self, response: httpx2.Response, call: UpstreamCall, inputs: Inputs) -> Failure | None:
        decoder = decoder_for(response.headers.get("content-encoding", ""))
        if response.is_error:
            body = await _read_error_body(response, decoder)
            return refused(response.status_code, _headers_of(response), body, self._settings.retryable_codes)
        if not response.is_success:
            return self._bad_response(f"status {response.status_code}")
        if decoder is None:
            return self._bad_response("it is encoded in a way that was not asked for")
        if response.headers.get("content-type", "").strip().lower().startswith("text/event-stream"):
            parser = SSEParser(self._settings.event_bytes_max)
            try:
                return await self._stream(response, parser, decoder, inputs)
            finally:
                _log_what_was_not_forwarded(parser, call)
        body = await _read_body(response, decoder)
        return read_error("the answer was empty") if body == b"" else self._bad_response("it is no event stream")

    def _bad_response(self, what: str) -> Failure:
        return bad_response(what, self._settings.retryable_codes)

    # --- the stream ---------------------------------------------------------------------------------------------

    async def _stream(
        self, response: httpx2.Response, parser: SSEParser, decoder: Decoder, inputs: Inputs
    ) -> Failure | None:
        await inputs.send((Opened(Head(_headers_of(response))), trio.current_time()))
        async with _chunks_of(response) as chunks:
            try:
                async for chunk in chunks:
                    for piece in decoder.decode(chunk):
                        parser.receive_data(piece)
                        if await _send_events(parser, inputs):
                            await _drain(chunks)
                            return None
            except BlockTooLarge as error:
                return too_large(str(error))
        decoder.end()
        return await _end_of_stream(parser, inputs)


async def _send_events(parser: SSEParser, inputs: Inputs) -> bool:
    """Send all complete events in batches; whether the last one is terminal. Raises BlockTooLarge behind them."""
    at = trio.current_time()
    while True:  # noqa: ASYNC913 - it goes round only behind a send
        events, too_large = _take_events(parser)
        if events:
            await inputs.send((Batch(events), at))
        if too_large is not None:
            raise too_large
        if events and events[-1].kind is EventClass.TERMINAL:
            return True
        if len(events) < limits.BATCH_EVENTS_MAX:
            return False


def _take_events(parser: SSEParser) -> tuple[list[Event], BlockTooLarge | None]:
    """Up to a batch of events, none behind a terminal one (E9), and the reason why there can be no more."""
    events: list[Event] = []
    try:
        while len(events) < limits.BATCH_EVENTS_MAX and (event := parser.next_event()) is not None:
            events.append(event)
            if event.kind is EventClass.TERMINAL:
                break
    except BlockTooLarge as error:
        return events, error
    return events, None


def _log_what_was_not_forwarded(parser: SSEParser, call: UpstreamCall) -> None:
    """E7, E9: blocks that were no events (comments too), and events that came in one read with the terminal one."""
    behind = 0
    with suppress(BlockTooLarge):
        while parser.next_event() is not None:
            behind += 1
    if behind or parser.not_events:
        logger.info(
            "not_forwarded", turn_id=call.turn_id, blocks_without_event=parser.not_events, events_behind_the_end=behind
        )


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """E9: read to the body's end, so that the connection can serve again; a break says nothing any more. The turn
    bounds the wait."""
    with suppress(httpx2.TransportError):
        async for _ in chunks:
            pass


async def _end_of_stream(parser: SSEParser, inputs: Inputs) -> Failure | None:
    event = parser.receive_end(clean=True)
    if event is not None:
        await inputs.send((Batch([event]), trio.current_time()))
        if event.kind is EventClass.TERMINAL:
            return None
    return read_error("the upstream ended the stream without a terminal event")


@asynccontextmanager
async def _chunks_of(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """The body as it comes off the wire. httpx2 reads through nested generators, and one that is left in the middle
    drops those within; so what is left is ended by a cancelled read, which unwinds them from the inside."""
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        with trio.move_on_after(0, shield=True):
            await _drain(chunks)


async def _read_error_body(response: httpx2.Response, decoder: Decoder | None) -> bytes | None:
    """None if it broke, is encoded in a way that is not known, or is too large."""
    if decoder is None:
        return None
    try:
        return await _read_body(response, decoder)
    except (httpx2.TransportError, EncodingError):
        return None


async def _read_body(
    response: httpx2.Response, decoder: Decoder, bytes_max: int = limits.ERROR_BODY_BYTES_MAX
) -> bytes | None:
    """A body that is no stream, decoded; None if it is too large, by default to be an error object."""
    body = bytearray()
    async with _chunks_of(response) as chunks:
        async for chunk in chunks:
            for piece in decoder.decode(chunk):
                body += piece
                if len(body) > bytes_max:
                    return None
    if body:
        decoder.end()
    return bytes(body)


def _headers_of(response: httpx2.Response) -> Headers:
    return headers_of(response.headers.raw)
