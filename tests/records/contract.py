"""What every record store promises (ports.Records, L1, L2, T10, O1): a subclass in an adapter's own test file opens it.

Compared is what a store has to keep. Of times that is how long things took: the monotonic clock means nothing to
another process. Of a failure it is the code and the kind, of a verdict its reason: their texts are the program's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pytest
import trio

from gateway.core.background import BackgroundTurn, Fingerprint
from gateway.core.failures import FailureKind, gateway_failure
from gateway.core.marks import ITEM, SEALED, mark
from gateway.core.messages import AttemptReport, Door
from gateway.core.money import Flag, Price, Usage
from gateway.core.origin import Maker
from gateway.core.replay import REPLAY
from gateway.lock.virtual import virtual_run
from gateway.ports import AttemptClosing, Origin, Records, TurnClosing, TurnOpening


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """What is kept of an attempt's end."""

    outcome: str
    reason: str | None
    is_replayed: bool
    seconds: float
    first_event_seconds: float | None
    first_output_seconds: float | None
    response_id: str | None
    usage: Usage | None
    dropped_events: int
    upstream_request_id: str | None
    house_nanodollars: int


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """What is kept of a turn's end; the failure by code and kind."""

    outcome: str
    routes: tuple[str, ...]
    seconds: float
    nanodollars: int | None
    flags: tuple[Flag, ...]
    failure: tuple[str, str] | None
    response_id: str | None


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """One attempt as the store has it."""

    route: str
    end: AttemptEnd | None = None


@dataclass(frozen=True, slots=True)
class TurnSeen:
    """One turn as the store has it, its attempts in order."""

    opening: TurnOpening
    attempts: Sequence[AttemptSeen] = field(default=())
    end: TurnEnd | None = None


def attempt_end(closing: AttemptClosing) -> AttemptEnd:
    """What a store has to keep of it."""
    report = closing.report
    event, output = report.first_event_at, report.first_output_at
    return AttemptEnd(
        outcome=report.outcome,
        reason=None if report.verdict is None else report.verdict.reason.value,
        is_replayed=report.verdict is not None and report.verdict.replay,
        seconds=report.ended_at - report.started_at,
        first_event_seconds=None if event is None else event - report.started_at,
        first_output_seconds=None if output is None else output - report.started_at,
        response_id=report.response_id,
        usage=report.usage,
        dropped_events=report.dropped_events,
        upstream_request_id=closing.upstream_request_id,
        house_nanodollars=closing.house_nanodollars,
    )


def turn_end(closing: TurnClosing) -> TurnEnd:
    """What a store has to keep of it."""
    failure = closing.failure
    return TurnEnd(
        outcome=closing.outcome,
        routes=closing.routes,
        seconds=closing.seconds,
        nanodollars=closing.nanodollars,
        flags=closing.flags,
        failure=None if failure is None else (failure.code, failure.kind.value),
        response_id=closing.response_id,
    )


def opening(turn_id: str = "turn") -> TurnOpening:
    """A turn that begins."""
    return TurnOpening(turn_id, "main", "gpt-test", Door.HTTP, 1000, 1_790_000_000.0, "1", "203.0.113.9", "key")


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


NOISE = "resp_" + "".join(sha256(bytes([number])).hexdigest() for number in range(100))
"""Longer than what an index takes, and nothing that compresses."""


class RecordsContract(ABC):
    """Inherit as `Test...` and say how the adapter is opened and read."""

    pytestmark = pytest.mark.trio(run=virtual_run)

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[Records]:
        """An empty store."""

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

    async def test_a_first_attempt_that_is_told_of_with_its_turn_is_noted_once(self) -> None:
        """L2: whenever it is noted, it is there when the call for it returns."""
        async with self.opened() as records:
            await records.open_turn(opening(), "a")
            for number, route in enumerate("ab", start=1):
                await records.open_attempt("turn", number, route)
            assert await self.turns_of(records) == {"turn": TurnSeen(opening(), (AttemptSeen("a"), AttemptSeen("b")))}

    async def test_a_closing_keeps_all_that_it_says(self) -> None:
        """L1."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            await records.close_attempt(attempt_closing())
            await records.close_turn(turn_closing())

            (seen,) = (await self.turns_of(records)).values()
            assert seen == TurnSeen(
                opening(), (AttemptSeen("a", attempt_end(attempt_closing())),), turn_end(turn_closing())
            )

    async def test_a_replayed_turn_shows_its_failed_attempt_too(self) -> None:
        """L1."""
        async with self.opened() as records:
            await records.open_turn(opening())
            for number, (route, outcome) in enumerate((("a", "server_error"), ("b", "completed")), start=1):
                await records.open_attempt("turn", number, route)
                await records.close_attempt(attempt_closing(attempt=number, outcome=outcome))

            (seen,) = (await self.turns_of(records)).values()
            assert [(a.route, a.end and a.end.outcome) for a in seen.attempts] == [
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
            assert [a.end and a.end.outcome for a in seen.attempts] == ["server_error", "completed"]

    async def test_the_first_closing_stays(self) -> None:
        """T10: what ended it first ended it."""
        async with self.opened() as records:
            await records.open_turn(opening())
            await records.open_attempt("turn", 1, "a")
            for outcome in ("completed", "internal_error"):
                await records.close_attempt(attempt_closing(outcome=outcome))
                await records.close_turn(turn_closing(outcome=outcome))

            (seen,) = (await self.turns_of(records)).values()
            assert seen == TurnSeen(
                opening(), (AttemptSeen("a", attempt_end(attempt_closing())),), turn_end(turn_closing())
            )

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
                    opening(name),
                    (AttemptSeen(f"route of {name}", attempt_end(attempt_closing(name))),),
                    turn_end(turn_closing(name)),
                )
                for name in names
            }

    async def test_what_was_not_known_is_not_known_afterwards(self) -> None:
        """L1: no usage is not zero tokens, and a turn that cost nothing is not one that was voided."""
        report = AttemptReport(outcome="client_left", started_at=1.0, ended_at=1.5)
        bare = TurnClosing("turn", "client_left", (), 0.5, None, ())
        async with self.opened() as records:
            await records.open_turn(TurnOpening("turn", "main", "gpt-test", Door.WEBSOCKET, 0, 1_790_000_000.0))
            await records.open_attempt("turn", 1, "a")
            await records.close_attempt(AttemptClosing("turn", 1, report))
            await records.close_turn(bare)

            (seen,) = (await self.turns_of(records)).values()
            assert seen.attempts == (AttemptSeen("a", attempt_end(AttemptClosing("turn", 1, report))),)
            assert seen.end == turn_end(bare)
            assert seen.opening.door is Door.WEBSOCKET

    # --- origins (O1) ---------------------------------------------------------------------------------------------

    async def test_a_response_is_found_where_it_was_made(self) -> None:
        """O1."""
        async with self.opened() as records:
            await records.learn_origin(Origin("main", "resp_1", "a"))

            assert await records.origin("main", "resp_1") == Origin("main", "resp_1", "a")
            assert await records.origin("main", "resp_2") is None

    async def test_another_account_s_response_is_not_known(self) -> None:
        """O1, bug case 48: an id is found by the account that made it; another may have one of the same name."""
        async with self.opened() as records:
            await records.learn_origin(Origin("main", "resp_1", "a"))
            assert await records.origin("other", "resp_1") is None

            await records.learn_origin(Origin("other", "resp_1", "b"))
            found = await records.origin("main", "resp_1"), await records.origin("other", "resp_1")
            assert found == (Origin("main", "resp_1", "a"), Origin("other", "resp_1", "b"))

    async def test_the_route_that_was_learned_first_stays(self) -> None:
        """O1."""
        async with self.opened() as records:
            for route in ("a", "b", "a"):
                await records.learn_origin(Origin("main", "resp_1", route))

            assert await records.origin("main", "resp_1") == Origin("main", "resp_1", "a")

    @pytest.mark.parametrize("text", ["resp_\0", "resp_\ud800", "resp_é", NOISE, "'; drop table origin; --", ""])
    async def test_an_id_is_any_text(self, text: str) -> None:
        """O1: what an upstream names a response may be in no database's alphabet, and breaks nothing."""
        async with self.opened() as records:
            await records.learn_origin(Origin("main", text, "a"))

            assert await records.origin("main", text) == Origin("main", text, "a")
            assert await records.origin("main", "resp_other") is None

    async def test_the_model_that_made_a_response_is_known_with_it(self) -> None:
        """O1, M3: by the client's name for it."""
        async with self.opened() as records:
            await records.learn_origin(Origin("main", "resp_1", "a", "gpt-test"))
            assert await records.origin("main", "resp_1") == Origin("main", "resp_1", "a", "gpt-test")

    async def test_the_upstream_that_made_a_response_is_known_with_it(self) -> None:
        """O1, C2: its route's name may come to stand for another; of what an earlier version learned it is not."""
        made = Origin("main", "resp_1", "a", "gpt-test", "place")
        async with self.opened() as records:
            await records.learn_origin(made)
            await records.learn_origin(replace(made, place="another"))
            assert await records.origin("main", "resp_1") == made

    # --- marks (O3) -----------------------------------------------------------------------------------------------

    async def test_what_has_a_mark_is_found_where_it_was_made(self) -> None:
        """O3: of those that are asked for, the known."""
        async with self.opened() as records:
            await records.learn_marks("main", Maker("a"), (mark(ITEM, "msg_1"), mark(SEALED, "x")))
            await records.learn_marks("main", Maker("b"), (mark(ITEM, "msg_2"),))
            await records.learn_marks("main", Maker("b"), ())

            asked = [mark(ITEM, "msg_2"), mark(ITEM, "msg_3"), mark(SEALED, "x")]
            assert await records.origins_of_marks("main", asked) == {asked[0]: Maker("b"), asked[2]: Maker("a")}
            assert await records.origins_of_marks("main", []) == {}

    async def test_another_account_s_marks_are_not_known_and_the_first_route_stays(self) -> None:
        """O3, bug case 48: scoped as responses are."""
        one = mark(ITEM, "msg_1")
        async with self.opened() as records:
            await records.learn_marks("main", Maker("a"), (one,))
            await records.learn_marks("main", Maker("b"), (one,))
            assert await records.origins_of_marks("other", [one]) == {}

            await records.learn_marks("other", Maker("b"), (one,))
            assert await records.origins_of_marks("main", [one]) == {one: Maker("a")}
            assert await records.origins_of_marks("other", [one]) == {one: Maker("b")}

    async def test_the_upstream_that_made_what_has_a_mark_is_known_with_it(self) -> None:
        """O3, C2."""
        one, two = mark(ITEM, "msg_1"), mark(SEALED, "x")
        async with self.opened() as records:
            await records.learn_marks("main", Maker("a", "place"), (one, two))
            await records.learn_marks("main", Maker("a", "another"), (two,))
            assert await records.origins_of_marks("main", [one, two]) == dict.fromkeys([one, two], Maker("a", "place"))

    # --- background turns (B9) ------------------------------------------------------------------------------------

    async def test_a_background_turn_is_there_until_it_is_closed(self) -> None:
        """B9: with what its end is charged by; kept again, with what was delivered since."""
        kept = BackgroundTurn(
            "turn", "main", "resp_1", "a", 9_000, 7, fingerprint=Fingerprint("place", "key"), price=Price(4, 3, 2, 1)
        )
        async with self.opened() as records:
            assert await records.background_turns() == []
            await records.open_turn(opening("turn"))
            await records.keep_background(kept)
            await records.keep_background(replace(kept, text_bytes=5))

            (found,) = await records.background_turns()
            assert replace(found, age_seconds=0.0) == replace(kept, text_bytes=5)
            await records.postpone_background("turn")
            assert [turn.turn_id for turn in await records.background_turns()] == ["turn"]

            await records.close_turn(turn_closing("turn"))
            assert await records.background_turns() == []

    async def test_a_background_turn_of_an_earlier_version_has_neither_price_nor_upstream(self) -> None:
        """B9: what was not known is not known afterwards."""
        kept = BackgroundTurn("turn", "main", "resp_1", "a", 9_000, 7, text_bytes=3)
        async with self.opened() as records:
            await records.open_turn(opening("turn"))
            await records.keep_background(kept)
            (found,) = await records.background_turns()
            assert replace(found, age_seconds=0.0) == kept
