"""THE replay decision as a pure function: its table, its order, and each rule's weight (R)."""

from dataclasses import replace
from itertools import combinations

import pytest

from gateway.core.failures import FailureKind
from gateway.core.replay import NEVER_RULES, REPLAY, Facts, Reason, Verdict, decide

LAW = [
    # spec §4, in its order: id, reasons
    ("R1", ("client_disconnected",)),
    ("R2", ("output_delivered",)),
    ("R3", ("lifecycle_delivered",)),
    ("R4", ("usage_observed", "result_observed")),
    ("R5", ("first_event_timeout",)),
    ("R6", ("idle_timeout",)),
    ("R7", ("buffer_overflow",)),
    ("R8", ("deterministic",)),
    ("R8a", ("not_retryable",)),
    ("R9", ("read_error_after_first_event",)),
    ("R10", ("stored", "continuation", "origin_bound", "background", "side_effect_tool")),
    ("R10a", ("disabled",)),
    ("R11", ("replay_spent",)),
    ("R12", ("draining", "connection_limit")),
    ("R13", ("replay_throttled",)),
    ("R14", ("no_route_left",)),
]

RETRYABLE = Facts(FailureKind.RETRYABLE)
"""The plainest failure that is replayed."""


def of(kind: FailureKind) -> Facts:
    return Facts(kind)


OBJECTIONS: list[tuple[str, str, Facts]] = [
    # rule, reason, facts to which that rule alone objects
    ("R1", "client_disconnected", of(FailureKind.CLIENT_LEFT)),
    ("R2", "output_delivered", replace(RETRYABLE, output_was_delivered=True)),
    ("R3", "lifecycle_delivered", replace(RETRYABLE, lifecycle_was_delivered=True)),
    ("R4", "usage_observed", replace(RETRYABLE, usage_was_observed=True)),
    ("R4", "result_observed", replace(RETRYABLE, result_was_observed=True)),
    ("R5", "first_event_timeout", of(FailureKind.FIRST_EVENT_TIMEOUT)),
    ("R5", "first_event_timeout", of(FailureKind.UPSTREAM_TIMEOUT)),
    ("R6", "idle_timeout", of(FailureKind.IDLE_TIMEOUT)),
    ("R7", "buffer_overflow", of(FailureKind.BUFFER_OVERFLOW)),
    ("R8", "deterministic", of(FailureKind.DETERMINISTIC)),
    ("R8a", "not_retryable", of(FailureKind.NOT_RETRYABLE)),
    ("R8a", "not_retryable", of(FailureKind.ROUTE_SELECTION)),
    ("R8a", "not_retryable", of(FailureKind.INTERNAL)),
    ("R9", "read_error_after_first_event", Facts(FailureKind.READ_ERROR, first_event_was_seen=True)),
    ("R10", "stored", replace(RETRYABLE, stateful_reasons=("stored",))),
    ("R10", "continuation", replace(RETRYABLE, stateful_reasons=("continuation",))),
    ("R10", "origin_bound", replace(RETRYABLE, stateful_reasons=("origin_bound",))),
    ("R10", "background", replace(RETRYABLE, stateful_reasons=("background",))),
    ("R10", "side_effect_tool", replace(RETRYABLE, stateful_reasons=("side_effect_tool",))),
    ("R10a", "disabled", replace(RETRYABLE, replay_is_disabled=True)),
    ("R11", "replay_spent", replace(RETRYABLE, replays_spent=1)),
    ("R12", "draining", replace(RETRYABLE, is_draining=True)),
    ("R12", "draining", of(FailureKind.DRAINING)),
    ("R12", "connection_limit", replace(RETRYABLE, connection_limit_is_reached=True)),
    ("R12", "connection_limit", of(FailureKind.CONNECTION_LIMIT)),
    ("R13", "replay_throttled", replace(RETRYABLE, is_throttled=True)),
    ("R14", "no_route_left", replace(RETRYABLE, another_route_is_left=False)),
]
IDS = [f"{rule}-{reason}-{facts.failure.value}" for rule, reason, facts in OBJECTIONS]

REPLAYED = [
    of(FailureKind.RETRYABLE),
    of(FailureKind.ROUTE_FAULT),
    of(FailureKind.NEVER_SENT),
    of(FailureKind.READ_ERROR),
    Facts(FailureKind.RETRYABLE, first_event_was_seen=True),
    Facts(FailureKind.ROUTE_FAULT, first_event_was_seen=True),
]


def test_the_never_rules_are_the_law_in_its_order() -> None:
    """R1-R14: spec §4's ids and reasons, in its order."""
    assert [(rule.id, tuple(reason.value for reason in rule.reasons)) for rule in NEVER_RULES] == LAW


def test_every_reason_belongs_to_exactly_one_rule() -> None:
    """§4: the reason is locked, so it names its rule."""
    reasons = [reason for rule in NEVER_RULES for reason in rule.reasons]
    assert [*reasons, Reason.REPLAY] == list(Reason)


def test_every_rule_says_when_it_applies() -> None:
    """K5: the README's table is generated from this one."""
    assert [rule.id for rule in NEVER_RULES if not rule.when] == []


@pytest.mark.parametrize(("rule", "reason", "facts"), OBJECTIONS, ids=IDS)
def test_a_rule_objects_with_its_reason(rule: str, reason: str, facts: Facts) -> None:
    """R1-R14: each as refused."""
    assert decide(facts) == Verdict(replay=False, reason=Reason(reason), rule=rule)


@pytest.mark.parametrize(("rule", "reason", "facts"), OBJECTIONS, ids=IDS)
def test_without_its_rule_the_same_failure_is_replayed(rule: str, reason: str, facts: Facts) -> None:
    """K4: each rule alone keeps these facts from a replay, so each one matters."""
    assert decide(facts, without=frozenset({rule})) == REPLAY


def test_every_rule_and_every_reason_is_seen_to_object() -> None:
    """K2: the cases above leave none out."""
    seen = {(rule, reason) for rule, reason, _ in OBJECTIONS}
    assert seen == {(rule, reason) for rule, reasons in LAW for reason in reasons}


@pytest.mark.parametrize("facts", REPLAYED, ids=lambda facts: facts.failure.value)
def test_what_no_rule_objects_to_is_replayed(facts: Facts) -> None:
    """R15."""
    assert decide(facts) == Verdict(replay=True, reason=Reason.REPLAY, rule="R15")


@pytest.mark.parametrize("kind", FailureKind)
def test_no_failure_is_replayed_once_output_was_delivered(kind: FailureKind) -> None:
    """§0: after the first output event a failure is reported, whatever it is."""
    assert not decide(Facts(kind, output_was_delivered=True, lifecycle_was_delivered=True)).replay


@pytest.mark.parametrize("kind", FailureKind)
def test_no_kind_of_failure_is_replayed_twice(kind: FailureKind) -> None:
    """R11."""
    assert not decide(Facts(kind, replays_spent=1)).replay


def merged(one: Facts, other: Facts) -> Facts:
    """All that stands in the way in either; the failure of the one that has an unusual one."""
    plain = Facts(one.failure if one.failure is not FailureKind.RETRYABLE else other.failure)
    changes = {
        name: getattr(facts, name)
        for facts in (one, other)
        for name in Facts.__slots__
        if name != "failure" and getattr(facts, name) != getattr(plain, name)
    }
    return replace(plain, **changes)


PAIRS = [
    (one, other)
    for one, other in combinations(OBJECTIONS, 2)
    if one[0] != other[0] and FailureKind.RETRYABLE in (one[2].failure, other[2].failure)
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_of_two_objections_the_first_is_the_reason(one: tuple[str, str, Facts], other: tuple[str, str, Facts]) -> None:
    """§4: the first objection is the reason."""
    verdict = decide(merged(one[2], other[2]))
    assert (verdict.rule, verdict.reason.value) == one[:2]


@pytest.mark.parametrize("reason", ["stored", "background", "side_effect_tool"])
def test_what_was_never_sent_left_nothing_behind(reason: str) -> None:
    """R10, never sent: nothing was executed, so what it would have left does not stand in the way."""
    assert decide(Facts(FailureKind.NEVER_SENT, stateful_reasons=(reason,))) == REPLAY


@pytest.mark.parametrize("reason", ["continuation", "origin_bound"])
def test_what_was_never_sent_still_belongs_where_its_state_is(reason: str) -> None:
    """R10, never sent: another route lacks the state."""
    verdict = decide(Facts(FailureKind.NEVER_SENT, stateful_reasons=("stored", reason, "side_effect_tool")))
    assert (verdict.rule, verdict.reason.value) == ("R10", reason)


@pytest.mark.parametrize(
    ("rule", "facts"),
    [
        ("R11", Facts(FailureKind.NEVER_SENT, replays_spent=1)),
        ("R13", Facts(FailureKind.NEVER_SENT, is_throttled=True)),
    ],
)
def test_what_was_never_sent_is_an_attempt_all_the_same(rule: str, facts: Facts) -> None:
    """R11, R13: it spends both."""
    assert decide(facts).rule == rule


def test_the_first_of_a_request_s_reasons_is_the_reason() -> None:
    """R10: the request lists its reasons in the table's order."""
    facts = replace(RETRYABLE, stateful_reasons=("continuation", "background"))
    assert decide(facts).reason is Reason.CONTINUATION


def test_a_read_error_before_the_first_event_is_replayed_and_after_it_is_not() -> None:
    """R9, R15."""
    before = decide(Facts(FailureKind.READ_ERROR, first_event_was_seen=False))
    after = decide(Facts(FailureKind.READ_ERROR, first_event_was_seen=True))
    assert (before.rule, after.rule) == ("R15", "R9")


def test_deciding_changes_nothing() -> None:
    """Style 3: the same facts give the same verdict."""
    assert [decide(facts) for _, _, facts in OBJECTIONS] == [decide(facts) for _, _, facts in OBJECTIONS]
