"""T10, L1, L2: each step of a turn's books, at which instant it is taken, and by which name the log tells of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from gateway.core.accounts import HOUSE, Entry, Kind
from gateway.core.background import BackgroundTurn
from gateway.core.marks import ITEM, SEALED, mark
from gateway.core.messages import AttemptReport, Door, Finish
from gateway.core.money import ChargePolicy, Ended, EndedBy, PartTokens, Resolution, Result
from gateway.core.rules import TurnRules
from gateway.ledger.memory import MemoryLedger
from gateway.lock.driver import AUTHORIZED, connect
from gateway.ports import AttemptClosing, TurnClosing, TurnOpening
from gateway.records.memory import MemoryRecords
from gateway.turn.books import BookKeeping, Books
from gateway.turn.origins import Origins
from gateway.upstream.scripted import Break
from gateway.upstream.scripts import usage_object
from support.gateways import World, cost, create, play, turn_beside, world
from support.stores import (
    FailingRecords,
    FlakyLedger,
    ForgetfulRecords,
    HangingLedger,
    LedgerGone,
    Reluctant,
    ReluctantRecords,
    SlowRecords,
    reluctant_ledger,
    underway,
)
from support.virtual import in_orders
from support.voices import A, B

Log = list[MutableMapping[str, Any]]
RESERVED = cost(1, 1000)
BUG = ZeroDivisionError("a bug of ours")


def told(logged: Log, event: str) -> list[tuple[str, Any]]:
    """Of which steps the log tells so, each time with the turn."""
    entries = [entry for entry in logged if entry["event"] == event]
    return sorted((entry["turn_id"], entry.get("step", entry.get("steps"))) for entry in entries)


def id_at(door: str) -> str:
    """Of a world's first turn."""
    return "req_1" if door == "http" else "req_1.1"


# --- a step that fails ----------------------------------------------------------------------------------------------


@in_orders(1)
async def test_each_step_of_an_end_that_fails_is_taken_again_beside_the_others(door: str, logged: Log) -> None:
    """T10, B2: a quarter of a second later, and the log names it. R4 keeps the first attempt from being replayed, so it
    is left out."""
    reluctant, rules = Reluctant(), TurnRules(without=frozenset({"R4"}))
    metered = A.reply(1.0, A.prelude, A.failed("server_error", usage_object(10, 3)))
    stores: dict[str, Any] = {"ledger": reluctant_ledger(reluctant), "records": ReluctantRecords(reluctant)}
    w = world(metered, B.answer(2.0), rules=rules, **stores)
    await play(w, door)
    assert sorted(reluctant.tries) == [
        *((at, name) for at in (1.0, 1.25) for name in ("book_house", "close_attempt 1")),
        *((at, name) for at in (3.0, 3.25) for name in ("close_attempt 2", "close_turn", "resolve")),
    ]
    steps = ["book_house", "close_attempt", "close_attempt", "close_turn", "resolve"]
    assert told(logged, "books_asked_again") == [(id_at(door), step) for step in steps]
    asked_again = [entry for entry in logged if entry["event"] == "books_asked_again"]
    assert {(entry["log_level"], entry["exc_info"]) for entry in asked_again} == {("warning", True)}
    assert (w.charged, w.ended_at) == (cost(5, 1), [3.0])
    assert [closing.house_nanodollars for closing in w.closings] == [cost(10, 3), 0]
    assert [entry for entry in w.ledger.entries if entry.kind == "house"] == [
        Entry(Kind.HOUSE, HOUSE, id_at(door), cost(10, 3), attempt=1)
    ]
    assert [entry["event"] for entry in logged if entry["event"].startswith("books_not")] == []


@in_orders(1)
async def test_what_a_background_turn_leaves_is_taken_again_by_its_name(logged: Log) -> None:
    """B9, T10."""
    reluctant = Reluctant()
    stores: dict[str, Any] = {"ledger": reluctant_ledger(reluctant), "records": ReluctantRecords(reluctant)}
    w = world(A.reply(A.created, A.delta(), 1.0, Break()), **stores)
    await begun(w)
    steps = ["close_attempt", "keep_background", "learn_origin"]
    assert told(logged, "books_asked_again") == [("req_1", step) for step in steps]
    assert [turn.response_id for turn in await w.records.background_turns()] == ["resp_of_a"]


async def begun(w: World, during: Callable[[], Awaitable[None]] | None = None, **fields: Any) -> None:
    """A background turn over HTTP, to the end of its stream."""
    body = json.dumps(create(background=True, store=True, **fields)).encode()
    async with connect(w.app, "http", headers=AUTHORIZED, body=body) as client:
        if during is not None:
            await during()
    assert client.crash is None


# --- a step that takes too long -------------------------------------------------------------------------------------


@in_orders(1)
async def test_an_end_is_waited_for_five_seconds_and_what_is_late_then_is_named(door: str, logged: Log) -> None:
    """T10: whoever writes goes on; nothing is lost."""
    w = world(A.reply(1.0, A.prelude, A.delta(), A.completed()), records=SlowRecords(close_turn=100.0))
    async with turn_beside(w, door):
        await trio.sleep_until(5.999)
        assert w.gateway.engine.running_turns == 1
        await trio.sleep_until(6.001)
        assert w.gateway.engine.running_turns == 0
    assert told(logged, "books_still_written") == [(id_at(door), ["close_turn"])]
    assert told(logged, "books_not_closed") == told(logged, "books_asked_again") == []


class LateLedger(FlakyLedger):
    """A ledger whose first resolution fails, and whose second is never said to be written."""

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Raises, then hangs."""
        await super().resolve(turn_id, resolution)
        await trio.sleep_forever()


@in_orders(1)
async def test_what_failed_and_hangs_when_it_is_taken_again_is_late_and_not_lost(door: str, logged: Log) -> None:
    """T10."""
    w = world(A.answer(), ledger=LateLedger)
    async with turn_beside(w, door):
        pass
    assert told(logged, "books_still_written") == [(id_at(door), ["resolve"])]
    assert told(logged, "books_not_closed") == []


@in_orders(1)
async def test_what_is_lost_and_what_is_late_are_two_entries(door: str, logged: Log) -> None:
    """T10."""
    w = world(A.answer(), ledger=LedgerGone, records=SlowRecords(close_attempt=100.0, close_turn=100.0))
    async with turn_beside(w, door):
        pass
    said = [entry for entry in logged if entry["event"].startswith(("books_still", "books_not"))]
    assert said == [
        {
            "event": "books_still_written",
            "log_level": "warning",
            "turn_id": id_at(door),
            "steps": ["close_attempt", "close_turn"],
        },
        {"event": "books_not_closed", "log_level": "error", "turn_id": id_at(door), "steps": ["resolve"]},
    ]


# --- a turn that cannot begin ---------------------------------------------------------------------------------------


class TimelessLedger(MemoryLedger):
    """A ledger that notes whatever it is told and never says so of a resolution."""

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Hangs."""
        await super().resolve(turn_id, resolution)
        return await trio.sleep_forever()


@in_orders(1)
async def test_a_refusal_waits_half_a_second_for_what_it_takes_back(door: str, logged: Log) -> None:
    """T10, B1, L1: the turn may have been noted, so it ends; the money is given back by name."""
    w = world(A.answer(), ledger=TimelessLedger, records=SlowRecords(open_turn=100.0, close_turn=100.0))
    await trio.sleep(7.0)
    async with turn_beside(w, door, begins_at=7.0) as client:
        pass
    assert client.times == [(12.5, "error ledger_unavailable")]
    assert [record.closing for record in w.turns] == [
        TurnClosing(id_at(door), "ledger_unavailable", (), 5.0, nanodollars=None, flags=())
    ]
    assert told(logged, "books_still_written") == [(id_at(door), ["close_turn", "resolve"])]
    assert w.money == ["voided"]


@in_orders(1)
async def test_of_a_turn_that_no_store_has_noted_nothing_but_its_money_is_taken_back(door: str, logged: Log) -> None:
    """B1: a ledger that hangs is given up at five seconds, and then no record is closed."""
    w = world(A.answer(), ledger=HangingLedger)
    async with turn_beside(w, door) as client:
        pass
    assert client.times == [(5.0, "error ledger_unavailable")]
    assert (w.money, w.turns, [entry for entry in logged if entry["event"].startswith("books_")]) == (
        ["voided"],
        [],
        [],
    )


@in_orders(1)
async def test_a_turn_that_a_store_has_noted_before_it_went_away_ends_as_well(door: str, logged: Log) -> None:
    """L1, L2: nobody knows whether it has."""
    w = world(A.answer(), records=ForgetfulRecords("open_turn"))
    client = await play(w, door)
    assert client.times == [(0.0, "error ledger_unavailable")]
    closings = [record.closing for record in w.turns]
    assert closings == [TurnClosing(id_at(door), "ledger_unavailable", (), 0.0, nanodollars=None, flags=())]
    assert told(logged, "books_asked_again") == []


@in_orders(1)
async def test_a_turn_that_a_bug_kept_from_being_noted_has_no_record_to_close(door: str, logged: Log) -> None:
    """X."""
    w = world(A.answer(), records=FailingRecords("open_turn", BUG))
    client = await play(w, door)
    assert client.times == [(0.0, "error internal_error")]
    assert (w.money, told(logged, "books_asked_again")) == (["voided"], [])


@in_orders(1)
async def test_an_attempt_that_the_records_noted_as_they_went_away_is_not_sent_and_ends(door: str, logged: Log) -> None:
    """L1, L2: at the instant at which it began."""
    w = world(A.answer(), B.answer(), records=ForgetfulRecords("open_attempt"))
    await trio.sleep(7.0)
    client = await play(w, door, begins_at=7.0)
    assert (client.times, w.called) == ([(7.0, "error ledger_unavailable")], [])
    assert w.closings == [AttemptClosing(id_at(door), 1, AttemptReport("not_called", started_at=7.0, ended_at=7.0))]
    assert (w.money, told(logged, "books_asked_again")) == (["voided"], [])


@pytest.mark.parametrize(
    ("drain_timeout", "refused_at"),
    [(1.0, 5.25), (3.25, 5.25), (3.375, 5.375), (3.5, 5.5), (20.0, 5.5)],
)
@in_orders(1)
async def test_t7_a_second_after_the_drains_end_a_refusal_waits_for_no_more_than_that_all_is_handed_over(
    door: str, drain_timeout: float, refused_at: float
) -> None:
    """T7, T10: the drain begins at 1 s; the records do not answer, and at 5 s they are given up."""
    slow = SlowRecords(open_turn=100.0, close_turn=100.0)
    w = world(A.answer(), server=f"drain_timeout = {drain_timeout}", records=slow)
    async with turn_beside(w, door) as client:
        await trio.sleep_until(1.0)
        w.gateway.drain()
    assert client.times == [(refused_at, "error ledger_unavailable")]


# --- what is noted --------------------------------------------------------------------------------------------------


@in_orders(1)
async def test_each_attempt_is_noted_with_its_upstreams_own_name_of_it(door: str) -> None:
    """L1: the discarded one's, too."""
    w = world(A.reply(1.0, A.prelude, A.failed()), B.answer(2.0))
    await play(w, door)
    assert [(closing.attempt, closing.upstream_request_id) for closing in w.closings] == [
        (1, "req_of_a"),
        (2, "req_of_b"),
    ]
    assert w.attempts == ["a server_error (replay)", "b completed"]


@in_orders(1)
async def test_a_turns_record_ends_with_all_that_became_of_it(door: str) -> None:
    """L1: its routes in order, how long it took, whose response was delivered, and for how much."""
    w = world(A.reply(1.0, A.prelude, A.failed()), B.answer(2.0))
    await trio.sleep(7.0)
    await play(w, door, begins_at=7.0)
    assert [record.closing for record in w.turns] == [
        TurnClosing(id_at(door), "completed", ("a", "b"), 3.0, nanodollars=7000, flags=(), response_id="resp_of_b")
    ]


@in_orders(1)
async def test_a_turns_record_says_which_failure_its_client_was_told(door: str) -> None:
    """L1."""
    w = world(A.status(400, "invalid_value"))
    client = await play(w, door)
    (closing,) = [record.closing for record in w.turns]
    assert closing is not None
    assert closing.failure is not None
    assert client.failure == (closing.failure.status, closing.failure.code) == (400, "invalid_value")
    assert (closing.outcome, closing.response_id) == ("invalid_value", None)


@in_orders(1)
async def test_what_became_of_a_discarded_attempt_stands_when_no_other_follows(door: str, logged: Log) -> None:
    """L1, §4, the last point: the second cannot be recorded, and is none."""
    w = world(A.reply(Break()), B.answer(), records=FailingRecords("open_attempt", BUG, fails_at=2))
    await play(w, door)
    (line,) = [entry for entry in logged if entry["event"] == "turn"]
    assert line["attempts"] == [{"route": "a", "outcome": "stream_read_error", "reason": "replay"}]


class TooLateLedger(MemoryLedger):
    """A ledger whose leases have ended before anything is settled."""

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """The house bears it."""
        await super().resolve(turn_id, resolution)
        return Result.BORNE_BY_HOUSE


@in_orders(1)
async def test_what_the_house_bears_since_the_lease_had_ended_costs_the_turn_nothing(door: str, logged: Log) -> None:
    """B7: neither in its line nor in what is counted."""
    w = world(A.answer(1.0), ledger=TooLateLedger)
    await play(w, door)
    (line,) = [entry for entry in logged if entry["event"] == "turn"]
    assert (line["ledger"], line["nanodollars"], line["seconds"]) == ("borne_by_house", None, 1.0)
    assert "gateway_settled_nanodollars_total 0.0" in w.gateway.meter.exposition().decode().splitlines()


SEALED_ITEM = {"type": "reasoning", "id": "rs_1", "encrypted_content": "sealed"}


@in_orders(1)
async def test_a_background_turn_is_known_from_its_responses_first_event_on(logged: Log) -> None:
    """B9: all that its end is charged by; no item that is told of later makes it another's, and nothing is charged."""
    done = A.output("response.output_item.done", item=SEALED_ITEM)
    w = world(A.reply(A.created, A.delta("123456"), 2.0, done, 2.0, Break()))
    kept: list[BackgroundTurn] = []

    async def look() -> None:
        for at in (1.0, 3.0):
            await trio.sleep_until(at)
            kept.extend(await w.records.background_turns())

    await begun(w, look)
    kept.extend(await w.records.background_turns())
    config = w.gateway.config
    told_first = BackgroundTurn(
        turn_id="req_1",
        account="main",
        response_id="resp_of_a",
        route="a",
        reserved_nanodollars=RESERVED,
        input_tokens=1,
        fingerprint=w.gateway.routes.ways["a"].fingerprint,
        price=config.routes["a"].price,
    )
    assert [replace(turn, age_seconds=0.0) for turn in kept] == [
        told_first,
        told_first,
        replace(told_first, text_bytes=6),
    ]
    assert [(line["ledger"], line["nanodollars"], line["flags"]) for line in logged if line["event"] == "turn"] == [
        (None, None, [])
    ]
    assert w.records.marks.keys() == {("main", mark(SEALED, "sealed")), ("main", mark(ITEM, "rs_1"))}


@in_orders(1)
async def test_the_log_says_which_attempt_the_records_did_not_note(door: str) -> None:
    """§4, the last point, L2: why no route could be chosen."""
    w = world(A.reply(Break()), B.answer(), records=SlowRecords(open_attempt=[0.0, 60.0]))
    with capture_logs([format_exc_info]) as entries:
        await play(w, door)
    (failed,) = [entry for entry in entries if entry["event"] == "route_selection_failed"]
    assert failed["exception"].endswith(
        f"LedgerUnavailable: the records did not note attempt 2 of {id_at(door)} in time"
    )


@in_orders(1)
async def test_books_are_closed_once_and_say_so(logged: Log) -> None:
    """T10: whoever comes second changes nothing."""
    ledger, records = MemoryLedger({"main": 1000}), MemoryRecords()
    keeping = BookKeeping(ledger, records, Origins(records), ChargePolicy(), PartTokens(image=1, file=1))
    opening = TurnOpening("turn_1", "main", "gpt-test", Door.HTTP, reserved_nanodollars=7, opened_at=0.0)
    kinds = ("is_stored", "is_whole", "is_background", "is_warm_up")
    books = Books(keeping, opening, 1, (), table="", **dict.fromkeys(kinds, False))
    await books.open()
    assert (repr(books), ledger.open_reservations("main")) == ("<Books of turn_1, closed=False>", 7)

    ended = Ended(EndedBy.TERMINAL, output_delivered=False, usage=None, failed=False)
    async with trio.open_nursery() as nursery:
        books.close(Finish("completed", None, ended), None, nursery)
        books.close(Finish("failed", None, ended), None, nursery)

    assert (repr(books), ledger.open_reservations("main")) == ("<Books of turn_1, closed=True>", 0)
    assert [entry["outcome"] for entry in logged if entry["event"] == "turn"] == ["completed"]
