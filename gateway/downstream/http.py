"""The HTTP door: `POST /v1/responses`, answered in server-sent events, or in one body where `stream` is not true (H).
Beside it `/compact`, a turn without streaming, and `/input_tokens`, a question that is no turn.

Headers leave with the first event (`start = "late"`), so that an early failure is a real status; at the latest after
`start_latest`, with a comment, since clients give up at 30 s. `start = "early"` sends both at once (H9). While output
is silent a comment leaves every 15 s, but never before the headers (H6). One body leaves with its headers, whole (H1).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio
from quart import Response

from gateway import limits
from gateway.aside import Aside
from gateway.core.eligibility import StatePolicy
from gateway.core.events import Event
from gateway.core.failures import PUBLIC_CODES, Failure, Refusal, UpstreamAnswer
from gateway.core.messages import Deliver, DeliverFailure, Door, Head, Headers, Taken
from gateway.core.request import COMPACT, INPUT_TOKENS, RESPONSES, RequestBody
from gateway.core.whole import bare_response
from gateway.downstream.addresses import client_address
from gateway.downstream.asked import Asked
from gateway.downstream.auth import Keys
from gateway.downstream.bodies import (
    asks_for_stream,
    refuse_warm_up,
    require_plain_background,
    turn_request,
)
from gateway.downstream.connections import Wire, encoded
from gateway.downstream.decoding import coding_of, receive_body
from gateway.downstream.errors import STORE_AWAY, failure_body, refusal_body, sse_failure
from gateway.downstream.headers import headers_down, headers_read, retry_after
from gateway.downstream.straight import StraightApp
from gateway.measures import Meter, NoMeter
from gateway.ports import NoBounds, Order, Places, Turns

KEEPALIVE: Final = b": keepalive\n\n"
EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
WHOLE_BODY: Final[Headers] = (("cache-control", "no-store"),)
JSON_CONTENT: Final = ("content-type", "application/json")
RATE_LIMITED: Final = 429


@dataclass(frozen=True, slots=True)
class HTTPSettings:
    """How the door behaves. Durations are seconds."""

    policy: StatePolicy = field(default_factory=StatePolicy)
    starts_early: bool = False
    start_latest_seconds: float = limits.START_LATEST_SECONDS
    trusted_hops: int = 0
    body_bytes_max: int = limits.BODY_BYTES_MAX


class HTTPDoor:
    """`POST /v1/responses`."""

    def __init__(
        self,
        turns: Turns,
        keys: Keys,
        settings: HTTPSettings,
        new_request_id: Callable[[], str],
        places: Places | None = None,
        meter: Meter | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._aside = aside or Aside()
        self._places = places or NoBounds()
        self._meter = meter or NoMeter()
        self._turns = turns
        self._run_turn = turns.run_turn  # one object for all turns
        self._keys = keys
        self._settings = settings
        self._new_request_id = new_request_id

    def open(self, app: StraightApp) -> None:
        """Put the door into the app."""
        app.add_straight("POST", "/v1/responses", self.create)
        app.add_straight("POST", "/v1/responses/compact", self.compact)
        app.add_straight("POST", "/v1/responses/input_tokens", self.count)
        app.add_url_rule("/v1/responses", "upgrade_required", self.upgrade_required, methods=["GET"])

    def create(self, asked: Asked, wire: Wire) -> Awaitable[None]:
        """One turn."""
        return self._serve(asked, wire, RESPONSES, self._run_turn)

    def compact(self, asked: Asked, wire: Wire) -> Awaitable[None]:
        """A turn without streaming (B9)."""
        return self._serve(asked, wire, COMPACT, self._run_turn)

    def count(self, asked: Asked, wire: Wire) -> Awaitable[None]:
        """A question that is no turn, and free (B9)."""
        return self._serve(asked, wire, INPUT_TOKENS, self._ask)

    async def _serve(
        self, asked: Asked, wire: Wire, path: str, run_order: Callable[[Order, HTTPClient], Awaitable[None]]
    ) -> None:
        request_id, client = self._new_request_id(), None
        try:
            order = await self._order(request_id, asked, path)
            client = self._client(order, wire)
            await run_order(order, client)
        except Refusal as refusal:
            self._meter.refused(Door.HTTP, refusal.code)
            answering = refuse_on(wire, refusal, request_id) if client is None else client.refuse(refusal)
            await answering  # noqa: ASYNC120 - a cancellation is the better reason

    async def _ask(self, order: Order, client: HTTPClient) -> None:
        """A client that leaves withdraws its question (H7)."""
        with trio.CancelScope() as asking:
            client.cancel_when_left(asking)
            await client.write(await self._turns.ask(order))

    async def _order(self, request_id: str, asked: Asked, path: str) -> Order:
        """A request's turn. Its places are taken before its body is read, so that bodies are bounded by them, too."""
        key = await self._keys.admit(asked.header(b"authorization"))
        encoding = coding_of(asked.header(b"content-encoding"))
        asked.hold(self._places.connection(key.label, lasts=False))
        asked.hold(self._places.turn(key.label))
        self._keys.count_request(key)
        raw = await asked.body()
        body = await receive_body(raw, encoding, self._aside, asked.inbound, self._settings.body_bytes_max)
        streams = path == RESPONSES and _streams(body)
        headers = headers_read(asked.scope["headers"])
        request = turn_request(body, headers, self._settings.policy, streams=streams, path=path)
        key.require_model(request.model)
        address = client_address(asked.scope, self._settings.trusted_hops)
        asked.let_go()
        return Order(
            turn_id=request_id,
            account=key.account,
            request=request,
            replay_is_disabled=key.replay_never,
            client_address=address,
            key=key.name,
            spend_limits=self._keys.spend_limits(key),
        )

    async def upgrade_required(self) -> Response:
        """H8: agents fall back to HTTP at once on 426, and on nothing else."""
        refusal = Refusal("invalid_request", "open a WebSocket here, or POST to create a response")
        response = refuse(refusal, self._new_request_id())
        response.status_code = 426
        response.headers["upgrade"] = "websocket"
        response.headers["connection"] = "upgrade"
        response.headers["sec-websocket-version"] = "13"
        return response

    def _client(self, order: Order, wire: Wire) -> HTTPClient:
        """For a request that has just been read."""
        if not order.request.streams:
            return WholeClient(wire, order.turn_id, self._aside)
        waits_seconds = 0.0 if self._settings.starts_early else self._settings.start_latest_seconds
        return HTTPClient(wire, order.turn_id, trio.current_time() + waits_seconds)


def _streams(body: RequestBody) -> bool:
    refuse_warm_up(body)
    require_plain_background(body)
    return asks_for_stream(body)


def refuse(refusal: Refusal, request_id: str) -> Response:
    """A refusal as a response (X2)."""
    response = Response(refusal_body(refusal, request_id), refusal.public.status, content_type="application/json")
    response.headers["x-request-id"] = request_id
    response.headers.update(_refusal_headers(refusal))
    return response


async def refuse_on(wire: Wire, refusal: Refusal, request_id: str) -> None:
    """The same, to a client that nothing else was made for."""
    body = refusal_body(refusal, request_id)
    own = ("content-length", str(len(body))), ("x-request-id", request_id)
    await wire.start(refusal.public.status, (JSON_CONTENT, *own, *_refusal_headers(refusal).items()))
    await wire.end(body)


def _refusal_headers(refusal: Refusal) -> dict[str, str]:
    """X2: only where nothing was sent and waiting helps, a client may simply send again."""
    seconds = refusal.public.retry_after_seconds
    return {} if seconds is None else {"retry-after": str(seconds), "x-should-retry": "true"}


class HTTPClient:
    """One turn's client on HTTP (ports.Downstream). `start_at` is when headers must leave at the latest."""

    __slots__ = ("_has_ended", "_has_started", "_request_id", "_wire", "departure_passes", "quiet_deadline")

    door = Door.HTTP

    def __init__(self, wire: Wire, request_id: str, start_at: float) -> None:
        self._wire = wire
        self._request_id = request_id
        self.departure_passes = wire.departure.passes
        self.quiet_deadline = start_at
        """H6, H9."""
        self._has_started = False
        self._has_ended = False

    def __repr__(self) -> str:
        return f"<HTTPClient {self._request_id}, started={self._has_started}>"

    async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
        """Events as they came; a failure as a real status if nothing has left yet, else as events."""
        if isinstance(frames, Deliver):
            await self._write_events(frames, is_last=is_last)
        elif self._has_started:
            await self._write_piece(sse_failure(frames, self._request_id), is_last=is_last)
        else:
            await self._write_status(frames.failure)

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        """Events as they came, behind others."""
        taken = self._wire.write_at_once([event.block for event in events])
        if taken is not Taken.NOTHING:
            self.quiet_deadline = now + limits.KEEPALIVE_SECONDS
        return taken

    async def write_rest(self) -> None:
        """A piece that was taken in part."""
        await self._wire.write(b"")

    async def write_quiet(self) -> None:
        """Headers, if they have not left, and a comment."""
        await self._start(None)
        await self._wire.write(KEEPALIVE)
        self._spoke()

    async def end(self) -> None:
        """X1: the body closes right after the terminal."""
        if not self._has_ended:
            self._has_ended = True
            await self._wire.end()

    def watch(self, tell: Callable[[str], None]) -> None:
        """H7."""
        self._wire.departure.watch(tell)

    def unwatch(self, tell: Callable[[str], None]) -> None:
        """The turn is over."""
        self._wire.departure.unwatch(tell)

    def cancel_when_left(self, asking: trio.CancelScope) -> None:
        """H7: of what is no turn."""
        self._wire.departure.watch(lambda _how: asking.cancel())

    async def refuse(self, refusal: Refusal) -> None:
        """The turn may not begin."""
        headers = (JSON_CONTENT, ("x-request-id", self._request_id), *_refusal_headers(refusal).items())
        await self._write_whole(refusal.public.status, headers, refusal_body(refusal, self._request_id))

    async def write_answer(self, status: int, headers: Headers, body: bytes) -> None:
        """H2: a whole answer that is no failure."""
        await self._write_whole(status, (*headers, ("x-request-id", self._request_id)), body)

    async def _write_events(self, frames: Deliver, *, is_last: bool) -> None:
        await self._start(frames.head)
        await self._write_piece(b"".join([event.block for event in frames.events]), is_last=is_last)
        self._spoke()

    async def _write_piece(self, piece: bytes, *, is_last: bool) -> None:
        """Of the body; the last one and the end behind it leave as one."""
        if is_last:
            self._has_ended = True
        await (self._wire.end(piece) if is_last else self._wire.write(piece))

    async def _start(self, head: Head | None) -> None:
        if not self._has_started:
            self._has_started = True
            down = () if head is None else headers_down(head.headers)
            own = self._request_id.encode("latin-1")
            ids = (b"x-request-id", own), (b"x-billing-transaction-id", own)
            await self._wire.start_with(200, [*EVENT_STREAM, *ids, *encoded(down)])

    def _own_headers(self) -> Headers:
        return ("x-request-id", self._request_id), ("x-billing-transaction-id", self._request_id)

    def _spoke(self) -> None:
        self.quiet_deadline = trio.current_time() + limits.KEEPALIVE_SECONDS

    async def _write_status(self, failure: Failure) -> None:
        """X2: the upstream's own answer, or ours; nothing was delivered, so nothing is lost."""
        answer = failure.answer
        body = failure_body(failure, self._request_id) if answer is None else answer.body
        content = JSON_CONTENT if answer is None else _content_type(answer)
        passed = _own_retry_after(failure) if answer is None else _passed(answer)
        should_retry = "true" if failure.code == STORE_AWAY else "false"
        retry: Headers = () if failure.status == RATE_LIMITED else (("x-should-retry", should_retry),)
        await self._write_whole(failure.status, (content, *self._own_headers(), *passed, *retry), body)

    async def _write_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._has_started = self._has_ended = True
        await self._wire.start(status, (*headers, ("content-length", str(len(body)))))
        await self._wire.end(body)


class WholeClient(HTTPClient):
    """A client that asked for no stream: it gets one body, the response of the terminal event (H1)."""

    __slots__ = ("_aside",)

    def __init__(self, wire: Wire, request_id: str, aside: Aside) -> None:
        super().__init__(wire, request_id, math.inf)
        self._aside = aside

    async def _write_events(self, frames: Deliver, *, is_last: bool) -> None:
        passed = () if frames.head is None else headers_down(frames.head.headers)
        last = frames.events[-1]
        body = await self._aside.run(len(last.data), partial(bare_response, last))
        await self._write_whole(200, (JSON_CONTENT, *WHOLE_BODY, *self._own_headers(), *passed), body)


def _passed(answer: UpstreamAnswer) -> Headers:
    """H5, F5."""
    return (*headers_down(answer.headers), *retry_after(answer.headers))


def _own_retry_after(failure: Failure) -> Headers:
    """X2: as `retry_after` in the body says."""
    public = PUBLIC_CODES.get(failure.code)
    seconds = None if public is None else public.retry_after_seconds
    return () if seconds is None else (("retry-after", str(seconds)),)


def _content_type(answer: UpstreamAnswer) -> tuple[str, str]:
    return "content-type", answer.header("content-type") or JSON_CONTENT[1]
