"""O2, O3, C2: whose route's name stands for another upstream by now is as good as gone; nobody else is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.background import Fingerprint
from gateway.core.marks import CONVERSATION, SEALED, TURN_STATE, mark
from gateway.core.origin import Maker
from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.ports import Origin
from gateway.records.memory import MemoryRecords
from gateway.upstream.scripted import JSON_BODY, Break, Reply
from gateway.upstream.scripts import response_object, usage_object
from support.conversations import answer, message, socket
from support.conversations import ask as tell
from support.gateways import World, cost, create, play, world
from support.virtual import in_every_order, in_orders
from support.voices import ANSWERED, A, B

PLACES: dict[str, dict[str, Any]] = {
    "host": {"base_url": "http://elsewhere.test/v1"},
    "project": {"headers": (("openai-project", "another"),)},
    "organisation": {"headers": (("openai-organization", "another"),)},
}
SEALED_ITEM = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed words"}
GONE = (503, "no_route_available")
NOT_THERE = "the route that made the response is not there any more"


def shown(status: str, **members: Any) -> Reply:
    body = response_object("resp_of_a", status, background=True, **members)
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


ENDED = shown("completed", usage=usage_object(5, 1))


def change_a(w: World, **changes: Any) -> None:
    """Have another route under the name."""
    config = w.gateway.config
    w.gateway.swap(replace(config, routes={**config.routes, "a": replace(config.routes["a"], **changes)}))


def knowing(maker: Maker) -> MemoryRecords:
    """Records of an account that was served by it."""
    records = MemoryRecords()
    records.origins["main", "resp_of_a"] = Origin("main", "resp_of_a", maker.route, "gpt-test", maker.place)
    known = (mark(SEALED, "sealed words"), mark(CONVERSATION, "conv_1"), mark(TURN_STATE, "held"))
    records.marks.update({("main", one): maker for one in known})
    return records


async def ask(w: World, action: str = "", method: str = "GET") -> Client:
    async with connect(w.app, "http", f"/v1/responses/resp_of_a{action}", method=method) as client:
        pass
    assert client.crash is None
    return client


async def begin(w: World) -> None:
    """One background turn."""
    body = json.dumps(create(background=True, store=True)).encode()
    async with connect(w.app, "http", headers=AUTHORIZED, body=body):
        pass


# --- turns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", PLACES.values(), ids=PLACES)
@in_every_order
async def test_a_continuation_does_not_follow_the_name(door: str, changes: dict[str, Any]) -> None:
    """O2: also on the connection on which the response was made; nothing is reserved. Once the edit is taken back the
    route is there again."""
    w = world([A.answer(), A.answer()], B.answer())
    w.house.cooling.add("b")
    await play(w, door, store=True)
    before = w.gateway.config
    change_a(w, **changes)
    w.house.cooling.clear()
    client = await play(w, door, store=True, previous_response_id="resp_of_a")
    assert (client.failure, w.called, len(w.reserved)) == (GONE, ["a"], 1)
    w.gateway.swap(before)
    assert (await play(w, door, store=True, previous_response_id="resp_of_a")).told == ANSWERED


@in_orders(1)
async def test_what_the_former_upstream_stores_does_not_become_its_successors_by_being_sent_whole() -> None:
    """W10, S1, O2: whether a response was stored is told by the route that made it, not by what stands there now."""
    w = world([answer("resp_1", message("one")), answer("resp_2")])
    async with socket(w) as client:
        await tell(client, store=...)
        change_a(w, **PLACES["host"], stores_by_default=False)
        assert await tell(client, store=..., previous_response_id="resp_1") == ["error no_route_available"]
    assert len(w.calls) == 1


@pytest.mark.parametrize(
    "fields", [{"input": [SEALED_ITEM]}, {"conversation": "conv_1"}], ids=["sealed", "conversation"]
)
@in_every_order
async def test_a_bound_request_does_not_follow_the_name(door: str, fields: dict[str, Any]) -> None:
    """O3: another upstream cannot open what the former one has sealed."""
    w = world(A.answer(), B.answer(), records=knowing(Maker("a", "another place")))
    client = await play(w, door, **fields)
    assert (client.failure, w.called, w.reserved) == (GONE, [], [])


@in_orders(1)
async def test_a_turn_s_state_does_not_follow_the_name() -> None:
    """O3: the client holds it for the upstream that gave it."""
    w = world(A.answer(), B.answer(), records=knowing(Maker("a", "another place")))
    headers = [*AUTHORIZED, ("x-codex-turn-state", "held")]
    async with connect(w.app, "http", headers=headers, body=json.dumps(create()).encode()) as client:
        pass
    assert (client.failure, w.called) == (GONE, [])


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_of_a"}, {"input": [SEALED_ITEM]}])
@in_every_order
async def test_a_rotated_key_is_the_same_upstream(door: str, fields: dict[str, Any]) -> None:
    """O2, O3."""
    w = world(A.answer(), B.answer())
    w.records.origins.update(knowing(w.maker("a")).origins)
    w.records.marks.update(knowing(w.maker("a")).marks)
    change_a(w, credential="rotated")
    assert ((await play(w, door, **fields)).told, w.called) == (ANSWERED, ["a"])


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_of_a"}, {"input": [SEALED_ITEM]}])
@in_every_order
async def test_what_an_earlier_version_learned_is_found_by_the_name(door: str, fields: dict[str, Any]) -> None:
    """O2, O3: as it was then."""
    w = world(A.answer(), B.answer(), records=knowing(Maker("a")))
    change_a(w, **PLACES["project"])
    assert ((await play(w, door, **fields)).told, w.called) == (ANSWERED, ["a"])


# --- by id --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(
    ("action", "method"), [("", "GET"), ("", "DELETE"), ("/input_items", "GET"), ("/cancel", "POST")]
)
@in_orders(1)
async def test_a_call_by_id_does_not_follow_the_name(action: str, method: str, changes: dict[str, Any]) -> None:
    """O2, H2: another upstream may have another response of that id."""
    w = world([A.answer(), ENDED], B.answer())
    await play(w, "http", store=True)
    change_a(w, **changes)
    client = await ask(w, action, method)
    assert (client.failure, w.called) == (GONE, ["a"])
    assert NOT_THERE in client.body.decode()


@in_orders(1)
async def test_a_response_is_read_with_a_rotated_key() -> None:
    """O2."""
    w = world([A.answer(), ENDED], B.answer())
    await play(w, "http", store=True)
    change_a(w, credential="rotated")
    assert ((await ask(w)).status, w.called) == (200, ["a", "a"])


@in_orders(2)
async def test_a_background_response_is_ended_where_it_goes_on() -> None:
    """B9, C2: by the process that knows the way; whoever pays for it may stop it. Then it is as any other."""
    w = world([A.reply(A.created, Break()), shown("cancelled", usage=usage_object(5, 1))], B.answer())
    await begin(w)
    change_a(w, **PLACES["host"])
    client = await ask(w, "/cancel", "POST")
    assert (client.status, w.money) == (200, [f"settled {cost(5, 1)}"])
    assert dict(w.calls[1].headers)["host"] == "a.test"
    assert (await ask(w)).failure == GONE
    assert len(w.calls) == 2


@in_orders(1)
async def test_a_background_response_of_an_upstream_that_no_way_leads_to_is_not_asked_for() -> None:
    """O2, B9: as after a restart."""
    w = world([A.reply(A.created, Break()), ENDED], B.answer())
    await begin(w)
    turn, began_at, due_at = w.records.background["req_1"]
    w.records.background["req_1"] = replace(turn, fingerprint=Fingerprint("unknown", "key")), began_at, due_at
    change_a(w, **PLACES["host"])
    assert ((await ask(w)).failure, w.called) == (GONE, ["a"])


@in_orders(1)
async def test_another_upstream_s_word_ends_no_background_turn() -> None:
    """B9, O2: what an earlier version learned is found by the name; the turn knows its upstream."""
    w = world([A.reply(A.created, Break()), ENDED, ENDED], B.answer())
    await begin(w)
    known = w.records.origins["main", "resp_of_a"]
    w.records.origins["main", "resp_of_a"] = replace(known, place=None)
    w.gateway.origins._recent.clear()
    before = w.gateway.config
    change_a(w, **PLACES["project"])
    assert ((await ask(w)).status, w.money) == (200, [])
    w.gateway.swap(before)
    assert ((await ask(w)).status, w.money) == (200, [f"settled {cost(5, 1)}"])
