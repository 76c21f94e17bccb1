"""W10: what goes on from a connection's latest response, on its upstream's own socket or with its full input."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio

from gateway.upstream.scripted import Break, Close
from gateway.upstream.scripts import usage_object
from support.conversations import ANSWERED, SWITCHED_ON, WEBSOCKET, answer, ask, body_of, message, socket, user
from support.gateways import MODEL, cost, create_frame, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

# --- expanded -------------------------------------------------------------------------------------------------------


@in_every_order
async def test_a_chain_of_three_turns_that_are_stored_nowhere_is_expanded() -> None:
    """W10: each upstream call carries all that went before; no call names a response that nobody has."""
    w = world([answer("resp_1", message("one")), answer("resp_2", message("two")), answer("resp_3", message("three"))])
    async with socket(w) as client:
        assert await ask(client) == ANSWERED
        assert await ask(client, previous_response_id="resp_1", input=[user("second")]) == ANSWERED
        assert await ask(client, previous_response_id="resp_2", input="third") == ANSWERED
    first = [user("hi"), message("one")]
    assert [body_of(call) for call in w.calls] == [
        {"input": "hi"},
        {"input": [*first, user("second")]},
        {"input": [*first, user("second"), message("two"), user("third")]},
    ]
    assert w.money == [f"settled {cost(5, 1)}"] * 3


@in_orders(1)
async def test_what_is_expanded_is_spliced_and_nothing_is_written_anew() -> None:
    """W10, E10, H3: numbers, escapes, key order and spaces stay, of the client's items and the upstream's."""
    item = b'{"type":"message", "role":"assistant","content":[ {"text":"\\u00e9 1.0","n":1.0e2} ]}'
    done = b'data: {"type":"response.output_item.done","output_index":0,"item":' + item + b"}\n\n"
    reply = A.reply(A.created, done, A.completed())
    w = world([reply, answer("resp_2", message("two"))])
    async with socket(w) as client:
        client.send_text(
            f'{{"type":"response.create", "model":"{MODEL}","store":false ,"input": [ {{"b":1.0, "a":"\\u0041"}} ] }}'
        )
        await trio.sleep(1)
        client.send_text(
            f'{{"type":"response.create", "input":[{{"z":1,"a":2e0}} ], "previous_response_id":"resp_of_a", '
            f'"model":"{MODEL}",\n"store":false}}'
        )
        await trio.sleep(1)
    both = b'"input":[{"b":1.0, "a":"\\u0041"},' + item + b',{"z":1,"a":2e0}], '
    assert w.calls[1].body == b'{"stream":true,' + both + f'"model":"{MODEL}",\n"store":false}}'.encode()


@pytest.mark.parametrize("place", ["done", "told", "both", "out of order"])
@in_orders(1)
async def test_the_items_are_those_that_were_done_or_told_at_the_end(place: str) -> None:
    """W10, bug case 16: some backends tell their items in one place only."""
    items = [message("one"), message("two")]
    done = {"done": items, "told": [], "both": items[:1], "out of order": items}[place]
    reply = answer("resp_1", *done, told=() if place in ("done", "out of order") else items)
    if place == "out of order":
        steps = [*reply.steps]
        steps[1], steps[2] = steps[2], steps[1]
        reply = A.reply(*steps)
    w = world([reply, answer("resp_2", message("more"))])
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_1", input=[])
    assert body_of(w.calls[1]) == {"input": [user("hi"), *items]}


@in_orders(1)
async def test_output_of_which_no_item_is_known_cannot_be_gone_on_from() -> None:
    """W10: half a conversation is never sent as the whole."""
    w = world([A.answer(), answer("resp_2", message("more"))])
    async with socket(w) as client:
        await ask(client)
        told = await ask(client, previous_response_id="resp_of_a", input=[])
    assert (told, w.called) == (["error previous_response_not_found"], ["a"])


@in_orders(1)
async def test_a_reasoning_item_that_is_only_an_id_is_left_out() -> None:
    """W10: nobody has stored what it refers to, and every upstream refuses it."""
    hollow = {"type": "reasoning", "id": "rs_1", "summary": []}
    told = {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    w = world([answer("resp_1", hollow, told, message("one")), answer("resp_2", message("two"))])
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_1", input=[])
    assert body_of(w.calls[1]) == {"input": [user("hi"), told, message("one")]}


@pytest.mark.parametrize("store", [True, ...])
@in_orders(1)
async def test_what_is_stored_is_not_expanded(store: Any) -> None:
    """W10, O2, S1: its route has it, as an upstream has all that does not say otherwise."""
    w = world([answer("resp_1", message("one")), answer("resp_2", message("two"))], B.answer())
    async with socket(w) as client:
        await ask(client, store=store)
        await ask(client, store=store, previous_response_id="resp_1")
    assert body_of(w.calls[1]) == {"input": "hi", "previous_response_id": "resp_1"}
    assert w.called == ["a", "a"]


@in_orders(1)
async def test_a_route_that_stores_nothing_by_default_has_its_responses_expanded() -> None:
    """W10, S1: `stores_by_default = false`."""
    replies = [answer("resp_1", message("one")), answer("resp_2", message("two"))]
    w = world(replies, route="stores_by_default = false")
    async with socket(w) as client:
        await ask(client, store=...)
        await ask(client, store=..., previous_response_id="resp_1", input=[])
    assert body_of(w.calls[1]) == {"input": [user("hi"), message("one")]}


@in_orders(1)
async def test_what_goes_on_from_a_stored_response_is_known_whole() -> None:
    """W10: the first is stored and goes by its id, the second is not and goes with all that led to it."""
    w = world([answer(f"resp_{number}", message(str(number))) for number in (1, 2, 3)])
    async with socket(w) as client:
        await ask(client, store=True)
        await ask(client, previous_response_id="resp_1", input="two")
        await ask(client, previous_response_id="resp_2", input="three")
    whole = [user("hi"), message("1"), user("two"), message("2"), user("three")]
    assert body_of(w.calls[1]) == {"input": "two", "previous_response_id": "resp_1"}
    assert body_of(w.calls[2]) == {"input": whole}


@pytest.mark.parametrize("fields", [{"conversation": "conv_1"}, {"prompt": {"id": "pmpt_1"}}])
@in_orders(1)
async def test_what_came_out_of_state_that_is_elsewhere_is_not_remembered(fields: dict[str, Any]) -> None:
    """W10, S2, S4: its effective input is not all here."""
    w = world([answer("resp_1", message("one")), answer("resp_2", message("two"))])
    async with socket(w) as client:
        await ask(client, **fields)
        told = await ask(client, previous_response_id="resp_1")
    assert (told, w.called) == (["error previous_response_not_found"], ["a"])


@pytest.mark.parametrize(("transport", "store"), [("", True), (WEBSOCKET, True), (WEBSOCKET, False)])
@in_orders(1)
async def test_an_upstream_itself_refuses_what_it_may_know_beside_a_conversation(transport: str, store: bool) -> None:
    """W10, S2: the API takes no conversation beside what a request goes on from: nothing is written anew."""
    w = world([answer("resp_1", message("one")), A.status(400)], B.answer(), route=transport)
    async with socket(w) as client:
        await ask(client, store=store)
        await ask(client, store=store, previous_response_id="resp_1", conversation="conv_1")
    assert body_of(w.calls[1]) == {"input": "hi", "previous_response_id": "resp_1", "conversation": "conv_1"}
    assert w.called == ["a", "a"]


@pytest.mark.parametrize("generate", [False, ...])
@in_orders(1)
async def test_what_only_the_gateway_knows_is_not_gone_on_from_beside_a_conversation(generate: Any) -> None:
    """W10, S2: refused as what it is, before anything is reserved."""
    w = world(answer("resp_1_1", message("one")))
    async with socket(w) as client:
        await ask(client, generate=generate)
        told = await ask(client, previous_response_id="resp_1_1", conversation={"id": "conv_1"})
    assert told == ["error invalid_request"]
    error = client.events[-1].payload["error"]
    assert (error["param"], error["message"]) == (
        "conversation",
        "'previous_response_id' and 'conversation' exclude each other",
    )
    assert len(w.reserved) == 1


# --- evicted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["failed", "error", "status", "break", "incomplete"])
@in_orders(1)
async def test_a_continuation_that_fails_evicts_what_it_went_on_from(how: str) -> None:
    """W10: as an upstream would; an incomplete response is no failure."""
    failing = {
        "failed": A.reply(A.created, A.failed("invalid_prompt")),
        "error": A.reply(A.created, A.error("invalid_prompt")),
        "status": A.status(400),
        "break": A.reply(A.created, A.delta(), Break()),
        "incomplete": A.reply(A.created, A.ending("incomplete", usage_object(5, 1))),
    }[how]
    w = world([answer("resp_1", message("one")), failing, answer("resp_3")])
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_1", input=[])
        told = await ask(client, previous_response_id="resp_1", input=[])
    if how == "incomplete":
        assert body_of(w.calls[2]) == {"input": [user("hi"), message("one")]}
    else:
        assert (told, len(w.calls)) == (["error previous_response_not_found"], 2)


@in_orders(1)
async def test_another_turn_that_fails_evicts_nothing() -> None:
    """W10: a new request is no continuation; nor is one that was refused before it began."""
    failing = A.reply(A.created, A.failed("invalid_prompt"))
    w = world([answer("resp_1", message("one")), failing, answer("resp_2", message("two"))])
    async with socket(w) as client:
        await ask(client)
        await ask(client, input="other")
        assert await ask(client, previous_response_id="resp_1", model="unknown") == ["error model_not_found"]
        await ask(client, previous_response_id="resp_1", input=[])
    assert body_of(w.calls[2]) == {"input": [user("hi"), message("one")]}


@in_orders(1)
async def test_each_lane_remembers_its_own_latest_response() -> None:
    """W10, W8: and any lane may go on from it; its failure there evicts nothing here."""
    failing = A.reply(A.created, A.failed("invalid_prompt"))
    replies = [answer("resp_1", message("one")), answer("resp_2", message("two")), failing]
    w = world([*replies, *[answer(f"resp_{number}", message("more")) for number in (4, 5)]])
    async with socket(w) as client:
        await ask(client, stream_id="main")
        await ask(client, stream_id="other", input="beside")
        await ask(client, stream_id="fork", previous_response_id="resp_1", input=[])
        await ask(client, stream_id="main", previous_response_id="resp_1", input=[])
        await ask(client, previous_response_id="resp_2", input=[])
    assert [body_of(call) for call in w.calls[2:]] == [
        {"input": [user("hi"), message("one")]},
        {"input": [user("hi"), message("one")]},
        {"input": [user("beside"), message("two")]},
    ]


@in_orders(1)
async def test_the_memory_goes_with_the_socket() -> None:
    """W10, O2: on another connection nobody has it."""
    w = world(answer("resp_1", message("one")))
    async with socket(w) as client:
        await ask(client)
        assert w.gateway.memories.size_bytes > 0
    assert w.gateway.memories.size_bytes == 0
    async with socket(w) as client:
        assert await ask(client, previous_response_id="resp_1") == ["error previous_response_not_found"]
    assert w.called == ["a"]


SIZE = len(json.dumps(user("hi"), separators=(",", ":"))) + len(json.dumps(message("one"), separators=(",", ":")))


@pytest.mark.parametrize(("limit", "is_remembered"), [(SIZE - 1, False), (SIZE, True), (SIZE + 1, True)])
@in_orders(1)
async def test_no_more_is_remembered_than_the_limit(limit: int, is_remembered: bool) -> None:
    """W10: `remembered_bytes_max`, to the byte."""
    replies = [answer("resp_1", message("one")), answer("resp_2", message("two"))]
    w = world(replies, limits=f"remembered_bytes_max = {limit}")
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_1", input=[])
    assert (len(w.calls) == 2) is is_remembered


@in_orders(1)
async def test_all_connections_share_one_bound_and_the_oldest_makes_room() -> None:
    """W10: `all_remembered_bytes_max`."""
    replies = [answer(f"resp_{number}", message("one")) for number in (1, 2, 3, 4)]
    w = world(replies, limits=f"all_remembered_bytes_max = {2 * SIZE - 1}")
    async with socket(w) as first, socket(w) as second:
        await ask(first)
        await ask(second)
        assert await ask(first, previous_response_id="resp_1", input=[]) == ["error previous_response_not_found"]
        assert await ask(second, previous_response_id="resp_2", input=[]) == ANSWERED


# --- R10 ------------------------------------------------------------------------------------------------------------


BREAKS = A.reply(Break())


@pytest.mark.parametrize("server", ["", SWITCHED_ON])
@in_every_order
async def test_an_expanded_continuation_is_replayed_if_the_switch_is_on(server: str) -> None:
    """W10, R10: its full input is stateless, so another route may have it."""
    w = world([answer("resp_1", message("one")), BREAKS], answer("resp_2", message("two")), server=server)
    async with socket(w) as client:
        await ask(client)
        told = await ask(client, previous_response_id="resp_1", input="more")
    if server:
        assert (told, w.called) == (ANSWERED, ["a", "a", "b"])
        assert w.calls[1].body == w.calls[2].body
        assert w.attempts[1:] == ["a stream_read_error (replay)", "b completed"]
    else:
        assert (told, w.called) == (["error stream_read_error"], ["a", "a"])
        assert w.attempts[1:] == ["a stream_read_error (continuation)"]


SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


@in_every_order
async def test_encrypted_content_binds_an_expanded_continuation_to_its_origin() -> None:
    """W10, S5, O3: also with the switch on; and it goes where it was sealed, for any other route could not read it."""
    w = world([A.status(503), BREAKS], [answer("resp_1", SEALED, message("one")), BREAKS], server=SWITCHED_ON)
    async with socket(w) as client:
        assert await ask(client) == ["created", "output_item.done", "output_item.done", "completed"]
        assert await ask(client, previous_response_id="resp_1", input="more") == ["error stream_read_error"]
    assert w.called == ["a", "b", "b"]
    assert w.attempts[-1] == "b stream_read_error (origin_bound)"
    assert body_of(w.calls[2]) == {"input": [user("hi"), SEALED, message("one"), user("more")]}


@pytest.mark.parametrize(("transport", "store"), [("", False), ("", True), (WEBSOCKET, False), (WEBSOCKET, True)])
@in_orders(1)
async def test_the_estimate_and_the_tools_of_what_went_before_count(transport: str, store: bool) -> None:
    """B4, B6, S6: the reservation is that of the full input sent whole, also where the upstream has what went before:
    on its socket or stored."""
    chain = [answer("resp_1", message("one")), answer("resp_2", message("two"))]
    w, whole = world(chain, route=transport), world(answer("resp_2", message("two")))
    async with socket(w) as client:
        await ask(client, input=[user("hi " * 99)], store=store)
        await ask(client, previous_response_id="resp_1", input=[user("more")], store=store)
    async with socket(whole) as client:
        await ask(client, input=[user("hi " * 99), message("one"), user("more")])
    assert ("previous_response_id" in body_of(w.calls[1])) is bool(transport or store)
    assert w.reserved[1:] == whole.reserved


# --- on the upstream's own socket ------------------------------------------------------------------------------------


@in_every_order
async def test_a_continuation_goes_to_the_socket_that_holds_its_response() -> None:
    """W10: as it came, also where another socket has idled longer."""
    w = world([answer(f"resp_{number}", message("one")) for number in (1, 2, 3, 4)], route=WEBSOCKET)
    async with socket(w) as first, socket(w) as second:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first)
            nursery.start_soon(ask, second)
        (held,) = [name for name in ("resp_1", "resp_2") if name in second.body.decode()]
        await ask(second, previous_response_id=held, input="more")
        await ask(second, previous_response_id="resp_3", input="and more")
    assert [body_of(call) for call in w.calls[2:]] == [
        {"input": "more", "previous_response_id": held},
        {"input": "and more", "previous_response_id": "resp_3"},
    ]


@in_orders(1)
async def test_a_socket_that_was_lost_is_made_up_for_by_the_full_input() -> None:
    """W10: it idled for too long, so another one is opened, which knows nothing."""
    chain = [answer("resp_1", message("one")), answer("resp_2", message("two"))]
    w = world(chain, route=f"{WEBSOCKET}\nsocket_idle_timeout = 5")
    async with socket(w) as client:
        await ask(client)
        await trio.sleep(10)
        assert await ask(client, previous_response_id="resp_1", input=[]) == ANSWERED
    assert body_of(w.calls[1]) == {"input": [user("hi"), message("one")]}


@in_orders(1)
async def test_two_clients_of_a_route_go_on_each_on_a_socket_of_its_own() -> None:
    """W10: turn by turn, and neither sends more than is new."""
    names = [f"resp_{number}" for number in range(1, 7)]
    w = world([answer(name, message("one")) for name in names], route=WEBSOCKET)
    async with socket(w) as first, socket(w) as second:
        await ask(first)
        await ask(second)
        for name in names[:4]:
            assert await ask(first if name in ("resp_1", "resp_3") else second, previous_response_id=name) == ANSWERED
    assert [body_of(call)["previous_response_id"] for call in w.calls[2:]] == names[:4]


@pytest.mark.parametrize(("limit", "is_expanded"), [("", True), ("\nrequest_bytes_max = 120", False)])
@in_orders(1)
async def test_a_socket_that_dies_as_it_is_used_is_made_up_for(limit: str, is_expanded: bool) -> None:
    """W10, C5: if the route can carry the full input; else the request goes as it came."""
    dying = replace(answer("resp_1", message("one")), steps=(*answer("resp_1", message("one")).steps, 1.0, Close(1001)))
    w = world([dying, answer("resp_2", message("two"))], route=WEBSOCKET + limit)
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_1", input=[])
    expanded = {"input": [user("hi"), message("one")]}
    assert body_of(w.calls[1]) == (expanded if is_expanded else {"input": [], "previous_response_id": "resp_1"})


@in_orders(1)
async def test_a_socket_that_is_taken_by_another_turn_is_made_up_for() -> None:
    """W10: another client's turn got it, for there is no room for one more (C5)."""
    chain = [answer(f"resp_{number}", message("one"), before=[3.0]) for number in (1, 2, 3)]
    w = world(chain, route=f"{WEBSOCKET}\nidle_sockets_max = 1")
    async with socket(w) as first, socket(w) as second:
        await ask(first)
        second.send_text(create_frame(input="taken"))
        await trio.sleep(1)
        assert await ask(first, previous_response_id="resp_1", input=[]) == ANSWERED
        await trio.sleep(5)
    assert body_of(w.calls[2]) == {"input": [user("hi"), message("one")]}


@in_orders(1)
async def test_a_route_that_cools_down_leaves_its_continuations_to_the_others() -> None:
    """W10, C3: what it holds can be expanded."""
    w = world(answer("resp_1", message("one")), answer("resp_2", message("two")), route=WEBSOCKET)
    async with socket(w) as client:
        await ask(client)
        w.house.cooling.add("a")
        assert await ask(client, previous_response_id="resp_1", input=[]) == ANSWERED
    assert w.called == ["a", "b"]
    assert body_of(w.calls[1]) == {"input": [user("hi"), message("one")]}


@in_orders(1)
async def test_a_continuation_on_its_socket_is_not_replayed() -> None:
    """R10: also with the switch on, for it was not expanded."""
    w = world([answer("resp_1", message("one")), BREAKS], B.answer(), route=WEBSOCKET, server=SWITCHED_ON)
    async with socket(w) as client:
        await ask(client)
        assert await ask(client, previous_response_id="resp_1") == ["error stream_read_error"]
    assert w.attempts[1:] == ["a stream_read_error (continuation)"]


@in_orders(1)
async def test_transports_may_be_mixed() -> None:
    """W10, C5: held by a WebSocket route, then expanded for one of HTTP."""
    extras = {"a": WEBSOCKET, "b": 'transport = "sse"'}
    w = world(answer("resp_1", message("one")), answer("resp_2", message("two")), route_extras=extras)
    async with socket(w) as client:
        await ask(client)
        w.house.cooling.add("a")
        await ask(client, previous_response_id="resp_1", input=[])
        w.house.cooling.clear()
        await ask(client, previous_response_id="resp_2", input=[])
    assert w.called == ["a", "b", "a"]
    assert body_of(w.calls[2]) == {"input": [user("hi"), message("one"), message("two")]}
