"""M1: the models that a key may use."""

import json
from dataclasses import replace

import pytest

from gateway.app import Gateway, Parts
from gateway.config import StaticKey
from gateway.core.keys import Key, KeyLimits
from gateway.lock.driver import AUTHORIZED, DEMO_KEY, Client, Headers, connect
from gateway.stores import Stores
from support.gateways import MODEL, World, world
from support.virtual import in_orders
from support.voices import A

SHOWN = {"id": MODEL, "object": "model", "created": 0, "owned_by": "gateway"}


async def ask(w: World, path: str = "", headers: Headers = AUTHORIZED) -> Client:
    async with connect(w.app, "http", f"/v1/models{path}", method="GET", headers=headers) as client:
        pass
    assert client.crash is None
    return client


@in_orders(1)
async def test_a_key_sees_the_models_by_the_names_it_asks_for() -> None:
    """M1, M3."""
    w = world(A.answer(), route='model = "inside"')
    client = await ask(w)
    assert (client.status, json.loads(client.body)) == (200, {"object": "list", "data": [SHOWN]})
    assert client.headers["content-type"] == "application/json"
    assert json.loads((await ask(w, f"/{MODEL}")).body) == SHOWN


@in_orders(1)
async def test_a_key_sees_no_model_that_it_may_not_use() -> None:
    """B6."""
    w = world(A.answer())
    key = StaticKey(Key("main", "main", limits=KeyLimits(models=frozenset({"another"}))), DEMO_KEY)
    w.gateway = Gateway(replace(w.gateway.config, keys=(key,)), Parts(stores=Stores(w.ledger, w.records)))
    assert json.loads((await ask(w)).body) == {"object": "list", "data": []}
    assert (await ask(w, f"/{MODEL}")).failure == (404, "model_not_found")


@pytest.mark.parametrize("name", ["other", "a/b", "..", "%00", "x" * 1000])
@in_orders(1)
async def test_a_model_that_is_not_served_is_not_found(name: str) -> None:
    """X."""
    assert (await ask(world(A.answer()), f"/{name}")).failure == (404, "model_not_found")


@in_orders(1)
async def test_models_are_shown_to_keys_only() -> None:
    """W1."""
    w = world(A.answer())
    for path in ("", f"/{MODEL}"):
        assert (await ask(w, path, ())).failure == (401, "invalid_api_key")
