"""B: what a turn costs, cell by cell of B3, through both doors; what is set aside for it; who pays for what failed.

A token of input costs 1000 nano-dollars, cached 500, of output 2000. The request's "hi" is one token, and so is a
delta's; a turn reserves one token of input and 1000 of output.
"""

from typing import Any

import pytest
import trio

from gateway.core.rules import TurnRules
from gateway.lock.driver import connect
from gateway.upstream.scripted import Break, Silence, Step
from gateway.upstream.scripts import usage_object
from support.gateways import World, assert_all_is_well, cost, create_frame, play, turn, turn_beside, world
from support.virtual import in_every_order
from support.voices import A, B, C

pytestmark = pytest.mark.usefixtures("each_transport")

RESERVED = cost(1, 1000)
USAGE = usage_object(5, 1)
BY_USAGE = "settled 7000"
ESTIMATED = "settled 3000 estimated"
HELD: list[Step] = [A.prelude]
OUTPUT: list[Step] = [A.prelude, A.delta()]


# --- B3, by how the turn ended ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled"])
@pytest.mark.parametrize(
    ("before", "usage", "money"),
    [(HELD, None, "voided unmetered"), (OUTPUT, USAGE, BY_USAGE), (OUTPUT, None, ESTIMATED)],
    ids=["no output, no usage", "output, usage", "output, no usage"],
)
@in_every_order
async def test_b3_an_answer(door: str, status: str, before: list[Step], usage: object, money: str) -> None:
    """B3, first and second row."""
    w = world(A.reply(*before, 1.0, A.ending(status, usage)))
    await play(w, door)
    assert w.money == [money]


@in_every_order
async def test_b3_an_answer_without_output_that_carries_usage(door: str) -> None:
    """B3, first row: an answer is no failure, so it is not flagged."""
    w = world(A.reply(*HELD, A.ending("incomplete", USAGE)))
    await play(w, door)
    assert w.money == [BY_USAGE]


ENDINGS: dict[str, list[Step]] = {
    "response.failed": [A.failed("mystery")],
    "error": [A.error("mystery"), Silence()],
    "reset": [Break()],
    "EOF": [],
    "silence": [Silence()],
}


@pytest.mark.parametrize("ending", ENDINGS)
@in_every_order
async def test_b3_an_upstreams_failure_behind_output_without_usage(door: str, ending: str) -> None:
    """B3, third row: failure, break, timeout."""
    w = world(A.reply(*OUTPUT, 1.0, *ENDINGS[ending]))
    await play(w, door)
    assert w.money == [ESTIMATED]


@pytest.mark.parametrize("ending", ["response.failed", "reset", "silence"])
@in_every_order
async def test_b3_an_upstreams_failure_before_output_without_usage(door: str, ending: str) -> None:
    """B3, third row."""
    w = world(A.reply(*HELD, 1.0, *ENDINGS[ending]))
    await play(w, door)
    assert w.money == ["voided"]


@pytest.mark.parametrize(
    ("before", "money"), [(HELD, "settled 7000 failed_metered"), (OUTPUT, BY_USAGE)], ids=["no output", "output"]
)
@pytest.mark.parametrize(
    "ending",
    [[A.failed("mystery", USAGE)], [A.error("mystery", usage=USAGE)], [A.error("mystery"), A.failed("mystery", USAGE)]],
    ids=["failed", "error", "both"],
)
@in_every_order
async def test_b3_a_failure_that_carries_usage(door: str, before: list[Step], ending: list[Step], money: str) -> None:
    """B3, first row: usage decides; flagged where the client got nothing for it."""
    w = world(A.reply(*before, 1.0, *ending), B.answer())
    await play(w, door)
    assert (w.money, w.called) == ([money], ["a"])


@pytest.mark.parametrize(("before", "money"), [(HELD, "voided"), (OUTPUT, ESTIMATED)], ids=["no output", "output"])
@in_every_order
async def test_b3_a_client_that_left(door: str, before: list[Step], money: str) -> None:
    """B3, third row."""
    w = world(A.reply(*before, Silence()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(3.0)
        client.leave()
    assert w.money == [money]


@pytest.mark.parametrize(("before", "money"), [(HELD, "voided"), (OUTPUT, ESTIMATED)], ids=["no output", "output"])
@in_every_order
async def test_b3_the_sixty_minutes(before: list[Step], money: str) -> None:
    """B3, third row."""
    w = world(A.reply(*before, Silence()))
    await play(w, "websocket", begins_at=3599.0)
    assert w.money == [money]


@pytest.mark.parametrize(
    ("before", "money"), [(HELD, "voided"), (OUTPUT, "voided unmetered")], ids=["no output", "output"]
)
@in_every_order
async def test_b3_the_gateways_own_fault(door: str, before: list[Step], money: str) -> None:
    """B3, fourth row: a drain; bugs are in test_faults.py."""
    w = world(A.reply(*before, Silence()), server="drain_timeout = 1")
    async with turn(w, door):
        await trio.sleep_until(3.0)
        w.gateway.drain()
    assert w.money == [money]


@pytest.mark.parametrize("cause", ["leaves", "drain"])
@in_every_order
async def test_b3_usage_read_before_the_turn_ended_decides(door: str, cause: str) -> None:
    """B3: whatever ends the turn; here a usage stood in an event before."""
    metered = A.in_progress.replace(b'"usage":null', b'"usage":{"input_tokens":5,"output_tokens":1}')
    w = world(A.reply(A.created, metered, A.delta(), Silence()), server="drain_timeout = 1")
    async with turn(w, door) as client:
        await trio.sleep_until(3.0)
        client.leave() if cause == "leaves" else w.gateway.drain()
    assert w.money == [BY_USAGE]


@pytest.mark.parametrize(
    ("setting", "ending", "money"),
    [
        ('failed_metered = "void"', [A.prelude, A.failed("mystery", USAGE)], "voided failed_metered"),
        ('failed_metered = "void"', [*OUTPUT, A.failed("mystery", USAGE)], BY_USAGE),
        ('delivered_unmetered = "void"', [*OUTPUT, A.ending("completed")], "voided unmetered"),
        ('delivered_unmetered = "void"', [*OUTPUT, Break()], "voided unmetered"),
        ('delivered_unmetered = "void"', [*OUTPUT, A.completed()], BY_USAGE),
    ],
)
@in_every_order
async def test_b3_the_configurable_cells(door: str, setting: str, ending: list[Step], money: str) -> None:
    """B3, *."""
    w = world(A.reply(*ending), server=setting)
    await play(w, door)
    assert w.money == [money]


# --- B5, B2: reading usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 5},
        {"input_tokens": 5, "output_tokens": "1"},
        {"input_tokens": 5, "output_tokens": -1},
        {"input_tokens": 5, "output_tokens": 1.5},
        {"input_tokens": True, "output_tokens": 1},
        [5, 1],
    ],
    ids=str,
)
@in_every_order
async def test_b5_an_incomplete_usage_is_no_usage(door: str, usage: object) -> None:
    """B5: never zero-token success."""
    w = world(A.reply(*OUTPUT, A.ending("completed", usage)))
    await play(w, door)
    assert w.money == [ESTIMATED]


@in_every_order
async def test_b2_cached_and_reasoning_tokens_have_their_prices(door: str) -> None:
    """B2: cached ones are a part of the input, reasoning ones of the output."""
    usage = {
        **usage_object(10, 4),
        "input_tokens_details": {"cached_tokens": 6},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    w = world(A.reply(*OUTPUT, A.ending("completed", usage)))
    await play(w, door)
    assert w.charged == 4 * 1000 + 6 * 500 + 4 * 2000


@in_every_order
async def test_a_zero_usage_at_the_end_is_a_usage(door: str) -> None:
    """B5: complete and not negative; it costs nothing, and is not an estimate."""
    w = world(A.reply(*OUTPUT, A.completed(0, 0)))
    await play(w, door)
    assert w.money == ["settled 0"]


# --- B2: the house ----------------------------------------------------------------------------------------------


@in_every_order
async def test_b2_the_client_pays_for_the_delivered_attempt_only(door: str) -> None:
    """B2, M2."""
    w = world(A.reply(A.prelude, A.failed("server_error")), B.answer())
    await play(w, door)
    assert (w.charged, w.house_paid) == (cost(5, 1), 0)


@in_every_order
async def test_b2_the_house_bears_what_a_failure_metered_if_the_client_does_not(door: str) -> None:
    """B2, B3: `failed_metered = "void"`."""
    w = world(A.reply(A.prelude, A.failed("mystery", USAGE)), server='failed_metered = "void"')
    await play(w, door)
    assert (w.charged, w.house_paid, w.closings[0].house_nanodollars) == (0, cost(5, 1), cost(5, 1))


@in_every_order
async def test_b2_the_house_bears_what_a_replayed_attempt_metered(door: str) -> None:
    """B2: R4 keeps that from happening; so it is left out here."""
    rules = TurnRules(without=frozenset({"R4"}))
    w = world(A.reply(A.prelude, A.failed("server_error", usage_object(10, 3))), B.answer(), rules=rules)
    await play(w, door)
    assert (w.charged, w.house_paid) == (cost(5, 1), cost(10, 3))
    assert [closing.house_nanodollars for closing in w.closings] == [cost(10, 3), 0]


@in_every_order
async def test_b2_the_house_bears_nothing_twice(door: str) -> None:
    """B2: what the client paid is not booked to the house."""
    w = world(A.reply(A.prelude, A.failed("mystery", USAGE)))
    await play(w, door)
    assert (w.charged, w.house_paid) == (cost(5, 1), 0)


# --- B6: what is set aside --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reserved"),
    [
        ({}, RESERVED),
        ({"input": "x" * 3000}, cost(1000, 1000)),
        ({"input": "x" * 3001}, cost(1001, 1000)),
        ({"input": "é" * 3}, cost(2, 1000)),
        ({"max_output_tokens": 10}, cost(1, 10)),
        ({"max_output_tokens": "many"}, RESERVED),
    ],
)
@in_every_order
async def test_b6_a_turn_reserves_its_input_and_its_output_limit(
    door: str, fields: dict[str, Any], reserved: int
) -> None:
    """B4, B6."""
    w = world(A.answer())
    await play(w, door, **fields)
    assert w.reserved == [reserved]


@in_every_order
async def test_b6_the_reservation_is_made_once_for_both_attempts(door: str) -> None:
    """B1, B6."""
    w = world(A.reply(Break()), B.answer())
    await play(w, door)
    assert (w.reserved, w.money) == ([RESERVED], [BY_USAGE])


@pytest.mark.parametrize("balance", ["0", "0.002000999"])
@in_every_order
async def test_b6_a_balance_too_low_is_402_before_any_call(door: str, balance: str) -> None:
    """B6, L2: no upstream call, no reservation, no attempt."""
    w = world(A.answer(), balance=balance)
    client = await play(w, door)
    assert (client.failure, client.told) == ((402, "insufficient_balance"), ["error insufficient_balance"])
    assert (w.called, w.reserved, w.attempts) == ([], [], [])


@in_every_order
async def test_b6_a_balance_that_just_suffices_is_enough(door: str) -> None:
    """B6."""
    w = world(A.answer(), balance="0.002001")
    await play(w, door)
    assert (w.money, w.ledger.balance("main")) == ([BY_USAGE], RESERVED - 7000)


@in_every_order
async def test_b6_open_reservations_never_exceed_the_balance(door: str) -> None:
    """B6: a second turn beside the first one finds the money set aside; afterwards it is there again."""
    w = world([A.answer(5.0), C.answer()], balance="0.003")
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        refused = await play_beside(w, door)
    after = await play(w, door)
    assert (client.told[-1], refused, after.told[-1]) == ("completed", "error insufficient_balance", "completed")


async def play_beside(w: World, door: str) -> str:
    """A second turn on a connection of its own; its last word."""
    async with turn_beside(w, door, begins_at=trio.current_time()) as client:
        pass
    return client.told[-1]


@in_every_order
async def test_b6_a_settlement_above_the_reservation_is_charged_and_flagged_where_it_overdraws(door: str) -> None:
    """B6: below zero by that excess only."""
    w = world(A.reply(*OUTPUT, A.completed(1, 1500)), balance="0.0025")
    await play(w, door)
    assert w.money == [f"settled {cost(1, 1500)} overdrawn"]
    assert w.ledger.balance("main") == 2_500_000 - cost(1, 1500)


@in_every_order
async def test_b6_a_settlement_above_the_reservation_that_the_balance_covers_is_not_flagged(door: str) -> None:
    """B6."""
    w = world(A.reply(*OUTPUT, A.completed(1, 1500)))
    await play(w, door)
    assert w.money == [f"settled {cost(1, 1500)}"]


@in_every_order
async def test_b6_an_unlimited_account_is_never_overdrawn(door: str) -> None:
    """B6."""
    w = world(A.reply(*OUTPUT, A.completed(1, 1_000_000)), balance="unlimited")
    await play(w, door)
    assert w.money == [f"settled {cost(1, 1_000_000)}"]


# --- several turns of one socket --------------------------------------------------------------------------------


@in_every_order
async def test_each_turn_of_a_socket_has_its_own_reservation() -> None:
    """B1, W4."""
    w = world([A.answer(), C.reply(C.prelude, C.failed("mystery")), A.answer()])
    async with connect(w.app, "websocket") as client:
        for _ in range(3):
            client.send_text(create_frame())
        await client.wait_for(lambda client: client.told.count("completed") == 2)
        await trio.sleep(1.0)
        client.leave()
    assert_all_is_well(w, client)
    assert (w.money, w.reserved) == ([BY_USAGE, "voided", BY_USAGE], [RESERVED] * 3)
