"""B9: a background turn's money stays set aside until its response has ended, whoever sees it, and is settled once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import trio

from gateway.core.background import BackgroundTurn, Fingerprint
from gateway.core.failures import UpstreamAnswer
from gateway.core.ledger import Expire
from gateway.core.messages import AttemptStarted
from gateway.core.money import ChargePolicy, Flag
from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.ports import LedgerUnavailable, TurnClosing, UpstreamCall
from gateway.records.memory import MemoryRecords
from gateway.turn.background import BackgroundTurns
from gateway.turn.homes import Way
from gateway.upstream.scripted import JSON_BODY, Break, Reply, Silence, Step
from gateway.upstream.scripts import event, response_object, usage_object
from support.gateways import Seen, World, cost, create, play, seen, world
from support.virtual import in_every_order, in_orders
from support.voices import ANSWERED, A, B

QUEUED = event("response.queued", sequence_number=1, response=response_object("resp_of_a", "queued"))


def shown(status: str, **members: Any) -> Reply:
    """What a by-id call is answered."""
    body = response_object("resp_of_a", status, background=True, **members)
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


RUNS = shown("in_progress")
ENDED = shown("completed", usage=usage_object(5, 1), output=[{"id": "msg_1"}])
BROKEN = A.reply(A.created, QUEUED, 1.0, Break())


@asynccontextmanager
async def looked_after(w: World) -> AsyncIterator[None]:
    """Background turns are looked after, as while the gateway serves."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(w.gateway.background.run)
        yield
        w.gateway.background.stop()


async def begin(w: World, *, leaves_at: float | None = None, **fields: Any) -> Client:
    """One background turn over HTTP, to the end of its stream."""
    body = json.dumps(create(background=True, store=True, **fields)).encode()
    async with connect(w.app, "http", headers=AUTHORIZED, body=body) as client:
        if leaves_at is not None:
            await trio.sleep_until(leaves_at)
            client.leave()
    assert client.crash is None
    return client


async def ask(w: World, action: str = "", method: str = "GET", query: str = "") -> Client:
    path = f"/v1/responses/resp_of_a{action}"
    async with connect(w.app, "http", path, method=method, query=query) as client:
        pass
    assert client.crash is None
    return client


def who_is_a(w: World) -> Fingerprint:
    return w.gateway.routes.ways["a"].fingerprint


def open_money(w: World) -> int:
    return w.ledger.open_reservations("main")


def outcomes(w: World) -> list[str | None]:
    return [None if turn.closing is None else turn.closing.outcome for turn in w.turns]


# --- at the doors -------------------------------------------------------------------------------------------------


@in_every_order
async def test_a_background_turn_that_is_streamed_to_its_end_is_a_turn_like_any_other() -> None:
    """B9, S3: the stream has seen its end; nothing is left to look after."""
    w = world(A.answer(), B.answer())
    client = await begin(w)
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])
    assert w.calls[0].fields["background"] is True
    assert await w.records.background_turns() == []
    w.assert_at_rest()


@in_orders(1)
async def test_a_websocket_has_no_background_turns() -> None:
    """W2."""
    w = world(A.answer())
    client = await play(w, "websocket", background=True)
    assert client.failure == (400, "unsupported_parameter")
    assert w.reserved == []


@pytest.mark.parametrize("value", ["true", 1, {}])
@in_orders(1)
async def test_what_is_neither_true_nor_false_is_refused_by_name(value: object) -> None:
    """H3."""
    w = world(A.answer())
    client = await play(w, "http", background=value)
    assert client.failure == (400, "invalid_request")
    assert client.events[0].payload["error"]["param"] == "background"


@in_orders(1)
async def test_store_is_not_made_false_beside_it() -> None:
    """S1: a background response must be stored."""
    w = world(A.answer(), server='absent_store = "false"')
    async with connect(w.app, "http", body=json.dumps(create(background=True, store=...)).encode()):
        pass
    assert "store" not in w.calls[0].fields


@pytest.mark.parametrize(
    ("reply", "money"),
    [
        pytest.param(A.reply(Break()), ["voided"], id="nothing came"),
        pytest.param(A.status(400), ["voided"], id="refused"),
        pytest.param(A.reply(A.created, A.failed("server_error")), ["voided"], id="failed"),
        pytest.param(
            A.reply(A.created, A.failed("server_error", usage_object(5, 1))),
            ["settled 7000 failed_metered"],
            id="failed with usage",
        ),
    ],
)
@in_orders(2)
async def test_a_response_that_ended_or_never_was_leaves_nothing_open(reply: Reply, money: list[str]) -> None:
    """B9, R10: not replayed, and not waited for."""
    w = world(reply, B.answer())
    await begin(w)
    assert (w.called, w.money, await w.records.background_turns()) == (["a"], money, [])
    w.assert_at_rest()


# --- what its client is told --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code"),
    [((Break(),), "stream_read_error"), ((Silence(),), "stream_idle_timeout")],
    ids=["breaks", "falls silent"],
)
@in_orders(2)
async def test_a_stream_that_ends_early_is_no_failed_response(end: tuple[Step, ...], code: str) -> None:
    """X3, B9: it goes on, and can be resumed behind the last number that its client has seen: the error has none."""
    w = world([A.reply(A.created, QUEUED, A.delta(), *end), ENDED], route="idle_timeout = 5")
    client = await begin(w)
    assert client.told == ["created", "queued", "output_text.delta", f"error {code}"]
    assert client.events[-1].payload["error"]["code"] == client.events[-1].payload["code"] == code
    assert "sequence_number" not in client.events[-1].payload
    assert (w.money, outcomes(w)) == ([], [None])


@in_orders(1)
async def test_of_one_that_its_upstream_calls_failed_its_client_hears_so() -> None:
    """X1: unchanged."""
    w = world(A.reply(A.created, A.delta(), A.failed("server_error")))
    assert (await begin(w)).told == ["created", "output_text.delta", "failed server_error"]


# --- the gateway's own poll ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves_at", [None, 0.5, 12.0], ids=["breaks", "left before it was told", "left"])
@in_every_order
async def test_a_response_that_goes_on_is_polled_until_it_has_ended(leaves_at: float | None) -> None:
    """B9: 30 s apart, from when it was known; the client pays by its usage, wherever it was read."""
    w = world([BROKEN if leaves_at is None else A.reply(A.created, Silence()), RUNS, RUNS, ENDED], B.answer())
    async with looked_after(w):
        await begin(w, leaves_at=leaves_at)
        assert (w.money, outcomes(w), open_money(w) > 0) == ([], [None], True)
        await trio.sleep_until(200)

    assert [call.method for call in w.calls] == ["POST", "GET", "GET", "GET"]
    assert w.calls[1].path == "/v1/responses/resp_of_a"
    times = [call.at for call in w.calls[1:]]
    assert [round(b - a) for a, b in pairwise(times)] == [30, 30]
    assert 30 <= times[0] <= 52
    assert (w.money, outcomes(w), open_money(w)) == (["settled 7000"], ["completed"], 0)
    w.assert_at_rest()


@pytest.mark.parametrize(
    ("reply", "money", "outcome"),
    [
        (shown("cancelled"), "voided unmetered", "cancelled"),
        (shown("failed"), "voided", "failed"),
        (shown("incomplete", usage=usage_object(5, 1)), "settled 7000", "incomplete"),
        (A.status(404), "settled 1000 estimated", "abandoned"),
        (A.status(410), "settled 1000 estimated", "abandoned"),
    ],
    ids=["cancelled", "failed", "incomplete", "deleted", "gone"],
)
@in_orders(2)
async def test_each_end_is_charged_as_its_own(reply: Reply, money: str, outcome: str) -> None:
    """B9, B3: of what its upstream does not know any more nothing will ever be seen."""
    w = world([BROKEN, reply])
    async with looked_after(w):
        await begin(w)
        await trio.sleep_until(60)
    assert (w.money, outcomes(w)) == ([money], [outcome])


@pytest.mark.parametrize(
    "reply",
    [
        Reply(refuses=True),
        A.status(500),
        A.status(401),
        Reply((b"[]",), headers=JSON_BODY),
        Reply((b'{"id": "resp_other", "status": "completed"}',), headers=JSON_BODY),
        Reply((), headers=JSON_BODY, head_seconds=1000),
    ],
    ids=["refuses", "500", "401", "no object", "another response", "silent"],
)
@in_orders(1)
async def test_a_poll_that_comes_to_nothing_is_made_again(reply: Reply) -> None:
    """B9."""
    w = world([BROKEN, reply, ENDED])
    async with looked_after(w):
        await begin(w)
        await trio.sleep_until(200)
    assert (w.money, outcomes(w)) == (["settled 7000"], ["completed"])


@in_orders(1)
async def test_the_end_that_was_seen_is_on_record_and_in_the_log_as_a_turn_s(
    logged: list[MutableMapping[str, Any]],
) -> None:
    """B9, L1: which route, after how long, for how much; and by which id its client asks for it."""
    w = world([BROKEN, ENDED])
    async with looked_after(w):
        await begin(w)
        await trio.sleep_until(60)
    (turn,) = w.turns
    assert turn.closing is not None
    assert 30 <= turn.closing.seconds <= 52
    assert replace(turn.closing, seconds=0.0) == TurnClosing(
        "req_1", "completed", ("a",), 0.0, nanodollars=7000, flags=(), response_id="resp_of_a"
    )
    (told,) = [entry for entry in logged if entry["event"] == "background_ended"]
    assert told == {
        "event": "background_ended",
        "log_level": "info",
        "turn_id": "req_1",
        "account": "main",
        "outcome": "completed",
        "nanodollars": 7000,
        "flags": [],
        "ledger": "settled",
    }


@in_orders(1)
async def test_an_estimate_is_flagged_on_record_and_in_the_log(logged: list[MutableMapping[str, Any]]) -> None:
    """B3, B9."""
    w = world([BROKEN, A.status(404)])
    async with looked_after(w):
        await begin(w)
        await trio.sleep_until(60)
    flags = [turn.closing.flags for turn in w.turns if turn.closing is not None]
    told = [entry["flags"] for entry in logged if entry["event"] == "background_ended"]
    assert (flags, told) == ([(Flag.ESTIMATED,)], [["estimated"]])


@in_orders(1)
async def test_a_poll_asks_for_the_one_response_whatever_is_in_its_id() -> None:
    """H2, B9: a slash is none of the path's own."""
    w = world([BROKEN])
    calls: list[UpstreamCall] = []

    class Noting:
        async def fetch(self, call: UpstreamCall) -> UpstreamAnswer:
            await trio.lowlevel.checkpoint()
            calls.append(call)
            return UpstreamAnswer(200, (), b"{}")

        async def attempt(self, call: UpstreamCall, inputs: object) -> None:
            raise AssertionError

    await begin(w)
    turn, began_at, _ = w.records.background["req_1"]
    w.records.background["req_1"] = replace(turn, response_id="../a b?c"), began_at, 0.0
    assert turn.fingerprint is not None
    assert turn.price is not None
    way = Way(Noting(), AttemptStarted(25.0, 300.0), turn.fingerprint, turn.price)

    class Ways:
        def way_back(self, _turn: BackgroundTurn) -> Way:
            return way

    await BackgroundTurns(w.ledger, w.records, Ways(), ChargePolicy(), print).look()
    assert calls == [UpstreamCall("req_1", b"", method="GET", path="/responses/..%2Fa%20b%3Fc")]


@in_orders(1)
async def test_what_goes_wrong_with_one_turn_keeps_no_other_of_its_route_from_its_own(
    logged: list[MutableMapping[str, Any]],
) -> None:
    """B9: it is logged, and left to the next look."""

    class Forgetful(MemoryRecords):
        async def postpone_background(self, turn_id: str) -> None:
            if turn_id == "req_1":
                raise RuntimeError("a bug")
            await super().postpone_background(turn_id)

    w = world([BROKEN, BROKEN, shown("completed", usage=usage_object(5, 1))], records=Forgetful())
    await begin(w)
    await begin(w)
    await trio.sleep(40)
    await w.gateway.background.look()
    assert (outcomes(w), w.called) == ([None, "completed"], ["a", "a", "a"])
    told = [(entry["event"], entry["turn_id"]) for entry in logged if entry["log_level"] == "error"]
    assert told == [("background_not_polled", "req_1")]


@pytest.mark.parametrize(
    ("reply", "asked", "money"),
    [(A.status(500), 2, ["settled 7000"]), (Reply(refuses=True), 0, [])],
    ids=["answers that it cannot", "cannot be heard"],
)
@in_orders(1)
async def test_the_rest_of_a_route_s_turns_is_asked_about_as_long_as_it_is_heard(
    reply: Reply, asked: int, money: list[str]
) -> None:
    """B9: where it cannot be heard, the rest is left to the next look."""
    w = world([BROKEN, BROKEN, reply, ENDED])
    await begin(w)
    await begin(w)
    await trio.sleep(40)
    await w.gateway.background.look()
    assert ([call.method for call in w.calls[2:]], w.money) == (["GET"] * asked, money)


@in_orders(1)
async def test_what_ends_after_its_lease_is_charged_to_nobody_and_on_record_so(
    logged: list[MutableMapping[str, Any]],
) -> None:
    """B7, B9: the money was given back; the house bears what is seen later."""
    w = world([BROKEN, ENDED])
    await begin(w)
    w.ledger.carry_out(Expire("req_1"))
    await trio.sleep(40)
    await w.gateway.background.look()
    told = [(entry["nanodollars"], entry["ledger"]) for entry in logged if entry["event"] == "background_ended"]
    charged = [turn.closing.nanodollars for turn in w.turns if turn.closing is not None]
    assert (told, charged) == ([(None, "borne_by_house")], [None])


@in_orders(1)
async def test_a_day_later_the_estimate_is_charged() -> None:
    """B9, B4: by what was delivered; no sooner."""
    w = world([A.reply(A.created, QUEUED, A.delta("123456"), Break()), RUNS])
    await begin(w)
    turn = w.records.background["req_1"]
    for age, money in ((86_399, []), (86_400, ["settled 5000 estimated"])):
        w.records.background["req_1"] = turn[0], trio.current_time() - age, trio.current_time()
        await w.gateway.background.look()
        assert w.money == money
    assert outcomes(w) == ["abandoned"]


@in_orders(1)
async def test_a_route_that_is_gone_can_be_asked_nothing_and_has_no_price() -> None:
    """B9: of a turn that an earlier version kept, without its price; after a day nothing is charged."""
    w = world([BROKEN])
    await begin(w)
    turn, _, _ = w.records.background["req_1"]
    turn = replace(turn, route="gone", fingerprint=None, price=None)
    w.records.background["req_1"] = turn, trio.current_time() - 86_400, 0.0
    await w.gateway.background.look()
    assert (w.money, [call.method for call in w.calls]) == (["voided unmetered"], ["POST"])


@in_orders(1)
async def test_a_drain_leaves_it_to_others() -> None:
    """B9, T7: the response goes on, and so does its reservation."""
    w = world([A.reply(A.created, QUEUED, Silence()), ENDED], server="drain_timeout = 1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin, w)
        await trio.sleep(12)
        w.gateway.drain()
    assert (w.money, outcomes(w)) == ([], [None])
    await trio.sleep(60)
    await w.gateway.background.look()
    assert (w.money, outcomes(w)) == (["settled 7000"], ["completed"])


# --- by-id calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "how", "money"),
    [
        (ENDED, {}, "settled 7000"),
        (shown("cancelled"), {"action": "/cancel", "method": "POST"}, "voided unmetered"),
        (
            A.reply(A.delta(), A.ending("completed", usage_object(5, 1), background=True)),
            {"query": "stream=true"},
            "settled 7000",
        ),
    ],
    ids=["read", "cancelled", "streamed"],
)
@in_every_order
async def test_a_call_by_id_that_sees_the_end_settles_the_turn_once(
    reply: Reply, how: dict[str, str], money: str
) -> None:
    """B9, H2: the client's own polling is as good as the gateway's, which then has nothing left to ask."""
    w = world([BROKEN, RUNS, reply, reply])
    async with looked_after(w):
        await begin(w)
        await ask(w)
        assert w.money == []
        await ask(w, **how)
        assert w.money == [money]
        await ask(w, **how)
        await trio.sleep_until(200)
    assert (w.money, len(w.calls)) == ([money], 4)
    assert outcomes(w) == ["completed" if money == "settled 7000" else "cancelled"]
    w.assert_at_rest()


@pytest.mark.parametrize("by", ["a poll", "a call by id"])
@in_orders(1)
async def test_an_end_without_usage_is_estimated_by_what_was_delivered(by: str) -> None:
    """B3, B4, B9: whoever saw it."""
    ended = response_object("resp_of_a", "completed", background=True, output=[{"id": "msg_1"}], usage=None)
    w = world([A.reply(A.created, QUEUED, A.delta("123456"), Break()), shown("completed", output=[{"id": "msg_1"}])])
    await begin(w)
    if by == "a poll":
        await trio.sleep(40)
        await w.gateway.background.look()
    else:
        await w.gateway.background.saw("main", {**ended, "background": False}, who_is_a(w))
        assert w.money == []
        await w.gateway.background.saw("main", ended, who_is_a(w))
    assert (w.money, outcomes(w)) == (["settled 5000 estimated"], ["completed"])


@in_orders(1)
async def test_another_account_s_response_of_that_name_settles_nothing() -> None:
    """O1, B9."""
    w = world([BROKEN])
    await begin(w)
    ended = response_object("resp_of_a", "completed", background=True, usage=usage_object(5, 1))
    await w.gateway.background.saw("other", ended, who_is_a(w))
    assert w.money == []
    await w.gateway.background.saw("main", ended, who_is_a(w))
    assert w.money == [f"settled {cost(5, 1)}"]


@in_orders(1)
async def test_the_way_back_to_a_response_is_its_own_account_s() -> None:
    """O1, O2, B9: and no other response's."""
    w = world([BROKEN])
    await begin(w)
    asked = [("main", "resp_of_a"), ("other", "resp_of_a"), ("main", "resp_of_b")]
    ways = [await w.gateway.background.way_to(account, response_id) for account, response_id in asked]
    assert ways == [w.gateway.routes.ways["a"], None, None]


@in_orders(1)
async def test_records_that_are_away_are_asked_again() -> None:
    """B9: nothing is lost by it."""

    class Away(MemoryRecords):
        is_away = True

        async def background_turns(self) -> Any:
            if self.is_away:
                raise LedgerUnavailable
            return await super().background_turns()

    records = Away()
    w = world([BROKEN, ENDED], records=records)
    await begin(w)
    await trio.sleep(40)
    await w.gateway.background.look()
    running = response_object("resp_of_a", "in_progress", background=True)
    await w.gateway.background.saw("main", running, who_is_a(w))
    assert w.money == []
    records.is_away = False
    await w.gateway.background.look()
    assert w.money == ["settled 7000"]


@in_orders(1)
async def test_whoever_looks_keeps_every_lease_from_ending_due_or_not() -> None:
    """B7, B9: also that of a turn which another process began, and is gone."""
    w = world([BROKEN, RUNS])
    await begin(w)
    adopted: list[str] = []
    another = BackgroundTurns(w.ledger, w.records, w.gateway.routes, ChargePolicy(), adopted.append)
    await another.keep()
    assert (adopted, len(w.calls)) == (["req_1"], 1)


@in_orders(2)
async def test_a_route_that_does_not_answer_keeps_no_other_from_being_asked() -> None:
    """B9: of its own turns the rest is left to the next look."""
    mute = Reply((), headers=JSON_BODY, head_seconds=1000)
    w = world([A.reply(A.created, Break()), A.reply(A.created, Break()), mute], [B.reply(B.created, Break()), mute])
    for cooling in ((), (), ("a",)):
        w.house.cooling.update(cooling)
        await begin(w)
    w.house.cooling.clear()
    await trio.sleep_until(100)
    await w.gateway.background.look()
    assert [(call.upstream, call.at) for call in w.calls[3:]] == [("a", 100.0), ("b", 100.0)]
    assert trio.current_time() == 110.0
