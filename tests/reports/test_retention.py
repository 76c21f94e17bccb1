"""What has had its time is taken away, a little at a time; what the books need stays, and they balance after it."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import structlog
import trio

from gateway.core.accounts import Kind
from gateway.core.ledger import Expire, OpenAccount, Reserve, Resolve, Transfer
from gateway.core.money import Resolution
from gateway.lock.virtual import virtual_run
from gateway.store.database import Database, StoreAway
from gateway.store.proof import prove
from gateway.store.records import RecordWrite
from gateway.store.reports import UNKNOWN_ROUTE, house
from gateway.store.retention import CHUNK_ROWS, WINDOW_DAYS, WINDOWED_DAYS, Keep, Retention, due, purge
from gateway.store.schema import AnyDatabase
from support.booked import DAY, MONTH, aged, book, book_history, close_attempt, open_attempt, open_turn

KEEP = Keep(record_days=90, origin_days=31)
TABLES = ("turn", "attempt", "reservation", "spend", "origin", "entry")


def counts(database: AnyDatabase) -> dict[str, int]:
    with database.snapshot() as session:
        return {table: session.fetch(f"select count(*) from {table}", {})[0][0] for table in TABLES}


def turn_ids(database: AnyDatabase, table: str) -> list[str]:
    with database.snapshot() as session:
        return [turn_id for (turn_id,) in session.fetch(f"select turn_id from {table} order by turn_id", {})]


def purged(database: AnyDatabase, keep: Keep = KEEP) -> Counter[str]:
    taken: Counter[str] = Counter()
    for name, count in purge(database, keep):
        taken[name] += count
    with database.snapshot() as session:
        assert prove(session).discrepancies == []
    return +taken


@pytest.fixture
def booked(database: AnyDatabase) -> AnyDatabase:
    """The history, as if all of it began just now."""
    book_history(database)
    aged(database, (1_790_000_060.0 - time.time()) / 86_400)
    with database.transaction() as session:
        session.run_each("update reservation set reserved_at = :now", [{"now": time.time()}])
        session.run_each("update spend set changed_at = :now", [{"now": time.time()}])
    return database


def test_nothing_that_is_young_enough_goes(booked: AnyDatabase) -> None:
    """L1."""
    before = counts(booked)
    aged(booked, 89.9)
    with booked.transaction() as session:  # windows are another test's
        session.run_each("update spend set changed_at = :now", [{"now": time.time()}])

    assert purged(booked) == {}
    assert counts(booked) == before


def test_an_old_turn_goes_with_its_attempts_and_its_reservation_and_its_entries_stay(booked: AnyDatabase) -> None:
    """L1: but for a turn that has not ended, and its reservation."""
    entries = counts(booked)["entry"]
    aged(booked, 200)

    assert purged(booked) == {"turns": 4, "reservations": 3}
    assert turn_ids(booked, "turn") == turn_ids(booked, "attempt") == ["running"]
    assert counts(booked)["entry"] == entries


def test_what_the_house_has_lost_keeps_its_routes(booked: AnyDatabase) -> None:
    """B2, B7: the entries stay for ever, and so does what they are told by; of no other turn anything is kept."""
    with booked.snapshot() as session:
        before = house(session, 0.0, 1e12)
    aged(booked, 200)
    purged(booked)
    with booked.snapshot() as session:
        assert house(session, 0.0, 1e12) == before
        kept = session.fetch("select distinct turn_id from loss_route order by turn_id", {})
    assert kept == [("late",), ("replayed",)]
    assert {UNKNOWN_ROUTE}.isdisjoint(before.routes)


def test_a_turn_whose_attempt_is_open_stays(booked: AnyDatabase) -> None:
    """T10: what closes it must find it."""
    book(booked, [open_attempt("plain", 2)])
    aged(booked, 200)
    purged(booked)
    assert "plain" in turn_ids(booked, "turn")

    book(booked, [close_attempt("plain", 2)])
    purged(booked)
    assert "plain" not in turn_ids(booked, "turn")


def test_a_reservation_stays_until_the_sweeper_has_found_the_turn_by_it(booked: AnyDatabase) -> None:
    """B7, L2: an abandoned turn is found by its reservation's lease."""
    book(booked, [Reserve("gone", "main", 1), open_turn("gone")])
    book(booked, [Resolve("gone", Resolution(None))])
    aged(booked, 200)
    purged(booked)
    assert "gone" in turn_ids(booked, "reservation")

    book(booked, [RecordWrite("abandon_turn", {"turn_id": "gone"})])
    purged(booked)
    assert "gone" not in turn_ids(booked, "reservation")


def test_a_reservation_stays_as_long_as_a_window_counts_it(booked: AnyDatabase) -> None:
    """B6, B8."""
    book(booked, [Resolve("running", Resolution(9)), Expire("running")])
    aged(booked, WINDOWED_DAYS + 1)
    with booked.transaction() as session:
        session.run_each(
            "update spend set changed_at = :now where name = :name", [{"now": time.time(), "name": MONTH.window}]
        )

    assert purged(booked)["windows"] == 1
    kept = {"plain", "replayed", "failed", "running"}
    assert set(turn_ids(booked, "reservation")) == kept

    aged(booked, WINDOW_DAYS + 1)
    taken = purged(booked)
    assert (taken["windows"], taken["reservations in windows"]) == (1, 3)
    assert (counts(booked)["spend"], turn_ids(booked, "reservation")) == (0, ["running"])


def test_a_window_stays_while_an_old_reservation_in_it_is_open(booked: AnyDatabase) -> None:
    """B6: its resolution takes from the window what it had set aside."""
    aged(booked, 200)
    purged(booked)
    assert counts(booked)["spend"] == 2

    book(booked, [Resolve("running", Resolution(9))])
    with booked.snapshot() as session:
        assert prove(session).holds


def test_an_origin_goes_after_its_own_days(booked: AnyDatabase) -> None:
    """O1."""
    book(booked, [RecordWrite("learn_origin", {"account": "main", "response_id": "resp_old", "route": "a"})])
    aged(booked, 32)
    book(booked, [RecordWrite("learn_origin", {"account": "main", "response_id": "resp_new", "route": "a"})])

    assert purged(booked) == {"origins": 1}
    with booked.snapshot() as session:
        assert session.fetch("select response_id from origin", {}) == [("resp_new",)]


def test_a_mark_goes_with_the_origins(booked: AnyDatabase) -> None:
    """O3: kept as O1's."""
    book(booked, [RecordWrite("learn_mark", {"account": "main", "mark": "old", "route": "a"})])
    aged(booked, 32)
    book(booked, [RecordWrite("learn_mark", {"account": "main", "mark": "new", "route": "a"})])

    assert purged(booked) == {"marks": 1}


def many_turns(database: AnyDatabase, count: int, *limits: Any) -> None:
    book(database, [OpenAccount("many"), Transfer(Kind.DEPOSIT, "many", 10**9, "somebody")])
    book(database, [Reserve(f"turn-{number:05}", "many", 1, limits) for number in range(count)])
    book(database, [Resolve(f"turn-{number:05}", Resolution(1)) for number in range(count)])


def test_many_are_taken_in_chunks(database: AnyDatabase) -> None:
    """The writer comes in between."""
    many_turns(database, 2 * CHUNK_ROWS + 7)
    aged(database, 200)

    chunks = [count for name, count in purge(database, KEEP) if name == "reservations"]
    assert chunks == [CHUNK_ROWS, CHUNK_ROWS, 7]


def test_a_chunk_that_must_stay_does_not_hold_up_those_behind_it(database: AnyDatabase) -> None:
    """The oldest of all are counted by a window; what is behind them goes all the same."""
    many_turns(database, CHUNK_ROWS, MONTH)
    aged(database, 1)
    book(database, [Reserve("last", "many", 1, (DAY,)), Resolve("last", Resolution(1))])
    aged(database, WINDOWED_DAYS + 10)
    with database.transaction() as session:
        session.run_each(
            "update spend set changed_at = :now where name = :name", [{"now": time.time(), "name": MONTH.window}]
        )

    assert purged(database) == {"windows": 1, "reservations in windows": 1}
    assert counts(database)["reservation"] == CHUNK_ROWS


def test_what_is_due_can_be_counted_first(booked: AnyDatabase) -> None:
    """`turns purge --dry-run`."""
    aged(booked, 200)
    with booked.snapshot() as session:
        told = dict(due(session, KEEP))

    assert told == {"turns": 4, "origins": 0, "marks": 0, "windows": 0, "reservations": 3, "reservations in windows": 3}
    assert turn_ids(booked, "turn") != ["running"]


# --- the task ---------------------------------------------------------------------------------------------------


async def inline(blocking: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return blocking()


def test_it_purges_soon_after_the_start_and_every_hour(booked: AnyDatabase) -> None:
    """At t = 30 s, when half of a minute was drawn, and an hour and a twentieth later."""
    aged(booked, 200)
    seen: list[tuple[float, list[str]]] = []

    async def look(seconds: float) -> None:
        await trio.sleep_until(seconds)
        seen.append((seconds, turn_ids(booked, "turn")))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Retention(booked, KEEP, inline, jitter=lambda: 0.5).run)
            await look(29.9)
            await look(32.0)
            book(booked, [RecordWrite("abandon_turn", {"turn_id": "running"}), close_attempt("running")])
            await look(3700.0)
            await look(3830.0)
            nursery.cancel_scope.cancel()

    virtual_run(main)
    everything = ["failed", "late", "plain", "replayed", "running"]
    assert seen == [(29.9, everything), (32.0, ["running"]), (3700.0, ["running"]), (3830.0, [])]


def test_a_store_that_is_away_is_asked_again_in_an_hour(booked: AnyDatabase) -> None:
    """No task of the house may end the serving."""
    answers: list[Exception | None] = [StoreAway("it is away"), ValueError("a bug"), None]
    aged(booked, 200)

    async def run_blocking(blocking: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        if answers and (error := answers.pop(0)) is not None:
            raise error
        return blocking()

    async def main() -> None:
        with trio.move_on_after(2.5 * 3600):
            await Retention(booked, KEEP, run_blocking, jitter=lambda: 0.0).run()

    with structlog.testing.capture_logs() as logs:
        virtual_run(main)
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("purge_put_off", "warning"),
        ("purge_failed", "error"),
        ("purged", "info"),
    ]
    assert (logs[-1]["turns"], logs[-1]["reservations"]) == (4, 3)


def test_the_end_of_the_process_waits_for_no_chunk(booked: AnyDatabase) -> None:
    """A database that hangs must not hold it."""
    is_there, may_go_on = threading.Event(), threading.Event()

    class Hanging:
        def __init__(self, database: Database) -> None:
            self._database = database

        def __getattr__(self, name: str) -> Any:
            if name == "transaction":
                is_there.set()
                may_go_on.wait(60.0)
                raise StoreAway("nobody waits for it any more")
            return getattr(self._database, name)

    retention = Retention(booked, KEEP, jitter=lambda: 0.0)
    retention._database = Hanging(retention._database)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(retention.run)
            await trio.to_thread.run_sync(is_there.wait)
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
        assert not may_go_on.is_set()
    finally:
        may_go_on.set()
