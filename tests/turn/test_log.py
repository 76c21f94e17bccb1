"""L1: one line for each turn, whatever became of it; and never a prompt, an output or a key."""

import time
from collections.abc import MutableMapping
from typing import Any

import pytest

from gateway import limits
from gateway.lock.driver import DEMO_KEY
from gateway.upstream.scripted import Break, Reply, Step
from support.gateways import play, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

Log = list[MutableMapping[str, Any]]


def turn_lines(logged: Log) -> Log:
    """The lines about turns."""
    return [entry for entry in logged if entry["event"] == "turn"]


@in_every_order
async def test_a_replayed_turn_shows_both_attempts(door: str, logged: Log) -> None:
    """L1: who, which model, which door, how long, what it cost, and why it was replayed."""
    w = world(A.reply(2.0, Break()), B.answer(1.0))
    await play(w, door)
    (line,) = turn_lines(logged)
    assert (line["door"], line["account"], line["model"]) == (door, "main", "gpt-test")
    assert (line["outcome"], line["seconds"], line["nanodollars"]) == ("completed", 3.0, 7000)
    assert line["attempts"] == [
        {"route": "a", "outcome": "stream_read_error", "reason": "replay"},
        {"route": "b", "outcome": "completed", "reason": None},
    ]


@in_every_order
async def test_a_turns_line_is_these_members_and_no_other(door: str, logged: Log) -> None:
    """L1: the table's hash is cut to what names it; durations are milliseconds, money nano-dollars."""
    w = world(A.reply(A.prelude, 1.23456, A.delta(), A.completed()))
    client = await play(w, door)
    (line,) = turn_lines(logged)
    assert client.told == ANSWERED
    (turn,) = w.turns
    assert turn.closing is not None
    assert line == {
        "event": "turn",
        "log_level": "info",
        "turn_id": turn.opening.turn_id,
        "account": "main",
        "key": "main",
        "model": "gpt-test",
        "table": w.gateway.engine._selection.model("gpt-test").table[: limits.TABLE_DIGITS],
        "door": door,
        "client_address": turn.opening.client_address,
        "outcome": "completed",
        "attempts": [{"route": "a", "outcome": "completed", "reason": None}],
        "seconds": 1.235,
        "nanodollars": 7000,
        "flags": [],
        "ledger": "settled",
        "response_id": "resp_of_a",
        "dropped_events": 0,
    }
    assert (len(line["table"]), turn.closing.response_id) == (limits.TABLE_DIGITS, "resp_of_a")


@in_every_order
async def test_an_estimate_says_so_in_the_turns_line(door: str, logged: Log) -> None:
    """B3, B4."""
    w = world(A.reply(A.prelude, A.delta(), Break()))
    await play(w, door)
    assert [(line["flags"], line["outcome"]) for line in turn_lines(logged)] == [(["estimated"], "stream_read_error")]


@pytest.mark.parametrize(
    "steps",
    [[A.prelude, A.delta(), A.completed()], [A.prelude, A.delta(), Break()], [A.failed("mystery")], [Break()]],
    ids=["completed", "broken", "failed", "nothing"],
)
@in_every_order
async def test_each_turn_is_one_line_without_what_was_said(door: str, steps: list[Step], logged: Log) -> None:
    """L1: neither a prompt nor an output nor a key, here nor in any other line."""
    secret = "the prompt"
    w = world(A.reply(*steps, A.delta("the output")))
    await play(w, door, input=secret, instructions=secret)
    assert len(turn_lines(logged)) == 1
    said = str(logged) + str(w.turns)
    assert [word for word in (secret, "the output", DEMO_KEY, "credential-of") if word in said] == []


@in_every_order
async def test_the_turns_record_names_the_clients_own_retries(door: str) -> None:
    """L1: `x-stainless-retry-count` tells an SDK's retries."""
    w = world(A.answer())
    await play(w, door, headers=[("x-stainless-retry-count", "2")])
    assert w.turns[0].opening.client_retry_count == "2"


@in_every_order
async def test_the_turns_record_says_as_it_begins_whose_it_is(door: str) -> None:
    """L1: when by the wall clock, from where, and what was set aside."""
    began = time.time()
    w = world(A.answer())
    await play(w, door)
    opening = w.turns[0].opening
    assert began <= opening.opened_at <= time.time()
    assert (opening.account, opening.key, opening.model, opening.door.value) == ("main", "main", "gpt-test", door)
    assert [opening.reserved_nanodollars] == w.reserved
    assert opening.client_address == "client.test"


@in_every_order
async def test_each_attempts_record_has_its_upstreams_own_name_of_the_call(door: str) -> None:
    """L1: none where no answer came; also where one came that is no stream."""
    for reply, named in ((B.answer(), "req_of_b"), (B.status(503), "req_of_b"), (Reply(refuses=True), None)):
        w = world(A.reply(Break()), reply)
        await play(w, door)
        assert [closing.upstream_request_id for closing in w.closings] == ["req_of_a", named]
    w = world(Reply(refuses=True))
    await play(w, door)
    assert [closing.upstream_request_id for closing in w.closings] == [None]


@pytest.mark.over_http
@in_every_order
async def test_what_was_not_forwarded_is_counted(door: str, logged: Log) -> None:
    """E7, E9: blocks that are no events, and events behind the end, are told in numbers, and of which turn."""
    noise = b": ping\n\ndata: [DONE]\n\ndata: 12\n\n"
    w = world(A.reply(A.prelude, noise, A.delta(), A.completed() + A.delta("late") + A.completed(9, 9)))
    await play(w, door)
    (counted,) = [entry for entry in logged if entry["event"] == "not_forwarded"]
    assert (counted["blocks_without_event"], counted["events_behind_the_end"]) == (3, 2)
    assert counted["turn_id"] == w.turns[0].opening.turn_id


@in_every_order
async def test_events_dropped_with_a_discarded_attempt_count_too(door: str, logged: Log) -> None:
    """E6, L1: an output event that ends the grace is dropped, and the turn is replayed."""
    w = world(A.reply(A.error("server_error"), A.delta()), B.answer())
    await play(w, door)
    assert [line["dropped_events"] for line in turn_lines(logged)] == [1]


@in_every_order
async def test_a_settlement_that_overdraws_says_so(door: str, logged: Log) -> None:
    """B6: in the turn's own line, not only in the books."""
    w = world(A.reply(A.prelude, A.delta(), A.completed(1, 1500)), balance="0.0025")
    await play(w, door)
    assert [line["ledger"] for line in turn_lines(logged)] == ["settled_overdrawn"]
