"""B9: an end that a by-id call has shown before its turn is on record: its client was faster than the row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio

from gateway.core.background import BackgroundTurn
from gateway.lock.driver import AUTHORIZED, connect
from gateway.records.memory import MemoryRecords
from gateway.upstream.scripted import JSON_BODY, Break, Reply
from gateway.upstream.scripts import response_object, usage_object
from support.gateways import World, create, world
from support.virtual import in_orders
from support.voices import A

USAGE = usage_object(5, 1)
BACKGROUND = json.dumps(create(background=True, store=True)).encode()
BROKEN = A.reply(A.created, A.delta("123456"), Break())


class Late(MemoryRecords):
    """Records in which background turns are not to be read before a time."""

    readable_at = 0.0

    async def background_turns(self) -> Sequence[BackgroundTurn]:
        """Those that are to be read."""
        return await super().background_turns() if trio.current_time() >= self.readable_at else ()


def shown(status: str, **members: Any) -> Reply:
    body = response_object("resp_of_a", status, background=True, **members)
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


async def begun_and_ended(ending: Reply, readable_at: float) -> World:
    """A background turn whose client has ended it at once, before it was to be read."""
    w = world([BROKEN, ending, shown("completed", usage=USAGE)], records=Late())
    assert isinstance(w.records, Late)
    w.records.readable_at = readable_at
    async with connect(w.app, "http", headers=AUTHORIZED, body=BACKGROUND):
        pass
    async with connect(w.app, "http", "/v1/responses/resp_of_a/cancel", method="POST") as client:
        pass
    assert (client.status, w.money) == (200, [])
    return w


@pytest.mark.parametrize(
    ("ending", "money"),
    [
        (shown("cancelled"), "voided unmetered"),
        (shown("cancelled", usage=USAGE), "settled 7000"),
        (shown("completed", output=[{"id": "msg_1"}]), "settled 5000 estimated"),
    ],
    ids=["cancelled", "metered", "estimated"],
)
@in_orders(2)
async def test_it_is_settled_at_the_next_look_and_not_polled(ending: Reply, money: str) -> None:
    """B9."""
    w = await begun_and_ended(ending, readable_at=5.0)
    await w.gateway.background.look()
    assert w.money == []
    await trio.sleep_until(5.0)
    await w.gateway.background.look()
    assert (w.money, len(w.calls)) == ([money], 2)
    assert [turn.closing is not None for turn in w.turns] == [True]
    w.assert_at_rest()


@in_orders(1)
async def test_the_others_of_its_route_are_polled_at_the_same_look() -> None:
    """B9: nobody was asked about it, so nobody failed to answer."""
    w = world([BROKEN, BROKEN, shown("completed")], records=Late())
    assert isinstance(w.records, Late)
    w.records.readable_at = 40.0
    for _ in range(2):
        async with connect(w.app, "http", headers=AUTHORIZED, body=BACKGROUND):
            pass
    turn, began_at, due_at = w.records.background["req_2"]
    w.records.background["req_2"] = replace(turn, response_id="resp_2"), began_at, due_at
    ended = response_object("resp_of_a", "cancelled", background=True)
    await w.gateway.background.saw("main", ended, w.gateway.routes.ways["a"].fingerprint)
    await trio.sleep_until(40.0)
    await w.gateway.background.look()
    assert (w.money, [call.path for call in w.calls[2:]]) == (["voided unmetered"], ["/v1/responses/resp_2"])


@in_orders(1)
async def test_one_that_has_not_ended_is_not_remembered() -> None:
    """B9."""
    w = await begun_and_ended(shown("in_progress"), readable_at=5.0)
    await trio.sleep_until(5.0)
    await w.gateway.background.look()
    assert (w.money, len(w.calls)) == ([], 2)


@pytest.mark.parametrize(("at", "calls"), [(59.999, 2), (60.0, 3), (60.001, 3)])
@in_orders(1)
async def test_it_is_remembered_for_a_minute(at: float, calls: int) -> None:
    """B9: who was forgotten is polled."""
    w = await begun_and_ended(shown("cancelled", usage=USAGE), readable_at=at)
    await trio.sleep_until(at)
    await w.gateway.background.look()
    assert (w.money, len(w.calls)) == (["settled 7000"], calls)


@pytest.mark.parametrize(("others", "calls"), [(1, 2), (2, 3)])
@in_orders(1)
async def test_the_newest_are_remembered(others: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """B9: a bound."""
    monkeypatch.setattr("gateway.limits.SHOWN_ENDS_MAX", 2)
    w = await begun_and_ended(shown("cancelled", usage=USAGE), readable_at=40.0)
    asked = w.gateway.routes.ways["a"].fingerprint
    for number in range(others):
        ended = response_object(f"resp_{number}", "completed", background=True)
        await w.gateway.background.saw("main", ended, asked)
    await trio.sleep_until(40.0)
    await w.gateway.background.look()
    assert (w.money, len(w.calls)) == (["settled 7000"], calls)


@in_orders(1)
async def test_another_account_s_is_not_the_turn_s() -> None:
    """O1, B9."""
    w = await begun_and_ended(shown("in_progress"), readable_at=5.0)
    ended = response_object("resp_of_a", "completed", background=True, usage=USAGE)
    await w.gateway.background.saw("other", ended, w.gateway.routes.ways["a"].fingerprint)
    await trio.sleep_until(5.0)
    await w.gateway.background.look()
    assert w.money == []
