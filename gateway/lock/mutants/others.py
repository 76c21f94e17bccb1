"""What is another's, and what came before: other clients' sockets, responses and places, older turns of a route, what
was remembered, seen or counted earlier (C2-C6, O, W3, W10, B9, H2)."""

from __future__ import annotations

import builtins
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway import limits
from gateway.core import background, budget, continuation, health
from gateway.core.continuation import Heard
from gateway.core.events import Event, EventClass
from gateway.core.failures import Failure, FailureKind
from gateway.core.health import Circuit, wait_asked_seconds
from gateway.core.hold import Hold
from gateway.core.origin import Maker
from gateway.downstream import errors, frames, http
from gateway.lock.mutants.flips import Mutant, added, everywhere, swapped
from gateway.ports import Origin
from gateway.turn import background as looking
from gateway.turn import books, selection
from gateway.turn.house import StandingHouse
from gateway.turn.memory import ConnectionMemory, Lane
from gateway.turn.origins import Key, Origins
from gateway.upstream import answers
from gateway.upstream.line import Line
from gateway.upstream.pool import Pool

C3: Final = ("C3",)
W10: Final = ("W10",)


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _sockets()
    yield from _responses()
    yield from _memories()
    yield from _older_turns()
    yield from _background()
    yield from _lines()


# --- sockets of upstreams (C5) ----------------------------------------------------------------------------------


def _sockets() -> Iterator[Mutant]:
    made = Pool.__init__

    def wider(pool: Pool, idle_max: int) -> None:
        made(pool, idle_max + 1)

    def idling(line: Line) -> float:
        return line._opened_at + line.settings.age_seconds_max

    def ageless(line: Line) -> float:
        return line._idle_since + line.settings.idle_seconds_max

    def halved(line: Line) -> float:
        settings = line.settings
        return min(line._opened_at + settings.age_seconds_max / 2, line._idle_since + settings.idle_seconds_max / 2)

    anybodys = swapped(Pool, "_fits", lambda _pool, line, _headers: not line.is_spent)
    yield Mutant("C5: a socket serves clients with other headers", ("C5", "H4"), anybodys, words=("session-id",))
    yield Mutant("C5: one more socket may idle", ("C5",), swapped(Pool, "__init__", wider), words=("idle_sockets_max",))
    yield Mutant("H4: a client of another name asks", ("H4",), swapped(answers, "USER_AGENT", "python"))
    for what, stale_at in (("idle for ever", idling), ("any age", ageless), ("half the age", halved)):
        yield Mutant(f"C5: a socket serves at {what}", ("C5",), swapped(Line, "_stale_at", property(stale_at)))


# --- responses and what binds to them (O) -----------------------------------------------------------------------


def _responses() -> Iterator[Mutant]:
    asked = Origins._of_marks

    def anybodys(self: Origins, key: Key) -> Origin | None:
        return next((origin for held, (_, origin) in self._recent.items() if held[1:] == key[1:]), None)

    def the_last(self: Origins, key: Key, origin: Origin) -> None:
        self._recent[key] = math.inf, origin

    async def of_the_newest(self: Origins, account: str, marks: Sequence[str]) -> Maker | None:
        return await asked(self, account, marks[:1])

    yield Mutant("O2: a response is every account's", ("O2",), swapped(Origins, "_recall", anybodys))
    yield Mutant("O3: who told it last made it", ("O3", "O2"), swapped(Origins, "_remember", the_last))
    yield Mutant("O3: the newest item alone decides", ("O3",), swapped(Origins, "_of_marks", of_the_newest))


# --- what a connection remembers (W10) --------------------------------------------------------------------------


def _memories() -> Iterator[Mutant]:
    learned, noted = ConnectionMemory.learn, Heard.note
    in_their_places = continuation._in_their_places

    def evicts_its_own(self: ConnectionMemory, lane: Lane, parent: Any, heard: Heard, made: Any) -> None:
        learned(self, lane, parent, heard, made)
        if heard.has_failed and parent is not None:
            self.forget(lane)

    def any_ending(self: Heard, events: Iterable[Event]) -> None:
        events = list(events)
        noted(self, events)
        endings = [event for event in events if event.kind is EventClass.TERMINAL and not self.has_failed]
        self.ending = endings[-1] if endings else self.ending

    def as_they_came(done: Sequence[bytes]) -> list[continuation.Item]:
        return [item for data in done for item in in_their_places([data])]

    yield Mutant("W10: any failed continuation evicts", W10, swapped(ConnectionMemory, "learn", evicts_its_own))
    yield Mutant("W10: what was cut short is remembered", W10, swapped(Heard, "note", any_ending))
    yield Mutant("W10: items go on as they came", W10, swapped(continuation, "_in_their_places", as_they_came))
    yield Mutant("W10: two lanes are remembered", W10, swapped(limits, "REMEMBERED_LANES_MAX", 2), words=("three",))


# --- older turns of a route (C2, C3, C4, T1) --------------------------------------------------------------------


def _older_turns() -> Iterator[Mutant]:
    ended, delivered, opened = Circuit.ended, Circuit.delivered, Circuit._opened

    def any_end(held: Circuit, _generation: int, failure: Failure | None, now: float, wall_now: float) -> Circuit:
        return ended(held, held.generation, failure, now, wall_now)

    def any_delivery(held: Circuit, _generation: int) -> Circuit:
        return delivered(held, held.generation)

    def the_last_wait(held: Circuit, generation: int, failure: Failure | None, now: float, wall: float) -> Circuit:
        asks = wait_asked_seconds(failure, wall) is not None
        return ended(replace(held, cools_until=-math.inf) if asks else held, generation, failure, now, wall)

    def lengthening(held: Circuit, until: float) -> Circuit:
        return replace(opened(held, until), openings=held.openings + 1)

    def any_wait(failure: Failure | None, wall_now: float) -> float | None:
        return wait_asked_seconds(None if failure is None else replace(failure, kind=FailureKind.RETRYABLE), wall_now)

    def latest(*values: Any, **options: Any) -> Any:
        return (builtins.max if "default" in options else builtins.min)(*values, **options)

    yield Mutant("C3: the end of an older turn counts", C3, swapped(Circuit, "ended", any_end))
    yield Mutant("C3: what an older turn delivers counts", C3, swapped(Circuit, "delivered", any_delivery))
    yield Mutant("C3: the last wait stands", C3, swapped(Circuit, "ended", the_last_wait))
    yield Mutant("C3: a wait makes the next cooling longer", C3, swapped(Circuit, "_opened", lengthening))
    yield Mutant("C3: a wait with a request's own fault is heard", C3, swapped(health, "wait_asked_seconds", any_wait))
    yield Mutant("X2: the last to be back is told", ("X2", "C3"), added(selection, "min", latest))
    yield Mutant("C4: a turn counts at ten seconds", ("C4",), swapped(budget, "_forget", _forget_behind))
    yield Mutant("C2: an upstream is blamed for another", ("C2",), swapped(StandingHouse, "forget", lambda *_: None))
    yield Mutant(
        "T1: at its end a hold is not over", ("T1",), swapped(Hold, "is_over", lambda hold, at: at > hold._ends_at)
    )


def _forget_behind(moments: deque[float], now: float) -> None:
    while moments and moments[0] < now - limits.REPLAY_WINDOW_SECONDS:
        moments.popleft()


# --- in the background and by id (B9, H2) -----------------------------------------------------------------------


def _background() -> Iterator[Mutant]:
    figures: Mapping[str, tuple[str, float]] = {
        "BACKGROUND_ANSWER_SECONDS_MAX": ("B9", 9.0),
        "SHOWN_END_SECONDS": ("B9", 1.0),
        "BY_ID_SECONDS_MAX": ("H2", 59.0),
    }
    for name, (rule, seconds) in figures.items():
        yield Mutant(f"{rule}: {name} is {seconds:.0f} s", (rule,), swapped(limits, name, seconds))
    yield Mutant("B9: what is not found is gone, no 410", ("B9",), swapped(looking, "GONE_STATUSES", frozenset({404})))
    yield Mutant("B9: anybody's word is taken", ("B9",), everywhere(background.may_know, lambda *_: True))
    yield Mutant("T10: a second more to give money back", ("T10",), swapped(books, "UNDO_SECONDS_MAX", 1.5))


# --- lines and refusals (W3, X2) --------------------------------------------------------------------------------


def _lines() -> Iterator[Mutant]:
    joined = frames.Line.join

    def always_waiting(line: frames.Line, frame: frames.Frame, *, turn_runs: bool) -> frames.Frame:
        return joined(line, frame, turn_runs=True)

    def never_too_large(line: frames.Line, frame: frames.Create, creates_max: int) -> bool:
        return line._creates >= creates_max or line._bytes + frame.size_bytes > line._bytes_max

    alone = swapped(frames.Line, "_is_full_for", never_too_large)
    yield Mutant("W3: the first in line waits", ("W3",), swapped(frames.Line, "join", always_waiting))
    yield Mutant("W3: a large create never waits", ("W3",), alone, words=("waiting_bytes_max",))
    yield Mutant("X2: an answer's body is always JSON", ("X2",), swapped(http, "_content_type", _json))
    yield Mutant("X2: a store that is away is no refusal", ("X2",), swapped(errors, "STORE_AWAY", "nothing"))


def _json(_answer: object) -> tuple[str, str]:
    return http.JSON_CONTENT
