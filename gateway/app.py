"""Composition root: the only module that names concrete classes. `gateway.app:app` is what hypercorn loads.

hypercorn -k trio -c deploy/hypercorn.toml gateway.app:app        (GATEWAY_CONFIG names the configuration file)
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import httpx2
import structlog
import trio
from quart import Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from gateway.config import Config, ConfigError, Problem, RouteConfig, load
from gateway.core.eligibility import StatePolicy
from gateway.core.failures import Refusal
from gateway.core.messages import AttemptStarted, Door
from gateway.core.money import Basis, ChargePolicy, PartTokens
from gateway.core.rules import TurnRules
from gateway.downstream.aside import Aside, RunAside, in_a_thread
from gateway.downstream.auth import Keys
from gateway.downstream.connections import HTTPConnection, WebSocketConnection
from gateway.downstream.health import HealthDoor
from gateway.downstream.http import HTTPDoor, HTTPSettings, refuse
from gateway.downstream.straight import StraightApp
from gateway.downstream.websocket import WebSocketDoor, WebSocketSettings
from gateway.metrics import PrometheusMeter
from gateway.ports import Meter, Model, Route
from gateway.server import hardened
from gateway.server.admin import AdminApp, probe_loop, serve_admin, worker_port
from gateway.server.deferred import DeferredApp
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.settings import Cut
from gateway.server.logs import configure_logs
from gateway.server.sockets import Sockets
from gateway.stores import Stores, open_stores
from gateway.turn.books import BookKeeping
from gateway.turn.engine import Engine
from gateway.turn.house import StandingHouse
from gateway.turn.places import BoundedPlaces
from gateway.turn.selection import Selection
from gateway.upstream.line import Connect
from gateway.upstream.sse import SSESettings, SSEUpstream
from gateway.upstream.websocket import WebSocketSettings as WebSocketRoute
from gateway.upstream.websocket import WebSocketUpstream

logger = structlog.get_logger("gateway.app")

WORKER: Final = "GATEWAY_WORKER"
"""The environment's name for which worker of a supervisor this is, from 0 on: each has a metrics port of its own."""
WORKERS: Final = "GATEWAY_WORKERS"
"""The environment's name for how many workers there are: each has its part of what they share (C6)."""


def new_request_id() -> str:
    """An id that nobody can guess: 128 bits."""
    return f"req_{secrets.token_hex(16)}"


Network = httpx2.AsyncBaseTransport | Connect
"""What a route's bytes go over: for `sse` an HTTP transport, for `websocket` what opens a stream."""
RouteUpstream = SSEUpstream | WebSocketUpstream


@dataclass(frozen=True, slots=True)
class Parts:
    """What may be put in the place of the real thing: networks by route, stores, ids, the house's facts, threads."""

    transports: Mapping[str, Network] = field(default_factory=dict)
    stores: Stores | None = None
    house: StandingHouse | None = None
    new_request_id: Callable[[], str] = new_request_id
    rules: TurnRules | None = None
    run_aside: RunAside | None = None
    """Where large bodies are read; in a thread if nothing is said."""
    wall_clock: Callable[[], float] = time.time


class Gateway:
    """One process's gateway: its engine, its doors, its stores."""

    def __init__(self, config: Config, parts: Parts | None = None) -> None:
        """Raises ConfigError if the environment says nonsense of which worker this is."""
        parts = parts or Parts()
        self.worker = _number(os.environ, WORKER, otherwise=0)
        self.workers = _number(os.environ, WORKERS, otherwise=1)
        self.config = config = replace(config, limits=config.limits.shared_by(self.workers))
        self.meter = PrometheusMeter(str(self.worker))
        self.places = _places(config)
        self.sockets = Sockets(config.limits.sockets_max, partial(self.meter.connection_cut, Cut.NO_SOCKET))
        self.inbound = InboundBytes(max(config.limits.inbound_bytes_max, config.limits.body_bytes_max))
        self.house = parts.house or StandingHouse()
        self.stores = parts.stores or open_stores(config)
        self._upstreams = {name: _upstream(config, name, parts.transports.get(name)) for name in config.routes}
        self.engine = Engine(
            Selection(_models(config, self._upstreams), self.house),
            BookKeeping(
                self.stores.ledger, self.stores.records, _charge_policy(config), _part_tokens(config), self.meter
            ),
            parts.rules or _rules(config),
            config.server.write_timeout,
        )
        self.app = self._app(parts)

    def __repr__(self) -> str:
        return f"<Gateway, {len(self.config.models)} models, {self.engine}>"

    def drain(self) -> None:
        """T7: `/readyz` turns false, no turn and no replay starts, running turns have `drain_timeout` left."""
        self.house.begin_drain()
        for upstream in self._framed_upstreams:
            upstream.drain()
        self.engine.drain(trio.current_time() + self.config.server.drain_timeout)

    @asynccontextmanager
    async def services(self) -> AsyncIterator[None]:
        """What lives beside the app for as long as it is served. A crash of it ends the block, and with it the serving:
        a gateway whose books nobody writes takes no turn."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.stores.run)
            if self.config.server.metrics_port is not None:
                nursery.start_soon(self._serve_admin, self.config.server.metrics_port)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):  # each of the two has its own bound
                    await self.stores.aclose()
                    for upstream in self._upstreams.values():
                        await upstream.aclose()
                nursery.cancel_scope.cancel()

    @property
    def _framed_upstreams(self) -> list[WebSocketUpstream]:
        return [upstream for upstream in self._upstreams.values() if isinstance(upstream, WebSocketUpstream)]

    def _app(self, parts: Parts) -> QuartTrio:
        app = StraightApp("gateway", {("POST", "/v1/responses"): "create_response"})
        app.asgi_http_class = HTTPConnection
        app.asgi_websocket_class = WebSocketConnection
        app.config["MAX_CONTENT_LENGTH"] = self.config.limits.body_bytes_max
        app.config["BODY_TIMEOUT"] = self.config.server.body_timeout
        app.config["RESPONSE_TIMEOUT"] = None
        self._open_doors(app, parts)
        HealthDoor(self.house).open(app)
        _open_error_pages(app, parts.new_request_id, self.meter)
        return app

    def _open_doors(self, app: QuartTrio, parts: Parts) -> None:
        config = self.config
        keys = Keys(config.keys, self.stores.keys, wall_clock=parts.wall_clock, workers=self.workers)
        shared = parts.new_request_id, self.places, self.meter, Aside(parts.run_aside or in_a_thread())
        http = HTTPDoor(self.engine, keys, _http_settings(config), *shared)
        websocket = WebSocketDoor(self.engine, keys, _websocket_settings(config), self.house, *shared)
        http.open(app)
        websocket.open(app)
        places, watch = self.places, self.meter.watch
        watch("open_sockets", "TCP connections.", lambda: self.sockets.open)
        watch("open_turns", "Turns that hold a place.", lambda: places.open_turns)
        watch("open_connections", "Requests and WebSockets that hold a place.", lambda: places.open_connections)
        watch("open_websockets", "WebSocket connections.", lambda: places.open_websockets)
        watch("inbound_bytes", "Bytes of requests that are held.", lambda: self.inbound.taken)
        watch("waiting_creates", "Creates that wait on a WebSocket.", lambda: websocket.waiting_creates)
        framed = self._framed_upstreams
        watch(
            "idle_upstream_sockets",
            "Upstream WebSockets that wait for a turn.",
            lambda: sum(upstream.idle_sockets for upstream in framed),
        )
        watch("draining", "1 while the gateway drains.", lambda: self.house.is_draining())
        self.stores.watch(watch, self.meter.watch_total)

    async def _serve_admin(self, port: int) -> None:
        admin = AdminApp(self.meter.exposition, lambda: not self.house.is_draining())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe_loop, self.meter.loop_lagged)
            nursery.start_soon(serve_admin, admin, self.config.server.metrics_host, worker_port(port, self.worker))


def _open_error_pages(app: QuartTrio, new_request_id: Callable[[], str], meter: Meter) -> None:
    """Whatever goes wrong outside a turn is answered as JSON too."""

    def refused(refusal: Refusal) -> Response:
        meter.refused(Door.HTTP, refusal.code)
        return refuse(refusal, new_request_id())

    async def http_error(error: HTTPException) -> Response:  # noqa: ASYNC124 - a plain one would run in a thread
        if isinstance(error, RequestEntityTooLarge):
            return refused(Refusal("payload_too_large", "the body is larger than is accepted here"))
        response = refused(Refusal("invalid_request", error.name))
        response.status_code = error.code or 500
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            response.headers["allow"] = ", ".join(sorted(error.valid_methods))
        return response

    async def bug(_error: Exception) -> Response:  # noqa: ASYNC124 - as above
        return refused(Refusal("internal_error", "the gateway failed; the failure is logged"))

    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, bug)


# --- from the configuration -------------------------------------------------------------------------------------


def _upstream(config: Config, name: str, network: Network | None) -> RouteUpstream:
    """The adapter for the route's transport (C5)."""
    route = config.routes[name]
    if route.transport == "websocket":
        if isinstance(network, httpx2.AsyncBaseTransport):
            raise TypeError(f"the network of {name!r} speaks HTTP, its route WebSocket")
        return WebSocketUpstream(_websocket_route(config, route), network, name)
    settings = SSESettings(
        base_url=route.base_url,
        credential=route.credential,
        headers=route.headers,
        connect_seconds=route.connect_seconds,
        event_bytes_max=config.limits.event_bytes_max,
        retryable_codes=route.retryable_codes,
    )
    if network is not None and not isinstance(network, httpx2.AsyncBaseTransport):
        raise TypeError(f"the network of {name!r} speaks WebSocket, its route HTTP")
    return SSEUpstream(settings, network)


def _websocket_route(config: Config, route: RouteConfig) -> WebSocketRoute:
    return WebSocketRoute(
        base_url=route.base_url,
        credential=route.credential,
        headers=route.headers,
        connect_seconds=route.connect_seconds,
        event_bytes_max=config.limits.event_bytes_max,
        retryable_codes=route.retryable_codes,
        age_seconds_max=route.socket_age_seconds,
        idle_seconds_max=route.socket_idle_seconds,
        idle_sockets_max=route.idle_sockets_max,
    )


def _models(config: Config, upstreams: Mapping[str, RouteUpstream]) -> dict[str, Model]:
    routes = {
        name: Route(
            name=name,
            upstream=upstreams[name],
            terms=AttemptStarted(route.first_event_seconds, route.idle_seconds, route.retryable_codes),
            price=route.price,
            upstream_model=route.upstream_model,
            request_bytes_max=route.request_bytes_max,
        )
        for name, route in config.routes.items()
    }
    return {
        name: Model(name, tuple(routes[route] for route in model.routes), model.max_output_tokens)
        for name, model in config.models.items()
    }


def _rules(config: Config) -> TurnRules:
    return TurnRules(hold_bytes_max=config.limits.hold_bytes_max, hold_events_max=config.limits.hold_events_max)


def _charge_policy(config: Config) -> ChargePolicy:
    server = config.server
    return ChargePolicy(
        failed_metered=Basis.USAGE if server.failed_metered == "charge" else Basis.VOID,
        delivered_unmetered=Basis.ESTIMATE if server.delivered_unmetered == "estimate" else Basis.VOID,
    )


def _part_tokens(config: Config) -> PartTokens:
    return PartTokens(image=config.estimate.image_tokens, file=config.estimate.file_tokens)


def _state_policy(config: Config) -> StatePolicy:
    server = config.server
    return StatePolicy(
        absent_store_is_false=server.absent_store == "false",
        replay_side_effect_tools=server.replay_side_effect_tools,
    )


def _http_settings(config: Config) -> HTTPSettings:
    server = config.server
    return HTTPSettings(_state_policy(config), server.start == "early", server.start_latest, server.trusted_hops)


def _websocket_settings(config: Config) -> WebSocketSettings:
    return WebSocketSettings(
        policy=_state_policy(config),
        connection_seconds=config.server.connection_limit,
        grace_seconds=config.server.connection_grace,
        message_bytes_max=config.limits.body_bytes_max,
        waiting_creates_max=config.limits.waiting_creates_max,
        waiting_bytes_max=config.limits.waiting_bytes_max,
        trusted_hops=config.server.trusted_hops,
    )


def _places(config: Config) -> BoundedPlaces:
    bounds = config.limits
    return BoundedPlaces(
        connections_max=bounds.connections_max,
        connections_per_key_max=bounds.connections_per_key_max,
        turns_max=bounds.turns_max,
        turns_per_key_max=bounds.turns_per_key_max,
    )


def _number(environ: Mapping[str, str], name: str, *, otherwise: int) -> int:
    """What the environment says of this worker: a number no less than the one that holds if it says nothing."""
    text = environ.get(name) or str(otherwise)
    if not (text.isascii() and text.isdecimal() and int(text) >= otherwise):
        raise ConfigError([Problem("the environment", name, "is not such a number", f"write {otherwise} or more")])
    return int(text)


def _configured() -> QuartTrio:
    """The app that the environment's GATEWAY_CONFIG describes, for a Hypercorn that is hardened as it starts it."""
    config = load(Path(os.environ.get("GATEWAY_CONFIG", "gateway.toml")), os.environ)
    configure_logs(config.server.log_format, config.server.log_level)
    hardened.install()
    logger.warning("not_for_production", fix="use `gateway serve`; hypercorn cuts running turns when it is stopped")
    gateway = Gateway(config)
    _serve_in_lifespan(gateway)
    return gateway.app


def _serve_in_lifespan(gateway: Gateway) -> None:
    """Under a server's own command line there is no place for services but the app's own tasks: a crash of theirs ends
    their work and not the server's."""
    is_over, has_ended = trio.Event(), trio.Event()

    async def serve() -> None:
        async with gateway.services():
            await is_over.wait()
        has_ended.set()

    async def begin() -> None:  # noqa: ASYNC124 - a plain one would run in a thread
        gateway.app.nursery.start_soon(serve)

    async def end() -> None:
        is_over.set()
        await has_ended.wait()

    gateway.app.before_serving(begin)
    gateway.app.after_serving(end)


app = DeferredApp(_configured)
"""For a server's own command line; importing this module needs no configuration."""
