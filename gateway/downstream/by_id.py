"""The door to responses that exist (H2): each call goes to the route that made the response, and is no turn.

    GET     /v1/responses/{id}                  with ?stream=true (and starting_after=N): its events, once more
    GET     /v1/responses/{id}/input_items
    DELETE  /v1/responses/{id}
    POST    /v1/responses/{id}/cancel

Nothing is reserved, held or replayed. The upstream's status and body come through as they are, the model under the
client's own name (M3); a credential that the upstream refuses is the gateway's own affair (F2). Another account's
response is as unknown as one that never was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import quote, urlencode

import structlog
import trio
from quart import Response, request
from quart_trio import QuartTrio

from gateway import limits
from gateway.aside import Aside
from gateway.core.alias import with_model
from gateway.core.events import EventClass, JsonObject, event_sequence_number, member, parse_object
from gateway.core.failures import Failure, FailureKind, Refusal, UpstreamAnswer, gateway_failure
from gateway.core.messages import AttemptEnded, Batch, Deliver, DeliverFailure, Door, Head, Headers, Input, Opened
from gateway.core.request import MalformedBody, RequestBody
from gateway.downstream.auth import Keys
from gateway.downstream.connections import TurnResponse, Wire, held_by
from gateway.downstream.headers import headers_down, headers_up
from gateway.downstream.http import JSON_CONTENT, HTTPClient, refuse
from gateway.measures import Meter
from gateway.ports import Places, Stamped, UpstreamCall
from gateway.turn.background import BackgroundTurns
from gateway.turn.homes import Home, KnownHomes
from gateway.turn.passing import OneByOne

logger = structlog.get_logger("gateway.by_id")

QUERY_NAMES: Final = frozenset(
    {
        "after",
        "before",
        "include",
        "include[]",
        "include_obfuscation",
        "limit",
        "order",
        "starting_after",
        "stream",
    }
)
"""H2, H4: what the API knows. Anything else stays here, as with headers."""
ENCODED_SLASH: Final = b"%2f"
GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
"""What a write to a client raises that is no more; that it has left is told besides (H7)."""
NO_EVENT: Final = gateway_failure(
    FailureKind.FIRST_EVENT_TIMEOUT, "first_event_timeout", "the upstream did not answer in time"
)
SILENT: Final = gateway_failure(FailureKind.IDLE_TIMEOUT, "stream_idle_timeout", "the upstream fell silent")


class ByIDDoor:
    """The by-id endpoints."""

    def __init__(
        self,
        homes: KnownHomes,
        background: BackgroundTurns,
        keys: Keys,
        new_request_id: Callable[[], str],
        places: Places,
        meter: Meter,
        aside: Aside | None = None,
    ) -> None:
        self._aside = aside or Aside()
        self._homes = homes
        self._background = background
        self._keys = keys
        self._new_request_id = new_request_id
        self._places = places
        self._meter = meter

    def open(self, app: QuartTrio) -> None:
        """Put the door into the app."""
        one = "/v1/responses/<response_id>"
        app.add_url_rule(one, "response", self.response, methods=["GET", "DELETE"])
        app.add_url_rule(f"{one}/input_items", "input_items", self.input_items, methods=["GET"])
        app.add_url_rule(f"{one}/cancel", "cancel", self.cancel, methods=["POST"])

    async def response(self, response_id: str) -> Response:
        """Read a response, whole or as events, or delete it."""
        return await self._forward(response_id, "", streams=_asks_for_stream())

    async def input_items(self, response_id: str) -> Response:
        """What it was given."""
        return await self._forward(response_id, "/input_items")

    async def cancel(self, response_id: str) -> Response:
        """End one that runs in the background."""
        return await self._forward(response_id, "/cancel")

    async def _forward(self, response_id: str, action: str, *, streams: bool = False) -> Response:
        request_id = self._new_request_id()
        try:
            home = await self._admit(response_id)
        except Refusal as refusal:
            self._meter.refused(Door.HTTP, refusal.code)
            return refuse(refusal, request_id)
        await request.get_data()  # a body says nothing here; it is bounded, and must be read
        call = UpstreamCall(
            turn_id=request_id,
            body=b"",
            headers=headers_up(request.headers.items()),
            method=request.method,
            path=f"/responses/{quote(response_id, safe='')}{action}{_query()}",
        )

        async def run(wire: Wire) -> None:
            forwarding = Forwarding(home, call, HTTPClient(wire, request_id, math.inf), self._aside)
            await (forwarding.stream() if streams else forwarding.fetch())
            forwarding.log()
            await self._background.saw(home.account, forwarding.seen, home.way.fingerprint)

        return TurnResponse(run)

    async def _admit(self, response_id: str) -> Home:
        """Whoever asks, may ask so often, and may use the model that made the response. A slash that is written as
        `%2F` is an id's own, not the path's: which part of the path is the action is told by the others."""
        key = await self._keys.admit(request.headers.get("authorization"))
        held = held_by(request)
        held.enter_context(self._places.connection(key.label, lasts=False))
        held.enter_context(self._places.turn(key.label))
        self._keys.count_request(key)
        if ENCODED_SLASH in request.scope["raw_path"].lower():
            raise Refusal("response_not_found", "no response has an id with a slash in it")
        home = await self._homes.home_of(key.account, response_id)
        if home.model is not None:
            key.require_model(home.model)
        return home


def _asks_for_stream() -> bool:
    return request.method == "GET" and request.args.get("stream", "").lower() == "true"


def _query() -> str:
    kept = [(name, value) for name, value in request.args.items(multi=True) if name in QUERY_NAMES]
    return f"?{urlencode(kept)}" if kept else ""


@dataclass(slots=True)
class Forwarding:
    """One by-id call and its answer."""

    home: Home
    call: UpstreamCall
    client: HTTPClient
    aside: Aside
    outcome: str = "client_left"
    began_at: float = field(default_factory=trio.current_time)
    seen: JsonObject | None = None
    """The response as it stands, if the call showed it (B9)."""
    _head: Head | None = None
    _number: int | None = None

    async def fetch(self) -> None:
        """The whole answer. A client that leaves ends the call (H7)."""
        with trio.CancelScope() as asking:
            self.client.cancel_when_left(asking)
            answer: UpstreamAnswer | Failure = NO_EVENT
            with trio.move_on_after(limits.BY_ID_SECONDS_MAX):
                answer = await self.home.way.by_id.fetch(self.call)
            with suppress(*GONE):
                await self._tell(answer)

    async def _tell(self, answer: UpstreamAnswer | Failure) -> None:
        if isinstance(answer, Failure):
            await self._fail(answer)
            return
        self.outcome = str(answer.status)
        size_bytes, alias, body = len(answer.body), self.home.alias, answer.body
        if b'"background"' in body:
            self.seen = await self.aside.run(size_bytes, partial(parse_object, body))
        content: Headers = (("content-type", answer.header("content-type") or JSON_CONTENT[1]),)
        if alias is not None:
            body = await self.aside.run(size_bytes, partial(_respelled, body, alias))
        await self.client.write_answer(answer.status, (*content, *headers_down(answer.headers)), body)

    async def stream(self) -> None:
        """Its events as they come, until the terminal one; the clocks are those of the route's turns (T2, T4)."""
        async with trio.open_nursery() as nursery:
            self.client.cancel_when_left(nursery.cancel_scope)
            sending, inputs = trio.open_memory_channel[Stamped](0)
            nursery.start_soon(self._read, sending)
            with suppress(*GONE):
                failure = await self._pass_on(inputs)
                if failure is not None:
                    await self._fail(failure)
                await self.client.end()
            nursery.cancel_scope.cancel()

    async def _read(self, sending: trio.MemorySendChannel[Stamped]) -> None:
        async with sending:
            await self.home.way.by_id.attempt(self.call, OneByOne(sending))

    async def _pass_on(self, inputs: trio.MemoryReceiveChannel[Stamped]) -> Failure | None:
        """None behind a terminal event, else why there is none."""
        terms = self.home.way.terms
        expired, deadline = NO_EVENT, trio.current_time() + terms.first_event_seconds
        while True:
            arrived = await self._receive(inputs, deadline)
            if arrived is None:
                return expired
            if isinstance(arrived, AttemptEnded):
                return arrived.failure
            if isinstance(arrived, Opened):
                self._head = arrived.head
            elif isinstance(arrived, Batch):
                if await self._write(arrived):
                    return None
                expired, deadline = SILENT, trio.current_time() + terms.idle_seconds

    async def _receive(self, inputs: trio.MemoryReceiveChannel[Stamped], deadline: float) -> Input | None:
        """What comes by the deadline. A client that waits is told meanwhile that the gateway lives (H6)."""
        while True:
            with trio.move_on_at(min(deadline, self.client.quiet_deadline)):
                arrived, _ = await inputs.receive()
                return arrived
            if trio.current_time() >= deadline:
                return None
            await self.client.write_quiet()

    async def _write(self, batch: Batch) -> bool:
        """Whether the last of them is the terminal one."""
        alias, events = self.home.alias, batch.events
        size_bytes = sum(len(event.data) for event in events)
        if alias is not None:
            events = await self.aside.run(size_bytes, lambda: [with_model(event, alias) for event in batch.events])
        await self.client.write(Deliver(events, self._head))
        self._number = await self.aside.run(size_bytes, partial(event_sequence_number, events[-1]))
        self.seen = member(events[-1].body, "response")
        self.outcome = events[-1].type
        return events[-1].kind is EventClass.TERMINAL

    async def _fail(self, failure: Failure) -> None:
        self.outcome = failure.code
        number = None if self._number is None else self._number + 1
        await self.client.write(DeliverFailure(failure, self._head, None, number))

    def log(self) -> None:
        """One line for each call; never what was in it."""
        logger.info(
            "by_id",
            request_id=self.call.turn_id,
            method=self.call.method,
            route=self.home.route,
            outcome=self.outcome,
            seconds=round(trio.current_time() - self.began_at, 3),
        )


def _respelled(body: bytes, model: str) -> bytes:
    """M3: a response object under the client's own name of its model, every other byte as it came."""
    try:
        read = RequestBody(body)
    except MalformedBody:
        return body
    named = read.get("model")
    return read.spliced(replaced={"model": model}) if isinstance(named, str) and named != model else body
