"""W9: `generate: false` prepares and generates nothing: answered for HTTP routes, passed on to those that know it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gateway.lock.driver import AUTHORIZED, connect
from gateway.upstream.scripted import Break, Reply
from gateway.upstream.scripts import event, response_object, usage_object
from support.conversations import ANSWERED, SWITCHED_ON, WEBSOCKET, answer, ask, body_of, message, socket, user
from support.gateways import MODEL, assert_all_is_well, cost, create_frame, play, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

WARMED = ["created", "completed"]
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
PREPARED: dict[str, Any] = {"generate": False, "tools": TOOLS, "instructions": "be brief", "input": [user("before")]}


@in_every_order
async def test_a_warm_up_on_an_http_route_is_answered_here() -> None:
    """W9, B9, L1: complete in shape, free, on record, and no upstream hears of it."""
    w = world(A.answer(), wall_clock=lambda: 1_800_000_000.5)
    async with socket(w) as client:
        assert await ask(client, **PREPARED, metadata={"a": "b"}) == WARMED
    created, completed = (heard.payload for heard in client.events)
    assert (created["sequence_number"], completed["sequence_number"]) == (0, 1)
    response = completed["response"]
    assert response["id"] == created["response"]["id"] == "resp_1_1"
    assert (created["response"]["status"], response["status"]) == ("in_progress", "completed")
    shown = ("object", "created_at", "model", "output", "tools", "instructions", "metadata", "error", "store")
    assert [response[name] for name in shown] == [
        "response", 1_800_000_000, MODEL, [], TOOLS, "be brief", {"a": "b"}, None, False
    ]  # fmt: skip
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (0, 0, 0)
    assert (w.called, w.money, w.attempts, w.house_paid) == ([], ["voided"], [], 0)
    (turn,) = w.turns
    assert turn.closing is not None
    assert (turn.closing.outcome, turn.closing.response_id, turn.closing.routes) == ("completed", "resp_1_1", ())


@in_every_order
async def test_what_a_warm_up_prepared_comes_before_what_goes_on_from_it() -> None:
    """W9, W10: input, tools and instructions, on later turns of the chain too, until a request has its own."""
    w = world([answer(f"resp_{name}", message(name)) for name in ("x", "y", "z")])
    async with socket(w) as client:
        await ask(client, **PREPARED)
        assert await ask(client, previous_response_id="resp_1_1", input="hi") == ANSWERED
        await ask(client, previous_response_id="resp_x", input="more", tools=[])
        await ask(client, previous_response_id="resp_y", input="and more")
    first = [user("before"), user("hi")]
    second = [*first, message("x"), user("more")]
    assert [body_of(call) for call in w.calls] == [
        {"tools": TOOLS, "instructions": "be brief", "input": first},
        {"instructions": "be brief", "input": second, "tools": []},
        {"instructions": "be brief", "input": [*second, message("y"), user("and more")]},
    ]


@in_orders(1)
async def test_instructions_of_any_other_response_do_not_go_on() -> None:
    """W10: as with the API, where each request has its own."""
    w = world([answer("resp_x", message("x")), answer("resp_y", message("y"))])
    async with socket(w) as client:
        await ask(client, instructions="be brief", tools=TOOLS)
        await ask(client, previous_response_id="resp_x", input=[])
    assert body_of(w.calls[1]) == {"input": [user("hi"), message("x")]}


@in_orders(1)
async def test_a_warm_up_is_gone_on_from_even_if_it_asks_to_be_stored() -> None:
    """W10: nobody but the gateway has it."""
    w = world(answer("resp_x", message("x")))
    async with socket(w) as client:
        await ask(client, **{**PREPARED, "store": True})
        await ask(client, store=True, previous_response_id="resp_1_1", input=[])
    assert body_of(w.calls[0])["input"] == [user("before")]


@in_orders(1)
async def test_warm_ups_may_follow_each_other_and_a_turn() -> None:
    """W9: each goes on from the one before."""
    w = world([answer("resp_x", message("x")), answer("resp_y", message("y"))])
    async with socket(w) as client:
        await ask(client)
        await ask(client, previous_response_id="resp_x", generate=False, input="prepared")
        assert client.events[-1].payload["response"]["previous_response_id"] == "resp_x"
        await ask(client, previous_response_id="resp_1_2", generate=False, input=[user("twice")])
        await ask(client, previous_response_id="resp_1_3", input=[])
    assert body_of(w.calls[1]) == {"input": [user("hi"), message("x"), user("prepared"), user("twice")]}


@pytest.mark.parametrize("fields", [{"previous_response_id": "resp_x"}, {"conversation": "conv_1"}])
@in_orders(1)
async def test_what_is_stored_elsewhere_cannot_be_prepared_for_here(fields: dict[str, Any]) -> None:
    """W9: its state is not the gateway's: refused before anything is reserved, as what it is."""
    w = world(answer("resp_x", message("x")))
    async with socket(w) as client:
        await ask(client, store=True)
    async with socket(w) as client:
        assert await ask(client, generate=False, **fields) == ["error unsupported_parameter"]
    error = client.events[0].payload["error"]
    assert (error["param"], w.called, len(w.reserved)) == ("generate", ["a"], 1)
    assert error["message"] == (
        "'generate': false is not supported here for what goes on from a state that is stored elsewhere"
    )


@in_orders(1)
async def test_a_warm_up_may_follow_a_stored_response_that_is_remembered() -> None:
    """W9, W10: what its upstream stores, the gateway knows as well."""
    w = world([answer("resp_x", message("x")), answer("resp_y", message("y"))])
    async with socket(w) as client:
        await ask(client, store=True)
        await ask(client, previous_response_id="resp_x", generate=False, input="prepared", store=True)
        assert client.events[-1].payload["response"]["previous_response_id"] == "resp_x"
        await ask(client, previous_response_id="resp_1_2", input=[])
    assert body_of(w.calls[1])["input"] == [user("hi"), message("x"), user("prepared")]


@in_orders(1)
async def test_a_warm_up_that_nobody_knows_is_no_response() -> None:
    """W10, O2: on a new socket, or another's."""
    w = world(A.answer())
    async with socket(w) as client:
        await ask(client, generate=False)
    async with socket(w) as client:
        told = await ask(client, previous_response_id="resp_1_1")
    assert (told, w.called) == (["error previous_response_not_found"], [])
    assert client.events[0].payload["status"] == 400


@in_orders(1)
async def test_a_lane_has_its_warm_up_and_its_frames_its_name() -> None:
    """W8, W9."""
    w = world(A.answer())
    async with socket(w) as client:
        await ask(client, generate=False, stream_id="lane")
    assert [heard.payload["stream_id"] for heard in client.events] == ["lane", "lane"]


@in_orders(1)
async def test_a_warm_up_needs_what_a_turn_needs() -> None:
    """W4, X: a key, a model, and a route that could serve what follows."""
    w = world(A.answer())
    async with socket(w) as client:
        assert await ask(client, generate=False, model="other") == ["error model_not_found"]
        w.house.cooling.add("a")
        assert await ask(client, generate=False) == ["error no_route_available"]


@pytest.mark.parametrize("limit", ["", 'spend_per_day = "0.000001"'])
@in_orders(1)
async def test_a_warm_up_that_is_answered_here_needs_no_money(limit: str) -> None:
    """W9, B6: it costs nothing, so nothing is set aside, whatever the account or its key has left."""
    w = world(A.answer(), balance="0" if not limit else "1000", key=limit)
    async with socket(w) as client:
        assert await ask(client, **PREPARED) == WARMED
        refused = "spend_limit_reached" if limit else "insufficient_balance"
        assert await ask(client, previous_response_id="resp_1_1") == [f"error {refused}"]
    assert (w.reserved, w.money, w.called) == ([0], ["voided"], [])


@in_orders(1)
async def test_an_overdrawn_account_may_warm_up() -> None:
    """W9, B6: what one turn took too much holds no other back that takes nothing."""
    w = world(answer("resp_x", message("x")), balance="0.0000025")
    async with socket(w) as client:
        await ask(client, max_output_tokens=1, input="")
        assert await ask(client, generate=False) == WARMED
        assert await ask(client) == ["error insufficient_balance"]
    assert w.money == [f"settled {cost(5, 1)} overdrawn", "voided"]


@in_every_order
async def test_a_client_that_takes_nothing_delays_neither_money_nor_record() -> None:
    """T6, T10: and its socket serves no other turn."""
    w = world(A.answer())
    async with connect(w.app, "websocket", headers=AUTHORIZED) as client:
        await trio.sleep(1)
        client.stall()
        client.send_text(create_frame(generate=False))
        client.send_text(create_frame())
        await trio.sleep(1)
        assert (w.money, w.ended_at) == (["voided"], [0.0])
        await trio.sleep(60)
        client.leave()
    assert_all_is_well(w, client)
    assert (client.told, w.called) == ([], [])


@in_every_order
async def test_a_client_that_leaves_at_once_has_its_books_closed() -> None:
    """T10, H7."""
    w = world(A.answer())
    async with connect(w.app, "websocket", headers=AUTHORIZED) as client:
        client.send_text(create_frame(generate=False))
        client.leave()
    assert_all_is_well(w, client)


@pytest.mark.parametrize("door", ["http"])
@in_orders(1)
async def test_over_http_there_is_nothing_that_would_remember_a_warm_up(door: str) -> None:
    """W9, X."""
    w = world(A.answer())
    assert (await play(w, door, generate=False)).failure == (400, "unsupported_parameter")
    assert (w.called, w.reserved) == ([], [])


# --- on a WebSocket route -------------------------------------------------------------------------------------------


def upstreams_warm_up(name: str) -> bytes:
    ended = response_object(name, "completed", MODEL, usage=usage_object(18, 0))
    return event("response.created", response=response_object(name, "in_progress", MODEL)) + event(
        "response.completed", response=ended
    )


@in_every_order
async def test_a_websocket_route_gets_the_warm_up_and_what_follows_on_the_same_socket() -> None:
    """W9, W10, B9: it is the upstream's own, as it came; its tokens are the house's affair."""
    w = world([A.reply(upstreams_warm_up("resp_w")), answer("resp_x", message("x"))], route=WEBSOCKET)
    async with socket(w) as client:
        assert await ask(client, **PREPARED) == WARMED
        assert await ask(client, previous_response_id="resp_w", input="hi") == ANSWERED
    assert [body_of(call) for call in w.calls] == [PREPARED, {"input": "hi", "previous_response_id": "resp_w"}]
    assert w.money == ["voided", f"settled {cost(5, 1)}"]
    assert w.house_paid == cost(18, 0)


@pytest.mark.parametrize(("balance", "told"), [("0.000001", WARMED), ("0", ["error insufficient_balance"])])
@in_orders(1)
async def test_a_warm_up_that_goes_up_sets_aside_what_is_read_for_it(balance: str, told: list[str]) -> None:
    """W9, B6, B9: nothing is generated. The house pays for what is read, but only for who could pay for it."""
    w = world(A.reply(upstreams_warm_up("resp_w")), route=WEBSOCKET, balance=balance)
    async with socket(w) as client:
        assert await ask(client, generate=False) == told
    assert (len(w.called), w.charged) == (len(told) - 1, 0)


@in_orders(1)
async def test_a_warm_up_whose_socket_was_lost_is_made_up_for() -> None:
    """W9, W10."""
    replies = [A.reply(upstreams_warm_up("resp_w")), answer("resp_x", message("x"))]
    w = world(replies, route=f"{WEBSOCKET}\nsocket_idle_timeout = 0.5")
    async with socket(w) as client:
        await ask(client, **PREPARED)
        await ask(client, previous_response_id="resp_w", input="hi")
    assert body_of(w.calls[1]) == {
        "tools": TOOLS,
        "instructions": "be brief",
        "input": [user("before"), user("hi")],
    }


@pytest.mark.parametrize("together", [False, True])
@in_orders(1)
async def test_a_warm_up_that_generates_is_a_bad_answer_and_costs_its_client_nothing(together: bool) -> None:
    """W9, B9, P9, R4: nothing of its output is delivered, and nobody else is asked."""
    steps = A.answer().steps
    reply = Reply([b"".join(step for step in steps if isinstance(step, bytes))]) if together else A.answer()
    w = world([reply, A.answer()], B.answer(), route=WEBSOCKET)
    async with socket(w) as client:
        assert await ask(client, generate=False) == ["created", "in_progress", "error upstream_bad_response"]
        assert await ask(client) != []
    assert w.called == ["a", "a"]
    assert w.attempts[0] == "a upstream_bad_response (result_observed)"
    assert w.money == ["voided", f"settled {cost(5, 1)}"]


@in_every_order
async def test_a_warm_up_is_never_sent_to_a_route_that_would_generate() -> None:
    """W9: its replay neither; a WebSocket route may have it."""
    extras = {"a": WEBSOCKET, "b": 'transport = "sse"'}
    w = world(A.reply(Break()), B.answer(), route_extras=extras)
    async with socket(w) as client:
        assert await ask(client, generate=False) == ["error stream_read_error"]
    assert w.attempts == ["a stream_read_error (no_route_left)"]

    w = world(A.reply(Break()), B.reply(upstreams_warm_up("resp_w")), route=WEBSOCKET)
    async with socket(w) as client:
        assert await ask(client, generate=False) == WARMED
    assert w.called == ["a", "b"]


@in_orders(1)
async def test_what_a_warm_up_prepared_holds_where_the_turns_are_stored() -> None:
    """W9, W10, O2: the route that stored the response knows nothing of it."""
    w = world([answer(f"resp_{name}", message(name)) for name in ("x", "y")])
    async with socket(w) as client:
        await ask(client, **PREPARED)
        await ask(client, store=True, previous_response_id="resp_1_1", input="hi")
        await ask(client, store=True, previous_response_id="resp_x", input="more", tools=[])
    prepared = {"instructions": "be brief", "tools": []}
    assert body_of(w.calls[1]) == {"previous_response_id": "resp_x", "input": "more", **prepared}


# --- what agents do -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["", SWITCHED_ON])
@in_every_order
async def test_a_failure_before_output_behind_a_warm_up(server: str) -> None:
    """W9, W10, R10: invisible with the switch; without it the turn fails, and the agent sends all of it again."""
    w = world([A.reply(Break()), answer("resp_x", message("x"))], answer("resp_y", message("y")), server=server)
    async with socket(w) as client:
        await ask(client, **PREPARED)
        told = await ask(client, previous_response_id="resp_1_1", input=[user("hi")])
        if not server:
            assert told == ["error stream_read_error"]
            assert await ask(client, previous_response_id="resp_1_1") == ["error previous_response_not_found"]
    async with socket(w) as client:
        if not server:
            told = await ask(client, input=[user("before"), user("hi")], tools=TOOLS, instructions="be brief")
    assert told == ANSWERED
