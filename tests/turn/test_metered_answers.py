"""R4, B2, B3: an upstream answers with a status, or with what cannot be used, and says what it has metered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.lock.driver import Client
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import JSON_BODY, Reply
from gateway.upstream.scripts import usage_object
from support.gateways import World, cost, play, world
from support.voices import B

pytestmark = pytest.mark.trio(run=virtual_run)

ASKED = [("http", True), ("http", False), ("websocket", True)]
each_way = pytest.mark.parametrize(("way", "stream"), ASKED, ids=["http", "http, whole", "websocket"])
USAGE = usage_object(5, 1)
ERROR = {"code": "server_error", "message": "failed", "type": "server_error"}
CHARGED = [f"settled {cost(5, 1)} failed_metered"]


async def ask(w: World, way: str, stream: bool) -> Client:
    return await (play(w, way, stream=stream) if way == "http" else play(w, way))


def answers(status: int, body: dict[str, Any]) -> Reply:
    return Reply((json.dumps(body).encode(),), status=status, headers=JSON_BODY)


@each_way
@pytest.mark.parametrize(
    "body",
    [
        {"error": ERROR, "usage": USAGE},
        {"error": ERROR, "response": {"usage": USAGE}},
        {"error": {**ERROR, "usage": USAGE}},
    ],
    ids=["usage", "response.usage", "error.usage"],
)
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_a_status_says_was_metered_is_charged_and_not_run_again(
    way: str, stream: bool, body: dict[str, Any], status: int
) -> None:
    """R4, B3: it would be retryable."""
    w = world(answers(status, body), B.answer())
    client = await ask(w, way, stream)
    assert w.attempts == ["a server_error (usage_observed)"]
    assert (w.called, w.money) == (["a"], CHARGED)
    assert client.failure is not None
    assert client.failure[0] == status


@each_way
async def test_a_status_that_blames_the_gateway_s_own_account_is_hidden_and_its_usage_is_not(
    way: str, stream: bool
) -> None:
    """F2, R4: what the client reads is ours, what the upstream has metered is so all the same."""
    w = world(answers(403, {"error": ERROR, "usage": USAGE}), B.answer())
    client = await ask(w, way, stream)
    assert (w.called, w.money, client.failure) == (["a"], CHARGED, (502, "upstream_auth_error"))


@pytest.mark.parametrize(("way", "stream"), ASKED[:2])
async def test_so_is_that_of_a_success_that_is_none(way: str, stream: bool) -> None:
    """P9, R4: a JSON error object with status 200."""
    w = world(answers(200, {"error": ERROR, "usage": USAGE}), B.answer())
    client = await ask(w, way, stream)
    assert (w.called, w.money, client.failure) == (["a"], CHARGED, (502, "upstream_bad_response"))


@each_way
@pytest.mark.parametrize("usage", [None, usage_object(0, 0), {"total_tokens": 0}])
async def test_a_usage_of_nothing_stands_in_no_replay_s_way(way: str, stream: bool, usage: object) -> None:
    """R4, R15: neither null nor all zeros."""
    w = world(answers(503, {"error": ERROR, "usage": usage}), B.answer())
    await ask(w, way, stream)
    assert (w.called, w.money) == (["a", "b"], [f"settled {cost(5, 1)}"])


@each_way
@pytest.mark.parametrize("usage", [{"input_tokens": 5}, {"output_tokens": -1}, "5", [5]])
async def test_a_malformed_usage_is_observed_and_charges_nothing(way: str, stream: bool, usage: object) -> None:
    """R4, B5."""
    w = world(answers(503, {"error": ERROR, "usage": usage}), B.answer())
    await ask(w, way, stream)
    assert (w.attempts, w.money) == (["a server_error (usage_observed)"], ["voided"])


@each_way
async def test_output_in_a_status_body_is_a_result_that_was_seen(way: str, stream: bool) -> None:
    """R4: a failure's `response.output` is not empty."""
    w = world(answers(503, {"error": ERROR, "response": {"output": [{"id": "msg_1"}]}}), B.answer())
    await ask(w, way, stream)
    assert w.attempts == ["a server_error (result_observed)"]


async def test_the_usage_of_a_status_that_costs_the_client_nothing_is_the_house_s(door: str) -> None:
    """B2, B3: where a metered failure is configured to be free."""
    w = world(answers(500, {"error": ERROR, "usage": USAGE}), server='failed_metered = "void"')
    await play(w, door)
    assert (w.money, w.house_paid) == (["voided failed_metered"], cost(5, 1))


@pytest.mark.parametrize("transport", ["websocket"])
async def test_a_refused_handshake_s_too(door: str, transport: str) -> None:
    """R4, F2: a status instead of the upgrade."""
    w = world(answers(503, {"error": {**ERROR, "usage": USAGE}}), B.answer(), transport=transport)
    await play(w, door)
    assert (w.called, w.money) == (["a"], CHARGED)
