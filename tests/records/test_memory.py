"""Records that a process forgets keep the contract, and forget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from gateway.lock.virtual import virtual_run
from gateway.ports import Records
from gateway.records.memory import MemoryRecords
from records.contract import (
    AttemptSeen,
    RecordsContract,
    TurnSeen,
    attempt_closing,
    attempt_end,
    opening,
    turn_closing,
    turn_end,
)


class TestMemoryRecords(RecordsContract):
    """The in-memory records keep the contract."""

    @asynccontextmanager
    async def opened(self, turns_kept_max: int = 100) -> AsyncIterator[Records]:
        yield MemoryRecords(turns_kept_max)

    async def turns_of(self, records: Records) -> Mapping[str, TurnSeen]:
        assert isinstance(records, MemoryRecords)
        return {
            turn_id: TurnSeen(
                turn.opening,
                tuple(AttemptSeen(a.route, attempt_end(a.closing) if a.closing else None) for a in turn.attempts),
                turn_end(turn.closing) if turn.closing else None,
            )
            for turn_id, turn in records.turns.items()
        }

    @pytest.mark.parametrize("attempt", [0, 1, 3])
    async def test_attempts_are_opened_in_their_order(self, attempt: int) -> None:
        """L1: a record with a hole in it would lie."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")

            with pytest.raises(ValueError, match="attempt"):
                await records.open_attempt("turn", attempt, "b")
            assert (await self.turns_of(records))["turn"].attempts == (AttemptSeen("a"),)

    # --- retention ------------------------------------------------------------------------------------------------

    async def test_beyond_the_bound_the_oldest_ended_turns_are_forgotten(self) -> None:
        """A process that runs for weeks must not grow."""
        async with self.opened(turns_kept_max=3) as records:
            for number in range(6):
                await records.open_turn(opening(f"turn-{number}"))
                await records.close_turn(turn_closing(f"turn-{number}"))

            assert list(await self.turns_of(records)) == ["turn-3", "turn-4", "turn-5"]

    async def test_a_running_turn_is_never_forgotten(self) -> None:
        """T10: its closing must find it."""
        async with self.opened(turns_kept_max=2) as records:
            await records.open_turn(opening("running"))
            await records.open_attempt("running", 1, "a")
            for number in range(4):
                await records.open_turn(opening(f"turn-{number}"))
                await records.close_turn(turn_closing(f"turn-{number}"))
            await records.close_attempt(attempt_closing("running"))
            await records.close_turn(turn_closing("running"))

            turns = await self.turns_of(records)
            assert list(turns) == ["running", "turn-3"]
            assert turns["running"].end == turn_end(turn_closing("running"))

    async def test_running_turns_beyond_the_bound_are_kept_until_they_end(self) -> None:
        """T10."""
        async with self.opened(turns_kept_max=1) as records:
            for number in range(3):
                await records.open_turn(opening(f"turn-{number}"))
            assert len(await self.turns_of(records)) == 3

            for number in range(3):
                await records.close_turn(turn_closing(f"turn-{number}"))
            await records.open_turn(opening("last"))
            assert list(await self.turns_of(records)) == ["last"]

    async def test_a_turn_is_kept_until_its_discarded_attempt_is_closed_too(self) -> None:
        """T10: the end of a discarded attempt is written beside the turn, and may come last."""
        async with self.opened(turns_kept_max=1) as records:
            await records.open_turn(opening("turn"))
            await records.open_attempt("turn", 1, "a")
            await records.close_turn(turn_closing("turn"))
            await records.open_turn(opening("next"))

            await records.close_attempt(attempt_closing("turn"))
            assert (await self.turns_of(records))["turn"].attempts == (
                AttemptSeen("a", attempt_end(attempt_closing("turn"))),
            )

            await records.open_turn(opening("last"))
            assert list(await self.turns_of(records)) == ["next", "last"]


@pytest.mark.trio(run=virtual_run)
async def test_attempts_that_have_not_ended_can_be_listed() -> None:
    """L2: what a sweeper has to find."""
    records = MemoryRecords()
    await records.open_turn(opening("running"))
    await records.open_attempt("running", 1, "a")
    await records.open_turn(opening("ended"))
    await records.open_attempt("ended", 1, "b")
    await records.close_attempt(attempt_closing("ended"))
    await records.close_turn(turn_closing("ended"))

    assert [attempt.route for attempt in records.open_attempts()] == ["a"]
    assert repr(records) == "<MemoryRecords of 2 turns>"
