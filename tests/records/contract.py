"""What every record store promises (ports.Records, L1, L2, T10): a subclass in the adapter's own test file opens it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
import trio

from gateway.core.failures import FailureKind, gateway_failure
from gateway.core.messages import AttemptReport, Door
from gateway.core.money import Flag, Usage
from gateway.core.replay import REPLAY
from gateway.lock.virtual import virtual_run
from gateway.ports import AttemptClosing, Records, TurnClosing, TurnOpening


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """One attempt as the store has it."""

    route: str
    closing: AttemptClosing | None = None


@dataclass(frozen=True, slots=True)
class TurnSeen:
    """One turn as the store has it, its attempts in order."""

    opening: TurnOpening
    attempts: Sequence[AttemptSeen] = field(default=())
    closing: TurnClosing | None = None


def opening(turn_id: str = "turn") -> TurnOpening:
    """A turn that begins."""
    return TurnOpening(turn_id, "main", "gpt-test", Door.HTTP, 1000, 1_790_000_000.0, client_retry_count="1")


def attempt_closing(turn_id: str = "turn", attempt: int = 1, outcome: str = "completed") -> AttemptClosing:
    """An attempt's end, with all that a record holds."""
    report = AttemptReport(
        outcome=outcome,
        started_at=1.0,
        ended_at=3.5,
        verdict=REPLAY,
        first_event_at=1.5,
        first_output_at=2.0,
        response_id="resp_1",
        usage=Usage(10, 5, 2, 1),
        dropped_events=3,
    )
    return AttemptClosing(turn_id, attempt, report, upstream_request_id="req_upstream", house_nanodollars=17)


def turn_closing(turn_id: str = "turn", outcome: str = "completed") -> TurnClosing:
    """A turn's end, with all that a record holds."""
    return TurnClosing(
        turn_id=turn_id,
        outcome=outcome,
        routes=("a", "b"),
        seconds=2.5,
        nanodollars=42,
        flags=(Flag.ESTIMATED, Flag.OVERDRAWN),
        failure=gateway_failure(FailureKind.READ_ERROR, "stream_read_error", "the stream broke"),
        response_id="resp_1",
    )


class RecordsContract(ABC):
    """Inherit as `Test...` and say how the adapter is opened and read."""

    pytestmark = pytest.mark.trio(run=virtual_run)

    @abstractmethod
    def opened(self, turns_kept_max: int = 100) -> AbstractAsyncContextManager[Records]:
        """An empty store that keeps this many turns."""

    @abstractmethod
    async def turns_of(self, records: Records) -> Mapping[str, TurnSeen]:
        """What the store has, oldest turn first."""

    async def test_an_opening_is_there_when_the_call_returns(self) -> None:
        """L2: durable before the upstream is called."""
        async with self.opened() as records:
            await records.open_turn(opening())
            assert await self.turns_of(records) == {"turn": TurnSeen(opening())}

            await records.open_attempt("turn", 1, "a")
            assert await self.turns_of(records) == {"turn": TurnSeen(opening(), (AttemptSeen("a"),))}

    async def test_a_closing_keeps_all_that_it_says(self) -> None:
        """L1."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            await records.close_attempt(attempt_closing())
            await records.close_turn(turn_closing())

            (seen,) = (await self.turns_of(records)).values()
            assert seen == TurnSeen(opening(), (AttemptSeen("a", attempt_closing()),), turn_closing())

    async def test_a_replayed_turn_shows_its_failed_attempt_too(self) -> None:
        """L1."""
        async with self.opened() as records:
            await records.open_turn(opening())
            for number, (route, outcome) in enumerate((("a", "server_error"), ("b", "completed")), start=1):
                await records.open_attempt("turn", number, route)
                await records.close_attempt(attempt_closing(attempt=number, outcome=outcome))

            (seen,) = (await self.turns_of(records)).values()
            assert [(a.route, a.closing and a.closing.report.outcome) for a in seen.attempts] == [
                ("a", "server_error"),
                ("b", "completed"),
            ]

    async def test_a_discarded_attempt_may_be_closed_after_the_next_one_is_opened(self) -> None:
        """T10: its end is written beside what goes on."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            await records.open_attempt("turn", 2, "b")
            await records.close_attempt(attempt_closing(attempt=2))
            await records.close_attempt(attempt_closing(attempt=1, outcome="server_error"))

            (seen,) = (await self.turns_of(records)).values()
            assert [a.closing and a.closing.report.outcome for a in seen.attempts] == ["server_error", "completed"]

    async def test_the_first_closing_stays(self) -> None:
        """T10: what ended it first ended it."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            for outcome in ("completed", "internal_error"):
                await records.close_attempt(attempt_closing(outcome=outcome))
                await records.close_turn(turn_closing(outcome=outcome))

            (seen,) = (await self.turns_of(records)).values()
            assert seen == TurnSeen(opening(), (AttemptSeen("a", attempt_closing()),), turn_closing())

    @pytest.mark.parametrize("attempt", [0, 1, 3])
    async def test_attempts_are_opened_in_their_order(self, attempt: int) -> None:
        """L1: a record with a hole in it would lie."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")

            with pytest.raises(ValueError, match="attempt"):
                await records.open_attempt("turn", attempt, "b")
            assert (await self.turns_of(records))["turn"].attempts == (AttemptSeen("a"),)

    async def test_turns_at_once_do_not_mix(self) -> None:
        """L1."""
        names = [f"turn-{number}" for number in range(20)]

        async def play(records: Records, name: str) -> None:
            await records.open_turn(opening(name))
            await records.open_attempt(name, 1, f"route of {name}")
            await records.close_attempt(attempt_closing(name))
            await records.close_turn(turn_closing(name))

        async with self.opened() as records:
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(play, records, name)

            assert await self.turns_of(records) == {
                name: TurnSeen(
                    opening(name), (AttemptSeen(f"route of {name}", attempt_closing(name)),), turn_closing(name)
                )
                for name in names
            }

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
            assert turns["running"].closing == turn_closing("running")

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
            assert (await self.turns_of(records))["turn"].attempts == (AttemptSeen("a", attempt_closing("turn")),)

            await records.open_turn(opening("last"))
            assert list(await self.turns_of(records)) == ["next", "last"]
