"""`/v1/responses/compact` is a turn without streaming, `/v1/responses/input_tokens` a free question (H2, B9)."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.lock.virtual import virtual_run
from gateway.ports import Origin
from gateway.records.memory import MemoryRecords
from gateway.turn.house import StandingHouse
from gateway.upstream.scripted import JSON_BODY, Break, Reply, Silence, Step
from gateway.upstream.scripts import usage_object
from support.gateways import MODEL, World, assert_all_is_well, cost, world
from support.known_origins import TO_A, a_made_resp_1
from support.voices import A, B, Voice

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("each_transport")]

COMPACT, COUNT = "/v1/responses/compact", "/v1/responses/input_tokens"
BODY = {"model": MODEL, "input": "hi"}


def compaction(voice: Voice) -> bytes:
    output = [{"type": "compaction", "id": f"cmp_{voice.mark}", "encrypted_content": "zzz"}]
    found = {"id": f"resp_{voice.mark}", "object": "response.compaction", "output": output}
    return json.dumps({**found, "usage": usage_object(9, 2)}, indent=1).encode()


def counted(tokens: int) -> bytes:
    return json.dumps({"object": "response.input_tokens", "input_tokens": tokens}).encode()


def body(*steps: Step, **options: Any) -> Reply:
    return Reply(steps, headers=JSON_BODY, **options)


class FaultyHouse(StandingHouse):
    """Does not know how its routes are."""

    def is_cooling(self, route: str) -> bool:
        """A bug."""
        raise ZeroDivisionError(route)


async def post(w: World, path: str, request: dict[str, Any] = BODY, headers: Any = ()) -> Client:
    sent = json.dumps(request).encode()
    async with connect(w.app, "http", path, headers=(*AUTHORIZED, *headers), body=sent) as client:
        pass
    if path == COMPACT:
        assert_all_is_well(w, client)
    assert (client.crash, [call for call in w.calls if call.closed_at is None]) == (None, [])
    return client


# --- compact --------------------------------------------------------------------------------------------------------


async def test_a_compaction_is_a_turn_that_costs_what_it_used() -> None:
    """B9: over HTTP whatever the route's transport, to its own endpoint, in the client's own bytes."""
    w = world(body(compaction(A)))
    client = await post(w, COMPACT)

    assert (client.status, client.body) == (200, compaction(A))
    assert (w.calls[0].path, w.calls[0].fields) == ("/v1/responses/compact", BODY)
    assert (w.attempts, w.money) == (["a completed"], [f"settled {cost(9, 2)}"])


@pytest.mark.parametrize("first", [body(Break()), A.status(503, "server_is_overloaded"), Reply(refuses=True)])
async def test_a_compaction_is_replayed_as_any_turn(first: Reply) -> None:
    """R15, S1: there is no `store`, so nothing is stored."""
    w = world(first, body(compaction(B)))
    client = await post(w, COMPACT)
    assert client.body == compaction(B)
    assert w.attempts[0].endswith("(replay)")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"previous_response_id": "resp_1"}, "continuation"),
        ({"input": [{"type": "compaction", "encrypted_content": "z"}]}, "origin_bound"),
    ],
)
async def test_a_compaction_of_what_an_origin_holds_is_not(fields: dict[str, Any], reason: str) -> None:
    """R10, S2, S5."""
    w = world(body(Break()), body(compaction(B)), records=a_made_resp_1())
    client = await post(w, COMPACT, {**BODY, "prompt_cache_key": TO_A, **fields})
    assert client.failure == (502, "stream_read_error")
    assert w.attempts == [f"a stream_read_error ({reason})"]


async def test_store_is_made_explicit_in_no_compaction() -> None:
    """S1: the endpoint does not know it."""
    w = world(body(compaction(A)), server='absent_store = "false"')
    await post(w, COMPACT)
    assert w.calls[0].fields == BODY


# --- input_tokens ---------------------------------------------------------------------------------------------------


async def test_a_count_is_free_and_on_no_record(logged: list[MutableMapping[str, Any]]) -> None:
    """B9."""
    w = world(body(counted(11)), balance="0", route='model = "upstreams-own"')
    client = await post(w, COUNT)

    assert (client.status, client.body) == (200, counted(11))
    assert (w.calls[0].path, w.calls[0].fields["model"]) == ("/v1/responses/input_tokens", "upstreams-own")
    assert (w.turns, w.reserved) == ([], [])
    assert [entry for entry in logged if entry["event"] == "asked"] == [
        {
            "event": "asked",
            "turn_id": "req_1",
            "path": "/responses/input_tokens",
            "route": "a",
            "outcome": "completed",
            "log_level": "info",
        }
    ]


async def test_a_count_that_the_gateway_fails_at_is_logged_by_its_id(logged: list[MutableMapping[str, Any]]) -> None:
    """X: an internal error, of which its client is told no more than that."""
    w = world(body(counted(11)), house=FaultyHouse())
    client = await post(w, COUNT)
    assert (client.failure, w.called) == ((500, "internal_error"), [])
    assert client.events[0].payload["error"]["message"] == "the gateway failed; the failure is logged"
    told = [(entry["event"], entry["turn_id"]) for entry in logged if entry["log_level"] == "error"]
    assert told == [("internal_error", "req_1")]


async def test_a_count_goes_where_a_turn_would_go_on() -> None:
    """H2, O2: to the route that made what it goes on from, and to no other; nobody else's is known."""
    records = MemoryRecords()
    records.origins["main", "resp_1"] = Origin("main", "resp_1", "b")
    w = world(body(counted(11)), Reply(refuses=True), records=records)
    assert (await post(w, COUNT, {**BODY, "previous_response_id": "resp_1"})).failure == (502, "upstream_connect_error")

    records.origins.clear()
    records.origins["other", "resp_1"] = Origin("other", "resp_1", "b")
    w = world(body(counted(11)), body(counted(11)), records=records)
    refused = await post(w, COUNT, {**BODY, "previous_response_id": "resp_1"})
    assert (refused.failure, w.called) == ((400, "previous_response_not_found"), [])


async def test_a_count_is_asked_once_when_no_replay_may_begin() -> None:
    """R13, C4: an outage is not doubled by questions either."""
    w = world(Reply(refuses=True), body(counted(11)))
    w.house.throttled = True
    assert (await post(w, COUNT)).failure == (502, "upstream_connect_error")
    assert w.called == []


async def test_a_count_that_was_never_sent_is_asked_of_one_other_route() -> None:
    """B9: and of no third."""
    w = world(Reply(refuses=True), body(counted(11)), route="request_bytes_max = 20_000")
    assert (await post(w, COUNT)).body == counted(11)

    w = world(Reply(refuses=True), Reply(refuses=True))
    assert (await post(w, COUNT)).failure == (502, "upstream_connect_error")


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (body(Break()), (502, "stream_read_error")),
        (A.status(503, "server_is_overloaded"), (503, "server_is_overloaded")),
        (A.status(400, "invalid_value"), (400, "invalid_value")),
        (A.status(401, "invalid_api_key"), (502, "upstream_auth_error")),
        (body(b"<html>"), (502, "upstream_bad_response")),
        (body(Silence()), (504, "first_event_timeout")),
    ],
)
async def test_whatever_else_becomes_of_it_is_the_answer(
    reply: Reply, failure: tuple[int, str], logged: list[MutableMapping[str, Any]]
) -> None:
    """X2: nothing is asked twice that was sent."""
    w = world(reply, body(counted(11)))
    client = await post(w, COUNT)
    assert (client.failure, w.called) == (failure, ["a"])
    assert client.headers["x-should-retry"] == "false"
    assert [entry["outcome"] for entry in logged if entry["event"] == "asked"] == [failure[1]]


@pytest.mark.parametrize(
    ("reply", "faults"),
    [(body(counted(11)), 0), (A.status(503, "server_is_overloaded"), 3), (A.status(400, "invalid_value"), 2)],
)
async def test_a_question_tells_of_its_routes_health_what_a_turn_would(reply: Reply, faults: int) -> None:
    """C3: a fault is one more, an answer ends the row, and the question's own fault says nothing."""
    w = world([A.status(503, "server_is_overloaded"), A.status(503, "server_is_overloaded"), reply])
    for _ in range(3):
        await post(w, COUNT)
    health = w.house.routes["a"]
    assert (health.circuit.faults, health.open_attempts) == (faults, 0)


async def test_a_question_s_headers_go_up_and_its_answer_s_come_down() -> None:
    """H4, H5: as a turn's."""
    w = world(Reply((counted(11),), headers=(*JSON_BODY, ("x-request-id", "upstream"))))
    client = await post(w, COUNT, headers=(("openai-beta", "responses=v1"), ("cookie", "a=b")))
    sent = {name: value for name, value in w.calls[0].headers if name in ("openai-beta", "cookie")}
    assert sent == {"openai-beta": "responses=v1"}
    assert client.headers["x-upstream-request-id"] == "upstream"


async def test_a_client_that_leaves_withdraws_its_question() -> None:
    """H7."""
    w = world(body(Silence()))
    async with connect(w.app, "http", COUNT, headers=AUTHORIZED, body=json.dumps(BODY).encode()) as client:
        await trio.sleep(3)
        client.leave()
    assert w.closed_at == [3.0]


@pytest.mark.parametrize("path", [COMPACT, COUNT])
async def test_key_and_model_are_asked_as_for_any_turn(path: str) -> None:
    """X: and a key's own rate."""
    w = world(body(counted(1)), key="requests_per_minute = 1")
    async with connect(w.app, "http", path, headers=(), body=b"{}") as client:
        pass
    assert client.failure == (401, "invalid_api_key")
    assert (await post(w, path, {"input": "hi"})).failure == (400, "invalid_request")
    assert (await post(w, path)).failure == (429, "rate_limit_exceeded")
    assert (await post(world(body()), path, {"model": "other"})).failure == (404, "model_not_found")
    assert w.calls == []


async def test_a_draining_gateway_answers_no_question() -> None:
    """T7."""
    w = world(body(counted(1)))
    w.gateway.drain()
    assert (await post(w, COUNT)).failure == (503, "server_draining")
