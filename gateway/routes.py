"""The routes of a process: an adapter for each, shared by all tables that have it unchanged, closed when none has (C2).

Config --table--> Route, Route, …      one for each different RouteConfig: made once, with its pool of connections
   swap  -->  those that the new table lacks are drained; when no turn holds a table with them, they are closed
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import structlog
import trio

from gateway import limits
from gateway.aside import Aside
from gateway.config import Config, ModelConfig, RouteConfig
from gateway.core.background import BackgroundTurn
from gateway.core.messages import AttemptStarted
from gateway.ports import Model, Route
from gateway.turn.homes import Way
from gateway.turn.house import StandingHouse
from gateway.turn.tables import Table, Tables
from gateway.upstream.answers import Credential
from gateway.upstream.calls import Caller
from gateway.upstream.conversation import Converse
from gateway.upstream.direct import Dial, DirectCaller
from gateway.upstream.direct_conversation import DirectConversation, dial
from gateway.upstream.sse import SSESettings, SSEUpstream
from gateway.upstream.websocket import WebSocketSettings, WebSocketUpstream

if TYPE_CHECKING:
    import httpx2

logger = structlog.get_logger("gateway.routes")

Network: TypeAlias = "httpx2.AsyncBaseTransport | Dial | Converse"
"""What a route's bytes go over: for `sse` an HTTP transport or what opens a connection, by the data plane; for
`websocket` the way to converse."""
OverHTTP: TypeAlias = "httpx2.AsyncBaseTransport | Dial"
Adapter = SSEUpstream | WebSocketUpstream


class Routes:
    """The adapters and tables of one process. `networks` replaces the real ones, by the route's name."""

    def __init__(
        self,
        config: Config,
        networks: Mapping[str, Network] | None = None,
        over_http: Mapping[str, OverHTTP] | None = None,
        workers: int = 1,
        aside: Aside | None = None,
    ) -> None:
        self._aside = aside or Aside()
        self._networks = networks or {}
        self._over_http = over_http or {}
        self._workers = workers
        self._is_plain = config.server.data_plane == "plain"
        self._event_bytes_max = config.limits.event_bytes_max
        self._adapters: dict[RouteConfig, Adapter] = {}
        self._over_http_adapters: dict[RouteConfig, SSEUpstream] = {}
        """H2: by-id calls go over HTTP, also to a route whose turns do not."""
        self._standing: dict[RouteConfig, Route] = {}
        self._is_draining = False
        self._was_left = trio.Event()
        self.tables = Tables(self._table(config), self._note_left)
        self.models: Mapping[str, ModelConfig] = config.models
        self.ways: dict[str, Way] = {}
        """How by-id calls reach the current routes (H2)."""
        self._ways_ever: OrderedDict[tuple[str, str], Way] = OrderedDict()
        """By name and place, of those that are gone, too: a background turn outlives the table it began on (B9)."""
        self._tell(config)

    def __repr__(self) -> str:
        return f"<Routes, {len(self._standing)} stand, {self.tables}>"

    @property
    def idle_sockets(self) -> int:
        """Upstream WebSockets that wait for a turn."""
        return sum(adapter.idle_sockets for adapter in self._framed)

    def changed_by(self, config: Config) -> list[str]:
        """The names that will stand for other routes than now, also those that stand for none."""
        now = {route.name: route for route in self.tables.current.routes}
        return [
            name
            for name, route in config.routes.items()
            if name not in now or self._standing.get(route) is not now[name]
        ]

    def swap(self, config: Config) -> None:
        """Turns begin on the models and routes of this configuration from now on; those that run go on (C2)."""
        table = self._table(config)
        for route in config.routes.values():
            adapter = self._adapters[route]
            if isinstance(adapter, WebSocketUpstream) and not self._is_draining:
                adapter.resume()
        for route in self._adapters.keys() - set(config.routes.values()):
            _drain(self._adapters[route])
        self.tables.swap(table)
        self._tell(config)

    def _tell(self, config: Config) -> None:
        """Those who look up routes by their names find the current ones."""
        self.models = config.models
        self.ways.clear()
        for name, route in config.routes.items():
            served = tuple(model.name for model in config.models.values() if name in model.routes)
            by_id = self._over_http_adapters[route]
            fingerprint = route.fingerprint
            way = Way(by_id, _terms(route), fingerprint, route.price, route.upstream_model, served)
            self.ways[name] = self._ways_ever[name, fingerprint.place] = way
            self._ways_ever.move_to_end((name, fingerprint.place))
        while len(self._ways_ever) > max(limits.WAYS_EVER_MAX, len(self.ways)):
            self._ways_ever.popitem(last=False)

    def way_back(self, turn: BackgroundTurn) -> Way | None:
        """B9 (homes.WaysBack)."""
        if turn.fingerprint is None:
            return self.ways.get(turn.route)
        return self._ways_ever.get((turn.route, turn.fingerprint.place))

    def as_shown(self, house: StandingHouse) -> dict[str, Any]:
        """How the routes of this process stand now, for people and programs: those of the table, and those that only
        turns on a table before it still use."""
        table = self.tables.current
        routes = {route.name: route for route in table.routes}
        rows = {}
        for name, health in house.as_shown(routes).items():
            if name in routes or health["open_attempts"]:
                route = routes.get(name)
                places, is_drained = (None, True) if route is None else (route.attempts_max, route.is_draining)
                rows[name] = {**health, "places": places, "is_drained": is_drained, "is_listed": route is not None}
        return {"table": table.hash, "routes": rows}

    def drain(self) -> None:
        """T7: nothing is kept for turns that will not come."""
        self._is_draining = True
        for adapter in self._adapters.values():
            _drain(adapter)

    async def close_left(self) -> None:
        """Close adapters as the last turn on a table with them ends, until cancelled."""
        while True:
            await self._was_left.wait()
            self._was_left = trio.Event()
            for config in self._left():
                del self._standing[config]
                adapter = self._adapters.pop(config)
                del self._over_http_adapters[config]
                with trio.move_on_after(limits.UPSTREAM_CLOSE_SECONDS_MAX):
                    await adapter.aclose()
                logger.info("route_closed", route=config.name)

    async def aclose(self) -> None:
        """Close all of them."""
        for adapter in [*self._adapters.values()]:
            await adapter.aclose()

    def _note_left(self) -> None:
        if self._left():
            self._was_left.set()

    def _left(self) -> list[RouteConfig]:
        held = {id(route) for table in self.tables.held for route in table.routes}
        return [config for config, route in self._standing.items() if id(route) not in held]

    @property
    def _framed(self) -> list[WebSocketUpstream]:
        return [adapter for adapter in self._adapters.values() if isinstance(adapter, WebSocketUpstream)]

    # --- making tables ------------------------------------------------------------------------------------------

    def _table(self, config: Config) -> Table:
        routes = {name: self._route(route) for name, route in config.routes.items()}
        table_hash = config.table_hash
        models = {name: _model(model, routes, table_hash) for name, model in config.models.items()}
        return Table(table_hash, models, tuple(routes.values()))

    def _route(self, config: RouteConfig) -> Route:
        if config not in self._standing:
            adapter = self._adapters[config] = self._adapter(config)
            self._standing[config] = _route(config, adapter, self._workers)
        return self._standing[config]

    def _adapter(self, config: RouteConfig) -> Adapter:
        """By the route's transport (C5)."""
        network = self._networks.get(config.name)
        if config.transport != "websocket":
            return self._over_http_adapter(config, cast("OverHTTP | None", network))
        if _speaks_http(network):
            raise TypeError(f"the network of {config.name!r} speaks HTTP, its route WebSocket")
        over_http = self._over_http_adapter(config, self._over_http.get(config.name))
        settings = _websocket_settings(config, self._event_bytes_max)
        converse = cast("Converse | None", network) or self._converse(config)
        return WebSocketUpstream(settings, converse, config.name, over_http, self._aside)

    def _over_http_adapter(self, config: RouteConfig, network: OverHTTP | None) -> SSEUpstream:
        caller = self._caller(config, network)
        adapter = SSEUpstream(_sse_settings(config, self._event_bytes_max), caller, self._aside)
        self._over_http_adapters[config] = adapter
        return adapter

    def _converse(self, config: RouteConfig) -> Converse:
        """The same over a WebSocket."""
        if not self._is_plain:
            return partial(DirectConversation, dial(config.base_url))
        from gateway.upstream.library_conversation import LibraryConversation, StreamDial  # as below

        return partial(LibraryConversation, StreamDial(config.base_url))

    def _caller(self, config: RouteConfig, network: OverHTTP | None) -> Caller:
        """How the route is called, by the data plane; a network that is given has chosen."""
        if not _speaks_http(network) and (network is not None or not self._is_plain):
            return DirectCaller(config.base_url, config.connect_seconds, cast("Dial | None", network))
        from gateway.upstream.httpx_calls import HTTPXCaller  # the plain plane's library: for those who use it

        return HTTPXCaller(config.base_url, config.connect_seconds, cast("httpx2.AsyncBaseTransport | None", network))


def _speaks_http(network: Network | None) -> bool:
    """Of one that is given, in the place of the real one, which needs no library."""
    if network is None:
        return False
    import httpx2

    return isinstance(network, httpx2.AsyncBaseTransport)


def _drain(adapter: Adapter) -> None:
    if isinstance(adapter, WebSocketUpstream):
        adapter.drain()


def _terms(config: RouteConfig) -> AttemptStarted:
    return AttemptStarted(
        config.first_event_seconds, config.idle_seconds, config.retryable_codes, config.response_seconds
    )


def _route(config: RouteConfig, adapter: Adapter, workers: int) -> Route:
    return Route(
        name=config.name,
        upstream=adapter,
        terms=_terms(config),
        price=config.price,
        upstream_model=config.upstream_model,
        request_bytes_max=config.request_bytes_max,
        attempts_max=None if config.attempts_max is None else config.attempts_max // workers,  # C6: read as 1 or more
        is_draining=config.is_draining,
        stores_by_default=config.stores_by_default,
        remembers=config.transport == "websocket",
        fingerprint=config.fingerprint,
    )


def _model(config: ModelConfig, routes: Mapping[str, Route], table_hash: str) -> Model:
    named = tuple(routes[name] for name in config.routes)
    return Model(config.name, named, config.max_output_tokens, config.listed, table_hash)


def _credential(config: RouteConfig) -> Credential | None:
    if config.credential is None:
        return None
    return Credential(config.credential, config.credential_header, config.credential_form == "bearer")


def _sse_settings(config: RouteConfig, event_bytes_max: int) -> SSESettings:
    return SSESettings(
        base_url=config.base_url,
        credential=_credential(config),
        headers=config.headers,
        connect_seconds=config.connect_seconds,
        event_bytes_max=event_bytes_max,
        retryable_codes=config.retryable_codes,
    )


def _websocket_settings(config: RouteConfig, event_bytes_max: int) -> WebSocketSettings:
    return WebSocketSettings(
        base_url=config.base_url,
        credential=_credential(config),
        headers=config.headers,
        connect_seconds=config.connect_seconds,
        event_bytes_max=event_bytes_max,
        retryable_codes=config.retryable_codes,
        age_seconds_max=config.socket_age_seconds,
        idle_seconds_max=config.socket_idle_seconds,
        idle_sockets_max=config.idle_sockets_max,
    )
