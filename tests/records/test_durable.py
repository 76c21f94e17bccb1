"""Records that last keep the contract on both databases, and what only a database keeps: other processes' records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import trio

from gateway.core.background import BackgroundTurn
from gateway.core.ledger import Expire, OpenAccount, Resolve
from gateway.core.marks import ITEM, mark
from gateway.core.messages import Door
from gateway.core.money import Resolution, Result, Usage
from gateway.core.origin import Maker
from gateway.ports import Origin, Records, TurnOpening
from gateway.records import durable
from gateway.records.durable import DAY_SECONDS, DurableRecords
from gateway.store.database import Session
from gateway.store.money import flags_of
from gateway.store.records import LEASE_ENDED, RecordWrite
from gateway.store.store import Store
from records.contract import (
    AttemptEnd,
    AttemptSeen,
    RecordsContract,
    TurnEnd,
    TurnSeen,
    attempt_closing,
    opening,
    turn_closing,
    turn_end,
)
from support.booked import reserve
from support.durable import ClockedDatabase, FreshDatabases, PostgresTables, SQLiteFiles, StoreClock, running_store
from support.postgres import PostgresDatabases

ORIGIN_DAYS = 30


class DurableContract(RecordsContract):
    """DurableRecords, their writer and their database."""

    databases: ClassVar[FreshDatabases]
    spool: ClassVar[pytest.TempPathFactory]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Records]:
        self.clock = StoreClock()
        self.database = ClockedDatabase(self.databases.fresh(), self.clock)
        async with self.process() as records:
            yield records

    @asynccontextmanager
    async def process(self, *, is_shared: bool = True) -> AsyncIterator[DurableRecords]:
        """One gateway's records in the database that is open."""
        async with running_store(self.database.another(), self.spool.getbasetemp() / "spool") as store:
            self.store = store
            yield DurableRecords(store, ORIGIN_DAYS, is_shared=is_shared)

    async def turns_of(self, records: Records) -> Mapping[str, TurnSeen]:
        return await turns_of(self.store)

    # --- what a record must survive -------------------------------------------------------------------------------

    async def test_an_opening_asked_twice_is_written_once(self) -> None:
        """L2: an answer that was lost with its connection is asked for again."""
        async with self.opened() as records:
            for _ in range(2):
                await records.open_turn(opening())
                await records.open_attempt("turn", 1, "a")

            assert await self.turns_of(records) == {"turn": TurnSeen(opening(), (AttemptSeen("a"),))}

    async def test_a_turn_is_noted_with_its_first_attempt(self) -> None:
        """L2: in one batch, of which nothing is left to wait for."""
        async with self.opened() as records:
            await records.open_turn(opening(), "a")
            assert await self.turns_of(records) == {"turn": TurnSeen(opening(), (AttemptSeen("a"),))}
            assert records.open_attempt("turn", 1, "a").is_done

    async def test_a_first_attempt_that_is_never_asked_for_ends_with_its_turn(self) -> None:
        """L1, L2: a turn that is refused behind its opening leaves nothing open."""
        async with self.opened() as records:
            await records.open_turn(opening(), "a")
            await records.close_turn(turn_closing())
            (seen,) = (await self.turns_of(records)).values()
            assert [(a.route, a.end and a.end.outcome) for a in seen.attempts] == [("a", "not_called")]
            assert seen.end == turn_end(turn_closing())

    async def test_a_first_attempt_that_was_forgotten_is_noted_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """L2: what a bug kept from beginning is not remembered for ever, and costs no other more than a write."""
        monkeypatch.setattr(durable, "AHEAD_MAX", 1)
        async with self.opened() as records:
            for name in ("turn", "next"):
                await records.open_turn(opening(name), "a")
            again, known = records.open_attempt("turn", 1, "a"), records.open_attempt("next", 1, "a")
            assert (again.is_done, known.is_done) == (False, True)
            await again
            assert [seen.attempts for seen in (await self.turns_of(records)).values()] == [(AttemptSeen("a"),)] * 2

    async def test_what_the_sweeper_closed_is_closed_again_by_a_process_that_lives(self) -> None:
        """B7, L2: its lease had ended all the same, and what it knows is more."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            for name in ("abandon_attempts", "abandon_turn"):
                await self.store.writer.ask(RecordWrite(name, {"turn_id": "turn"}))
            (seen,) = (await self.turns_of(records)).values()
            assert [seen.end and seen.end.outcome, *(a.end and a.end.outcome for a in seen.attempts)] == [
                LEASE_ENDED,
                LEASE_ENDED,
            ]

            await records.close_attempt(attempt_closing())
            await records.close_turn(turn_closing())
            (seen,) = (await self.turns_of(records)).values()
            assert [seen.end and seen.end.outcome, *(a.end and a.end.outcome for a in seen.attempts)] == [
                "completed",
                "completed",
            ]

    @pytest.mark.parametrize("settles_first", [True, False])
    async def test_a_turn_that_was_settled_after_its_lease_shows_what_its_client_paid(
        self, settles_first: bool
    ) -> None:
        """B7, L1: nothing; the house has borne it, which is in the books."""
        late = Resolve("turn", Resolution(42))
        async with self.opened() as records:
            for work in (OpenAccount("main", is_unlimited=True), reserve("turn", lease_seconds=-1.0), Expire("turn")):
                await self.store.writer.ask(work)
            await records.open_turn(opening())
            if settles_first:
                assert await self.store.writer.ask(late) is Result.BORNE_BY_HOUSE
            await records.close_turn(turn_closing())
            if not settles_first:
                assert await self.store.writer.ask(late) is Result.BORNE_BY_HOUSE

            (seen,) = (await self.turns_of(records)).values()
            assert seen.end == replace(turn_end(turn_closing()), nanodollars=None)

    async def test_the_sweeper_leaves_alone_what_has_ended(self) -> None:
        """L2."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            await records.close_attempt(attempt_closing())
            await records.close_turn(turn_closing())
            before = await self.turns_of(records)

            for name in ("abandon_attempts", "abandon_turn"):
                await self.store.writer.ask(RecordWrite(name, {"turn_id": "turn"}))
            assert await self.turns_of(records) == before

    @pytest.mark.parametrize("text", ["\0", "\ud800", "x" * 100_000])
    async def test_a_name_that_no_database_takes_costs_no_record(self, text: str) -> None:
        """L1: what clients and upstreams send ends up in records, and must not keep one from being closed."""
        odd = TurnOpening("turn", "main", "gpt-test", Door.HTTP, 0, 1_790_000_000.0, client_retry_count=text)
        async with self.opened() as records:
            await records.open_turn(odd)

            (seen,) = (await self.turns_of(records)).values()
            assert seen.opening.client_retry_count == text.replace("\0", "\ufffd").replace("\ud800", "?")

    # --- origins --------------------------------------------------------------------------------------------------

    async def test_an_origin_is_forgotten_after_its_days(self) -> None:
        """O1."""
        async with self.opened() as records:
            await records.learn_origin(Origin("main", "resp_1", "a"))

            self.clock.now += ORIGIN_DAYS * DAY_SECONDS - 1
            assert await records.origin("main", "resp_1") == Origin("main", "resp_1", "a")
            self.clock.now += 1
            assert await records.origin("main", "resp_1") is None

    async def test_an_origin_that_another_process_is_about_to_write_is_waited_for(self) -> None:
        """O1, O2: a client that goes on at once may be served by a process that has not heard of its response."""
        async with self.opened() as records, self.process() as another, trio.open_nursery() as nursery:
            nursery.start_soon(self._learn_soon, records)
            assert await another.origin("main", "resp_1") == Origin("main", "resp_1", "a")

    async def test_marks_that_another_process_is_about_to_write_are_waited_for(self) -> None:
        """O3: as a response is; one that is found is enough."""
        asked = [mark(ITEM, "msg_2"), mark(ITEM, "msg_1")]
        async with self.opened() as records, self.process() as another, trio.open_nursery() as nursery:
            nursery.start_soon(self._learn_soon, records)
            assert await another.origins_of_marks("main", asked) == {asked[1]: Maker("a")}

    @pytest.mark.parametrize(("is_shared", "seconds"), [(True, 0.25), (False, 0.0)], ids=["others write", "alone"])
    async def test_what_nobody_has_written_is_waited_for_only_where_others_write(
        self, is_shared: bool, seconds: float
    ) -> None:
        """O1, O3: what a process that is alone has not written will not come; and nothing is not waited for."""
        async with self.opened(), self.process(is_shared=is_shared) as records:
            began_at = trio.current_time()
            assert await records.origin("main", "resp_1") is None
            assert trio.current_time() == began_at + seconds
            assert await records.origins_of_marks("main", ["x"]) == {}
            assert trio.current_time() == began_at + 2 * seconds
            assert await records.origins_of_marks("main", []) == {}
            assert trio.current_time() == began_at + 2 * seconds

    async def _learn_soon(self, records: Records) -> None:
        await trio.sleep(0.1)
        await records.learn_origin(Origin("main", "resp_1", "a"))
        await records.learn_marks("main", Maker("a"), [mark(ITEM, "msg_1")])

    async def test_a_background_turn_is_due_when_nobody_has_asked_for_a_while(self) -> None:
        """B9: whichever process asked; its age is the store's to tell."""
        async with self.opened() as records, self.process() as another:
            await records.open_turn(opening("turn"))
            await records.keep_background(BackgroundTurn("turn", "main", "resp_1", "a", 9_000, 7))
            self.clock.now += 29
            (found,) = await another.background_turns()
            assert (found.is_due, found.age_seconds) == (False, 29.0)
            self.clock.now += 1
            (found,) = await another.background_turns()
            assert (found.is_due, found.age_seconds) == (True, 30.0)

            await another.postpone_background("turn")
            (found,) = await records.background_turns()
            assert (found.is_due, found.age_seconds) == (False, 30.0)

    async def test_bug_case_48_a_follow_up_finds_its_route_whichever_process_serves_it(self) -> None:
        """O1: learned by one, known to all at once, to those that start later, and to no other account."""
        async with self.opened() as first, self.process() as second:
            await first.learn_origin(Origin("main", "resp_1", "a"))
            assert await second.origin("main", "resp_1") == Origin("main", "resp_1", "a")
            assert await second.origin("other", "resp_1") is None

            await second.learn_origin(Origin("main", "resp_1", "b"))
            assert await first.origin("main", "resp_1") == Origin("main", "resp_1", "a")

        async with AsyncExitStack() as after_a_restart:
            third = await after_a_restart.enter_async_context(self.process())
            assert await third.origin("main", "resp_1") == Origin("main", "resp_1", "a")
            assert await third.origin("other", "resp_1") is None


class TestRecordsInSQLite(DurableContract):
    """The contract in a file."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _databases(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.spool = tmp_path_factory
        cls.databases = SQLiteFiles(tmp_path_factory.mktemp("records"))


class TestRecordsInPostgres(DurableContract):
    """The contract on a server."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _databases(cls, postgres: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.spool = tmp_path_factory
        name = postgres.create_database()
        cls.databases = PostgresTables(postgres.dsn(name))
        yield
        postgres.drop_database(name)


# --- reading ----------------------------------------------------------------------------------------------------

TURNS = """
select turn_id, account, model, door, reserved_nanodollars, opened_at, client_retry_count, client_address, key,
       outcome, routes, seconds, nanodollars, flags, failure_code, failure_kind, response_id
from turn order by turn_id
"""
ATTEMPTS = """
select turn_id, route, outcome, reason, is_replayed, seconds, first_event_seconds, first_output_seconds, response_id,
       input_tokens, output_tokens, cached_tokens, reasoning_tokens, dropped_events, upstream_request_id,
       house_nanodollars
from attempt order by turn_id, number
"""


async def turns_of(store: Store) -> dict[str, TurnSeen]:
    turns, attempts = await store.read(both)
    return {
        turn[0]: TurnSeen(
            opening=opening_in(turn),
            attempts=tuple(AttemptSeen(row[1], attempt_end_in(row)) for row in attempts if row[0] == turn[0]),
            end=turn_end_in(turn),
        )
        for turn in turns
    }


def both(session: Session) -> tuple[list[Any], list[Any]]:
    return session.fetch(TURNS, {}), session.fetch(ATTEMPTS, {})


def opening_in(row: Any) -> TurnOpening:
    turn_id, account, model, door, *rest = row[:9]
    return TurnOpening(turn_id, account, model, Door(door), *rest)


def turn_end_in(row: Any) -> TurnEnd | None:
    outcome, routes, seconds, nanodollars, flags, code, kind, response_id = row[9:]
    if outcome is None:
        return None
    failure = None if code is None else (code, kind)
    return TurnEnd(
        outcome, tuple((routes or "").split()), seconds, nanodollars, flags_of(flags or ""), failure, response_id
    )


def attempt_end_in(row: Any) -> AttemptEnd | None:
    outcome, reason, is_replayed, seconds, first_event, first_output, response_id = row[2:9]
    if outcome is None:
        return None
    input_tokens, output_tokens, cached_tokens, reasoning_tokens, *rest = row[9:]
    usage = None if input_tokens is None else Usage(input_tokens, output_tokens, cached_tokens, reasoning_tokens)
    return AttemptEnd(outcome, reason, bool(is_replayed), seconds, first_event, first_output, response_id, usage, *rest)
