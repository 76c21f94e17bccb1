"""HTTP/1.1 on one connection: strict about heads, watchful behind bodies, no other protocol.

bytes --> a head is due:    HeadGuard --> h11 --> a request, its stream, its app
                            or plain_posts.py --> an Exchange, its app (fast plane, plain POSTs)
          a body is due:    h11, or its Exchange --> the app
          an answer is due: they wait for their cycle, so that the reader goes on and sees the peer leave
          a WebSocket's:    its stream
"""

from __future__ import annotations

from typing import Any, Final, cast

import h11
import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.typing import ConnectionState

from gateway.beside_asgi import DIRECT, INBOUND, LEAVING
from gateway.server.hardened.context import TellingContext
from gateway.server.hardened.direct import DirectBody, DirectTexts, ShortWay
from gateway.server.hardened.exchange import NOTHING_READ, Exchange, scope_of, straight_apps
from gateway.server.hardened.heads import BAD_REQUEST, TARGET, HeadGuard, is_valid_upgrade, refusal_of
from gateway.server.hardened.patience import Patience
from gateway.server.hardened.plain_posts import Post, answer_head, read_post
from gateway.server.hardened.refusals import REASONS, refusal
from gateway.server.hardened.settings import Cut, settings_of
from gateway.server.hardened.streams import HardenedHTTPStream
from gateway.server.hardened.websockets import HardenedWebSocket

BEHIND_BYTES_MAX: Final = 65_536
"""What a peer may send behind a request whose answer is still due: the next head, not a second upload."""
CONTINUE_SECONDS: Final = 0.05
"""What an app has to refuse a request before its body is asked for. Who expects to be asked waits for a second."""
TIMED_OUT: Final = 408
UNAVAILABLE: Final = 503
WHY: Final = {TIMED_OUT: Cut.SLOW, UNAVAILABLE: Cut.NO_MEMORY}
CLOSE: Final = b"connection", b"close"


class HardenedHTTP1(H11Protocol):
    """Hypercorn's HTTP/1.1. Without a `short_way` all is written by the layers, piece by piece."""

    def __init__(self, *arguments: Any, short_way: ShortWay | None) -> None:
        super().__init__(*arguments)
        del self.can_read  # Hypercorn's, for a reader that waits for an answer's end
        self.connection: Any = NOTHING_READ
        self.stream: Any = None
        self._short_way = short_way
        self._straight = straight_apps(self.app, self.config) if short_way is not None else {}
        self.patience = Patience(settings_of(self.config).pace)
        self._share = settings_of(self.config).inbound.share()
        self._guard = HeadGuard(self.config.h11_max_incomplete_size)
        self._is_receiving = False
        self._others: trio.lowlevel.ParkingLot | None = None
        """Who waits to receive: what came behind a request is received beside the reader."""
        self._behind = b""
        self._is_refused = False
        self._is_over = False
        """Nobody reads any more: what waits behind an answer is not begun, for nobody would tell its app of the end."""
        self._continuing: object = None
        """The cycle whose peer is told to go on, if it has to be."""
        self._websocket: HardenedWebSocket | None = None

    @property
    def peer_may_be_sending(self) -> bool:
        """Whether the connection ends before the peer has sent all it wants to."""
        if self._websocket is not None:
            return self._websocket.peer_is_at_fault
        has_more = self.connection.their_state is h11.SEND_BODY or self._behind != b""
        return self._is_refused or has_more

    async def handle(self, event: Event) -> None:
        """Bytes from the peer, in their order; or its end."""
        if not isinstance(event, RawData):
            self._is_over = True
            await super().handle(event)
            self._share.end()
            return
        await self._receive_in_turn(event.data)

    async def _receive_in_turn(self, data: bytes | None) -> None:
        """What was left before, and `data` behind it (b"" is the peer's end, None is nothing new). There seldom are
        others to wait for: a lock for each connection would be held by hardly one. Who waits takes what was left
        when it is its turn, so whoever comes first, bytes keep their order."""
        while self._is_receiving:
            if self._others is None:
                self._others = trio.lowlevel.ParkingLot()
            await self._others.park()
        self._is_receiving = True
        try:
            behind = self._take_behind()
            if behind or data is not None:
                await self._receive(behind + (data or b""))
        finally:
            self._is_receiving = False
            if self._others is not None:
                self._others.unpark_all()

    async def time_out(self) -> None:
        """The peer has not gone on in time."""
        if self._websocket is None:
            await self._refuse(TIMED_OUT)
        else:
            await self._websocket.time_out()

    # --- bytes ------------------------------------------------------------------------------------------------------

    async def _receive(self, data: bytes) -> None:
        """b"" is the peer's end."""
        if self._is_refused or self._is_over:
            return
        if isinstance(self.connection, Exchange) and self.connection.missing_bytes:
            await self._receive_body(self.connection, data)
        elif self._websocket is not None or self.connection.their_state is h11.SEND_BODY:
            self.connection.receive_data(data)
            await self._handle_events()
        elif self.connection.their_state is h11.IDLE:
            await self._receive_head(data)
        else:
            await self._keep_behind(data)

    async def _receive_head(self, data: bytes) -> None:
        rest = data if self._guard.has_begun else data.lstrip(b"\r\n")  # blank lines before a request are none of it
        if data and not rest:
            return
        if self.connection is NOTHING_READ and self._straight:
            post = read_post(rest, self._straight, self.config.h11_max_incomplete_size)
            if post is not None:
                await self._begin_straight(post, rest[post.head_bytes :])
                return
        status = self._guard.vet(rest)
        if status is not None:
            await self._refuse(status)
            return
        if self._guard.has_begun:
            self.patience.expect_head(trio.current_time())
        if self.connection is NOTHING_READ:
            self.connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)
        self.connection.receive_data(rest)
        await self._handle_events()

    async def _keep_behind(self, data: bytes) -> None:
        """Keep what follows a request until its answer has ended. Too much of it is no next request."""
        self._behind += data
        if len(self._behind) > BEHIND_BYTES_MAX and not self._is_refused:
            settings_of(self.config).on_cut(Cut.BAD_REQUEST)
            self._is_refused = True
            await self.send(Closed())

    def _take_behind(self) -> bytes:
        if self._behind == b"" or self.connection.their_state is not h11.IDLE:
            return b""
        behind, self._behind = self._behind, b""
        return behind

    # --- plain POSTs ------------------------------------------------------------------------------------------------

    async def _begin_straight(self, post: Post, data: bytes) -> None:
        """What `_handle_events` does with a request's head, and what has come of its body."""
        if len(data) < post.body_bytes:
            self.patience.expect_body(trio.current_time())
        await self.send(Updated(idle=False))
        scope = scope_of(post, self.ssl, self.client, self.server)
        scope["state"] = {**self.connection_state, INBOUND: self._share}
        way = cast(ShortWay, self._short_way)
        exchange = self.connection = self.stream = Exchange(self, way, post, scope["state"])
        self.task_group.spawn(exchange.run, self._straight[post.path], scope)
        self.keep_alive_requests += 1
        await self.context.mark_request()
        if data or not post.body_bytes:
            await self._receive_body(exchange, data)

    async def _receive_body(self, exchange: Exchange, data: bytes) -> None:
        """What follows it waits for the answer. b"" where a part is missing is the peer's end."""
        piece, behind = data[: exchange.missing_bytes], data[exchange.missing_bytes :]
        if exchange.missing_bytes and not data:
            await self._refuse(BAD_REQUEST)
            return
        if not self._share.take(len(piece)):
            await self._refuse(UNAVAILABLE)
            return
        begun = trio.current_time()
        if len(piece) < exchange.missing_bytes:
            self.patience.advance(len(piece), begun)
        else:
            self.patience.rest()
        await exchange.bring(piece)
        self.patience.excuse(trio.current_time() - begun)
        if behind and self.stream is exchange:
            await self._keep_behind(behind)

    def ending_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """An answer's, and the server's own: its last one says so."""
        if isinstance(self.context, TellingContext) and self.context.is_closing:
            headers = [*headers, CLOSE]
        headers = [*headers, *self.config.response_headers("h11")]
        return [*headers, CLOSE] if self.keep_alive_requests >= self.config.keep_alive_max_requests else headers

    # --- h11's events -----------------------------------------------------------------------------------------------

    async def _handle_events(self) -> None:
        """Until more has to come. While one waits, the answer may end, and with it what was read."""
        while self.connection is not NOTHING_READ and not await self._has_all():
            if self.connection.they_are_waiting_for_100_continue and self._continuing is not self.connection:
                self._continuing = self.connection
                self.task_group.spawn(self._tell_to_continue, self.connection)
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
                return
            if not await self._handle_one(event):
                return

    async def _tell_to_continue(self, connection: Any) -> None:
        """Ask for the body (RFC 9110, 10.1.1), unless the app has refused it by then: for its key, or its place."""
        await trio.sleep(CONTINUE_SECONDS)
        is_due = connection.they_are_waiting_for_100_continue and connection.our_state is h11.SEND_RESPONSE
        if is_due and connection is self.connection and not self._is_refused:
            headers = self.config.response_headers("h11")
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=headers))

    async def _has_all(self) -> bool:
        """Whether the peer has said that this request is its last: what follows must not fail the answer."""
        if self.connection.their_state not in (h11.MUST_CLOSE, h11.CLOSED):
            return False
        await self._keep_behind(bytes(self.connection.trailing_data[0]))
        return True

    async def _handle_one(self, event: Any) -> bool:
        """Act on one of h11's events; whether there may be another."""
        if isinstance(event, h11.Request):
            return await self._begin(event)
        if event is h11.PAUSED:
            await self._keep_behind(bytes(self.connection.trailing_data[0]))
            return False
        if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed) or self.stream is None:
            return False
        if isinstance(event, h11.Data):
            if not self._share.take(len(event.data)):
                await self._refuse(UNAVAILABLE)
                return False
            begun = trio.current_time()
            self.patience.advance(len(event.data), begun)
            await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(event.data)))
            self.patience.excuse(trio.current_time() - begun)
        elif isinstance(event, h11.EndOfMessage):
            self.patience.rest()
            await self.stream.handle(EndBody(stream_id=STREAM_ID))
        elif isinstance(event, Data):
            await self.stream.handle(event)
        return True

    async def _begin(self, request: h11.Request) -> bool:
        status = refusal_of(request)
        if status is not None:
            await self._refuse(status)
            return False
        self.patience.expect_body(trio.current_time())
        await self.send(Updated(idle=False))
        await self._create_stream(request)
        return True

    # --- a request's life -------------------------------------------------------------------------------------------

    async def _create_stream(self, request: h11.Request) -> None:
        """A valid upgrade is a WebSocket; anything less is an ordinary request, and the app's to answer (H8)."""
        place = self.ssl, self.client, self.server, self.stream_send, STREAM_ID
        if is_valid_upgrade(request) and isinstance(self.connection, h11.Connection):
            self.patience.rest()
            self.stream = self._websocket = HardenedWebSocket(
                self.app,
                self.config,
                self.context,
                self.task_group,
                *place,
                patience=self.patience,
                share=self._share,
            )
            self.connection = H11WSConnection(self.connection)
        else:
            self.stream = HardenedHTTPStream(self.app, self.config, self.context, self.task_group, *place)
        await self.stream.handle(self._asgi_request(request, self._direct_for(self.stream)))
        self.keep_alive_requests += 1
        await self.context.mark_request()

    def _direct_for(self, stream: HardenedHTTPStream | HardenedWebSocket) -> dict[str, object]:
        """The app's short ways, if there are any."""
        if self._short_way is None:
            return {}
        if isinstance(stream, HardenedWebSocket):
            return {DIRECT: DirectTexts(stream, self._short_way, stream.note_sign_of_life)}
        stream.direct = DirectBody(stream, self._short_way)
        return {DIRECT: stream.direct, LEAVING: stream.when_left}

    def _asgi_request(self, request: h11.Request, direct: dict[str, object]) -> Request:
        path = TARGET.fullmatch(request.target)
        return Request(
            stream_id=STREAM_ID,
            headers=list(request.headers),
            http_version=request.http_version.decode(),
            method=request.method.decode("ascii").upper(),
            raw_path=request.target if path is None else path[1],
            state=ConnectionState({**self.connection_state, INBOUND: self._share, **direct}),
        )

    async def _send_h11_event(self, event: Any) -> None:
        """A head waits for its body where it can: the app has one at hand, or has failed."""
        if self._short_way is None or not isinstance(event, h11.Response):
            await super()._send_h11_event(event)
            return
        try:
            self._short_way.hold_back(self.connection.send(event) or b"")
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise

    async def _maybe_recycle(self) -> None:
        """A response has ended: close, or go on with what the peer has sent meanwhile. The app, which is told that
        it is over, may cancel the very task that this runs in; each wait in here has a bound."""
        with trio.CancelScope(shield=True):
            await self._close_stream()
            await (self._go_on() if self._can_go_on() else self.send(Closed()))

    async def recycle(self) -> None:
        """The same behind an Exchange, whose end waits for nobody if the connection goes on."""
        if self._can_go_on():
            await self._close_stream()
            await self._go_on()
        else:
            await self._maybe_recycle()

    async def _go_on(self) -> None:
        self._behind = bytes(self.connection.trailing_data[0]) + self._behind[len(self.connection.trailing_data[0]) :]
        self.connection = NOTHING_READ
        await self.send(Updated(idle=True))
        if self._behind:
            self.task_group.spawn(self._receive_in_turn, None)

    def _can_go_on(self) -> bool:
        is_done = self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE
        return is_done and not self._is_refused and not self._is_over and not self.context.terminated.is_set()

    async def _close_stream(self) -> None:
        """What the request held is given back with it."""
        if self.stream is not None:  # it and its short way are a ring, which may not be collected for minutes
            is_plain = isinstance(self.stream, Exchange)
            state = self.stream.state_of_scope if is_plain else cast(dict[str, Any], self.stream.scope)["state"]
            state.pop(DIRECT, None)
            state.pop(LEAVING, None)
            if isinstance(self.stream, HardenedHTTPStream):
                self.stream.direct = None
        await super()._close_stream()
        self._share.give_all_back()

    async def _refuse(self, status: int) -> None:
        """Answer with a status if an answer can still begin, and close. The app has to do with it no longer."""
        if not self._is_refused:
            settings_of(self.config).on_cut(WHY.get(status, Cut.BAD_REQUEST))
        self._is_refused = True
        self.patience.rest()
        await self._close_stream()
        if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            known, headers, body = refusal(status)
            settings_of(self.config).on_refused(REASONS[known][0])
            headers = [*headers, *self.config.response_headers("h11")]
            if isinstance(self.connection, h11.Connection):
                await self._send_h11_event(h11.Response(status_code=known, headers=headers))
                await self._send_h11_event(h11.Data(data=body))
                await self._send_h11_event(h11.EndOfMessage())
            else:
                await self.send(RawData(answer_head(known, headers).data + body))
        await self.send(Closed())
