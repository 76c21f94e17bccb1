"""A client of the HTTP door that leaves at the instant of its request (H7, T10)."""

from __future__ import annotations

import json

import pytest
import trio

from gateway.lock.driver import connect
from gateway.upstream.scripted import Break
from support.gateways import create, world
from support.virtual import in_orders
from support.voices import A, B

BODY = json.dumps(create()).encode()


@pytest.mark.parametrize("passes", range(12))
@in_orders(8)
async def test_a_client_that_leaves_as_its_turn_begins_is_on_record_as_one_that_left(passes: int) -> None:
    """H7: a disconnect is never mistaken for a fault of the gateway, whichever step of the beginning it meets."""
    w = world(A.reply(A.prelude, 5.0, Break()), B.answer())
    async with connect(w.app, "http", body=BODY) as client:
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        client.leave()

    assert (client.sent, client.crash, client.ended_at) == ([], None, 0.0)
    assert [turn.closing and turn.closing.outcome for turn in w.turns] in ([], ["client_disconnected"])
    assert w.called in ([], ["a"])
    assert w.money in ([], ["voided"])
    w.assert_at_rest()


@in_orders(8)
async def test_a_client_that_leaves_before_its_body_is_whole_has_no_turn() -> None:
    """H7: also when the rest comes at that instant."""
    w = world(A.answer())
    async with connect(w.app, "http", body=None) as client:
        client.say({"type": "http.request", "body": BODY[:10], "more_body": True})
        await trio.sleep(1)
        client.leave()
        client.say({"type": "http.request", "body": BODY[10:], "more_body": False})

    assert (client.sent, client.crash, client.ended_at) == ([], None, 1.0)
    assert (w.turns, w.calls) == ([], [])
