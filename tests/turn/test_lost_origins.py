"""O2, W10: a response whose route is gone: what was stored is there still, what a socket held is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.lock.driver import AUTHORIZED, connect
from support.conversations import WEBSOCKET, answer, ask, body_of, message, socket
from support.gateways import DOORS, MODEL, World, cost, play, world
from support.virtual import in_orders
from support.voices import A, B

GONE = ["drained", "taken away", "moved"]


def lose(w: World, how: str) -> None:
    """The route `a` drains, is taken away, or its name comes to stand for another upstream."""
    config = w.gateway.config
    routes, models = {**config.routes}, {**config.models}
    if how == "taken away":
        model = models[MODEL]
        models[MODEL] = replace(model, listed=tuple(one for one in model.listed if one.name != "a"))
        del routes["a"]
    elif how == "drained":
        routes["a"] = replace(routes["a"], is_draining=True)
    else:
        routes["a"] = replace(routes["a"], base_url="http://elsewhere.test/v1")
    w.gateway.swap(replace(config, routes=routes, models=models))


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_what_a_socket_held_is_not_known_once_its_route_is_gone(door: str, how: str) -> None:
    """W10, O2: its client can send everything, and is told so; nobody is asked, nothing reserved."""
    w = world(answer("resp_1", message("one")), B.answer(), route_extras={"a": WEBSOCKET})
    async with socket(w) as client:
        await ask(client)
    lose(w, how)
    client = await play(w, door, previous_response_id="resp_1")
    assert client.failure == (400, "previous_response_not_found")
    assert (w.called, w.money) == (["a"], [f"settled {cost(5, 1)}"])


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_what_is_stored_is_not_lost_with_its_route(door: str, how: str) -> None:
    """O2: it may come back, and a client that sends everything instead would leave what is stored behind."""
    w = world(answer("resp_1", message("one")), B.answer(), route_extras={"a": WEBSOCKET})
    async with socket(w) as client:
        await ask(client, store=True)
    lose(w, how)
    client = await play(w, door, store=True, previous_response_id="resp_1")
    assert client.failure == (503, "no_route_available")
    assert w.called == ["a"]


@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_a_route_that_cools_down_may_be_back_with_its_socket(door: str) -> None:
    """C3, X: waiting helps, and the client is told for how long."""
    w = world(answer("resp_1", message("one")), B.answer(), route_extras={"a": WEBSOCKET})
    async with socket(w) as client:
        await ask(client)
    w.house.cooling.add("a")
    client = await play(w, door, previous_response_id="resp_1")
    assert client.failure == (503, "no_route_available")


@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_a_socket_that_died_is_for_the_upstream_to_miss(door: str) -> None:
    """W10, O2: its route is there: what it does not know any more it says itself, unchanged."""
    missed = A.reply(A.error("previous_response_not_found"))
    w = world([answer("resp_1", message("one")), missed], route=f"{WEBSOCKET}\nsocket_idle_timeout = 0.5")
    async with socket(w) as client:
        await ask(client)
    client = await play(w, door, previous_response_id="resp_1")
    assert client.told == ["error previous_response_not_found"]
    assert body_of(w.calls[1]) == {"input": "hi", "previous_response_id": "resp_1"}


@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_a_client_that_was_told_sends_everything_and_is_served(door: str) -> None:
    """W10: by another route."""
    w = world(answer("resp_1", message("one")), B.answer(), route_extras={"a": WEBSOCKET})
    async with socket(w) as client:
        await ask(client)
    lose(w, "drained")
    client = await play(w, door)
    assert (client.told[-1], w.called) == ("completed", ["a", "b"])


@pytest.mark.parametrize(("how", "store", "failure"), [
    ("taken away", False, (404, "response_not_found")),
    ("moved", False, (404, "response_not_found")),
    ("taken away", True, (503, "no_route_available")),
])  # fmt: skip
@in_orders(1)
async def test_by_its_id_it_is_as_unknown(how: str, store: bool, failure: tuple[int, str]) -> None:
    """H2, O2."""
    w = world(answer("resp_1", message("one")), B.answer(), route_extras={"a": WEBSOCKET})
    async with socket(w) as client:
        await ask(client, store=store)
    lose(w, how)
    async with connect(w.app, "http", "/v1/responses/resp_1", method="GET", headers=AUTHORIZED) as asking:
        pass
    assert asking.failure == failure
