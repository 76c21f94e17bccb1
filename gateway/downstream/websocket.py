"""The WebSocket door: `/v1/responses`, one active response at a time, for up to 60 minutes (W).

    read_frames --> Line --> serve: one frame after the other
         |                    create -> a turn; everything else -> its answer, in order
         +-- the client left --> Departure --> the running turn

Each create is a new request: its key is read when it leaves the line (W4). At the limit, and at drain, what still waits
is answered, and the connection closes (W6, T7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import structlog
import trio
from quart import Response, Websocket, websocket
from quart_trio import QuartTrio

from gateway import limits
from gateway.aside import Aside
from gateway.beside_asgi import INBOUND, Inbound
from gateway.core.continuation import Heard, Remembered
from gateway.core.eligibility import StatePolicy
from gateway.core.failures import PUBLIC_CODES, Refusal
from gateway.core.keys import Key
from gateway.core.messages import Door
from gateway.core.rules import CONNECTION_LIMIT
from gateway.downstream.addresses import client_address
from gateway.downstream.auth import Keys
from gateway.downstream.bodies import turn_request
from gateway.downstream.connections import departure_of, direct_of
from gateway.downstream.errors import refusal_body, to_json, websocket_refusal
from gateway.downstream.frames import Create, Frame, Line, Refused, Steer, bytes_of, echo, read_frame
from gateway.downstream.headers import chosen_subprotocol, headers_read
from gateway.downstream.websocket_client import WebSocketClient
from gateway.measures import Meter, NoMeter
from gateway.ports import Draining, NoBounds, Order, Places, Turns
from gateway.turn.memory import Memories

logger = structlog.get_logger("gateway.websocket")

MESSAGE_BYTES_HEADER: Final = "x-codex-websocket-max-message-bytes"
RETURNED: Final = ("previous_response_id", "input")
CLOSE_LIMIT: Final = 1001
CLOSE_STALLED: Final = 1001
CLOSE_FLOOD: Final = 1008
CLOSE_TOO_LARGE: Final = 1009
CLOSE_BUG: Final = 1011
CLOSE_RESTART: Final = 1012


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """How the door behaves. Durations are seconds, sizes bytes."""

    policy: StatePolicy = field(default_factory=StatePolicy)
    connection_seconds: float = limits.CONNECTION_SECONDS_MAX
    grace_seconds: float = 0.0
    message_bytes_max: int = limits.BODY_BYTES_MAX
    waiting_creates_max: int = limits.WAITING_CREATES_MAX
    waiting_bytes_max: int = limits.WAITING_BYTES_MAX
    trusted_hops: int = 0


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Whom the door's connections turn to."""

    turns: Turns
    keys: Keys
    draining: Draining
    places: Places
    meter: Meter
    aside: Aside
    memories: Memories


class WebSocketDoor:
    """The WebSocket `/v1/responses`."""

    def __init__(
        self,
        turns: Turns,
        keys: Keys,
        settings: WebSocketSettings,
        draining: Draining,
        new_request_id: Callable[[], str],
        places: Places | None = None,
        meter: Meter | None = None,
        aside: Aside | None = None,
        memories: Memories | None = None,
    ) -> None:
        places, meter, aside = places or NoBounds(), meter or NoMeter(), aside or Aside()
        self._neighbours = Neighbours(turns, keys, draining, places, meter, aside, memories or Memories())
        self._settings = settings
        self._new_request_id = new_request_id
        self._connections: set[Connection] = set()

    @property
    def waiting_creates(self) -> int:
        """How many creates wait in line, on all connections."""
        return sum(connection.waiting_creates for connection in self._connections)

    def open(self, app: QuartTrio) -> None:
        """Put the door into the app."""
        app.add_websocket("/v1/responses", "responses_socket", self.serve)

    async def serve(self) -> Response | None:
        """One connection. A bad key or a gateway that drains refuses before the upgrade (W1)."""
        request_id = self._new_request_id()
        socket = cast(Websocket, websocket._get_current_object())  # type: ignore[attr-defined]  # behind the proxy
        with ExitStack() as held:
            try:
                await self._admit(socket, held)
            except Refusal as refusal:
                self._neighbours.meter.refused(Door.WEBSOCKET, refusal.code)
                return _refuse_upgrade(refusal, request_id)
            await self._serve_accepted(socket, request_id)
        return None

    async def _admit(self, socket: Websocket, held: ExitStack) -> None:
        key = await self._neighbours.keys.admit(socket.headers.get("authorization"))
        if self._neighbours.draining.is_draining():
            raise Refusal("server_draining", "the gateway is shutting down")
        held.enter_context(self._neighbours.places.connection(key.label, lasts=True))

    async def _serve_accepted(self, socket: Websocket, request_id: str) -> None:
        await socket.accept(
            headers={"x-request-id": request_id, MESSAGE_BYTES_HEADER: str(self._settings.message_bytes_max)},
            subprotocol=chosen_subprotocol(socket.requested_subprotocols),
        )
        connection = Connection(socket, request_id, self._settings, self._neighbours)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            connection.memory.close()
            self._connections.discard(connection)


def _refuse_upgrade(refusal: Refusal, request_id: str) -> Response:
    response = Response(refusal_body(refusal, request_id), refusal.public.status, content_type="application/json")
    response.headers["x-request-id"] = request_id
    if refusal.public.retry_after_seconds is not None:
        response.headers["retry-after"] = str(refusal.public.retry_after_seconds)
    return response


class Connection:
    """One accepted WebSocket."""

    def __init__(self, socket: Websocket, request_id: str, settings: WebSocketSettings, neighbours: Neighbours) -> None:
        self._socket = socket
        self._request_id = request_id
        self._settings = settings
        self._turns = neighbours.turns
        self._keys = neighbours.keys
        self._draining = neighbours.draining
        self._places = neighbours.places
        self._meter = neighbours.meter
        self._aside = neighbours.aside
        self.memory = neighbours.memories.connection()
        self._headers = headers_read(socket.scope["headers"])
        self._client_address = client_address(socket.scope, settings.trusted_hops)
        self._limit_at = trio.current_time() + settings.connection_seconds
        self._departure = departure_of(socket.scope, passes=4)  # the connection's, the door's, a Close's lock
        self._line = Line(settings.waiting_creates_max, settings.waiting_bytes_max)
        self._inbound = cast("dict[str, Inbound]", socket.scope.get("state") or {}).get(INBOUND) or NoBounds()
        self._direct = direct_of(socket.scope)
        self._news = trio.Event()
        self._turn_runs = False
        self._turns_begun = 0
        self._limit_was_told = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Connection {self._request_id}, {self._turns_begun} turns, {self._line}>"

    @property
    def waiting_creates(self) -> int:
        """How many creates wait in its line."""
        return len(self._line) - self._line.unanswered

    async def serve(self) -> None:
        """The connection's life."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_frames)
                nursery.start_soon(self._watch_draining)
                await self._serve_line()
                nursery.cancel_scope.cancel()
        except Exception:
            logger.exception("connection_failed", request_id=self._request_id)
            await self._close(CLOSE_BUG, "internal error")

    # --- reading ------------------------------------------------------------------------------------------------

    async def _read_frames(self) -> None:
        """Read for the connection's whole life: so pings, closes and departures are seen at once (W7, H7)."""
        while await self._read_frame():
            pass
        self._leave()

    async def _read_frame(self) -> bool:
        """One message; False once the client has left. In a frame of its own: nothing of a message, which may be
        megabytes, is kept while the next is waited for."""
        message = await self._receive()
        if message is None:
            return False
        if self._is_closed:
            self._inbound.give_back(bytes_of(message))
            return True  # still read, so that no queue fills behind a close
        frame = await self._aside.run(len(message), partial(read_frame, message, self._settings.message_bytes_max))
        if isinstance(self._line.join(frame, turn_runs=self._turn_runs), Refused):
            self._inbound.give_back(bytes_of(message))
        self._news.set()
        if self._line.unanswered > limits.UNANSWERED_REFUSALS_MAX:
            await self._close(CLOSE_FLOOD, "too many frames that are no requests")
            self._leave()
        return True

    async def _receive(self) -> str | bytes | None:
        """A message; None once the client has left."""
        try:
            return await self._socket.receive()
        except trio.EndOfChannel:
            return None

    def _leave(self) -> None:
        self._departure.tell()
        self._news.set()

    async def _watch_draining(self) -> None:
        await self._draining.wait()
        self._news.set()

    # --- serving ------------------------------------------------------------------------------------------------

    async def _serve_line(self) -> None:
        while not self._departure.has_left and not await self._has_ended():
            if len(self._line) > 0:
                await self._answer(self._line.next())
            else:
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Until a frame comes, the client leaves, the gateway drains, or the connection's time is over."""
        self._news = trio.Event()
        with trio.move_on_at(self._limit_at):
            await self._news.wait()

    async def _answer(self, frame: Frame) -> None:
        if isinstance(frame, Refused):
            await self._refuse(frame.refusal, self._request_id, frame.echo)
            if frame.refusal.code == "payload_too_large":
                await self._close(CLOSE_TOO_LARGE, "message too big")
            return
        if isinstance(frame, Create):
            await self._create(frame)
        else:
            await self._send(await self._aside.run(frame.size_bytes, partial(_steer_refusal, frame)))
        self._inbound.give_back(frame.size_bytes)

    async def _create(self, frame: Create) -> None:
        self._turns_begun += 1
        turn_id = f"{self._request_id}.{self._turns_begun}"
        heard, told = self.memory.heard(), self._turn_was_told
        client = WebSocketClient(self._send, self._direct, self._departure, turn_id, frame.stream_id, heard, told)
        self._turn_runs = True
        try:
            key = await self._admit()
            with self._places.turn(key.label):
                self._keys.count_request(key)
                order = self._order(frame, turn_id, key)
                await self._turns.run_turn(order, client)
                await self._remember(frame.stream_id, order, heard)
        except Refusal as refusal:
            client.failure_code = refusal.code
            await self._refuse(refusal, turn_id, echo(frame.body))
        finally:
            self._turn_runs = False
            self._limit_was_told = client.failure_code == CONNECTION_LIMIT.code
        if client.is_cut_off:
            await self._close(CLOSE_STALLED, "the client did not read")

    async def _remember(self, lane: str | None, order: Order, heard: Heard) -> None:
        """W10. What is megabytes long is read beside the loop."""
        made: Remembered | None = None
        if heard.ending is not None:
            making = partial(self.memory.made_of, order.request, order.remembered, heard)
            made = await self._aside.run(heard.size_bytes + order.size_bytes, making)
        self.memory.learn(lane, order.remembered, heard, made)

    async def _admit(self) -> Key:
        """W4: the key is read anew. That may take a while: at the limit no turn starts any more (W6)."""
        key = await self._keys.admit(self._socket.headers.get("authorization"))
        if trio.current_time() >= self._limit_at:
            raise Refusal(CONNECTION_LIMIT.code, CONNECTION_LIMIT.message)
        return key

    def _order(self, frame: Create, turn_id: str, key: Key) -> Order:
        asked = turn_request(frame.body, self._headers, self._settings.policy)
        key.require_model(asked.model)
        return Order(
            turn_id=turn_id,
            account=key.account,
            request=asked,
            policy=self._settings.policy,
            remembered=self.memory.recall(asked),
            may_go_on=self.memory.remembers,
            replay_is_disabled=key.replay_never,
            connection_limit_at=self._limit_at,
            cut_at=self._limit_at + self._settings.grace_seconds,
            client_address=self._client_address,
            key=key.name,
            spend_limits=self._keys.spend_limits(key),
        )

    # --- ending -------------------------------------------------------------------------------------------------

    async def _has_ended(self) -> bool:
        """Ends it if it is time."""
        if not self._is_closed and trio.current_time() >= self._limit_at:
            await self._end_at_limit()
        elif not self._is_closed and self._draining.is_draining():
            await self._end_at_drain()
        return self._is_closed

    async def _turn_was_told(self, failure_code: str | None) -> None:
        """What has to end does so behind the turn's last frame, not behind its books: no client asks in between."""
        self._limit_was_told = failure_code == CONNECTION_LIMIT.code
        await self._has_ended()

    async def _end_at_limit(self) -> None:
        """W6: one error frame for each waiting create; one alone if the connection was idle."""
        await _let_the_instant_pass()
        limit = Refusal(CONNECTION_LIMIT.code, CONNECTION_LIMIT.message)
        if not await self._refuse_waiting(limit) and not self._limit_was_told:
            await self._send(websocket_refusal(limit, self._request_id, {}))
        await self._close(CLOSE_LIMIT, "connection limit reached")

    async def _end_at_drain(self) -> None:
        """T7, W3: waiting creates are refused; agents reconnect on 1012."""
        await _let_the_instant_pass()
        await self._refuse_waiting(Refusal("server_draining", "the gateway is shutting down"))
        await self._close(CLOSE_RESTART, "service restart")

    async def _refuse_waiting(self, refusal: Refusal) -> bool:
        """Answer what still waits, in its order; whether a create was among it."""
        any_create = False
        while len(self._line) > 0 and not self._departure.has_left and not self._is_closed:
            frame = self._line.next()
            if isinstance(frame, Create):
                any_create = True
                await self._refuse(refusal, self._request_id, echo(frame.body))
                self._inbound.give_back(frame.size_bytes)
            else:
                await self._answer(frame)
        return any_create

    async def _refuse(self, refusal: Refusal, request_id: str, echoed: Mapping[str, str]) -> None:
        self._meter.refused(Door.WEBSOCKET, refusal.code)
        await self._send(websocket_refusal(refusal, request_id, echoed))

    async def _send(self, *frames: bytes) -> None:
        """One text frame each, none behind a close."""
        if self._direct is not None and not self._is_closed:
            await self._direct.write(frames)
            return
        for data in frames:
            await trio.lowlevel.checkpoint()  # for Hypercorn's send to a closed socket does not
            if not self._is_closed:
                await self._socket.send(data.decode("utf-8", "surrogatepass"))

    async def _close(self, code: int, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._socket.close(code, reason)


async def _let_the_instant_pass() -> None:
    """A frame that came at the very instant of the end is answered, too (limits.INSTANT_PASSES)."""
    for _ in range(limits.INSTANT_PASSES):
        await trio.lowlevel.checkpoint()


def _steer_refusal(frame: Steer) -> bytes:
    """W2: the input comes back as it came, for the client has to send it again."""
    public = PUBLIC_CODES["steering_not_supported"]
    error = {"type": public.type, "code": "steering_not_supported", "message": "steering is not supported here"}
    returned = ",".join(f'"{name}":{frame.body.text_of(name) or "null"}' for name in RETURNED)
    head, tail = to_json({"type": "response.steer.failed"}), to_json({"error": error, **echo(frame.body)})
    return head[:-1] + b',"steer":{' + returned.encode() + b"}," + tail[1:]
