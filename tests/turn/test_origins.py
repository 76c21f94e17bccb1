"""O1 to O3 through both doors: what goes on from something goes where that was made, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio

from gateway.app import Gateway, Parts
from gateway.core.marks import CONVERSATION, ITEM, SEALED, TURN_STATE, mark
from gateway.core.money import Price
from gateway.core.origin import Maker
from gateway.core.routing import by_affinity
from gateway.ports import LedgerUnavailable, Origin
from gateway.records.memory import MemoryRecords
from gateway.routes import Network
from gateway.stores import Stores
from gateway.upstream.scripted import Break, Reply, ScriptedTransport
from gateway.upstream.scripted_websocket import scripted_converse
from support.gateways import Transports, World, cost, create_frame, play, turn, world
from support.virtual import in_every_order, in_orders
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

TO_A, TO_B = "to a", "two"
"""Cache keys, and the route that takes what has them where nothing else is known (O3)."""


class Away(MemoryRecords):
    """Records in which nothing can be looked up."""

    async def origin(self, account: str, response_id: str) -> Origin | None:
        """Away."""
        await trio.lowlevel.checkpoint()
        raise LedgerUnavailable

    async def origins_of_marks(self, account: str, marks: Sequence[str]) -> dict[str, Maker]:
        """Away."""
        await trio.lowlevel.checkpoint()
        raise LedgerUnavailable


def knowing(*, responses: dict[str, str] | None = None, marks: dict[str, str] | None = None) -> MemoryRecords:
    """Records of the account that knows these."""
    records = MemoryRecords()
    records.origins.update({("main", n): Origin("main", n, route) for n, route in (responses or {}).items()})
    records.marks.update({("main", one): Maker(route) for one, route in (marks or {}).items()})
    return records


def two_routes(records: MemoryRecords, **options: Any) -> World:
    return world(A.answer(), B.answer(), records=records, **options)


# --- O2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["a", "b"])
@in_every_order
async def test_o2_a_continuation_goes_to_the_route_that_made_the_response(door: str, route: str) -> None:
    """O2."""
    w = two_routes(knowing(responses={"resp_1": route}))
    client = await play(w, door, previous_response_id="resp_1")
    assert (client.told, w.called) == (ANSWERED, [route])


@in_every_order
async def test_o1_a_response_that_was_delivered_can_be_continued(door: str) -> None:
    """O1, O2: B made it, for A was at fault."""
    w = two_routes(MemoryRecords())
    w.house.cooling.add("a")
    await play(w, door, store=True)
    w.house.cooling.clear()

    client = await play(w, door, store=True, previous_response_id="resp_of_b")
    assert (client.told, w.called) == (ANSWERED, ["b", "b"])
    assert w.records.origins["main", "resp_of_b"] == Origin("main", "resp_of_b", "b", "gpt-test", w.maker("b").place)


@in_every_order
async def test_o2_a_response_that_nobody_stores_is_known_to_this_process_alone(door: str, each_transport: str) -> None:
    """O2, W10: an upstream's WebSocket may have it, and no record is made of it. Over HTTP nobody has it."""
    w = two_routes(MemoryRecords())
    await play(w, door)
    client = await play(w, door, previous_response_id="resp_of_a")
    if each_transport == "websocket":
        assert (client.told, w.called) == (ANSWERED, ["a", "a"])
    else:
        assert (client.failure, w.called) == ((400, "previous_response_not_found"), ["a"])
    assert w.records.origins == {}


@pytest.mark.parametrize("named", ["resp_unknown", "resp_of_another", "x" * 5000, "../../etc", "resp_\0", "é"])
@in_every_order
async def test_o2_an_unknown_response_is_refused_before_anything_is_reserved(door: str, named: str) -> None:
    """O2, X2: an account's own ids are the only ones it knows."""
    records = knowing(responses={"resp_1": "a"})
    records.origins["other", "resp_of_another"] = Origin("other", "resp_of_another", "a")
    w = two_routes(records)
    client = await play(w, door, previous_response_id=named)
    assert client.failure == (400, "previous_response_not_found")
    assert client.events[0].payload["error"]["param"] == "previous_response_id"
    assert (w.called, w.turns, w.reserved) == ([], [], [])


@in_orders(1)
async def test_o2_an_unknown_response_is_unknown_with_one_route_as_well(door: str) -> None:
    """O2: never guessed."""
    w = world(A.answer())
    assert (await play(w, door, previous_response_id="resp_1")).failure == (400, "previous_response_not_found")


@in_orders(1)
async def test_o2_what_is_no_text_names_no_response(door: str) -> None:
    """H3: the upstream would say the same."""
    w = world(A.answer())
    assert (await play(w, door, previous_response_id=5)).failure == (400, "invalid_request")


@pytest.mark.parametrize("why", ["cooling", "gone"])
@in_every_order
async def test_o2_without_its_route_a_continuation_goes_nowhere(door: str, why: str) -> None:
    """O2, X: the other route would not know the response."""
    w = two_routes(knowing(responses={"resp_1": "c" if why == "gone" else "b"}))
    w.house.cooling.update({"b"} if why == "cooling" else ())
    client = await play(w, door, previous_response_id="resp_1")
    assert client.failure == (503, "no_route_available")
    assert client.events[0].payload["error"]["retryable"] is True
    assert (w.called, w.reserved) == ([], [])
    if door == "http":
        assert "retry-after" in client.headers


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
@in_every_order
async def test_o2_while_the_records_are_away_nothing_is_guessed(door: str, fields: dict[str, Any]) -> None:
    """O2, X: 503, and only for who asks them something."""
    w = two_routes(Away())
    assert (await play(w, door, **fields)).failure == (503, "ledger_unavailable")
    assert (w.called, w.reserved) == ([], [])
    assert (await play(w, door)).told == ANSWERED


def dearer_b(records: MemoryRecords) -> World:
    """Route `b` costs ten times as much."""
    w = two_routes(records)
    a = w.gateway.config.routes["a"].price
    price = Price(*(10 * each for each in (a.input, a.cached_input, a.output, a.reasoning)))
    config = w.gateway.config
    routes = {**config.routes, "b": replace(config.routes["b"], price=price)}
    parts = Parts(stores=Stores(w.ledger, w.records), house=w.house, transports=networks_of(w))
    w.gateway = Gateway(replace(config, routes=routes), parts)
    return w


def networks_of(w: World) -> dict[str, Network]:
    is_framed = Transports.chosen == "websocket"
    return {n: scripted_converse(s) if is_framed else ScriptedTransport(s) for n, s in w.scripts.items()}


@in_every_order
async def test_o2_a_continuation_reserves_at_its_own_route_s_price(door: str) -> None:
    """B6, O2: no other route is a candidate."""
    cheap, dear = (dearer_b(knowing(responses={"resp_1": route})) for route in ("a", "b"))
    await play(cheap, door, previous_response_id="resp_1")
    await play(dear, door, previous_response_id="resp_1")
    assert dear.reserved == [10 * amount for amount in cheap.reserved]


# --- conversations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["conv_1", {"id": "conv_1"}], ids=["text", "object"])
@in_every_order
async def test_o2_a_conversation_goes_where_it_was_last_known(door: str, held: object) -> None:
    """O2."""
    w = two_routes(knowing(marks={mark(CONVERSATION, "conv_1"): "b"}))
    await play(w, door, conversation=held)
    assert w.called == ["b"]


@in_every_order
async def test_o2_a_conversation_is_learned_from_the_responses_that_name_it(door: str) -> None:
    """O2: once it is known to be on a route, its affinity no longer decides."""
    w = world(A.reply(A.prelude, A.delta(), A.ending("completed", conversation={"id": "conv_3"})), B.answer())
    w.house.cooling.add("b")
    await play(w, door, conversation="conv_3", store=True)
    assert w.records.marks == {("main", mark(CONVERSATION, "conv_3")): w.maker("a")}

    w.house.cooling.clear()
    await play(w, door, conversation="conv_3", store=True)
    assert (w.called, by_affinity(("a", "b"), "main", "conv_3")[0]) == (["a", "a"], "b")


@in_every_order
async def test_o2_a_conversation_that_was_made_elsewhere_stays_on_one_route(door: str) -> None:
    """O3: whatever its first item and its cache key are."""
    w = two_routes(MemoryRecords())
    for text, key in (("one", TO_A), ("two", TO_B), ("three", "x")):
        await play(w, door, conversation="conv_9", input=text, prompt_cache_key=key)
    assert len(set(w.called)) == 1


# --- O3 -----------------------------------------------------------------------------------------------------------

SEALED_ITEM = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed words"}
BOUND: dict[str, tuple[str, list[dict[str, Any]]]] = {
    # the mark that is known, and an input that holds it
    "sealed": (mark(SEALED, "sealed words"), [{"role": "user", "content": "hi"}, SEALED_ITEM]),
    "reference": (mark(ITEM, "msg_1"), [{"type": "item_reference", "id": "msg_1"}]),
    "reference without a type": (mark(ITEM, "msg_1"), [{"id": "msg_1"}]),
    "another item of the same origin": (
        mark(ITEM, "msg_1"),
        [{"type": "message", "id": "msg_1", "role": "assistant", "content": "x"}, SEALED_ITEM],
    ),
}


@pytest.mark.parametrize("route", ["a", "b"])
@pytest.mark.parametrize("kind", BOUND)
@in_orders(2)
async def test_o3_a_bound_request_goes_to_its_origin(door: str, kind: str, route: str) -> None:
    """O3: whichever route its affinity would choose."""
    known, items = BOUND[kind]
    w = two_routes(knowing(marks={known: route}))
    for key in (TO_A, TO_B):
        await play(w, door, input=items, prompt_cache_key=key)
    assert w.called == [route, route]


@in_every_order
async def test_o3_the_newest_item_that_is_known_decides(door: str) -> None:
    """O3: a conversation that moved stays where it is now."""
    items = [SEALED_ITEM, {"type": "reasoning", "encrypted_content": "later"}, {"type": "item_reference", "id": "new"}]
    w = two_routes(knowing(marks={mark(SEALED, "sealed words"): "a", mark(SEALED, "later"): "b"}))
    await play(w, door, input=items, prompt_cache_key=TO_A)
    assert w.called == ["b"]


@in_every_order
async def test_o3_an_origin_that_cools_down_is_not_replaced(door: str) -> None:
    """O3: nobody else can open what it has sealed."""
    w = two_routes(knowing(marks={mark(SEALED, "sealed words"): "b"}))
    w.house.cooling.add("b")
    assert (await play(w, door, input=[SEALED_ITEM])).failure == (503, "no_route_available")


@pytest.mark.parametrize(("key", "route"), [(TO_A, "a"), (TO_B, "b")])
@in_every_order
async def test_o3_an_unknown_origin_is_chosen_by_the_cache_key(door: str, key: str, route: str) -> None:
    """O3: weights and the order of routes do not count, nor do the items."""
    w = two_routes(MemoryRecords())
    for sealed in ("one", "two"):
        await play(w, door, prompt_cache_key=key, input=[{"type": "reasoning", "encrypted_content": sealed}])
    assert w.called == [route, route]


@in_every_order
async def test_o3_without_a_cache_key_the_first_item_chooses(door: str) -> None:
    """O3: it is the one that stays as a conversation grows."""
    w = two_routes(MemoryRecords())
    for first in map(str, range(8)):
        for grown in (1, 3):
            items = [{"role": "user", "content": first}, *[{"type": "reasoning", "encrypted_content": "x"}] * grown]
            await play(w, door, input=items)
    pairs = list(zip(w.called[::2], w.called[1::2], strict=True))
    assert set(pairs) == {("a", "a"), ("b", "b")}


@in_every_order
async def test_o3_where_nothing_is_known_a_route_that_cools_down_is_passed_over(door: str) -> None:
    """O3, C3."""
    w = two_routes(MemoryRecords())
    w.house.cooling.add("a")
    await play(w, door, input=[SEALED_ITEM], prompt_cache_key=TO_A)
    assert w.called == ["b"]
    w.house.cooling.add("b")
    assert (await play(w, door, input=[SEALED_ITEM])).failure == (503, "no_route_available")


@in_every_order
async def test_o3_where_nothing_is_known_a_route_that_cannot_carry_it_is_passed_over(door: str) -> None:
    """O3, C5."""
    w = world(A.answer(), B.answer(), route_extras={"a": "request_bytes_max = 300"})
    for words in ("few", "many more of them " * 30):
        items = [{"type": "reasoning", "encrypted_content": words}]
        await play(w, door, prompt_cache_key=TO_A, input=items)
    assert w.called == ["a", "b"]


def item_done(voice: Any, **item: Any) -> bytes:
    done: bytes = voice.output("response.output_item.done", 3, item={"id": f"rs_of_{voice.route}", **item})
    return done


@pytest.mark.parametrize("store", [False, True])
@in_every_order
async def test_o3_what_an_output_seals_is_learned_as_it_is_delivered(door: str, store: bool) -> None:
    """O3: a stored response's items by their ids, too."""
    reply = B.reply(B.prelude, B.delta(), item_done(B, type="reasoning", encrypted_content="words of b"), Break())
    w = world(A.answer(), reply)
    w.house.cooling.add("a")
    await play(w, door, store=store)
    marks = {mark(SEALED, "words of b"), *([mark(ITEM, "rs_of_b")] if store else [])}
    assert w.records.marks == {("main", one): w.maker("b") for one in marks}


@pytest.mark.parametrize(
    ("reply", "store"),
    [(A.answer(), False), (A.reply(A.prelude, item_done(A, type="message"), A.completed()), False)],
)
@in_every_order
async def test_o3_a_stateless_turn_without_anything_sealed_teaches_nothing(
    door: str, reply: Reply, store: bool
) -> None:
    """O3: its ids mean nothing to anybody, and cost no row."""
    w = world(reply)
    await play(w, door, store=store)
    assert (w.records.marks, w.records.origins) == ({}, {})


@in_every_order
async def test_o3_the_terminal_s_output_is_learned(door: str) -> None:
    """O3."""
    output = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "c"}, "no item", {"id": 5}]
    w = world(A.reply(A.prelude, A.delta(), A.ending("completed", output=output)))
    await play(w, door, store=True)
    assert w.records.marks == {("main", mark(SEALED, "c")): w.maker("a"), ("main", mark(ITEM, "cmp_1")): w.maker("a")}


@in_every_order
async def test_o3_a_discarded_attempt_teaches_nothing(door: str) -> None:
    """O1, O3: nobody was told of it."""
    w = world(A.reply(A.failed("server_error")), B.answer())
    await play(w, door)
    assert w.called == ["a", "b"]
    assert w.records.marks == {}
    assert w.charged == cost(5, 1)


# --- what the client sends back in a header ---------------------------------------------------------------------------


STATE = "x-codex-turn-state"


@in_every_order
async def test_o3_a_turn_state_goes_back_to_the_route_that_gave_it(door: str) -> None:
    """S5, O3: the client gets it with the head of its answer over HTTP, and sends it with its next request there, or as
    it opens a WebSocket. B gave it, for A was at fault."""
    reply = B.answer()
    given = replace(reply, headers=(*reply.headers, (STATE, "state of b")))
    w = world(A.answer(), [given, B.answer()])
    w.house.cooling.add("a")
    first = await play(w, "http", prompt_cache_key=TO_A)
    w.house.cooling.clear()

    assert first.headers[STATE] == "state of b"
    await play(w, door, headers=[(STATE, "state of b")], prompt_cache_key=TO_A)
    assert w.called == ["b", "b"]
    assert dict(w.calls[1].headers)[STATE] == "state of b"
    await play(w, door, headers=[(STATE, "another")], prompt_cache_key=TO_A)
    assert [len(w.scripts[name].calls) for name in ("a", "b")] == [1, 2]


@in_orders(1)
async def test_o3_all_turns_of_a_websocket_go_where_its_upgrade_says(door: str) -> None:
    """O3, W4: a header of the upgrade is one of each turn; a cooling route is not passed over."""
    w = two_routes(knowing(marks={mark(TURN_STATE, "s"): "b"}))
    async with turn(w, "websocket", headers=[(STATE, "s")]) as client:
        await client.wait_for(lambda client: client.last_words == 1)
        w.house.cooling.add("b")
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.last_words == 2)
    assert (client.told, w.called) == ([*ANSWERED, "error no_route_available"], ["b"])
