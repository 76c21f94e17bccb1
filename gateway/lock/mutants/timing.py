"""How long (T): each duration longer and shorter; who wins at a deadline, and who of two clocks that end at once."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gateway import app, limits
from gateway.config import Config
from gateway.core import turn
from gateway.core.attempt import Attempt
from gateway.core.events import Event, EventClass
from gateway.core.hold import Hold
from gateway.core.messages import ClientLeft
from gateway.core.rules import Clock, Due, TurnRules
from gateway.core.turn import Turn
from gateway.lock.mutants.flips import Flip, Mutant, added, swapped
from gateway.lock.world import Change

INSTANT: Final = 1e-7
"""Less than a transcript shows: so nothing but the side of a boundary differs."""
TIES: Final = (
    ("T5", "T7"), ("T5", "T2"), ("T5", "T4"), ("T5", "T1"), ("T7", "T2"), ("T7", "T4"), ("T7", "T1"), ("T4", "T1"),
)  # fmt: skip
"""Clocks that can end at one instant and mean different things: the first one goes first. T2 and T1 never run together,
and whatever ends with T9 concludes the same failure."""


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _durations()
    yield from _sides()
    yield from _ties()
    yield from _clocks()


# --- values -----------------------------------------------------------------------------------------------------


def _durations() -> Iterator[Mutant]:
    yield from _pair("T1", "hold", lambda by: _rules(hold_seconds=limits.HOLD_SECONDS_MAX + by), 1.0, 0.002)
    yield from _pair(
        "T9", "grace", lambda by: _rules(failure_grace_seconds=limits.FAILURE_GRACE_SECONDS + by), 0.1, 0.002
    )
    for name, rule, field, longer in (
        ("first event", "T2", "first_event_seconds", 1.0),
        ("idle", "T4", "idle_seconds", 1.0),
        ("connect", "T3", "connect_seconds", 1.5),
        ("whole response", "H1", "response_seconds", 1.0),
    ):
        yield from _configured_pair(rule, name, partial(_routes, field), longer, 0.002)
    for name, rule, field in (
        ("write", "T6", "write_timeout"),
        ("drain", "T7", "drain_timeout"),
        ("start", "H9", "start_latest"),
        ("connection's grace", "W6", "connection_grace"),
        ("connection", "T5", "connection_limit"),
    ):
        yield from _configured_pair(rule, name, partial(_server, field), 1.0, 0.002)
    yield from _pair("H6", "keepalive", lambda by: _limit("KEEPALIVE_SECONDS", by), 1.0, 0.002)
    yield from _pair("E9", "upstream's drain", lambda by: _limit("UPSTREAM_DRAIN_SECONDS_MAX", by), 0.1, 0.05)
    yield Mutant("T10: the books wait a second longer", ("T10",), _limit("CLOSE_BOOKS_SECONDS_MAX", 1.0))


def _pair(rule: str, name: str, flip: Callable[[float], Flip], longer: float, shorter: float) -> Iterator[Mutant]:
    yield Mutant(f"{rule}: the {name} is longer", (rule,), flip(longer))
    yield Mutant(f"{rule}: the {name} is shorter", (rule,), flip(-shorter))


def _configured_pair(
    rule: str, name: str, change: Callable[[float], Change], longer: float, shorter: float
) -> Iterator[Mutant]:
    yield Mutant(f"{rule}: the {name} is longer", (rule,), change=change(longer))
    yield Mutant(f"{rule}: the {name} is shorter", (rule,), change=change(-shorter))


_true_rules: Final = app._rules


def _rules(**changed: float) -> Flip:
    def rules(config: Config) -> TurnRules:
        return replace(_true_rules(config), **changed)  # type: ignore[arg-type]  # every one of them is a duration

    return swapped(app, "_rules", rules)


def _limit(name: str, by: float) -> Flip:
    return swapped(limits, name, getattr(limits, name) + by)


def _routes(field: str, by: float) -> Change:
    def change(config: Config) -> Config:
        routes: dict[str, Any] = {
            name: replace(route, **{field: getattr(route, field) + by}) for name, route in config.routes.items()
        }
        return replace(config, routes=routes)

    return change


def _server(field: str, by: float) -> Change:
    def change(config: Config) -> Config:
        changed = max(0.0, getattr(config.server, field) + by)
        return replace(config, server=config.server.model_copy(update={field: changed}))

    return change


# --- at the boundary --------------------------------------------------------------------------------------------


def _sides() -> Iterator[Mutant]:
    """`<` for `<=`: at its deadline the input wins, where the clock should."""
    for clock in Clock:
        yield Mutant(f"{clock.name}: at the deadline the clock does not win", (clock.name,), _late(clock))
    yield Mutant("T6: at the deadline the client wins", ("T6",), change=_server("write_timeout", INSTANT))
    yield Mutant("R1: a client that leaves goes last", ("R1",), swapped(Turn, "step", _client_last))


def _late(clock: Clock) -> Flip:
    return _chosen(lambda due: (due[0] + INSTANT, due[1]) if due[1] is clock else due)


def _chosen(seen: Callable[[Due], Due]) -> Flip:
    """The machine takes the least of its deadlines; here as each is `seen`."""
    return added(turn, "min", lambda *dues: builtins.min(map(seen, dues)))


_true_step: Final = Turn.step


def _client_last(machine: Turn, arrived: Any, at: float) -> Any:
    """Whatever is due at the instant of a departure comes before it."""
    return _true_step(machine, arrived, at + INSTANT if isinstance(arrived, ClientLeft) else at)


def _ties() -> Iterator[Mutant]:
    for first, second in TIES:
        name = f"{second} goes before {first} at one instant"
        yield Mutant(name, (first, second), _preferring(Clock[second], Clock[first]))


def _preferring(favourite: Clock, other: Clock) -> Flip:
    def least(*dues: Due) -> Due:
        found = builtins.min(dues)
        rivals = [due for due in dues if due[0] == found[0] and due[1] is favourite]
        return rivals[0] if found[1] is other and rivals else found

    return added(turn, "min", least)


# --- what starts and stops a clock ------------------------------------------------------------------------------


def _clocks() -> Iterator[Mutant]:
    yield Mutant("T4: it runs while the client is slow", ("T4",), swapped(Attempt, "unheard", lambda *_arguments: None))
    yield Mutant("T4: no event puts it off", ("T4",), swapped(Attempt, "heard_at", lambda *_arguments: None))
    yield Mutant("T1: the hold is counted anew for each attempt", ("T1",), swapped(Turn, "_replay", _with_a_new_hold))
    handlers = {**turn._EVENT_HANDLERS, EventClass.NEUTRAL: _neutral_obeys}
    yield Mutant(
        "T1: a neutral event leaves once the clock ran out", ("T1", "E2"), swapped(turn, "_EVENT_HANDLERS", handlers)
    )
    yield Mutant("R7: what was discarded counts on", ("R7", "R15"), swapped(Hold, "take", _without_forgetting))


_true_replay: Final = Turn._replay


def _with_a_new_hold(machine: Turn, attempt: Any, failure: Any, end: Any) -> None:
    _true_replay(machine, attempt, failure, end)
    rules = machine._rules
    machine._hold = Hold(rules.hold_seconds, rules.hold_bytes_max, rules.hold_events_max)


def _neutral_obeys(machine: Turn, attempt: Attempt, event: Event, at: float) -> None:
    """The hold's clock does not ask what it is that came."""
    is_late = machine._hold.is_over(at) and not machine.is_committed
    machine._hold_or_pass(attempt, event, at)
    if is_late:
        machine._deliver(machine._hold.take(), at)


_true_take: Final = Hold.take


def _without_forgetting(hold: Hold) -> Sequence[Event]:
    held = hold._bytes
    events = _true_take(hold)
    hold._bytes = held
    return events
