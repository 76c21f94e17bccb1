"""The replay decision: each row left out, each guard weakened, each reason silenced, neighbours exchanged (R)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from gateway.core import replay
from gateway.core.failures import FailureKind
from gateway.core.replay import NEVER_RULES, REPLAY, Facts, Reason, Rule
from gateway.lock.mutants.flips import Flip, Mutant, swapped, without

EXCHANGEABLE: Final = (
    ("R1", "R2"), ("R2", "R3"), ("R3", "R4"), ("R4", "R5"), ("R9", "R10"), ("R10", "R10a"), ("R11", "R12"),
    ("R12", "R13"), ("R13", "R14"),
)  # fmt: skip
"""Neighbours that can both object. R5 to R9 each ask for another kind of failure, of which there is one; who refuses
replays (R10a) has spent none (R11)."""


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for rule in NEVER_RULES:
        yield Mutant(f"{rule.id}: the row is left out", (rule.id,), _without(rule))
        if len(rule.reasons) > 1:
            yield from (_silent(rule, reason) for reason in rule.reasons)
    yield from (_exchanged(first, second) for first, second in EXCHANGEABLE)
    yield from _guards()


def _without(out: Rule) -> Flip:
    return swapped(replay, "NEVER_RULES", without(NEVER_RULES, out))


def _silent(rule: Rule, silenced: Reason) -> Mutant:
    """The row never gives that reason, and passes where it would."""

    def objection(facts: Facts) -> Reason | None:
        reason = rule.objection(facts)
        return None if reason is silenced else reason

    return Mutant(
        f"{rule.id}: never {silenced.value}", (rule.id,), _instead(rule.id, objection), words=(silenced.value,)
    )


def _exchanged(first: str, second: str) -> Mutant:
    order = {rule.id: number for number, rule in enumerate(NEVER_RULES)}
    order[first], order[second] = order[second], order[first]
    rows = tuple(sorted(NEVER_RULES, key=lambda rule: order[rule.id]))
    return Mutant(f"{second} is asked before {first}", (first, second), swapped(replay, "NEVER_RULES", rows))


def _instead(rule_id: str, objection: Callable[[Facts], Reason | None]) -> Flip:
    rows = tuple(replace(rule, objection=objection) if rule.id == rule_id else rule for rule in NEVER_RULES)
    return swapped(replay, "NEVER_RULES", rows)


def _row(rule_id: str) -> Rule:
    return next(rule for rule in NEVER_RULES if rule.id == rule_id)


def _guards() -> Iterator[Mutant]:
    yield Mutant("R15: nothing is ever replayed", ("R15",), swapped(replay, "REPLAY", replace(REPLAY, replay=False)))
    yield Mutant("R9: no read error is replayed", ("R9", "R15"), _instead("R9", _any_read_error))
    yield Mutant("R5: a first-event timeout is replayed", ("R5", "T2"), _timeouts(FailureKind.UPSTREAM_TIMEOUT))
    yield Mutant("R5: an upstream's own timeout is replayed", ("R5", "F1"), _timeouts(FailureKind.FIRST_EVENT_TIMEOUT))
    yield Mutant("R10: never sent makes no difference", ("R10", "F2"), _instead("R10", _stateful_even_if_never_sent))
    yield Mutant("R10: the last of several reasons is named", ("R10",), _instead("R10", _last_reason))
    yield Mutant("R4: a result is named before usage", ("R4",), _instead("R4", _result_first))
    yield Mutant("R11: a second replay is allowed", ("R11",), _instead("R11", _twice))


def _timeouts(kept: FailureKind) -> Flip:
    return swapped(replay, "TIMEOUTS", (kept,))


def _any_read_error(facts: Facts) -> Reason | None:
    return Reason.READ_ERROR_AFTER_FIRST_EVENT if facts.failure is FailureKind.READ_ERROR else None


def _stateful_even_if_never_sent(facts: Facts) -> Reason | None:
    return Reason(facts.stateful_reasons[0]) if facts.stateful_reasons else None


def _last_reason(facts: Facts) -> Reason | None:
    reversed_reasons = tuple(reversed(facts.stateful_reasons))
    return _row("R10").objection(replace(facts, stateful_reasons=reversed_reasons))


def _result_first(facts: Facts) -> Reason | None:
    return Reason.RESULT_OBSERVED if facts.result_was_observed else _row("R4").objection(facts)


def _twice(facts: Facts) -> Reason | None:
    return Reason.REPLAY_SPENT if facts.replays_spent > 1 else None
