"""THE replay decision (R): one pure function, asked once for each failed attempt.

A request may be run a second time only while three things hold at once: nothing has reached the client, nothing
observable has been metered, and the request carries no server-side state. So:

- never-rules come first, in this order; the first objection is the answer, and the answer is a reason;
- what no rule objects to is replayed, once, on another route (R15);
- the decision reads facts and changes nothing. A new rule is a new row here, and nothing else.

`decide(facts, without={"R5"})` answers as if a rule were not there: so each rule is proven to matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.core.eligibility import BACKGROUND, CONTINUATION, ORIGIN_BOUND, SIDE_EFFECT_TOOL, STORED
from gateway.core.failures import FailureKind


class Reason(Enum):
    """Why a failed attempt is or is not replayed: logged, counted, locked."""

    CLIENT_DISCONNECTED = "client_disconnected"
    OUTPUT_DELIVERED = "output_delivered"
    LIFECYCLE_DELIVERED = "lifecycle_delivered"
    USAGE_OBSERVED = "usage_observed"
    RESULT_OBSERVED = "result_observed"
    FIRST_EVENT_TIMEOUT = "first_event_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    BUFFER_OVERFLOW = "buffer_overflow"
    DETERMINISTIC = "deterministic"
    NOT_RETRYABLE = "not_retryable"
    READ_ERROR_AFTER_FIRST_EVENT = "read_error_after_first_event"
    STORED = STORED
    CONTINUATION = CONTINUATION
    ORIGIN_BOUND = ORIGIN_BOUND
    BACKGROUND = BACKGROUND
    SIDE_EFFECT_TOOL = SIDE_EFFECT_TOOL
    DISABLED = "disabled"
    REPLAY_SPENT = "replay_spent"
    DRAINING = "draining"
    CONNECTION_LIMIT = "connection_limit"
    REPLAY_THROTTLED = "replay_throttled"
    NO_ROUTE_LEFT = "no_route_left"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the decision reads. First the attempt's, then the request's, then the house's."""

    failure: FailureKind
    output_was_delivered: bool = False
    lifecycle_was_delivered: bool = False
    usage_was_observed: bool = False
    result_was_observed: bool = False
    first_event_was_seen: bool = False

    stateful_reasons: tuple[str, ...] = ()
    replay_is_disabled: bool = False
    replays_spent: int = 0

    is_draining: bool = False
    connection_limit_is_reached: bool = False
    is_throttled: bool = False
    another_route_is_left: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: whether to replay, and the reason by its name and rule."""

    replay: bool
    reason: Reason
    rule: str


Objection = Callable[[Facts], Reason | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One never-rule: its id, the reasons it may give, when it applies (for readers), and the test itself."""

    id: str
    reasons: tuple[Reason, ...]
    when: str
    objection: Objection


def _rule(rule_id: str, reason: Reason, when: str, applies: Callable[[Facts], bool]) -> Rule:
    return Rule(rule_id, (reason,), when, lambda facts: reason if applies(facts) else None)


def _observed(facts: Facts) -> Reason | None:
    if facts.usage_was_observed:
        return Reason.USAGE_OBSERVED
    return Reason.RESULT_OBSERVED if facts.result_was_observed else None


def _stateful(facts: Facts) -> Reason | None:
    """Nothing was executed if nothing was sent: then only state that another route lacks stands in the way."""
    standing = facts.stateful_reasons
    if facts.failure is FailureKind.NEVER_SENT:
        standing = tuple(reason for reason in standing if reason in (CONTINUATION, ORIGIN_BOUND))
    return Reason(standing[0]) if standing else None


def _shutting_down(facts: Facts) -> Reason | None:
    """What ended the turn itself names the reason; else what would end its next attempt."""
    if facts.failure in ENDS_OF_THE_HOUSE:
        return ENDS_OF_THE_HOUSE[facts.failure]
    if facts.is_draining:
        return Reason.DRAINING
    return Reason.CONNECTION_LIMIT if facts.connection_limit_is_reached else None


TIMEOUTS: Final = (FailureKind.FIRST_EVENT_TIMEOUT, FailureKind.UPSTREAM_TIMEOUT)
ENDS_OF_THE_HOUSE: Final = {
    FailureKind.DRAINING: Reason.DRAINING,
    FailureKind.CONNECTION_LIMIT: Reason.CONNECTION_LIMIT,
}
STATEFUL: Final = (
    Reason.STORED,
    Reason.CONTINUATION,
    Reason.ORIGIN_BOUND,
    Reason.BACKGROUND,
    Reason.SIDE_EFFECT_TOOL,
)


NEVER_RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "R1",
        Reason.CLIENT_DISCONNECTED,
        "the client left",
        lambda facts: facts.failure is FailureKind.CLIENT_LEFT,
    ),
    _rule("R2", Reason.OUTPUT_DELIVERED, "an output event was handed over", lambda facts: facts.output_was_delivered),
    _rule(
        "R3",
        Reason.LIFECYCLE_DELIVERED,
        "the hold expired and the held events were handed over",
        lambda facts: facts.lifecycle_was_delivered,
    ),
    Rule(
        "R4",
        (Reason.USAGE_OBSERVED, Reason.RESULT_OBSERVED),
        "the attempt was metered, or gave a result",
        _observed,
    ),
    _rule(
        "R5",
        Reason.FIRST_EVENT_TIMEOUT,
        "no event came in time, or the upstream said it timed out: it may still be generating",
        lambda facts: facts.failure in TIMEOUTS,
    ),
    _rule(
        "R6",
        Reason.IDLE_TIMEOUT,
        "events came, then silence: it may still be generating",
        lambda facts: facts.failure is FailureKind.IDLE_TIMEOUT,
    ),
    _rule(
        "R7",
        Reason.BUFFER_OVERFLOW,
        "the held events, or one event, passed a limit of the gateway: they would again",
        lambda facts: facts.failure is FailureKind.BUFFER_OVERFLOW,
    ),
    _rule(
        "R8",
        Reason.DETERMINISTIC,
        "the request itself is at fault",
        lambda facts: facts.failure is FailureKind.DETERMINISTIC,
    ),
    _rule(
        "R8a",
        Reason.NOT_RETRYABLE,
        "nothing marks the failure as retryable",
        lambda facts: facts.failure in (FailureKind.NOT_RETRYABLE, FailureKind.ROUTE_SELECTION, FailureKind.INTERNAL),
    ),
    _rule(
        "R9",
        Reason.READ_ERROR_AFTER_FIRST_EVENT,
        "the stream broke after its first event",
        lambda facts: facts.failure is FailureKind.READ_ERROR and facts.first_event_was_seen,
    ),
    Rule("R10", STATEFUL, "the request is stateful", _stateful),
    _rule("R10a", Reason.DISABLED, "the client or its key asked for no replay", lambda facts: facts.replay_is_disabled),
    _rule("R11", Reason.REPLAY_SPENT, "the turn was replayed once already", lambda facts: facts.replays_spent > 0),
    Rule(
        "R12",
        (Reason.DRAINING, Reason.CONNECTION_LIMIT),
        "the gateway is shutting down, or the connection's 60 minutes are over",
        _shutting_down,
    ),
    _rule("R13", Reason.REPLAY_THROTTLED, "the replay budget is spent", lambda facts: facts.is_throttled),
    _rule("R14", Reason.NO_ROUTE_LEFT, "no other route can serve it", lambda facts: not facts.another_route_is_left),
)
"""Never-rules, in order. Whatever none of them objects to is R15: replay."""

REPLAY: Final = Verdict(replay=True, reason=Reason.REPLAY, rule="R15")


def decide(facts: Facts, *, without: frozenset[str] = frozenset()) -> Verdict:
    """The verdict on a failed attempt. `without` leaves rules out by id, to prove that each one matters."""
    for rule in NEVER_RULES:
        reason = None if rule.id in without else rule.objection(facts)
        if reason is not None:
            return Verdict(replay=False, reason=reason, rule=rule.id)
    return REPLAY
