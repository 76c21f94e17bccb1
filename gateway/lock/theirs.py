"""The pack under an operator's own configuration: what its limits, timeouts, codes and policies make of each scenario.

The routes of one of its models stand in for the scenarios' routes: the first for `a`, the second for `b`, the third for
`c`. Those for which there is none are missing in what is played: with one route nothing is replayed (R14). What a
scenario sets itself stays as it is: it is what the scenario is about. Prices, names and secrets are not taken over:
they would change every sum and show nothing. Each key of the file is in one of the tables here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from gateway.config import Config, ModelConfig, RouteConfig, StaticKey
from gateway.config.section import Section
from gateway.lock.pack import Pack
from gateway.lock.pages import picture
from gateway.lock.player import Crashed, play
from gateway.lock.scenario import ROUTES, Scenario, read_scenario
from gateway.lock.transcript import Transcript, differences, read_transcript
from gateway.lock.world import Change

T = TypeVar("T", bound=Section)

SERVER_FIELDS: Final = (
    "absent_store",
    "start",
    "start_latest",
    "connection_grace",
    "connection_limit",
    "drain_timeout",
    "write_timeout",
    "replay_side_effect_tools",
    "replay_expanded_continuations",
    "failed_metered",
    "delivered_unmetered",
)
"""Policies and timeouts of `[server]`; the rest is where and how it listens."""
ROUTE_FIELDS: Final = {
    "first_event_timeout": "first_event_seconds",
    "idle_timeout": "idle_seconds",
    "response_timeout": "response_seconds",
    "connect_timeout": "connect_seconds",
    "retryable_codes": "retryable_codes",
    "stores_by_default": "stores_by_default",
    "request_bytes_max": "request_bytes_max",
    "socket_age_limit": "socket_age_seconds",
    "socket_idle_timeout": "socket_idle_seconds",
    "idle_sockets_max": "idle_sockets_max",
    "concurrency": "attempts_max",
    "state": "is_draining",
}
"""Of `[routes.NAME]`: the file's name, and the configuration's."""
TRANSPORTS: Final = "transports"
NOT_TAKEN_OVER: Final[Mapping[str, tuple[str, ...]]] = {
    "accounts and balances": ("accounts.balance",),
    "keys and their limits": (
        "keys.account",
        "keys.secret",
        "keys.expires",
        "keys.models",
        "keys.requests_per_minute",
        "keys.spend_per_day",
        "keys.spend_per_month",
        "keys.time_zone",
    ),
    "prices and max_output_tokens": ("routes.price", "models.max_output_tokens"),
    "names, addresses, headers and credentials of upstreams": (
        "routes.model",
        "routes.base_url",
        "routes.headers",
        "routes.credential",
        "routes.credential_header",
        "routes.credential_form",
    ),
    TRANSPORTS: ("routes.transport",),
    "how routes share the turns": ("models.routes",),
    "where and how it listens": (
        "server.host",
        "server.port",
        "server.head_timeout",
        "server.body_pause",
        "server.body_timeout",
        "server.allow_inline_secrets",
        "server.data_plane",
        "server.log_format",
        "server.log_level",
        "server.tls_certificate",
        "server.tls_key",
        "server.control_socket",
        "server.metrics_host",
        "server.metrics_port",
        "server.trusted_hops",
    ),
    "the ledger": (
        "ledger.store",
        "ledger.path",
        "ledger.dsn",
        "ledger.spool",
        "ledger.lease",
        "ledger.record_days",
        "ledger.origin_days",
    ),
}
"""Of their file, in words, and by its keys: it would change every sum and show nothing."""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A scenario that goes another way under their configuration."""

    name: str
    about: str
    rules: Sequence[str]
    lines: Sequence[str]


def played_with(pack: Pack, names: Iterable[str], theirs: Config, model: str) -> Iterator[Otherwise]:
    """The scenarios that go another way. KeyError for a model that they do not have."""
    for name in names:
        scenario = read_scenario(pack.scenario(name))
        recorded = read_transcript(pack.transcript(name))
        try:
            played = play(scenario, f"{name}.toml", change=taken_over(scenario, theirs, model))
        except Crashed as error:
            yield Otherwise(name, scenario.about, scenario.rules, [str(error)])
            continue
        if recorded != played:
            yield Otherwise(name, scenario.about, scenario.rules, list(_told(recorded, played)))


def stand_ins(pack: Pack, names: Sequence[str], routes: Sequence[str]) -> dict[str, str | None]:
    """Which of their routes stands for which route of these scenarios; None for one that is missing."""
    written = sorted({route for name in names for route in read_scenario(pack.scenario(name)).routes})
    return {route: dict(zip(ROUTES, routes, strict=False)).get(route) for route in written}


def replays_never(theirs: Config, model: str) -> dict[str, bool]:
    """What each key of the file that may use the model says of replays, by its name (R10a)."""
    keys = [held.key for held in theirs.keys]
    return {key.name: key.replay_never for key in keys if key.limits.models is None or model in key.limits.models}


def left_out(theirs: Config, model: str) -> list[str]:
    """What is not taken over, in words; by its names what goes another way there than is played here."""
    never = replays_never(theirs, model)
    named = [name for name, is_never in never.items() if is_never]
    framed = [name for name in theirs.models[model].routes if theirs.routes[name].transport == "websocket"]
    framing = f'transports (transport = "websocket" of {", ".join(framed)})'
    words = [framing if framed and word == TRANSPORTS else word for word in NOT_TAKEN_OVER]
    if named and len(named) < len(never):
        words.append(f'replay = "never" of {", ".join(named)}, for other keys have replay = "auto"')
    return words


def _told(recorded: Transcript, played: Transcript) -> Iterator[str]:
    """Both pictures of each door; where these are alike, the entries that differ."""
    for door, columns in recorded.items():
        before, after = picture(columns), picture(played[door])
        if before != after:
            yield from (
                f"{door}, by default:",
                *before.splitlines(),
                f"{door}, with these settings:",
                *after.splitlines(),
            )
        else:
            yield from differences({door: columns}, {door: played[door]})


def taken_over(scenario: Scenario, theirs: Config, model: str) -> Change:
    """Their settings over the house's, the scenario's own over theirs."""
    own: Mapping[str, Any] = scenario.config
    routes = [theirs.routes[name] for name in theirs.models[model].routes]
    standing = dict(zip(ROUTES, routes, strict=False))
    is_never = all(replays_never(theirs, model).values() or [False])

    def change(config: Config) -> Config:
        return replace(
            config,
            server=_merged(config.server, theirs.server, SERVER_FIELDS, own.get("server", {})),
            limits=_merged(
                config.limits, theirs.limits, tuple(type(theirs.limits).model_fields), own.get("limits", {})
            ),
            estimate=_merged(
                config.estimate, theirs.estimate, tuple(type(theirs.estimate).model_fields), own.get("estimate", {})
            ),
            keys=tuple(_key(held, own.get("key", {}), is_never=is_never) for held in config.keys),
            routes={
                name: _route(held, standing.get(name, held), _own(scenario, name))
                for name, held in config.routes.items()
            },
            models={name: _less(held, len(routes)) for name, held in config.models.items()},
        )

    return change


def _merged(held: T, theirs: T, fields: Sequence[str], own: Mapping[str, Any]) -> T:
    return held.model_copy(update={field: getattr(theirs, field) for field in fields if field not in own})


def _key(held: StaticKey, own: Mapping[str, Any], *, is_never: bool) -> StaticKey:
    return held if "replay" in own else replace(held, key=replace(held.key, replay_never=is_never))


def _less(held: ModelConfig, count: int) -> ModelConfig:
    """The model with those of its routes for which one of theirs stands; with the first, if there is none."""
    listed = tuple(entry for entry in held.listed if entry.name in ROUTES[:count])
    return replace(held, listed=listed or held.listed[:1])


def _own(scenario: Scenario, route: str) -> set[str]:
    """What the scenario sets of a route, from the beginning or by a swap (C2)."""
    tables = [scenario.config.get("route", {}), scenario.config.get("routes", {}).get(route, {})]
    return {key for table in (*tables, *(swap.settings.get(route, {}) for swap in scenario.swap)) for key in table}


def _route(held: RouteConfig, theirs: RouteConfig, own: Collection[str]) -> RouteConfig:
    """Where theirs has no limit, one that comes with the scenario's transport stays."""
    taken: dict[str, Any] = {
        field: found
        for written, field in ROUTE_FIELDS.items()
        if written not in own and (found := getattr(theirs, field)) is not None
    }
    return replace(held, **taken)
