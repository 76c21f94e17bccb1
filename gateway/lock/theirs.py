"""The pack under an operator's own configuration: what its limits, timeouts, codes and policies make of each scenario.

The routes of one of its models stand in for the scenarios' routes: the first for `a`, the second for `b`, the last one
for those that are left. What a scenario sets itself stays as it is: it is what the scenario is about. Prices, names and
secrets are not taken over: they would change every sum and show nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from gateway.config import Config, RouteConfig
from gateway.config.section import Section
from gateway.lock.pack import Pack
from gateway.lock.pages import picture
from gateway.lock.player import Crashed, play
from gateway.lock.scenario import Scenario, read_scenario
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
}
"""Of `[routes.NAME]`: the file's name, and the configuration's."""
ROUTES: Final = "abc"
"""A scenario's, in the order in which theirs stand in for them."""
NOT_TAKEN_OVER: Final = (
    "accounts and balances, keys and their limits, prices, names, how routes share the turns, where it listens"
)
"""Of their file, in words: it would change every sum and show nothing."""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A scenario that goes another way under their configuration."""

    name: str
    about: str
    rules: Sequence[str]
    lines: Sequence[str]


def played_with(pack: Pack, names: Sequence[str], theirs: Config, model: str) -> Iterator[Otherwise]:
    """The scenarios that go another way. KeyError for a model that they do not have."""
    routes = [theirs.routes[name] for name in theirs.models[model].routes]
    for name in names:
        scenario = read_scenario(pack.scenario(name))
        recorded = read_transcript(pack.transcript(name))
        try:
            played = play(scenario, f"{name}.toml", change=taken_over(scenario, theirs, routes))
        except Crashed as error:
            yield Otherwise(name, scenario.about, scenario.rules, [str(error)])
            continue
        if recorded != played:
            yield Otherwise(name, scenario.about, scenario.rules, list(_told(recorded, played)))


def stand_ins(pack: Pack, names: Sequence[str], routes: Sequence[str]) -> dict[str, str]:
    """Which of their routes stands for which route of these scenarios."""
    written = sorted({route for name in names for route in read_scenario(pack.scenario(name)).routes})
    return {route: routes[_place(route, routes)] for route in written}


def _place(route: str, routes: Sequence[object]) -> int:
    return min(ROUTES.index(route), len(routes) - 1)


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


def taken_over(scenario: Scenario, theirs: Config, routes: Sequence[RouteConfig]) -> Change:
    """Their settings over the house's, the scenario's own over theirs."""
    own: Mapping[str, Any] = scenario.config

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
            routes={
                name: _route(held, routes[_place(name, routes)], {**own.get("route", {}), **_own(own, name)})
                for name, held in config.routes.items()
            },
        )

    return change


def _merged(held: T, theirs: T, fields: Sequence[str], own: Mapping[str, Any]) -> T:
    return held.model_copy(update={field: getattr(theirs, field) for field in fields if field not in own})


def _own(own: Mapping[str, Any], route: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = own.get("routes", {}).get(route, {})
    return found


def _route(held: RouteConfig, theirs: RouteConfig, own: Mapping[str, Any]) -> RouteConfig:
    taken: dict[str, Any] = {
        field: getattr(theirs, field) for written, field in ROUTE_FIELDS.items() if written not in own
    }
    return replace(held, **taken)
