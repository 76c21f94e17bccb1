"""The writer on the virtual clock, with a database that does as it is told and a spool that can be looked into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest
import structlog
import trio

from gateway.core.ledger import Reserve, Resolve
from gateway.core.money import Resolution, Result
from gateway.limits import WRITE_BATCH_SECONDS_MAX
from gateway.lock.virtual import virtual_run
from gateway.store.commit import Answer, Work
from gateway.store.database import Conflict, StoreAway, StoreUnusable
from gateway.store.records import RecordWrite
from gateway.store.writer import (
    BATCH_OPERATIONS_MAX,
    CLOSE_SECONDS_MAX,
    RETRY_SECONDS,
    SPOOL_AT_THE_END_SECONDS,
    WAITING_OPERATIONS_MAX,
    OwnThreads,
    Writer,
)
from support.durable import inline

pytestmark = pytest.mark.trio(run=virtual_run)


def reserve(number: int) -> Reserve:
    """An operation that is asked."""
    return Reserve(f"turn-{number}", "main", 1)


def resolve(number: int) -> Resolve:
    """An operation that is insisted on."""
    return Resolve(f"turn-{number}", Resolution(None))


class ScriptedStore:
    """What `commit` writes to: it can be away, take its time, and refuse single operations."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Work]] = []
        self.refuses: list[tuple[Work, Exception]] = []
        self.away: Exception | None = None
        self.is_written_all_the_same = False
        """An answer is lost: the batch was written, and nobody learns of it."""

    @property
    def written(self) -> list[Work]:
        return [work for batch in self.batches for work in batch]

    def commit(self, batch: Sequence[Work]) -> list[Answer]:
        if self.away is not None:
            if self.is_written_all_the_same:
                self.batches.append(batch)
            raise self.away
        self.batches.append(batch)
        return [self._answer(work) for work in batch]

    def _answer(self, work: Work) -> Answer:
        return next((error for refused, error in self.refuses if refused == work), Result.CREATED)


class SpoolInMemory:
    """A spool whose disk may be full (writer.Spool)."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.error: OSError | None = None
        self.room = 1_000_000

    def add(self, works: Sequence[Work]) -> None:
        if self.error is not None:
            raise self.error
        if len(self.works) + len(works) > self.room:
            raise OSError(28, "No space left on device")
        self.works += works

    def clear(self) -> None:
        if self.error is not None:
            raise self.error
        self.works.clear()


class Scene:
    """A writer, its store and its spool."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.store = ScriptedStore()
        self.spool = SpoolInMemory()
        self.seconds = seconds
        """What a blocking call takes."""
        self.writer = Writer(self.store.commit, self.spool, self._run_blocking)
        self.told: dict[str, object] = {}

    async def _run_blocking(self, blocking: Callable[[], object]) -> object:
        await trio.sleep(self.seconds)
        return await inline(blocking)

    async def ask(self, work: Reserve) -> None:
        """Ask, and note what came of it."""
        await self._note(work.turn_id, self.writer.ask, work)

    async def insist(self, work: Resolve) -> None:
        """Insist, and note what came of it."""
        await self._note(work.turn_id, self.writer.insist, work)

    async def _note(self, name: str, call: Callable[[Work], object], work: Work) -> None:
        try:
            self.told[name] = await call(work)  # type: ignore[misc]  # both calls are awaitable
        except Exception as error:
            self.told[name] = error


@asynccontextmanager
async def writing(seconds: float = 0.0) -> AsyncIterator[tuple[Scene, trio.Nursery]]:
    scene = Scene(seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.writer.run)
        yield scene, nursery
        nursery.cancel_scope.cancel()


async def settled() -> None:
    """All that can happen at this instant has happened."""
    await trio.testing.wait_all_tasks_blocked()


# --- batches ----------------------------------------------------------------------------------------------------


async def test_what_waits_meanwhile_is_one_batch() -> None:
    """L2: group commit."""
    async with writing(seconds=1) as (scene, nursery):
        nursery.start_soon(scene.ask, reserve(0))
        await trio.sleep(0.5)
        for number in range(1, 4):
            nursery.start_soon(scene.ask, reserve(number))
        await trio.sleep(2)

        assert scene.store.batches == [[reserve(0)], [reserve(1), reserve(2), reserve(3)]]
        assert trio.current_time() == 2.5


async def test_what_is_asked_or_insisted_on_has_begun_whoever_waits_for_it() -> None:
    """T10: from the call on, in the order of the calls; its answer is there for whoever looks."""
    async with writing() as (scene, _):
        scene.store.refuses = [(resolve(2), ValueError("bad"))]
        pending = [scene.writer.insist(resolve(0)), scene.writer.ask(reserve(1)), scene.writer.insist(resolve(2))]
        assert (scene.writer.waiting, [one.is_done for one in pending]) == (3, [False] * 3)
        await settled()

        assert scene.store.batches == [[resolve(0), reserve(1), resolve(2)]]
        assert [one.is_done for one in pending] == [True] * 3
        assert [one.result() for one in pending[:2]] == [Result.CREATED] * 2
        with pytest.raises(ValueError, match="bad"):
            pending[2].result()


async def test_a_batch_has_a_bound_and_the_order_is_kept() -> None:
    """B1: in the order in which they were asked, whatever the batch."""
    works: list[Work] = [resolve(number) for number in range(BATCH_OPERATIONS_MAX + 3)]
    async with writing() as (scene, _):
        for work in works:
            scene.writer.insist_later(work)
        await settled()

        assert [len(batch) for batch in scene.store.batches] == [BATCH_OPERATIONS_MAX, 3]
        assert scene.store.written == works


async def test_each_is_told_its_own_answer() -> None:
    """B1: a poisoned operation fails alone."""
    async with writing() as (scene, nursery):
        scene.store.refuses = [(reserve(1), OverflowError("too large")), (resolve(3), ValueError("bad"))]
        for number in (0, 1):
            nursery.start_soon(scene.ask, reserve(number))
        for number in (2, 3):
            nursery.start_soon(scene.insist, resolve(number))
        await settled()

        assert scene.told["turn-0"] is scene.told["turn-2"] is Result.CREATED
        assert repr(scene.told["turn-1"]) == repr(OverflowError("too large"))
        assert repr(scene.told["turn-3"]) == repr(ValueError("bad"))
        assert scene.writer.waiting == 0


async def test_what_a_database_refuses_does_not_come_again() -> None:
    """B1: an operation that is insisted on and can never be written blocks no other."""
    async with writing() as (scene, _):
        scene.store.refuses = [(resolve(0), OverflowError("too large"))]
        with structlog.testing.capture_logs() as logs:
            scene.writer.insist_later(resolve(0))
            scene.writer.insist_later(resolve(1))
            await trio.sleep(10 * RETRY_SECONDS)

        assert scene.store.batches == [[resolve(0), resolve(1)]]
        assert [(line["event"], line["operation"]) for line in logs] == [("operation_failed", repr(resolve(0)))]


async def test_what_other_writers_are_in_the_way_of_is_written_when_they_are_not() -> None:
    """B1, B7: a charge is not lost to a deadlock, nor does it hold up others; who only asked is told."""
    async with writing() as (scene, nursery):
        scene.store.refuses = [(resolve(0), Conflict("a deadlock")), (reserve(1), Conflict("a deadlock"))]
        with structlog.testing.capture_logs() as logs:
            nursery.start_soon(scene.insist, resolve(0))
            nursery.start_soon(scene.ask, reserve(1))
            await settled()
            assert list(scene.told) == ["turn-1"]
            nursery.start_soon(scene.ask, reserve(2))
            await trio.sleep(2.5 * RETRY_SECONDS)
            assert scene.told["turn-2"] is Result.CREATED
            assert (scene.writer.waiting, scene.writer.is_away) == (1, False)

            scene.store.refuses = []
            await trio.sleep(RETRY_SECONDS)
        assert (scene.told["turn-0"], scene.writer.waiting) == (Result.CREATED, 0)
        assert len(scene.store.batches) == 5
        assert sorted(line["event"] for line in logs) == ["operation_clashed", "operation_failed"]


async def test_what_clashes_to_the_end_is_spooled() -> None:
    """L2."""
    async with writing() as (scene, _):
        scene.store.refuses = [(resolve(0), Conflict("a deadlock"))]
        scene.writer.insist_later(resolve(0))
        await settled()
        began = trio.current_time()
        await scene.writer.aclose()

        assert trio.current_time() - began <= CLOSE_SECONDS_MAX
        assert scene.spool.works == [resolve(0)]


async def test_more_than_the_bound_that_ask_are_refused_and_what_is_insisted_on_is_not() -> None:
    """X1: a queue that grows is a store that is away."""
    async with writing(seconds=10) as (scene, nursery):
        for number in range(WAITING_OPERATIONS_MAX):
            nursery.start_soon(scene.ask, reserve(number))
        await settled()

        with pytest.raises(StoreAway, match="wait for the store") as refused:
            await scene.writer.ask(reserve(-1))
        assert not refused.value.was_tried
        scene.writer.insist_later(resolve(-2))
        assert scene.writer.waiting == WAITING_OPERATIONS_MAX + 1


async def test_a_wait_that_is_given_up_withdraws_nothing() -> None:
    """B1: whoever left does not take the money's resolution along."""
    async with writing(seconds=1) as (scene, _):
        for work, call in ((reserve(0), scene.writer.ask), (resolve(1), scene.writer.insist)):
            with trio.move_on_after(0.1) as given_up:
                await call(work)
            assert given_up.cancelled_caught
        await trio.sleep(3)

        assert scene.store.written == [reserve(0), resolve(1)]


# --- the store is away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (StoreAway("no server"), ["store_away"]),
        (StoreUnusable("malformed"), ["store_away"]),
        (RuntimeError("a bug"), ["store_failed", "store_away"]),
    ],
)
async def test_what_a_batch_runs_into_is_a_store_that_is_away(error: Exception, told: list[str]) -> None:
    """B1: whatever it is, nothing that is insisted on is lost; a bug has its traceback in the log."""
    async with writing() as (scene, _):
        scene.store.away = error
        with structlog.testing.capture_logs() as logs:
            scene.writer.insist_later(resolve(0))
            await settled()
        assert [line["event"] for line in logs] == told

        scene.store.away = None
        await trio.sleep(RETRY_SECONDS + 0.5)
        assert scene.store.written == [resolve(0)]


async def test_while_the_store_is_away_asking_fails_at_once() -> None:
    """X1: 503 before any upstream call; the first one may have been written, the next was not even tried."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        with pytest.raises(StoreAway) as first:
            await scene.writer.ask(reserve(0))
        assert first.value.was_tried

        began = trio.current_time()
        with pytest.raises(StoreAway) as second:
            await scene.writer.ask(reserve(1))
        assert not second.value.was_tried
        assert trio.current_time() == began
        assert scene.writer.is_away


async def test_what_is_insisted_on_waits_for_the_store_and_is_spooled_meanwhile() -> None:
    """B1, L2: in its order, once, and the spool is empty when all of it is in the store."""
    async with writing() as (scene, nursery):
        scene.store.away = StoreAway("no server")
        nursery.start_soon(scene.insist, resolve(0))
        await settled()
        nursery.start_soon(scene.insist, resolve(1))
        await trio.sleep(5 * RETRY_SECONDS + 0.5)
        assert scene.told == {}
        assert scene.spool.works == [resolve(0), resolve(1)]

        scene.store.away = None
        await trio.sleep(RETRY_SECONDS + 0.5)
        assert scene.told == {"turn-0": Result.CREATED, "turn-1": Result.CREATED}
        assert scene.store.written == [resolve(0), resolve(1)]
        assert scene.spool.works == []
        assert not scene.writer.is_away


async def test_a_store_that_is_back_is_found_by_itself() -> None:
    """X1: also when nobody asks."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        with pytest.raises(StoreAway):
            await scene.writer.ask(reserve(0))
        scene.store.away = None

        await trio.sleep(RETRY_SECONDS + 0.5)
        assert not scene.writer.is_away
        assert await scene.writer.ask(reserve(1)) is Result.CREATED


async def test_the_spool_stays_until_the_last_batch_of_it_is_written() -> None:
    """B1: a process that is killed between two batches has lost none of the second."""
    works: list[Work] = [resolve(number) for number in range(BATCH_OPERATIONS_MAX + 1)]
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        for work in works:
            scene.writer.insist_later(work)
        await settled()
        scene.seconds = 1.0
        scene.store.away = None

        await trio.sleep(RETRY_SECONDS + 1.5)
        assert scene.store.written == works[:BATCH_OPERATIONS_MAX]
        assert scene.spool.works == works
        await trio.sleep(2)
        assert scene.store.written == works
        assert scene.spool.works == []


async def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    """B1: operations are idempotent; what may be written is written again."""
    async with writing() as (scene, nursery):
        scene.store.away = StoreAway("the connection broke at the commit")
        scene.store.is_written_all_the_same = True
        nursery.start_soon(scene.insist, resolve(0))
        await settled()
        scene.store.away = None

        await trio.sleep(RETRY_SECONDS + 0.5)
        assert scene.store.written == [resolve(0), resolve(0)]
        assert scene.told == {"turn-0": Result.CREATED}


async def test_the_log_says_once_that_the_store_is_away_and_once_that_it_is_back() -> None:
    """House: an outage of an hour is two lines."""
    async with writing() as (scene, _):
        with structlog.testing.capture_logs() as logs:
            scene.store.away = StoreAway("no server")
            scene.writer.insist_later(resolve(0))
            await trio.sleep(10 * RETRY_SECONDS)
            scene.store.away = None
            await trio.sleep(2 * RETRY_SECONDS)

        assert [(line["event"], line.get("why"), line.get("waiting")) for line in logs] == [
            ("store_away", "no server", None),
            ("store_back", None, 0),
        ]


async def test_a_full_disk_under_the_spool_keeps_it_in_memory() -> None:
    """B1: the alarm is loud, and nothing is given up while the process lives."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        scene.spool.error = OSError(28, "No space left on device")
        with structlog.testing.capture_logs() as logs:
            scene.writer.insist_later(resolve(0))
            await settled()
        assert [(line["event"], line.get("operations")) for line in logs] == [("store_away", None), ("spool_failed", 1)]

        scene.spool.error = None
        await trio.sleep(RETRY_SECONDS + 0.5)
        assert scene.spool.works == [resolve(0)]
        scene.store.away = None
        await trio.sleep(RETRY_SECONDS + 0.5)
        assert scene.store.written == [resolve(0)]


async def test_a_spool_that_cannot_be_emptied_ends_nothing() -> None:
    """B1: it is written again at the next start, and changes nothing."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        scene.writer.insist_later(resolve(0))
        await settled()
        scene.store.away = None
        scene.spool.error = OSError(30, "Read-only file system")
        with structlog.testing.capture_logs() as logs:
            await trio.sleep(RETRY_SECONDS + 0.5)

        assert [line["event"] for line in logs] == ["store_back", "spool_not_cleared"]
        assert await scene.writer.ask(reserve(1)) is Result.CREATED


# --- the store hangs ----------------------------------------------------------------------------------------------


class HangingStore:
    """A store whose next write does not return until `returns` says what came of it; the disk of the spool works."""

    def __init__(self, nursery: trio.Nursery, scene: Scene) -> None:
        self.scene = scene
        self.returns = trio.Event()
        self.writes = 0
        self.writer = Writer(scene.store.commit, scene.spool, self._run_blocking)
        scene.writer = self.writer
        nursery.start_soon(self.writer.run)

    async def _run_blocking(self, blocking: Callable[[], object]) -> object:
        if isinstance(blocking, partial) and blocking.func == self.scene.store.commit:
            self.writes += 1
            await self.returns.wait()
        return await inline(blocking)


async def test_a_store_that_hangs_is_away_after_a_while() -> None:
    """B1, X1: who asked is refused then, the next at once; the log says it once."""
    async with writing() as (scene, nursery):
        store = HangingStore(nursery, scene)
        with structlog.testing.capture_logs() as logs:
            with pytest.raises(StoreAway, match="not answered") as first:
                await store.writer.ask(reserve(0))
            assert (trio.current_time(), first.value.was_tried) == (WRITE_BATCH_SECONDS_MAX, True)
            with pytest.raises(StoreAway) as second:
                await store.writer.ask(reserve(1))
            assert (trio.current_time(), second.value.was_tried) == (WRITE_BATCH_SECONDS_MAX, False)
            await trio.sleep(10 * RETRY_SECONDS)

        assert store.writer.is_away
        assert [line["event"] for line in logs] == ["store_away"]
        assert store.writes == 1  # its connection has no room for a second


async def test_what_is_insisted_on_is_spooled_while_the_store_hangs() -> None:
    """B1: what is in the batch that hangs, what waits behind it, and what comes later: `kill -9` loses none of it."""
    async with writing() as (scene, nursery):
        store = HangingStore(nursery, scene)
        store.writer.insist_later(resolve(0))
        await settled()
        store.writer.insist_later(resolve(1))
        await trio.sleep(WRITE_BATCH_SECONDS_MAX + 0.5)
        assert scene.spool.works == [resolve(0), resolve(1)]

        store.writer.insist_later(resolve(2))
        await trio.sleep(RETRY_SECONDS)
        assert scene.spool.works == [resolve(0), resolve(1), resolve(2)]


async def test_a_retry_that_hangs_is_noticed_in_a_retry_s_time() -> None:
    """B1: what is insisted on while it hangs is spooled then, and not when the write before it would have hung."""
    async with writing() as (scene, nursery):
        store = HangingStore(nursery, scene)
        scene.store.away = StoreAway("the connection is dead")
        nursery.start_soon(scene.insist, resolve(0))
        await trio.sleep(0.5)
        store.returns.set()
        await settled()
        assert (store.writer.is_away, store.writes) == (True, 1)

        store.returns = trio.Event()
        await trio.sleep(RETRY_SECONDS)
        assert store.writes == 2
        store.writer.insist_later(resolve(1))
        await trio.sleep(RETRY_SECONDS + 0.1)
        assert scene.spool.works == [resolve(0), resolve(1)]


async def test_a_write_that_hung_and_returns_counts() -> None:
    """B1: its answers go to those who still wait, the rest is written behind it, and nothing is left in the spool."""
    async with writing() as (scene, nursery):
        store = HangingStore(nursery, scene)
        await settled()
        nursery.start_soon(scene.ask, reserve(0))
        nursery.start_soon(scene.insist, resolve(1))
        await settled()
        nursery.start_soon(scene.insist, resolve(2))
        await trio.sleep(2 * WRITE_BATCH_SECONDS_MAX)
        with structlog.testing.capture_logs() as logs:
            store.returns.set()
            await settled()

        assert [line["event"] for line in logs] == ["store_back"]
        assert sorted(map(repr, scene.store.batches[0])) == sorted(map(repr, [reserve(0), resolve(1)]))
        assert scene.store.batches[1:] == [[resolve(2)]]
        assert isinstance(scene.told["turn-0"], StoreAway)
        assert scene.told["turn-1"] is scene.told["turn-2"] is Result.CREATED
        assert (scene.spool.works, store.writer.waiting, store.writer.is_away) == ([], 0, False)
        assert await store.writer.ask(reserve(3)) is Result.CREATED


async def test_a_write_that_hung_and_fails_is_tried_again() -> None:
    """B1: as any other that found the store away."""
    async with writing() as (scene, nursery):
        store = HangingStore(nursery, scene)
        nursery.start_soon(scene.insist, resolve(0))
        await trio.sleep(WRITE_BATCH_SECONDS_MAX + 0.5)
        scene.store.away = StoreAway("the connection is dead")
        store.returns.set()
        await settled()
        assert (scene.told, scene.spool.works, store.writer.is_away) == ({}, [resolve(0)], True)

        scene.store.away = None
        await trio.sleep(RETRY_SECONDS + 0.5)
        assert (scene.told, scene.spool.works, store.writer.is_away) == ({"turn-0": Result.CREATED}, [], False)


# --- the end ----------------------------------------------------------------------------------------------------


async def test_the_end_writes_what_waits() -> None:
    """L2: nothing is lost on a normal exit."""
    async with writing(seconds=0.25) as (scene, _):
        scene.writer.insist_later(resolve(0))
        await trio.sleep(0.125)
        scene.writer.insist_later(RecordWrite("abandon_turn", {"turn_id": "turn"}))
        await scene.writer.aclose()

        assert len(scene.store.written) == 2
        assert scene.spool.works == []
        assert trio.current_time() == 0.5


async def test_the_end_does_not_wait_for_a_store_that_hangs() -> None:
    """L2: what it could not write in time is in the spool, what is under way too."""
    async with writing(seconds=0) as (scene, nursery):
        hung = trio.Event()

        async def hang(_blocking: Callable[[], object]) -> None:
            hung.set()
            await trio.sleep_forever()

        writer = Writer(scene.store.commit, scene.spool, hang)
        nursery.start_soon(writer.run)
        writer.insist_later(resolve(0))
        await hung.wait()
        writer._run_blocking = inline  # the disk does not hang
        writer.insist_later(resolve(1))
        began = trio.current_time()
        await writer.aclose()

        assert trio.current_time() - began == CLOSE_SECONDS_MAX
        assert scene.spool.works == [resolve(0), resolve(1)]


async def test_at_the_end_the_spool_has_what_waits_before_the_wait_is_over() -> None:
    """L2: whoever kills the process meanwhile loses nothing; what the store takes after all leaves nothing behind."""
    async with writing() as (scene, nursery):

        async def slow_to_commit(blocking: Callable[[], object]) -> object:
            is_commit = isinstance(blocking, partial) and blocking.func == scene.store.commit
            await trio.sleep(1.75 if is_commit else 0.0)
            return await inline(blocking)

        writer = Writer(scene.store.commit, scene.spool, slow_to_commit)
        nursery.start_soon(writer.run)
        writer.insist_later(resolve(0))
        await trio.sleep(0.25)
        nursery.start_soon(writer.aclose)
        await trio.sleep(SPOOL_AT_THE_END_SECONDS - 0.001)
        assert scene.spool.works == []
        await trio.sleep(0.002)
        assert scene.spool.works == [resolve(0)]
        await trio.sleep(2.0)
        assert (scene.store.written, scene.spool.works) == ([resolve(0)], [])


async def test_the_end_while_the_store_is_away_comes_soon() -> None:
    """L2: one more try, and the spool has it."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        scene.writer.insist_later(resolve(0))
        await settled()
        await scene.writer.aclose()

        assert scene.spool.works == [resolve(0)]
        assert trio.current_time() <= CLOSE_SECONDS_MAX


async def test_what_not_even_the_spool_takes_is_told_one_by_one_at_the_end() -> None:
    """B1: whoever has the log can book it by hand, or put the lines back into a spool."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("database or disk is full")
        scene.spool.room = 1
        for number in range(3):
            scene.writer.insist_later(resolve(number))
        with structlog.testing.capture_logs() as logs:
            await scene.writer.aclose()

        assert scene.spool.works == [resolve(0)]
        lost = [(line["log_level"], line["line"]) for line in logs if line["event"] == "operation_lost"]
        assert lost == [
            ("critical", f'{{"resolve":{{"turn_id":"turn-{number}","nanodollars":null,"flags":[]}}}}')
            for number in (1, 2)
        ]


async def test_the_end_cannot_be_cancelled() -> None:
    """L2: a second signal does not lose what the first one let come to an end."""
    async with writing() as (scene, _):
        scene.store.away = StoreAway("no server")
        scene.writer.insist_later(resolve(0))
        with trio.CancelScope() as scope:
            scope.cancel()
            await scene.writer.aclose()

        assert scene.spool.works == [resolve(0)]


async def test_after_the_end_nothing_is_asked_and_what_is_insisted_on_is_spooled() -> None:
    """L2: whoever comes late does not wait for ever, and loses nothing."""
    async with writing() as (scene, _):
        await scene.writer.aclose()
        with pytest.raises(StoreAway, match="ending") as refused:
            await scene.writer.ask(reserve(0))
        assert not refused.value.was_tried

        with trio.move_on_after(1):
            await scene.writer.insist(resolve(1))
        assert scene.spool.works == [resolve(1)]


# --- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.trio(run=trio.run)
async def test_a_name_server_that_hangs_does_not_hold_the_money() -> None:
    """X1: look-ups of names take all of the event loop's threads, and the writer has its own."""
    limiter = trio.to_thread.current_default_thread_limiter()
    tokens = int(limiter.total_tokens)
    others = [object() for _ in range(tokens)]
    for other in others:
        limiter.acquire_on_behalf_of_nowait(other)
    with trio.fail_after(60):
        assert await OwnThreads()(lambda: "written") == "written"
    for other in others:
        limiter.release_on_behalf_of(other)
