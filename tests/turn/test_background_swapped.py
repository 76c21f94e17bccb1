"""B9, C2: who is asked after a background turn, and what it is charged by, when its route is not what it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from gateway.config import Config
from gateway.core.money import Price
from gateway.core.routing import in_order
from gateway.lock.driver import connect
from gateway.routes import Routes
from gateway.upstream.calls import Caller
from gateway.upstream.direct import DirectCaller
from gateway.upstream.httpx_calls import HTTPXCaller
from gateway.upstream.scripted import JSON_BODY, Break, Reply, Script, ScriptedTransport
from gateway.upstream.scripted_sockets import ScriptedDial
from gateway.upstream.scripts import response_object, usage_object
from support.gateways import MODEL, World, cost, create, world
from support.virtual import in_orders
from support.voices import A, B

DEAR = Price(9_000_000_000, 9_000_000_000, 9_000_000_000, 9_000_000_000)
ELSEWHERE = "http://elsewhere.test/v1"


def shown(status: str, **members: Any) -> Reply:
    body = response_object("resp_of_a", status, background=True, **members)
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


ENDED = shown("completed", usage=usage_object(5, 1))
BROKEN = A.reply(A.created, Break())


def with_a(config: Config, **changes: Any) -> Config:
    """The configuration with another route under the name."""
    return replace(config, routes={**config.routes, "a": replace(config.routes["a"], **changes)})


def without_a(config: Config) -> Config:
    model = replace(config.models[MODEL], listed=in_order(["b"]))
    return replace(config, routes={"b": config.routes["b"]}, models={MODEL: model})


async def begin(w: World) -> None:
    async with connect(w.app, "http", body=json.dumps(create(background=True, store=True)).encode()):
        pass


async def look_at(w: World, age_seconds: float = 60.0) -> None:
    """The gateway's own poll, at that age of all turns."""
    now = trio.current_time()
    w.records.background.update(
        (turn_id, (turn, now - age_seconds, now)) for turn_id, (turn, _, _) in w.records.background.items()
    )
    await w.gateway.background.look()


def restarted(w: World, config: Config, *replies: Reply) -> World:
    """Another process on the same stores, whose routes answer so."""
    second = world(replies, B.answer(), records=w.records, house=w.house)
    second.gateway.swap(config)
    moved = second.gateway.background
    moved._ledger, moved._ways = w.ledger, fresh_routes(config, second.scripts)
    return replace(second, ledger=w.ledger)


def fresh_routes(config: Config, scripts: Mapping[str, Script]) -> Routes:
    """As a process has them that began with this configuration."""
    return Routes(config, {name: ScriptedTransport(script) for name, script in scripts.items()})


def authority(w: World, number: int) -> str:
    """Which host and which key a call went to with."""
    headers = dict(w.calls[number].headers)
    return f"{headers.get('host')} {headers.get('authorization')}"


# --- the price ----------------------------------------------------------------------------------------------------


@in_orders(2)
async def test_it_is_charged_by_the_price_that_it_began_with() -> None:
    """C2, M2: a running turn keeps its table; its reservation was made by that price, too."""
    w = world([BROKEN, ENDED], B.answer())
    await begin(w)
    w.gateway.swap(with_a(w.gateway.config, price=DEAR))
    await look_at(w)
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_it_is_charged_by_that_price_after_a_restart() -> None:
    """B9: it is on record."""
    w = world([BROKEN], B.answer())
    await begin(w)
    second = restarted(w, with_a(w.gateway.config, price=DEAR), ENDED)
    await look_at(second)
    assert (w.money, len(second.calls)) == ([f"settled {cost(5, 1)}"], 1)


@in_orders(1)
async def test_the_estimate_is_by_that_price_where_the_route_is_gone() -> None:
    """B9, B4: after a restart, at the end of the day."""
    w = world([A.reply(A.created, A.delta("123456"), Break())], B.answer())
    await begin(w)
    second = restarted(w, without_a(w.gateway.config), ENDED)
    await look_at(second, 86_399)
    assert w.money == []
    await look_at(second, 86_400)
    assert (w.money, second.calls) == ([f"settled {cost(1, 2)} estimated"], [])


# --- the upstream ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": ELSEWHERE},
        {"headers": (("openai-project", "another"),)},
        {"headers": (("openai-organization", "another"),)},
    ],
    ids=["host", "project", "organisation"],
)
@in_orders(1)
async def test_another_upstream_under_the_name_is_never_asked(changes: dict[str, Any], logged: Any) -> None:
    """B9, O2: it could have another response of that id. After a restart nothing reaches the right one any more; that
    is said once, and the day's end settles it."""
    w = world([BROKEN], B.answer())
    await begin(w)
    second = restarted(w, with_a(w.gateway.config, **changes), ENDED)
    for _ in range(3):
        await look_at(second)
    assert (w.money, second.calls) == ([], [])
    told = [entry for entry in logged if entry["event"] == "background_unreachable"]
    whose = {"turn_id": "req_1", "account": "main", "route": "a"}
    assert told == [{"event": "background_unreachable", "log_level": "warning", **whose}]
    await look_at(second, 86_400)
    assert w.money == [f"settled {cost(1, 0)} estimated"]


@pytest.mark.parametrize("change", [without_a, partial(with_a, base_url=ELSEWHERE)], ids=["gone", "moved"])
@in_orders(1)
async def test_this_process_still_asks_the_upstream_that_it_began_on(change: Any) -> None:
    """C2: a running turn keeps its table."""
    w = world([BROKEN, ENDED], B.answer())
    await begin(w)
    w.gateway.swap(change(w.gateway.config))
    await look_at(w)
    assert authority(w, 1) == "a.test Bearer credential-of-a"
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_the_same_upstream_under_the_name_is_asked_with_the_newest_key() -> None:
    """B9: keys are rotated, and the former one does not last."""
    w = world([BROKEN, ENDED], B.answer())
    await begin(w)
    w.gateway.swap(with_a(w.gateway.config, credential="rotated", idle_seconds=7.0, transport="sse"))
    await look_at(w)
    assert authority(w, 1) == "a.test Bearer rotated"
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_who_has_another_key_may_be_another_account_that_never_knew_the_response() -> None:
    """B9: so its 404 does not say that the response is gone."""
    w = world([BROKEN, A.status(404), ENDED], B.answer())
    await begin(w)
    w.gateway.swap(with_a(w.gateway.config, credential="rotated or another's"))
    await look_at(w)
    assert w.money == []
    await look_at(w)
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_a_turn_that_an_earlier_version_kept_is_asked_after_by_its_route_s_name() -> None:
    """B9: as it was then; its price and its upstream are not on record."""
    w = world([BROKEN, ENDED], B.answer())
    await begin(w)
    turn, began_at, due_at = w.records.background["req_1"]
    w.records.background["req_1"] = replace(turn, fingerprint=None, price=None), began_at, due_at
    await look_at(w)
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_more_upstreams_than_are_remembered_let_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """B9: a bound; what serves now is never forgotten."""
    monkeypatch.setattr("gateway.limits.WAYS_EVER_MAX", 3)
    w = world([BROKEN], B.answer())
    await begin(w)
    (turn,) = await w.records.background_turns()
    routes = w.gateway.routes
    for number, is_known in ((1, True), (2, False)):
        w.gateway.swap(with_a(w.gateway.config, base_url=f"http://elsewhere-{number}.test/v1"))
        assert (routes.way_back(turn) is not None) == is_known
    assert routes.way_back(replace(turn, fingerprint=None)) is routes.ways["a"]


# --- seen by several ------------------------------------------------------------------------------------------------


@in_orders(2)
async def test_its_end_is_logged_once_however_many_see_it(logged: Any) -> None:
    """B9: the gateway's own poll, and a client's, at the same moment."""
    w = world([BROKEN, ENDED], B.answer())
    await begin(w)
    ended = response_object("resp_of_a", "completed", background=True, usage=usage_object(5, 1))
    asked = w.gateway.routes.ways["a"].fingerprint
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_at, w)
        for _ in range(3):
            nursery.start_soon(w.gateway.background.saw, "main", ended, asked)
    assert w.money == [f"settled {cost(5, 1)}"]
    assert [entry["event"] for entry in logged].count("background_ended") == 1


CALLERS: Mapping[str, Callable[[Script], Caller]] = {
    "fast": lambda script: DirectCaller("http://a.test/v1", 5.0, ScriptedDial(script)),
    "plain": lambda script: HTTPXCaller("http://a.test/v1", 5.0, ScriptedTransport(script)),
}


@pytest.mark.parametrize("plane", CALLERS)
@in_orders(1)
async def test_a_caller_that_was_closed_still_calls(plane: str) -> None:
    """B9: a route's connections are closed as the last turn on its table ends; whoever asks after its responses then
    leaves none behind."""
    caller = CALLERS[plane](Script("a", [Reply((b"{}",), headers=JSON_BODY)]))
    for _ in range(2):
        answer = await caller.call("GET", "/responses/x", [], b"")
        assert (answer.status, await answer.read()) == (200, b"{}")
        await answer.aclose()
        await caller.aclose()
