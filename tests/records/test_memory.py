from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from gateway.lock.virtual import virtual_run
from gateway.ports import Records
from gateway.records.memory import MemoryRecords
from records.contract import AttemptSeen, RecordsContract, TurnSeen, attempt_closing, opening, turn_closing


class TestMemoryRecords(RecordsContract):
    """The in-memory records keep the contract."""

    @asynccontextmanager
    async def opened(self, turns_kept_max: int = 100) -> AsyncIterator[Records]:
        yield MemoryRecords(turns_kept_max)

    async def turns_of(self, records: Records) -> Mapping[str, TurnSeen]:
        assert isinstance(records, MemoryRecords)
        return {
            turn_id: TurnSeen(turn.opening, tuple(AttemptSeen(a.route, a.closing) for a in turn.attempts), turn.closing)
            for turn_id, turn in records.turns.items()
        }


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
