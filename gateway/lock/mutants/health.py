"""Which routes are left alone, for how long and by what (C3), who shares the turns (M1), how much is replayed (C4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gateway import limits
from gateway.config import Config
from gateway.core import health
from gateway.core.failures import FailureKind, UpstreamAnswer
from gateway.core.health import Circuit, Sign, State
from gateway.core.routing import draw_of
from gateway.lock.mutants.flips import Flip, Mutant, everywhere, swapped
from gateway.turn.selection import Selection

FIGURES: Final = (
    ("C3", "ROUTE_FAULTS_MAX", 1),
    ("C3", "ROUTE_COOLING_SECONDS_MIN", 0.002),
    ("C3", "ROUTE_COOLING_SECONDS_MAX", 0.002),
    ("C3", "ROUTE_WAIT_SECONDS_MAX", 0.002),
    ("X2", "RETRY_ROUTE_SECONDS_MAX", 1),
    ("C4", "REPLAYS_PERCENT_MAX", 1),
    ("C4", "REPLAYS_PER_SECOND_MIN", 1),
    ("C4", "REPLAY_WINDOW_SECONDS", 0.05),
)
SHOWN: Final = (
    FailureKind.ROUTE_FAULT,
    FailureKind.NEVER_SENT,
    FailureKind.READ_ERROR,
    FailureKind.RETRYABLE,
    FailureKind.UPSTREAM_TIMEOUT,
    FailureKind.FIRST_EVENT_TIMEOUT,
    FailureKind.IDLE_TIMEOUT,
    FailureKind.BUFFER_OVERFLOW,
    FailureKind.DETERMINISTIC,
    FailureKind.NOT_RETRYABLE,
)
"""Kinds of which a route can have five in a row here. The others end the client's turn, or the gateway."""


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for rule, name, by in FIGURES:
        value = getattr(limits, name)
        yield Mutant(f"{rule}: {name} is more", (rule,), swapped(limits, name, value + by))
        yield Mutant(f"{rule}: {name} is less", (rule,), swapped(limits, name, value - by))
    yield from (_otherwise(kind) for kind in SHOWN)
    yield from _transitions()
    yield from _choices()


def _otherwise(kind: FailureKind) -> Mutant:
    is_fault = health.SIGN_OF[kind] is Sign.FAULT
    signs = {**health.SIGN_OF, kind: Sign.NOTHING if is_fault else Sign.FAULT}
    words = "is no fault" if is_fault else "is a fault"
    return Mutant(f"C3: {kind.value} {words}", ("C3",), swapped(health, "SIGN_OF", signs))


def _transitions() -> Iterator[Mutant]:
    after, unmoved = health._AFTER, Circuit._unmoved
    yield Mutant("C3: a sound turn ends no row", ("C3",), _after(State.SERVING, Sign.SOUND, unmoved))
    yield Mutant("C3: what says nothing ends a row", ("C3",), _after(State.SERVING, Sign.NOTHING, Circuit._sound))
    yield Mutant("C3: a probe is not given back", ("C3",), _after(State.PROBING, Sign.NOTHING, unmoved))
    yield Mutant("C3: a sound probe closes nothing", ("C3",), _after(State.PROBING, Sign.SOUND, unmoved))
    yield Mutant(
        "C3: a trial is as good as health", ("C3",), _after(State.TRIAL, Sign.FAULT, after[State.SERVING, Sign.FAULT])
    )
    yield Mutant("C3: the time is never doubled", ("C3",), swapped(health, "DOUBLINGS_MAX", 0))
    yield Mutant(
        "C3: others wait for a probe's end",
        ("C3",),
        swapped(Circuit, "delivered", lambda circuit, _generation: circuit),
    )
    yield Mutant("C3: any turn may probe", ("C3",), swapped(Circuit, "takes_turns", _while_probing_too))
    yield Mutant("C3: a retry-after is not heard", ("C3", "F5"), everywhere(health.wait_asked_seconds, lambda *_: None))
    yield Mutant("C3: no time is heard", ("C3",), swapped(health, "parsedate_tz", lambda _date: None))
    yield Mutant("C3: the gateway's own clock counts first", ("C3",), swapped(health, "_retry_after_seconds", _by_ours))
    yield Mutant(
        "C3: any status may ask to wait", ("C3", "F5"), swapped(health, "WAITING_STATUSES", frozenset({429, 500, 503}))
    )


def _after(state: State, sign: Sign, becomes: object) -> Flip:
    return swapped(health, "_AFTER", {**health._AFTER, (state, sign): becomes})


_true_retry_after: Final = health._retry_after_seconds


def _by_ours(answer: UpstreamAnswer, wall_now: float) -> float | None:
    undated = tuple(header for header in answer.headers if header[0] != "date")
    return _true_retry_after(replace(answer, headers=undated), wall_now)


_true_takes_turns: Final = Circuit.takes_turns


def _while_probing_too(circuit: Circuit, now: float) -> bool:
    return circuit.state is State.PROBING or _true_takes_turns(circuit, now)


def _choices() -> Iterator[Mutant]:
    yield Mutant("M1: all draws are one", ("M1",), everywhere(draw_of, lambda _number: 0.0))
    yield Mutant("C3: a route is never full", ("C3",), swapped(Selection, "_is_full", lambda _selection, _route: False))
    yield Mutant("C3: a route that drains is asked", ("C3",), change=_without_drain)


def _without_drain(config: Config) -> Config:
    return replace(config, routes={name: replace(route, is_draining=False) for name, route in config.routes.items()})
