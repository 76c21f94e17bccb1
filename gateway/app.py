"""Composition root: the only module that names concrete classes. `gateway.app:app` is what hypercorn loads.

hypercorn -k trio -c file:deploy/hypercorn.py gateway.app:app     (GATEWAY_CONFIG names the configuration file)
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio
from quart_trio import QuartTrio

from gateway import limits
from gateway.aside import Aside, RunAside, in_a_thread
from gateway.config import Config, ConfigError, load
from gateway.config.workers import worker_of, workers_of
from gateway.core.eligibility import StatePolicy
from gateway.core.money import Basis, ChargePolicy, PartTokens
from gateway.core.rules import TurnRules
from gateway.downstream.astray import open_error_pages
from gateway.downstream.auth import Keys
from gateway.downstream.by_id import ByIDDoor
from gateway.downstream.connections import WebSocketConnection
from gateway.downstream.health import HealthDoor
from gateway.downstream.http import HTTPDoor, HTTPSettings
from gateway.downstream.models import ModelsDoor
from gateway.downstream.straight import StraightApp
from gateway.downstream.websocket import WebSocketDoor, WebSocketSettings
from gateway.metrics import PrometheusMeter
from gateway.routes import Network, OverHTTP, Routes
from gateway.server import hardened
from gateway.server.admin import AdminApp, probe_loop, serve_admin, worker_port
from gateway.server.deferred import UNUSABLE, DeferredApp
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.settings import Cut
from gateway.server.logs import configure_logs
from gateway.server.reloading import Read, Reloading
from gateway.server.sockets import Sockets
from gateway.stores import Stores, open_stores
from gateway.turn.background import BackgroundTurns
from gateway.turn.books import BookKeeping
from gateway.turn.engine import Engine
from gateway.turn.homes import KnownHomes
from gateway.turn.house import StandingHouse
from gateway.turn.memory import Memories
from gateway.turn.origins import Origins
from gateway.turn.places import BoundedPlaces
from gateway.turn.selection import Selection

logger = structlog.get_logger("gateway.app")


def new_request_id() -> str:
    """An id that nobody can guess: milliseconds since 1970, then 80 random bits. Later ones sort behind earlier ones:
    a store's indexes grow at their end, and a turn in SQLite writes 13 pages, where with random ids it wrote 22."""
    return f"req_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


@dataclass(frozen=True, slots=True)
class Parts:
    """What may be put in the place of the real thing: networks by route, stores, ids, the house's facts, threads."""

    transports: Mapping[str, Network] = field(default_factory=dict)
    over_http: Mapping[str, OverHTTP] = field(default_factory=dict)
    """Of WebSocket routes: what goes to endpoints that a WebSocket does not have, and by id."""
    stores: Stores | None = None
    house: StandingHouse | None = None
    new_request_id: Callable[[], str] = new_request_id
    rules: TurnRules | None = None
    run_aside: RunAside | None = None
    """Where large bodies are worked on; in a thread if nothing is said."""
    wall_clock: Callable[[], float] = time.time
    read: Read | None = None
    """How the configuration's files are read again (C2); never if nothing is said."""


class Gateway:
    """One process's gateway: its engine, its doors, its stores."""

    def __init__(self, config: Config, parts: Parts | None = None) -> None:
        """Raises ConfigError if the environment says nonsense of which worker this is."""
        parts = parts or Parts()
        self.worker = worker_of(os.environ)
        self.workers = workers_of(os.environ)
        as_read = config
        self.config = config = replace(config, limits=config.limits.shared_by(self.workers))
        self.meter = PrometheusMeter(str(self.worker))
        self.places = _places(config)
        self.sockets = Sockets(config.limits.sockets_max, partial(self.meter.connection_cut, Cut.NO_SOCKET))
        self.memories = Memories(config.limits.remembered_bytes_max, config.limits.all_remembered_bytes_max)
        self.inbound = InboundBytes(max(config.limits.inbound_bytes_max, config.limits.body_bytes_max))
        self.house = parts.house or StandingHouse(self.workers, parts.wall_clock)
        self.stores = parts.stores or open_stores(config, self.workers)
        self.origins = Origins(self.stores.records)
        for name, route in config.routes.items():
            self.house.forget(name, route.account)
        self._aside = Aside(parts.run_aside or in_a_thread())
        self.routes = Routes(config, parts.transports, parts.over_http, self.workers, self._aside)
        self.reloading = Reloading(as_read, parts.read or (lambda: as_read), self.swap, self.meter.reloaded)
        self.meter.table_serves(config.table_hash[: limits.TABLE_DIGITS])
        self._books_end_at = math.inf
        self.engine = Engine(
            Selection(self.routes.tables, self.house),
            BookKeeping(
                self.stores.ledger,
                self.stores.records,
                self.origins,
                _charge_policy(config),
                _part_tokens(config),
                self.meter,
                lambda: self._books_end_at,
            ),
            parts.rules or _rules(config),
            config.server.write_timeout,
            parts.wall_clock,
            self._aside,
        )
        stores, policy = self.stores, _charge_policy(config)
        self.background = BackgroundTurns(stores.ledger, stores.records, self.routes, policy, stores.adopt)
        self.homes = KnownHomes(self.origins, self.house, self.routes.ways, self.background)
        self.app = self._app(parts)

    def __repr__(self) -> str:
        return f"<Gateway, {len(self.config.models)} models, {self.engine}>"

    def drain(self) -> None:
        """T7: `/readyz` turns false, no turn and no replay starts, running turns have `drain_timeout` left."""
        ends_at = trio.current_time() + self.config.server.drain_timeout
        self._books_end_at = ends_at + limits.CLOSE_BOOKS_AFTER_DRAIN_SECONDS_MAX
        self.house.begin_drain()
        self.routes.drain()
        self.engine.drain(ends_at)

    def cut_short(self) -> None:
        """T7: the drain's end is now: running turns hand over what they hold, or say that the gateway shuts down."""
        now = trio.current_time()
        self._books_end_at = min(self._books_end_at, now + limits.CLOSE_BOOKS_AFTER_DRAIN_SECONDS_MAX)
        self.engine.drain(now)

    def live(self) -> dict[str, Any]:
        """How its routes stand now, as plain data (`gateway routes show`)."""
        return self.routes.as_shown(self.house)

    def swap(self, config: Config) -> None:
        """Have turns begin on the models and routes of this configuration; those that run go on (C2)."""
        for name in self.routes.changed_by(config):
            self.house.forget(name, config.routes[name].account)
        self.routes.swap(config)
        self.meter.table_serves(config.table_hash[: limits.TABLE_DIGITS])

    @asynccontextmanager
    async def services(self) -> AsyncIterator[None]:
        """What lives beside the app for as long as it is served. A crash of it ends the block, and with it the serving:
        a gateway whose books nobody writes takes no turn."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.stores.run)
            nursery.start_soon(self.routes.close_left)
            nursery.start_soon(self.reloading.watch)
            nursery.start_soon(self.background.run)
            if self.config.server.metrics_port is not None:
                nursery.start_soon(self._serve_admin, self.config.server.metrics_port)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):  # each of the three has its own bound
                    self.background.stop()
                    await self.stores.aclose()
                    await self.routes.aclose()
                nursery.cancel_scope.cancel()

    def _app(self, parts: Parts) -> StraightApp:
        app = StraightApp("gateway")
        app.asgi_websocket_class = WebSocketConnection
        app.config["MAX_CONTENT_LENGTH"] = self.config.limits.body_bytes_max
        app.config["BODY_TIMEOUT"] = self.config.server.body_timeout
        app.config["RESPONSE_TIMEOUT"] = None
        self._open_doors(app, parts)
        HealthDoor(self.house).open(app)
        open_error_pages(app, parts.new_request_id, self.meter)
        return app

    def _open_doors(self, app: StraightApp, parts: Parts) -> None:
        config = self.config
        keys = Keys(config.keys, self.stores.keys, wall_clock=parts.wall_clock, workers=self.workers)
        shared = parts.new_request_id, self.places, self.meter, self._aside
        http = HTTPDoor(self.engine, keys, _http_settings(config), *shared)
        websocket = WebSocketDoor(self.engine, keys, _websocket_settings(config), self.house, *shared, self.memories)
        ByIDDoor(self.homes, self.background, keys, *shared).open(app)
        ModelsDoor(lambda: self.routes.models, keys, parts.new_request_id, self.places, self.meter).open(app)
        http.open(app)
        websocket.open(app)
        places, watch = self.places, self.meter.watch
        watch("open_sockets", "TCP connections.", lambda: self.sockets.open)
        watch("open_turns", "Turns that hold a place.", lambda: places.open_turns)
        watch("open_connections", "Requests and WebSockets that hold a place.", lambda: places.open_connections)
        watch("open_websockets", "WebSocket connections.", lambda: places.open_websockets)
        watch("inbound_bytes", "Bytes of requests that are held.", lambda: self.inbound.taken)
        watch("remembered_bytes", "Bytes of responses that can be gone on from.", lambda: self.memories.size_bytes)
        watch("waiting_creates", "Creates that wait on a WebSocket.", lambda: websocket.waiting_creates)
        watch("idle_upstream_sockets", "Upstream WebSockets that wait for a turn.", lambda: self.routes.idle_sockets)
        watch("files_unusable", "1 while the files cannot be used.", lambda: self.reloading.is_refused)
        watch("draining", "1 while the gateway drains.", lambda: self.house.is_draining())
        self.stores.watch(watch, self.meter.watch_total)
        self._watch_routes()

    def _watch_routes(self) -> None:
        house, meter = self.house, self.meter
        meter.watch_routes(
            "open_attempts", "Upstream calls that run.", lambda: house.counted(lambda route: route.open_attempts)
        )
        meter.watch_routes(
            "route_cooling",
            "1 while a route takes no turn.",
            lambda: house.counted(lambda route: not route.takes_turns),
        )
        meter.watch_route_totals(
            "route_coolings", "How often a route was left alone.", lambda: house.counted(lambda route: route.coolings)
        )
        meter.watch_route_totals(
            "route_probes", "Turns that tried a route again.", lambda: house.counted(lambda route: route.probes)
        )

    async def _serve_admin(self, port: int) -> None:
        admin = AdminApp(self.meter.exposition, lambda: not self.house.is_draining())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(probe_loop, self.meter.loop_lagged)
            nursery.start_soon(serve_admin, admin, self.config.server.metrics_host, worker_port(port, self.worker))


# --- from the configuration -------------------------------------------------------------------------------------


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
        replay_expanded_continuations=server.replay_expanded_continuations,
    )


def _http_settings(config: Config) -> HTTPSettings:
    server = config.server
    return HTTPSettings(
        policy=_state_policy(config),
        starts_early=server.start == "early",
        start_latest_seconds=server.start_latest,
        trusted_hops=server.trusted_hops,
        body_bytes_max=config.limits.body_bytes_max,
    )


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


def _read_configured() -> Config:
    file = Path(os.environ.get("GATEWAY_CONFIG", "gateway.toml"))
    return load(file, os.environ, workers=workers_of(os.environ))


def check_configured() -> None:
    """End the process with all that is wrong with the configuration that `app` would serve, if anything is: for a
    server that loses the codes of its workers (deploy/hypercorn.py)."""
    try:
        _read_configured()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(UNUSABLE) from None


def _configured() -> QuartTrio:
    """The app that the environment's GATEWAY_CONFIG describes, for a Hypercorn that is hardened as it starts it."""
    config = _read_configured()
    configure_logs(config.server.log_format, config.server.log_level)
    hardened.install()
    logger.warning("not_for_production", fix="use `gateway serve`; hypercorn cuts running turns when it is stopped")
    gateway = Gateway(config, Parts(read=_read_configured))
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
