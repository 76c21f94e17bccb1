"""T10, L2: nothing waits for a store in the path of the client's bytes once the turn has its reservation; what is not
durable when a turn stops waiting is still written, and the log says so.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
import trio

from crash.conftest import sqlite, sqlite_template, wall_clock
from crash.worlds import DurableWorld, OpenDatabase, Pace, Trouble, WallClock, durable_world
from gateway.lock.driver import Client, connect
from gateway.store.sqlite import SQLiteDatabase
from support.gateways import create_frame, turn_beside
from support.virtual import in_orders
from support.voices import A, B

__all__ = ["sqlite", "sqlite_template", "wall_clock"]

Log = list[MutableMapping[str, Any]]
OPENINGS = 2
"""Calls of the store before the first upstream call: the reservation, then the turn with its attempt (L2)."""
HANG_SECONDS = 4.0
FOR_EVER = 100_000.0
PACED = A.reply(A.prelude, A.delta(), 1.0, A.delta("again"), 1.0, A.completed())
FRAMES = [(0.0, "created"), (0.0, "in_progress"), (0.0, "output_text.delta"), (1.0, "output_text.delta")]
FRAMES += [(2.0, "completed")]


@pytest.fixture(autouse=True)
def _clock(wall_clock: WallClock) -> WallClock:
    return wall_clock


async def one_turn(w: DurableWorld, door: str) -> Client:
    async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
        pass
    return client


@pytest.mark.parametrize("seconds", [HANG_SECONDS, FOR_EVER])
@pytest.mark.parametrize("slow_from", range(OPENINGS + 1, OPENINGS + 4))
@in_orders(2)
async def test_a_store_that_hangs_delays_no_frame(
    door: str, slow_from: int, seconds: float, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """T10: from whichever call on, for a while or for ever."""
    async with durable_world(sqlite(), tmp_path / "spool", PACED, pace=Pace(slow_from, seconds)) as w:
        client = await one_turn(w, door)
        assert client.times == FRAMES
        assert door == "websocket" or client.body_ended_at == 2.0


@pytest.mark.parametrize("slow_from", range(1, OPENINGS + 1))
@in_orders(2)
async def test_only_the_openings_are_waited_for(
    door: str, slow_from: int, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """L2: each that hangs delays the first frame by as much, and no other by more."""
    async with durable_world(sqlite(), tmp_path / "spool", PACED, pace=Pace(slow_from, 1.0)) as w:
        client = await one_turn(w, door)
        late = OPENINGS + 1 - slow_from
        assert client.times == [(at + late, label) for at, label in FRAMES]


@in_orders(2)
async def test_a_replay_waits_for_its_attempts_opening(door: str, sqlite: OpenDatabase, tmp_path: Path) -> None:
    """L2: the second upstream is not called before it is durable."""
    failing = A.reply(A.prelude, 1.0, A.failed())
    async with durable_world(sqlite(), tmp_path / "spool", failing, B.answer(), pace=Pace(OPENINGS + 1, 2.0)) as w:
        client = await one_turn(w, door)
        (called,) = w.scripts["b"].calls
        assert (client.events[0].at, called.at) in (
            (3.0, 3.0),
            (5.0, 5.0),
        )  # beside the discarded one's closing, or behind


@in_orders(2)
async def test_a_replay_whose_opening_finds_the_store_away_is_a_choice_that_failed(
    door: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """§4, the last point: status 500, voided."""
    trouble = Trouble(sqlite())
    failing = A.reply(A.prelude, 1.0, A.failed())
    async with durable_world(trouble, tmp_path / "spool", failing, B.answer()) as w:
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await trio.sleep_until(0.5)
            trouble.is_away = True
            await client.wait_for(lambda client: client.has_last_word)
            trouble.is_away = False
        code = {"http": "route_selection_failed", "websocket": "websocket_response_failed"}[door]
        assert (client.failure, w.called) == ((500, code), ["a"])
        await trio.sleep(5.0)
        assert (w.money, w.attempts[0]) == (["voided"], "a server_error")
        w.assert_at_rest()


@pytest.mark.parametrize("number", range(1, OPENINGS + 1))
@pytest.mark.parametrize("after_commit", [False, True])
@in_orders(2)
async def test_a_store_that_goes_away_during_the_openings_is_a_refusal(
    door: str, number: int, after_commit: bool, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """X, L2, bug case 28: 503 with `Retry-After`, nobody was called, nothing stays open."""
    trouble = Trouble(sqlite(), fails_at=number, after_commit=after_commit)
    async with durable_world(trouble, tmp_path / "spool", A.answer()) as w:
        client = await one_turn(w, door)
        assert (client.failure, w.called) == ((503, "ledger_unavailable"), [])
        if door == "http":
            assert (client.headers["retry-after"], client.headers["x-should-retry"]) == ("1", "true")
        assert client.events[0].at <= 0.5
        await trio.sleep(5.0)
        w.assert_at_rest()
        assert [line for line in w.money if line != "voided"] == []


@in_orders(2)
async def test_what_is_not_durable_in_time_is_still_written_and_said_so(
    door: str, sqlite: OpenDatabase, tmp_path: Path, logged: Log
) -> None:
    """T10, L2: the turn waits for five seconds, the writer as long as it takes."""
    trouble = Trouble(sqlite())
    async with durable_world(trouble, tmp_path / "spool", PACED) as w:
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await client.wait_for(lambda client: len(client.told) >= 4)
            trouble.is_away = True
        await trio.sleep(60.0)
        assert w.money == []
        trouble.is_away = False
        await trio.sleep(2.0)
        assert (w.money, w.attempts, w.outcomes) == (["settled 7000"], ["a completed"], ["completed"])
        w.assert_at_rest()
    said = [
        (entry["event"], entry["turn_id"], entry["steps"]) for entry in logged if entry["event"].startswith("books_")
    ]
    steps = ["close_attempt", "close_turn", "resolve"]
    assert said == [("books_still_written", "req_1" if door == "http" else "req_1.1", steps)]


@in_orders(2)
async def test_the_cost_and_the_record_of_a_discarded_attempt_do_not_wait_for_each_other(
    door: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """B2, T10: both are in the writer's hands, and in the spool, when the turn gives up waiting."""
    trouble = Trouble(sqlite())
    metered = A.reply(A.prelude, 1.0, A.failed(usage={"input_tokens": 3, "output_tokens": 1}))
    free = "failed_metered = 'void'"
    async with durable_world(trouble, tmp_path / "spool", [metered], server=free) as w:
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await trio.sleep_until(0.5)
            trouble.is_away = True
            await client.wait_for(lambda client: client.has_last_word)
        await trio.sleep(20.0)
        trouble.is_away = False
        await trio.sleep(2.0)
        w.assert_at_rest()
        assert w.attempts == ["a server_error"]
        assert w.fetch("select nanodollars from entry where kind = 'house'") == [(5000,)]


@in_orders(2)
async def test_on_a_websocket_the_next_turn_waits_for_the_store_and_not_twice(
    sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """W3, W4: its reservation would be behind the last turn's closing in the writer's queue anyway."""
    pace = Pace(OPENINGS + 1, 1.0)
    async with durable_world(sqlite(), tmp_path / "spool", [PACED, A.answer()], pace=pace) as w:
        async with connect(w.app, "websocket") as client:
            client.send_text(create_frame())
            client.send_text(create_frame())
            await client.wait_for(lambda client: client.told.count("completed") == 2)
            client.leave()
        again = client.times[len(FRAMES)][0]
        closing, openings = 1.0, OPENINGS * 1.0
        assert again == 2.0 + closing + openings


@in_orders(2)
async def test_on_a_websocket_a_store_that_is_away_holds_the_next_answer_for_the_bound_of_the_books(
    sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """T10, W3: the refusal comes then, and the socket is usable."""
    trouble = Trouble(sqlite())
    async with durable_world(trouble, tmp_path / "spool", [PACED, A.answer()]) as w:
        async with connect(w.app, "websocket") as client:
            client.send_text(create_frame())
            client.send_text(create_frame())
            await client.wait_for(lambda client: len(client.told) >= 4)
            trouble.is_away = True
            await client.wait_for(lambda client: "error ledger_unavailable" in client.told)
            assert client.events[-1].at == 7.0
            trouble.is_away = False
            await trio.sleep(2.0)
            client.send_text(create_frame())
            await client.wait_for(lambda client: client.told.count("completed") == 2)
            client.leave()
        w.assert_at_rest()


# --- what is seen of it -----------------------------------------------------------------------------------------


def measured(w: DurableWorld) -> dict[str, float]:
    """The metrics of the store and the leases."""
    lines = w.gateway.meter.exposition().decode().splitlines()
    names = ("ledger_waiting_operations", "store_away", "leases_expired_total", "late_settlements_total")
    values = {line.split()[0]: float(line.split()[1]) for line in lines if line.count(" ") == 1}
    return {name: values[f"gateway_{name}"] for name in names}


@in_orders(1)
async def test_the_metrics_show_an_outage_and_what_waits_for_its_end(
    door: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """B7, T10: a resolution and two closings wait; afterwards nothing does."""
    trouble = Trouble(sqlite())
    async with durable_world(trouble, tmp_path / "spool", PACED) as w:
        at_rest = {
            "ledger_waiting_operations": 0.0,
            "store_away": 0.0,
            "leases_expired_total": 0.0,
            "late_settlements_total": 0.0,
        }
        assert measured(w) == at_rest
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await client.wait_for(lambda client: len(client.told) >= 4)
            trouble.is_away = True
        await trio.sleep(20.0)
        assert measured(w) == {**at_rest, "ledger_waiting_operations": 3.0, "store_away": 1.0}
        trouble.is_away = False
        await trio.sleep(2.0)
        assert measured(w) == at_rest


@in_orders(1)
async def test_a_disk_that_is_full_refuses_new_turns_and_loses_no_old_one(
    door: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """X, L2: SQLite's own error; what runs is closed once there is room again."""
    database = sqlite()
    assert isinstance(database, SQLiteDatabase)
    large = A.reply(A.prelude, A.delta(), 1.0, A.completed())
    async with durable_world(database, tmp_path / "spool", large) as w:
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await client.wait_for(lambda client: len(client.told) >= 3)
            (pages,) = database.connect().execute("pragma page_count").fetchone()
            database.connect().execute(f"pragma max_page_count = {pages}")
            refused = [await refusal(w, door) for _ in range(60)]
        assert (503, "ledger_unavailable") in refused
        database.connect().execute("pragma max_page_count = 1000000")
        await trio.sleep(5.0)
        w.assert_at_rest()
        assert w.money.count("settled 7000") == len(w.called)


async def refusal(w: DurableWorld, door: str) -> tuple[int | None, str | None]:
    """How one more turn ends."""
    client = await one_turn(w, door)
    return client.failure


@pytest.mark.parametrize(
    ("ends_at", "waits_until"),
    [
        pytest.param(26.0, 31.0, id="long-before-the-drains-end"),
        pytest.param(26.999, 31.999, id="just-before-it-matters"),
        pytest.param(27.0, 32.0, id="as-it-matters"),
        pytest.param(27.001, 32.0, id="just-after"),
        pytest.param(30.999, 32.0, id="just-before-the-drains-end"),
        pytest.param(31.0, 32.0, id="cut-at-the-drains-end"),
    ],
)
@in_orders(2)
async def test_t7_a_second_after_the_drains_end_no_turn_waits_for_a_store(
    door: str, ends_at: float, waits_until: float, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """T7, T10: the drain begins at 1 s and lasts 30 s; the store is away. All of it is in the spool then."""
    trouble = Trouble(sqlite())
    reply = A.reply(A.prelude, A.delta(), ends_at, A.completed())
    async with durable_world(trouble, tmp_path / "spool", reply) as w:
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            await trio.sleep_until(1.0)
            trouble.is_away = True
            w.gateway.drain()
            await trio.sleep_until(waits_until - 0.0005)
            assert w.gateway.engine.running_turns == 1
            await trio.sleep_until(waits_until + 0.0005)
            assert w.gateway.engine.running_turns == 0
        assert client.events[-1].at == ends_at
        await trio.sleep(2.0)
        spooled = "".join(file.read_text() for file in (tmp_path / "spool").glob("*.jsonl"))
        assert [spooled.count(f'{{"{step}"') for step in ("resolve", "close_turn", "close_attempt")] == [1, 1, 1]
