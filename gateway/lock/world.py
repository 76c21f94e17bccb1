"""The gateway of a scenario: its configuration, its scripted upstreams, its stores.

The configuration is one account, one key, one model with routes `a` and `b`, at prices with which every kind of token
shows in the sum. A scenario's `config` is laid over it and read as an operator's file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from gateway.app import Gateway, Parts
from gateway.aside import at_once
from gateway.config import Config, ConfigError, Problem, parse
from gateway.lock.notation import Speaker
from gateway.lock.scenario import MODEL, Scenario, ScenarioError, Swap, UpstreamReply
from gateway.lock.stores import Stores
from gateway.routes import Network, OverHTTP
from gateway.turn.house import PatientHouse, StandingHouse
from gateway.upstream.scripted import EVENT_STREAM, JSON_BODY, Call, Reply, Script, ScriptedTransport
from gateway.upstream.scripted_sockets import ScriptedDial
from gateway.upstream.scripted_websocket import scripted_converse

PRICE: Final = {"input": "1", "cached_input": "0.5", "output": "2", "reasoning": "4"}
"""Dollars for a million tokens: one of input costs 1000 nano-dollars, cached 500, of output 2000, reasoning 4000."""
KEY_SECRET: Final = "demo-key"
NEW_YEAR: Final = 1_767_225_600.0
"""2026-01-01 00:00 UTC, the wall clock at which every scenario begins: no day ends while one is played."""

Change = Callable[[Config], Config]
"""What else is done to a configuration: an operator's own settings, or a mutant's."""


@dataclass(slots=True)
class World:
    """A gateway with its scripted upstreams and stores."""

    gateway: Gateway
    scripts: Mapping[str, Script]
    stores: Stores
    swaps: tuple[tuple[float, Config], ...] = ()
    """When which configuration's routes take over (C2)."""

    @property
    def calls(self) -> list[Call]:
        """All upstream calls, in order of time; of one instant in the order of routes."""
        return sorted((call for script in self.scripts.values() for call in script.calls), key=lambda call: call.at)


def make_world(scenario: Scenario, file: str, change: Change | None = None) -> World:
    """The gateway that a scenario describes. Raises ScenarioError."""
    config = configured(scenario, file)
    changed: Change = change or (lambda config: config)
    config = changed(config)
    swaps = tuple((swap.at, changed(swapped_in(scenario, swap, file))) for swap in scenario.swap)
    stores = Stores(config, scenario.fault, scenario.origins)
    scripts = {route: Script(route, _replies(scenario, route, config)) for route in scenario.routes}
    house = (PatientHouse if scenario.house.is_patient else StandingHouse)(wall_clock=_wall_clock)
    house.throttled = scenario.house.is_throttled
    house.cooling.update(scenario.house.cooling)
    parts = Parts(
        transports={route: _network(config, route, script) for route, script in scripts.items()},
        over_http={route: _over_http(config, script) for route, script in scripts.items()},
        house=house,
        new_request_id=_numbered(),
        wall_clock=_wall_clock,
        run_aside=at_once,
    )
    return World(Gateway(config, stores.put_into(parts)), scripts, stores, swaps)


def _wall_clock() -> float:
    return NEW_YEAR + trio.current_time()


def _numbered() -> Callable[[], str]:
    numbers: Iterator[int] = count(1)
    return lambda: f"req_{next(numbers)}"


# --- configuration ----------------------------------------------------------------------------------------------


def configured(scenario: Scenario, file: str) -> Config:
    """The scenario's configuration. Raises ScenarioError for one that an operator's file could not have."""
    strangers = [name for name in scenario.config.get("routes", {}) if name not in scenario.routes]
    if strangers:
        fix = f"give it a reply, or name one of: {', '.join(scenario.routes)}"
        raise ScenarioError([Problem(file, f"config.routes.{name}", "is no route here", fix) for name in strangers])
    try:
        return _parsed(toml_text(document(scenario)), f"{file}: config")
    except ConfigError as error:
        raise ScenarioError(list(error.problems)) from None


def swapped_in(scenario: Scenario, swap: Swap, file: str) -> Config:
    """The scenario's configuration with the swap's routes. Raises ScenarioError."""
    strangers: set[str] = {name for name in swap.routes if name not in scenario.routes}
    strangers |= {name for name in swap.settings if name not in swap.routes}
    if strangers:
        fix = f"list it, and give it a reply; those with one are: {', '.join(scenario.routes)}"
        raise ScenarioError([Problem(file, f"swap: {name}", "is no route here", fix) for name in sorted(strangers)])
    tables = document(scenario)
    tables["routes"] = {name: {**tables["routes"][name], **swap.settings.get(name, {})} for name in swap.routes}
    tables["models"][MODEL]["routes"] = list(swap.routes)
    try:
        return _parsed(toml_text(tables), f"{file}: swap")
    except ConfigError as error:
        raise ScenarioError(list(error.problems)) from None


@lru_cache(maxsize=256)
def _parsed(text: str, file: str) -> Config:
    return parse(text, file=file, environ={}, directory=Path())


def document(scenario: Scenario) -> dict[str, Any]:
    """The tables of the file: the house's own, and those of `config` over them. Its tables `account`, `key`, `route`
    and `model` stand for the one of that kind, `route` for all of them; further accounts and keys stand beside it."""
    own = dict(scenario.config)
    account, key, model, every = (own.pop(name, {}) for name in ("account", "key", "model", "route"))
    accounts, keys, models = (own.pop(name, {}) for name in ("accounts", "keys", "models"))
    each = own.pop("routes", {})
    routes = {name: {**_route(name), **every, **each.get(name, {})} for name in scenario.routes}
    return {
        **own,
        "server": {"allow_inline_secrets": True, **own.get("server", {})},
        "accounts": {"main": {"balance": "1000", **account}, **accounts},
        "keys": {"main": {"account": "main", "secret": {"inline": KEY_SECRET}, **key}, **keys},
        "routes": routes,
        "models": {MODEL: {"routes": list(routes), "max_output_tokens": 1000, **model}, **models},
    }


def _route(name: str) -> dict[str, Any]:
    credential = {"inline": f"credential-of-{name}"}
    return {"base_url": f"http://{name}.test/v1", "credential": credential, "price": PRICE}


def toml_text(tables: Mapping[str, Any]) -> str:
    """The document as TOML: one inline table for each of its tables."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in tables.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


# --- upstreams --------------------------------------------------------------------------------------------------


def _network(config: Config, route: str, script: Script) -> Network:
    """What the route's transport has below it (C5)."""
    is_framed = config.routes[route].transport == "websocket"
    is_plain = config.server.data_plane == "plain"
    return scripted_converse(script, is_plain=is_plain) if is_framed else _over_http(config, script)


def _over_http(config: Config, script: Script) -> OverHTTP:
    return ScriptedDial(script) if config.server.data_plane == "fast" else ScriptedTransport(script)


def _replies(scenario: Scenario, route: str, config: Config) -> list[Reply]:
    model = config.routes[route].upstream_model or MODEL
    written = [reply for reply in scenario.upstream if reply.route == route]
    return [_reply(reply, f"{route}{number}", model) for number, reply in enumerate(written, start=1)] or [Reply()]


def _reply(written: UpstreamReply, call: str, model: str) -> Reply:
    speaker = Speaker(call, model, written.is_numbered)
    is_error = written.status >= 400
    steps = speaker.steps(written.does)
    if written.body is not None:
        steps = [written.body.encode()]
    elif is_error and not steps:
        steps = [_error_body(written, call)]
    headers = {**dict(JSON_BODY if is_error else EVENT_STREAM), "x-request-id": f"req_of_{call}", **written.headers}
    return Reply(
        steps=tuple(steps),
        status=written.status,
        headers=tuple(headers.items()),
        refuses=written.refuses,
        connect_seconds=written.connect_seconds,
        head_seconds=written.head_seconds,
    )


def _error_body(written: UpstreamReply, call: str) -> bytes:
    error = {"message": f"the words of {call}", "type": "some_type", "param": None, "code": written.code}
    return json.dumps({"error": error}).encode()
