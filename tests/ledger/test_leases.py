"""B7: leases and the sweeper, at their exact instants, on a database and the virtual clock.

A `Process` is a gateway's stores with what runs beside them; killing it cancels all of that between two transactions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from crash.conftest import sqlite, sqlite_template, wall_clock
from crash.proof import assert_books_balance, rows_of
from crash.worlds import EPOCH, OpenDatabase, Trouble, WallClock, assert_at_rest, durable_parts
from gateway.core.messages import AttemptReport, Door
from gateway.core.money import Resolution, Result
from gateway.ledger.durable import DurableLedger
from gateway.ledger.leases import RENEWED_AT_ONCE_MAX, SWEPT_AT_ONCE_MAX, LeaseTimes
from gateway.lock.virtual import virtual_run
from gateway.ports import AttemptClosing, TurnClosing, TurnOpening
from gateway.store.database import StoreAway
from gateway.store.store import grant
from gateway.stores import Stores

__all__ = ["sqlite", "sqlite_template", "wall_clock"]

pytestmark = pytest.mark.trio(run=virtual_run)
Log = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def logged() -> Iterator[Log]:
    """The log's entries."""
    with capture_logs() as entries:
        yield entries


@dataclass
class Process:
    """A gateway process, as far as money goes."""

    stores: Stores
    database: Trouble
    life: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def ledger(self) -> DurableLedger:
        """Its ledger."""
        assert isinstance(self.stores.ledger, DurableLedger)
        return self.stores.ledger

    @property
    def expired(self) -> int:
        """Leases it has ended."""
        assert self.stores.leases is not None
        return self.stores.leases.expired

    def kill(self) -> None:
        """`kill -9`: nothing more is written."""
        self.life.cancel()

    async def begin(self, turn_id: str, attempts: int = 1) -> None:
        """A turn begins: its reservation, its record, its attempts."""
        assert await self.ledger.reserve(turn_id, "main", 100) is Result.CREATED
        await self.stores.records.open_turn(TurnOpening(turn_id, "main", "m", Door.HTTP, 100, EPOCH))
        for number in range(1, attempts + 1):
            await self.stores.records.open_attempt(turn_id, number, "a")


@dataclass
class City:
    """Processes on one database, and the database as it is."""

    open_database: OpenDatabase
    spool: Path
    nursery: trio.Nursery
    lease: float

    def __post_init__(self) -> None:
        self.look = self.open_database()
        self.fetch = rows_of(self.look)
        grant(self.look, {"main": 1_000_000})

    def start(self, *, keeps_leases: bool = True) -> Process:
        """A process starts now. One that keeps no leases is one that hangs: it writes when it wakes."""
        trouble = Trouble(self.open_database())
        process = Process(durable_parts(trouble, self.spool, lease=self.lease), trouble)
        self.nursery.start_soon(self._live, process, keeps_leases)
        return process

    async def _live(self, process: Process, keeps_leases: bool) -> None:
        assert process.stores.store is not None
        with process.life:
            await (process.stores.run() if keeps_leases else process.stores.store.writer.run())

    def ends_at(self, turn_id: str) -> float:
        """When the lease ends, on the virtual clock."""
        ((at,),) = self.fetch(f"select lease_ends_at from reservation where turn_id = '{turn_id}'")
        return round(float(at) - EPOCH, 6)

    def expiries(self) -> list[tuple[str, float]]:
        """What a sweeper has voided, and when."""
        rows = self.fetch("select turn_id, at from entry where kind = 'expired' order by id")
        return [(turn_id, round(at - EPOCH, 6)) for turn_id, at in rows]

    def outcomes(self) -> list[str | None]:
        """Of turns and attempts."""
        statement = "select outcome from turn union all select outcome from attempt"
        return [outcome for (outcome,) in self.fetch(statement)]


@pytest.fixture
def city(sqlite: OpenDatabase, tmp_path: Path, wall_clock: WallClock) -> Callable[..., Any]:
    """Opens one for a test."""

    @asynccontextmanager
    async def opened(lease: float = 60.0) -> AsyncIterator[City]:
        async with trio.open_nursery() as nursery:
            yield City(sqlite, tmp_path / "spool", nursery, lease)
            nursery.cancel_scope.cancel()

    return opened


OpenCity = Callable[..., Any]


# --- keeping ----------------------------------------------------------------------------------------------------


async def test_a_lease_of_60_s_is_renewed_every_20_s_while_its_turn_lives(city: OpenCity) -> None:
    """B7."""
    async with city() as c:
        process = c.start()
        await process.begin("turn")
        seen = []
        for at in (19.9, 20.1, 39.9, 40.1, 60.1):
            await trio.sleep_until(at)
            seen.append(c.ends_at("turn"))
        assert seen == [60.0, 80.0, 80.0, 100.0, 120.0]
        await process.ledger.resolve("turn", Resolution(7))
        await trio.sleep_until(200.0)
        assert (c.ends_at("turn"), c.expiries(), process.ledger.live) == (120.0, [], set())


async def test_a_lease_that_was_refused_once_is_asked_for_again_within_a_second(city: OpenCity) -> None:
    """B7: two renewals may fail, and none of them waits for the next."""
    async with city() as c:
        process = c.start()
        await process.begin("turn")
        await trio.sleep_until(15.0)
        process.database.is_away = True
        await trio.sleep_until(30.0)
        process.database.is_away = False
        await trio.sleep_until(32.5)
        assert 90.0 <= c.ends_at("turn") <= 92.0


async def test_thousands_of_leases_that_are_due_together_hold_no_reservation_up(city: OpenCity) -> None:
    """B7, B6: a new turn waits for two batches at most, and none is refused for the writer's queue being full."""
    async with city() as c:
        process = c.start()
        await process.begin("first")
        process.ledger.live |= {f"turn{number}" for number in range(20 * RENEWED_AT_ONCE_MAX)}
        await trio.sleep_until(20.0)
        before = process.database.transactions
        assert await process.ledger.reserve("new", "main", 1) is Result.CREATED
        assert process.database.transactions - before <= 3
        await trio.sleep(0.1)
        assert process.ledger.live == {"first", "new"}


# --- sweeping ---------------------------------------------------------------------------------------------------


async def test_a_reservation_of_a_dead_process_is_voided_when_its_lease_ends(city: OpenCity, logged: Log) -> None:
    """B7, L2: at that instant, with its attempts and its turn, and the money is free again."""
    async with city() as c:
        dead, other = c.start(), c.start()
        await dead.begin("turn", attempts=2)
        await trio.sleep_until(30.0)
        dead.kill()
        await trio.sleep_until(79.9)
        assert (c.expiries(), c.outcomes()) == ([], [None, None, None])
        await trio.sleep_until(80.1)
        assert (c.expiries(), c.outcomes()) == ([("turn", 80.0)], ["lease_ended"] * 3)
        assert c.fetch("select balance, open from account") == [(1_000_000, 0)]
        assert other.expired == 1
        assert [entry["event"] for entry in logged] == ["lease_ended"]
        assert_at_rest(c.fetch)


async def test_what_several_processes_see_at_once_is_ended_once(city: OpenCity, logged: Log) -> None:
    """B7."""
    async with city() as c:
        dead, *others = [c.start() for _ in range(4)]
        for number in range(5):
            await dead.begin(f"turn{number}")
        dead.kill()
        await trio.sleep_until(100.0)
        assert len(c.expiries()) == sum(process.expired for process in others) == 5
        assert [entry["event"] for entry in logged] == ["lease_ended"] * 5
        assert_at_rest(c.fetch)


async def test_more_than_one_sweep_can_hold_is_ended_in_one(city: OpenCity) -> None:
    """B7: thousands of turns of a crashed process do not wait for one another's sweeps."""
    async with city() as c:
        dead = c.start()
        for number in range(2 * SWEPT_AT_ONCE_MAX + 1):
            await dead.begin(f"turn{number}")
        dead.kill()
        c.start()
        await trio.sleep_until(60.1)
        assert {at for _, at in c.expiries()} == {60.0}
        assert_at_rest(c.fetch)


async def test_a_process_that_starts_later_trusts_no_lease_before_others_could_renew(city: OpenCity) -> None:
    """B7: it has not seen the store take writes yet."""
    async with city() as c:
        dead = c.start()
        await dead.begin("turn")
        dead.kill()
        await trio.sleep_until(100.0)
        c.start()
        await trio.sleep_until(110.0 + LeaseTimes(60.0).trust_seconds)
        assert c.expiries() == []
        await trio.sleep_until(200.0)
        assert c.expiries() == [("turn", 150.0)]


@pytest.mark.parametrize("lease", [1.0, 2.0, 4.0, 60.0, 600.0])
async def test_a_lease_of_any_length_leaves_its_process_the_time_to_renew(city: OpenCity, lease: float) -> None:
    """B7: short ones, too, survive a store that was away for seconds, and end soon after their process."""
    async with city(lease) as c:
        living, other = c.start(), c.start()
        await living.begin("turn")
        await trio.sleep_until(lease)
        for process in (living, other):
            process.database.is_away = True
        await trio.sleep_until(3 * lease)
        for process in (living, other):
            process.database.is_away = False
        await trio.sleep_until(6 * lease + 20.0)
        assert c.expiries() == []
        living.kill()
        await trio.sleep(1.5 * lease + 5.0)
        assert [turn_id for turn_id, _ in c.expiries()] == ["turn"]


async def test_what_was_settled_before_the_crash_stays_settled_and_its_records_are_closed(city: OpenCity) -> None:
    """B7, L2: the crash came between the money and the record."""
    async with city() as c:
        dead = c.start()
        c.start()
        await dead.begin("turn")
        await dead.ledger.resolve("turn", Resolution(7))
        dead.kill()
        await trio.sleep_until(100.0)
        assert (c.expiries(), c.outcomes()) == ([], ["lease_ended", "lease_ended"])
        assert c.fetch("select state, resolved_nanodollars from reservation") == [("settled", 7)]


async def test_a_process_that_lives_after_all_closes_its_records_over_the_sweepers(city: OpenCity) -> None:
    """L2: what it knows is more."""
    async with city() as c:
        hanging = c.start(keeps_leases=False)
        c.start()
        await hanging.begin("turn")
        await trio.sleep_until(100.0)
        assert c.outcomes() == ["lease_ended", "lease_ended"]
        records = hanging.stores.records
        await records.close_attempt(AttemptClosing("turn", 1, AttemptReport("completed", 0.0, 1.0)))
        await records.close_turn(TurnClosing("turn", "completed", ("a",), 1.0, 7, ()))
        assert c.outcomes() == ["completed", "completed"]


@pytest.mark.parametrize("after_commit", [False, True])
async def test_a_sweep_that_dies_anywhere_is_finished_by_the_next(city: OpenCity, after_commit: bool) -> None:
    """B7: at each transaction of it in turn, before and after it was written; only the process itself goes down."""
    async with city() as c:
        for number in range(1, 100):
            began = trio.current_time()
            dead, dying = c.start(), c.start()
            await dead.begin(f"turn{number}", attempts=2)
            dead.kill()
            await trio.sleep_until(began + 59.0)
            dying.database.after_commit = after_commit
            dying.database.fails_at = dying.database.transactions + number
            dying.database.error = _Death(dying)
            await trio.sleep_until(began + 61.0)
            has_died = dying.life.cancel_called
            dying.kill()
            heir = c.start()
            await trio.sleep_until(began + 150.0)
            heir.kill()
            assert_at_rest(c.fetch)
            if not has_died:
                break
        assert number > 3
        assert len(c.expiries()) == number


class _Death(StoreAway):
    """The process is gone before it can learn what became of its transaction."""

    def __init__(self, process: Process) -> None:
        super().__init__("killed")
        self._process = process

    def __str__(self) -> str:
        self._process.kill()
        return "killed"


# --- time that does not count -----------------------------------------------------------------------------------


@pytest.mark.parametrize("others", ["nobody else", "another process", "one that starts just then"])
@pytest.mark.parametrize("trouble", ["is_away", "takes_no_writes"])
@pytest.mark.parametrize("from_", [1.0, 19.0, 30.0, 59.0])
async def test_time_that_the_store_was_away_does_not_count(
    city: OpenCity, others: str, trouble: str, from_: float
) -> None:
    """B7: longer than a lease, and nothing live is voided, whoever looks first."""
    async with city() as c:
        processes = [c.start()]
        if others == "another process":
            processes.append(c.start())
        await processes[0].begin("turn")
        await trio.sleep_until(from_)
        for process in processes:
            setattr(process.database, trouble, True)
        await trio.sleep_until(205.0)
        if others == "one that starts just then":
            processes.append(c.start())
        for process in processes:
            setattr(process.database, trouble, False)
        await trio.sleep_until(207.5)
        assert 265.0 <= c.ends_at("turn") <= 267.0
        await trio.sleep_until(500.0)
        assert c.expiries() == []


async def test_a_lock_that_ends_just_before_a_sweep_ends_no_living_lease(city: OpenCity) -> None:
    """B7: the sweeper could read all the while and had nothing to write: it writes to see whether one can."""
    async with city() as c:
        other = c.start()
        await trio.sleep_until(5.5)
        living = c.start()
        await living.begin("turn")
        await trio.sleep_until(24.0)
        for process in (living, other):
            process.database.takes_no_writes = True
        await trio.sleep_until(69.95)
        for process in (living, other):
            process.database.takes_no_writes = False
        await trio.sleep_until(300.0)
        assert c.expiries() == []


async def test_a_short_lease_outlives_an_outage_that_only_its_own_process_saw(city: OpenCity) -> None:
    """B7: the sweeper looked before and after it."""
    async with city(1.0) as c:
        living = c.start()
        await living.begin("turn")
        await trio.sleep_until(0.05)
        other = c.start()
        await trio.sleep_until(10.32)
        for process in (living, other):
            process.database.is_away = True
        await trio.sleep_until(10.36)
        for process in (living, other):
            process.database.is_away = False
        await trio.sleep_until(30.0)
        assert c.expiries() == []


async def test_a_process_ends_no_lease_of_its_own(city: OpenCity) -> None:
    """B7: whatever keeps it from renewing, it knows that its turn lives."""
    async with city() as c:
        process = c.start(keeps_leases=False)
        assert process.stores.leases is not None
        c.nursery.start_soon(process.stores.leases.sweep)
        await process.begin("turn")
        await trio.sleep_until(200.0)
        assert c.expiries() == []


@pytest.mark.parametrize("step", [3600.0, 90.0])
async def test_a_clock_that_jumps_ends_no_living_lease(city: OpenCity, wall_clock: WallClock, step: float) -> None:
    """B7: NTP stepped it, or the host slept; the sweeper begins to trust anew."""
    async with city() as c:
        living, _other = c.start(), c.start()
        await living.begin("turn")
        await trio.sleep_until(41.0)
        wall_clock.stepped_by = step
        await trio.sleep_until(300.0)
        assert c.expiries() == []
        living.kill()
        await trio.sleep_until(400.0)
        assert len(c.expiries()) == 1


# --- too late ---------------------------------------------------------------------------------------------------


async def test_a_settlement_that_finds_its_lease_ended_is_borne_by_the_house_and_alarms(
    city: OpenCity, logged: Log
) -> None:
    """B7: the client keeps its refund."""
    async with city() as c:
        hanging = c.start(keeps_leases=False)
        c.start()
        await hanging.begin("turn")
        await trio.sleep_until(100.0)
        logged.clear()
        assert await hanging.ledger.resolve("turn", Resolution(7)) is Result.BORNE_BY_HOUSE
        assert await hanging.ledger.resolve("turn", Resolution(7)) is Result.ALREADY_EXPIRED
        assert c.fetch("select balance, open from account") == [(1_000_000, 0)]
        assert c.fetch("select kind, account, nanodollars from entry where kind = 'late'") == [("late", "the house", 7)]
        (alarm,) = logged
        assert (alarm["event"], alarm["log_level"], alarm["nanodollars"]) == ("settled_after_lease", "error", 7)
        assert hanging.ledger.late_settlements == 1
        assert_books_balance(c.fetch)


async def test_the_alarm_comes_also_when_the_turn_no_longer_waits_for_it(city: OpenCity, logged: Log) -> None:
    """B7, T10: a turn gives up waiting for a store after five seconds, the writer does not."""
    async with city() as c:
        hanging = c.start()
        c.start()
        await hanging.begin("turn")
        hanging.database.is_away = True
        await trio.sleep_until(90.0)
        with trio.move_on_after(5.0):
            await hanging.ledger.resolve("turn", Resolution(7))
        await trio.sleep_until(200.0)
        assert hanging.ledger.late_settlements == 0
        hanging.database.is_away = False
        await trio.sleep_until(202.0)
        assert hanging.ledger.late_settlements == 1
        assert "settled_after_lease" in [entry["event"] for entry in logged]
        assert_books_balance(c.fetch)


async def test_a_void_that_finds_its_lease_ended_costs_nobody_anything(city: OpenCity, logged: Log) -> None:
    """B7."""
    async with city() as c:
        hanging = c.start(keeps_leases=False)
        c.start()
        await hanging.begin("turn")
        await trio.sleep_until(100.0)
        assert await hanging.ledger.resolve("turn", Resolution(None)) is Result.ALREADY_EXPIRED
        assert "settled_after_lease" not in [entry["event"] for entry in logged]


async def test_a_resolution_that_the_store_refuses_for_ever_leaves_no_lease_that_never_ends(city: OpenCity) -> None:
    """B7: the process lives on, but the turn does not."""
    async with city() as c:
        process = c.start()
        await process.begin("turn")
        process.database.error = ZeroDivisionError("a bug of the store")
        too_large = partial(process.ledger.resolve, "turn", Resolution(2**80))
        with pytest.raises(OverflowError):
            await too_large()
        await trio.sleep_until(100.0)
        assert [turn_id for turn_id, _ in c.expiries()] == ["turn"]
