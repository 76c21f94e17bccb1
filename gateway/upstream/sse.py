"""An upstream that answers in server-sent events over HTTP (C5 `sse`, P8, P9).

How it is called is a Caller's affair (calls.py). No deadline is around a read: the clocks are the turn's. What comes of
a call becomes inputs and a Failure here:

    NeverSent                               never sent: no byte of the request was written
    Broken                                  read error: reset, protocol error, a write that failed
    an end without a terminal event         read error; a pending event that is whole still counts (P6)
    a status of 4xx or 5xx                  the upstream's own failure, its answer kept for delivery
    a 2xx that is no event stream, a 3xx    upstream_bad_response; an empty 2xx is a read error

Where no stream was asked for (H1) a 2xx is one JSON body, read whole; what is none, or is a stream, is a bad response.
A break behind its first byte cuts a result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.core.events import parse_object
from gateway.core.failures import RETRYABLE_CODES, Failure, UpstreamAnswer
from gateway.core.messages import AttemptEnded, Batch, Head, Headers, Opened
from gateway.core.request import TurnRequest
from gateway.core.whole import is_cut_short, whole_event
from gateway.encodings import Decoder, EncodingError, decoder_for
from gateway.ports import Inputs, UpstreamCall
from gateway.upstream.answers import (
    CallHeaders,
    Credential,
    bad_response,
    headers_of,
    never_sent,
    read_error,
    refused,
    too_large,
    why,
)
from gateway.upstream.calls import Answer, Broken, Caller, NeverSent
from gateway.upstream.streaming import EventStream

logger = structlog.get_logger("gateway.upstream")

ASKED_FOR: Final = {"content-type": "application/json", "accept-encoding": "identity"}
ACCEPTED: Final = {True: "text/event-stream", False: "application/json"}
"""By whether a stream is asked for."""
SUCCESS: Final = range(200, 300)
NO_CONTENT: Final = 204
REFUSALS_FROM: Final = 400
"""Statuses."""


@dataclass(frozen=True, slots=True)
class SSESettings:
    """What differs from route to route. Durations are seconds."""

    base_url: str
    credential: Credential | None = None
    headers: Headers = ()
    connect_seconds: float = limits.CONNECT_SECONDS
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    retryable_codes: frozenset[str] = RETRYABLE_CODES


class SSEUpstream:
    """One route's upstream, called by `caller`. What is megabytes long is read by `aside`."""

    def __init__(self, settings: SSESettings, caller: Caller, aside: Aside | None = None) -> None:
        self._settings = settings
        self._headers = {
            streams: CallHeaders({**ASKED_FOR, "accept": accepted}, settings.credential, settings.headers)
            for streams, accepted in ACCEPTED.items()
        }
        """P8: by whether a stream is asked for."""
        self._caller = caller
        self._aside = aside or Aside()

    def __repr__(self) -> str:
        return f"<SSEUpstream over {self._caller!r}>"

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._caller.aclose()

    def body_of(self, request: TurnRequest, upstream_model: str | None) -> bytes:
        """H3 (ports.Upstream)."""
        return request.body_for_sse(upstream_model)

    def holds(self, response_id: str, headers: Headers) -> bool:
        """W10: HTTP remembers nothing (ports.Upstream)."""
        return False

    def attempt(self, call: UpstreamCall, inputs: Inputs) -> Coroutine[Any, Any, None]:
        """Run one attempt (ports.Upstream). Once it is sent, nothing holds its body here: it may be megabytes, and the
        answer may take minutes. For so long it also waits in as few frames as can be: thousands do."""
        return self._attempt(self._call(call), call.turn_id, call.streams, inputs)

    async def _attempt(self, calling: Awaitable[Answer], turn_id: str, streams: bool, inputs: Inputs) -> None:
        try:
            answer = await _answer_of(calling)
            del calling
            failure = answer if isinstance(answer, Failure) else None
            if not isinstance(answer, Failure):
                try:
                    begun = await self._begin(answer, streams, inputs)
                    failure = await begun.run(turn_id) if isinstance(begun, EventStream) else begun
                except (Broken, EncodingError) as error:
                    failure = read_error(_why(error))
                finally:
                    await answer.aclose()  # noqa: ASYNC102 - it is shielded and bounded within
            if failure is not None:
                await inputs.send((AttemptEnded(failure), trio.current_time()))
        except trio.BrokenResourceError:
            return  # the turn is decided: nobody listens any more

    async def fetch(self, call: UpstreamCall) -> UpstreamAnswer | Failure:
        """H2: the whole answer (homes.ByID)."""
        answer = await _answer_of(self._call(replace(call, streams=False)))
        if isinstance(answer, Failure):
            return answer
        try:
            return await self._whole_answer(answer)
        except (Broken, EncodingError) as error:
            return read_error(_why(error))
        finally:
            await answer.aclose()  # noqa: ASYNC102 - it is shielded and bounded within

    def _call(self, call: UpstreamCall) -> Awaitable[Answer]:
        headers = self._headers[call.streams].behind(call.headers)
        return self._caller.call(call.method, call.path, headers, call.body)

    async def _whole_answer(self, answer: Answer) -> UpstreamAnswer | Failure:
        head = headers_of(answer.headers)
        decoder = decoder_for(_value(head, "content-encoding"))
        if answer.status >= REFUSALS_FROM:
            body = await _read_error_body(answer, decoder)
            return refused(answer.status, head, body, self._settings.retryable_codes)
        if answer.status not in SUCCESS or decoder is None:
            return self._bad_response(f"status {answer.status}, or an encoding that was not asked for")
        body = await _read_body(answer, decoder, self._settings.event_bytes_max)
        if body is None:
            return too_large(f"the answer is larger than {self._settings.event_bytes_max} bytes")
        found = await self._aside.run(len(body), partial(self._no_object, answer.status, body))
        return found or UpstreamAnswer(answer.status, head, body)

    def _no_object(self, status: int, body: bytes) -> Failure | None:
        """P9: what the API answers is an object; only where nothing was to be said there may be none."""
        if parse_object(body) is not None or (status == NO_CONTENT and not body):
            return None
        if is_cut_short(body) or not body:
            return read_error("the upstream ended the body before the answer was whole")
        return self._bad_response("it is no JSON object")

    async def _begin(self, answer: Answer, streams: bool, inputs: Inputs) -> EventStream | Failure | None:
        """The answer's stream, whose end tells what became of the attempt; of any other, to its end: None after a
        terminal event, else why it ended without one."""
        head = headers_of(answer.headers)
        decoder = decoder_for(_value(head, "content-encoding"))
        if answer.status >= REFUSALS_FROM:
            body = await _read_error_body(answer, decoder)
            return refused(answer.status, head, body, self._settings.retryable_codes)
        if answer.status not in SUCCESS:
            return self._bad_response(f"status {answer.status}")
        if decoder is None:
            return self._bad_response("it is encoded in a way that was not asked for")
        if not streams:
            return await self._whole(answer, head, decoder, inputs)
        if _is_event_stream(head):
            answer.forget_headers()
            await inputs.send((Opened(Head(head)), trio.current_time()))
            return EventStream(answer, decoder, inputs, self._settings.event_bytes_max, self._aside)
        body = await _read_body(answer, decoder)
        if body == b"":
            return read_error("the answer was empty")
        return self._bad_response("it is no event stream", body or b"")

    def _bad_response(self, what: str, body: bytes = b"") -> Failure:
        return bad_response(what, self._settings.retryable_codes, body)

    async def _whole(self, answer: Answer, head: Headers, decoder: Decoder, inputs: Inputs) -> Failure | None:
        """H1: one body, as a terminal event, at the instant at which it was whole."""
        await inputs.send((Opened(Head(head)), trio.current_time()))
        if _is_event_stream(head):
            return self._bad_response("it is an event stream, which was not asked for")
        body = _Body(self._settings.event_bytes_max)
        try:
            if not await body.read(answer, decoder):
                return too_large(f"the body has more than {self._settings.event_bytes_max} bytes")
        except (Broken, EncodingError) as error:
            return await _broken(_why(error), body, inputs)
        data = bytes(body.data)
        at = trio.current_time()
        event = await self._aside.run(len(data), partial(whole_event, data))
        if event is not None:
            await inputs.send((Batch([event]), at))
            return None
        if not data or await self._aside.run(len(data), partial(is_cut_short, data)):
            return await _broken("the upstream ended the body before the response was whole", body, inputs)
        return self._bad_response("it is no response", data)


async def _answer_of(calling: Awaitable[Answer]) -> Answer | Failure:
    """To one request."""
    try:
        return await calling
    except NeverSent as error:
        return never_sent(str(error))
    except Broken as error:
        return read_error(str(error))


async def _read_error_body(answer: Answer, decoder: Decoder | None) -> bytes | None:
    """None if it broke, is encoded in a way that is not known, or is too large."""
    if decoder is None:
        return None
    try:
        return await _read_body(answer, decoder)
    except (Broken, EncodingError):
        return None


async def _read_body(answer: Answer, decoder: Decoder, bytes_max: int = limits.ERROR_BODY_BYTES_MAX) -> bytes | None:
    """A body that is no stream, decoded; None if it is too large, by default to be an error object."""
    body = _Body(bytes_max)
    return bytes(body.data) if await body.read(answer, decoder) else None


class _Body:
    """What was read of a body, decoded."""

    def __init__(self, bytes_max: int) -> None:
        self.data = bytearray()
        self.has_begun = False
        self._bytes_max = bytes_max

    async def read(self, answer: Answer, decoder: Decoder) -> bool:
        """To its end; False if it has more bytes than it may."""
        while chunk := await answer.read():
            self.has_begun = True
            for piece in decoder.decode(chunk):
                self.data += piece
                if len(self.data) > self._bytes_max:
                    return False
        if self.has_begun:
            decoder.end()
        return True


async def _broken(why: str, body: _Body, inputs: Inputs) -> Failure | None:
    """R15, R4: a break before a body's first byte is one before the first event; behind it a result was observed."""
    if not body.has_begun:
        return read_error(why)
    await inputs.send((AttemptEnded(read_error(why), result_was_begun=True), trio.current_time()))
    return None


def _is_event_stream(head: Headers) -> bool:
    return _value(head, "content-type").strip().lower().startswith("text/event-stream")


def _value(head: Headers, name: str) -> str:
    """A header's value; one that came several times as one line."""
    return ", ".join([value for known, value in head if known == name])


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Broken) else why(error)
