"""The replay decision through the turn machine: each rule on both doors, as refused and as replayed (R1-R15)."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.core.events import Event
from gateway.core.failures import FailureKind
from gateway.core.messages import Batch, Circumstances, Deliver, DeliverFailure, Door, Head, Opened, Replay
from gateway.core.money import EndedBy, Usage
from gateway.core.replay import NEVER_RULES
from gateway.core.rules import Phase, TurnRules
from support.machine import (
    CANCELLED,
    COMPLETED,
    CREATED,
    DELTA,
    DOORS,
    HTTP,
    IN_PROGRESS,
    INCOMPLETE,
    KEEPALIVE,
    LEFT,
    METADATA,
    NO_CHOICE,
    RESET,
    START,
    UNAVAILABLE,
    UNREACHABLE,
    USAGE,
    WEBSOCKET,
    ZEROS,
    Moment,
    Player,
    ended_by,
    error,
    event,
    failed,
    play,
    sends,
    starts,
)

Script = list[Moment]

FAILS: Moment = (2, sends(failed()))
BEGUN: Script = [(0, START), (1, sends(CREATED, IN_PROGRESS))]


@dataclass(frozen=True)
class Case:
    """One rule: a script in which it alone objects, and the nearest one in which nothing does."""

    rule: str
    reason: str
    refused: Script
    replayed: Script
    options: dict[str, Any] = field(default_factory=dict)
    replayed_options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.rule}-{self.reason}"


HOLD_OF_TWO = {"rules": TurnRules(hold_events_max=2)}
LIMIT_AT_2 = {"rules": TurnRules(connection_limit_at=2.0, cut_at=60.0)}
JUST_AFTER_2 = {"rules": TurnRules(connection_limit_at=2.001, cut_at=60.0)}
QUICK = starts(first_event=5, idle=5)


def house(**facts: bool) -> dict[str, Any]:
    return {"house": Circumstances(**{"another_route_is_left": True, **facts})}


def asked(*reasons: str) -> dict[str, Any]:
    return {"stateful": reasons}


CASES = [
    Case("R1", "client_disconnected", [*BEGUN, (2, sends(error())), (2.1, LEFT)], [*BEGUN, (2, sends(error()))]),
    Case("R2", "output_delivered", [*BEGUN, (1.5, sends(DELTA)), FAILS], [*BEGUN, FAILS]),
    Case("R3", "lifecycle_delivered", [*BEGUN, (11, sends(failed()))], [*BEGUN, (10.999, sends(failed()))]),
    Case(
        "R4",
        "usage_observed",
        [*BEGUN, (2, sends(failed(usage=USAGE)))],
        [*BEGUN, (2, sends(failed(usage=ZEROS)))],
    ),
    Case(
        "R4",
        "result_observed",
        [*BEGUN, (2, sends(failed(output=[{"type": "message"}])))],
        [*BEGUN, (2, sends(failed(output=[])))],
    ),
    Case("R5", "first_event_timeout", [(0, QUICK), (5, RESET)], [(0, QUICK), (4.999, RESET)]),
    Case(
        "R5",
        "first_event_timeout",
        [*BEGUN, (2, sends(failed("timeout_error")))],
        [*BEGUN, (2, sends(failed("server_error")))],
    ),
    Case(
        "R5",
        "first_event_timeout",
        [*BEGUN, (2, sends(error(status=504), failed(None)))],
        [*BEGUN, (2, sends(error(status=503), failed(None)))],
    ),
    Case(
        "R6",
        "idle_timeout",
        [(0, QUICK), (1, sends(CREATED)), (6, sends(failed()))],
        [(0, QUICK), (1, sends(CREATED)), (5.999, sends(failed()))],
    ),
    Case("R7", "buffer_overflow", [*BEGUN, (1.5, sends(KEEPALIVE)), FAILS], [*BEGUN, FAILS], HOLD_OF_TWO, HOLD_OF_TWO),
    Case(
        "R7",
        "buffer_overflow",
        [*BEGUN, (2, ended_by(FailureKind.BUFFER_OVERFLOW, "upstream_stream_buffer_limit"))],
        [*BEGUN, (2, ended_by(FailureKind.RETRYABLE, "upstream_bad_response"))],
    ),
    Case("R8", "deterministic", [*BEGUN, (2, sends(failed("invalid_prompt")))], [*BEGUN, FAILS]),
    Case(
        "R8a",
        "not_retryable",
        [*BEGUN, (2, sends(failed("mystery")))],
        [*BEGUN, (2, sends(event("response.failed", retryable=True, response={"error": {"code": "mystery"}})))],
    ),
    Case("R9", "read_error_after_first_event", [*BEGUN, (2, RESET)], [(0, START), (1, sends(KEEPALIVE)), (2, RESET)]),
    *(
        Case("R10", reason, [*BEGUN, FAILS], [*BEGUN, FAILS], asked(reason))
        for reason in ("stored", "continuation", "origin_bound", "background", "side_effect_tool")
    ),
    Case(
        "R10",
        "stored",
        [(0, START), (1, UNAVAILABLE)],
        [(0, START), (1, UNREACHABLE)],
        asked("stored"),
        asked("stored"),
    ),
    Case(
        "R10",
        "continuation",
        [(0, START), (1, UNREACHABLE)],
        [(0, START), (1, UNREACHABLE)],
        asked("stored", "continuation"),
        asked("stored", "background", "side_effect_tool"),
    ),
    Case("R10a", "disabled", [*BEGUN, FAILS], [*BEGUN, FAILS], {"is_disabled": True}),
    Case("R12", "draining", [*BEGUN, FAILS], [*BEGUN, FAILS], house(is_draining=True)),
    Case("R12", "connection_limit", [*BEGUN, FAILS], [*BEGUN, FAILS], LIMIT_AT_2, JUST_AFTER_2),
    Case("R13", "replay_throttled", [*BEGUN, FAILS], [*BEGUN, FAILS], house(is_throttled=True)),
    Case("R14", "no_route_left", [*BEGUN, FAILS], [*BEGUN, FAILS], house(another_route_is_left=False)),
]


def played(door: Door, script: Script, options: dict[str, Any]) -> Player:
    return Player(door, **options).plays(*script).waits(script[-1][0] + 1)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_where_a_rule_objects_the_turn_ends_with_its_reason(case: Case, door: Door) -> None:
    """R1-R14, each as refused, on both doors."""
    player = played(door, case.refused, case.options)
    assert (player.reason, player.turn.phase) == (f"{case.rule} {case.reason}", Phase.DONE)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_where_nothing_objects_the_attempt_is_replayed_and_nothing_delivered(case: Case, door: Door) -> None:
    """R15, beside each rule's border, on both doors."""
    player = played(door, case.replayed, case.replayed_options)
    assert (player.reason, player.delivered, player.turn.phase) == ("R15 replay", [], Phase.RUNNING)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_flipped_changes_what_becomes_of_the_turn(case: Case, door: Door) -> None:
    """K4: no rule's flip survives."""
    rules = case.options.get("rules", TurnRules())
    flipped = {**case.options, "rules": TurnRules(**{**_as_dict(rules), "without": frozenset({case.rule})})}
    assert played(door, case.refused, flipped).lines != played(door, case.refused, case.options).lines


def _as_dict(rules: TurnRules) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in TurnRules.__slots__}


@pytest.mark.parametrize("door", DOORS)
def test_the_second_failure_of_a_turn_is_not_replayed(door: Door) -> None:
    """R11: case 1, "no third call"."""
    assert play(door, *BEGUN, FAILS, (3, sends(CREATED)), (4, sends(failed("overloaded")))) == [
        "2 replay after server_error",
        "4 deliver created failed",
        "4 finish overloaded by R11 replay_spent",
    ]


@pytest.mark.parametrize("door", DOORS)
def test_without_r11_a_turn_would_be_run_a_third_time(door: Door) -> None:
    """K4."""
    rules = TurnRules(without=frozenset({"R11"}))
    lines = play(door, *BEGUN, FAILS, (3, sends(CREATED)), (4, sends(failed("overloaded"))), rules=rules)
    assert lines == ["2 replay after server_error", "4 replay after overloaded"]


def test_the_cases_leave_no_rule_out() -> None:
    """K2; R11 has its own tests."""
    assert {case.rule for case in CASES} | {"R11"} == {rule.id for rule in NEVER_RULES}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("second", [RESET, UNREACHABLE, UNAVAILABLE], ids=lambda ended: ended.failure.code)
def test_a_second_read_error_keeps_its_own_code(door: Door, second: Any) -> None:
    """R11: the client gets the failure of the attempt that was its last."""
    lines = play(door, (0, START), (1, RESET), (2, second))
    told = f"2 tell {second.failure.code} {second.failure.status}"
    assert lines[1:] == [told, f"2 finish {second.failure.code} by R11 replay_spent"]


# --- what the client gets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_a_replay_leaves_no_trace_of_the_failed_attempt(door: Door) -> None:
    """§4: no byte, id or header of it reaches the client (case 5)."""
    first = event("response.created", response={"id": "resp_a"})
    second = event("response.created", response={"id": "resp_b"})
    player = Player(door).plays(
        (0, START),
        (0.5, Opened(Head((("x-request-id", "a"),)))),
        (1, sends(first, KEEPALIVE, METADATA)),
        (2, sends(error(), failed())),
        (2.5, Opened(Head((("x-request-id", "b"),)))),
        (3, sends(second, DELTA)),
        (4, sends(COMPLETED)),
    )
    heads = [command.head for command in player.said if isinstance(command, Deliver)]
    assert (player.delivered, heads) == ([second, DELTA, COMPLETED], [Head((("x-request-id", "b"),))] * 2)


@pytest.mark.parametrize("door", DOORS)
def test_a_replacement_that_fails_before_its_head_has_no_head(door: Door) -> None:
    """§4: not the failed attempt's either."""
    player = Player(door).plays((0, START), (0.5, Opened(Head((("x", "a"),)))), (1, RESET), (2, RESET))
    assert player.failure.head is None


@pytest.mark.parametrize("door", DOORS)
def test_a_failure_after_a_replay_knows_nothing_of_the_discarded_response(door: Door) -> None:
    """X3: the response and the numbers are those that were delivered."""
    player = Player(door).plays(*BEGUN, (2, sends(failed())), (3, RESET))
    assert (player.failure.response, player.failure.next_sequence_number) == (None, None)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("ending", [RESET, UNAVAILABLE, ended_by(FailureKind.DETERMINISTIC, "upstream_bad_response")])
def test_held_events_are_delivered_before_a_failure_that_is_not_replayed(door: Door, ending: Any) -> None:
    """§4: always handed over first, and in their order."""
    player = Player(door, house=Circumstances()).plays(
        (0, START), (1, sends(KEEPALIVE, CREATED)), (1.5, sends(METADATA, IN_PROGRESS)), (2, ending)
    )
    assert (player.types, player.failure.failure) == (
        ["keepalive", "created", "metadata", "in_progress"],
        ending.failure,
    )


@pytest.mark.parametrize("door", DOORS)
def test_held_neutral_events_alone_are_delivered_before_the_failure_too(door: Door) -> None:
    """§4, E2."""
    assert play(door, (0, starts(first_event=5)), (1, sends(KEEPALIVE)), (5, RESET)) == [
        "5 deliver keepalive",
        "5 tell first_event_timeout 504",
        "5 finish first_event_timeout by R5 first_event_timeout",
    ]


@pytest.mark.parametrize("door", DOORS)
def test_no_route_left_leaves_the_failure_its_own_code(door: Door) -> None:
    """R14."""
    assert play(door, (0, START), (1, UNREACHABLE), house=Circumstances()) == [
        "1 tell upstream_connect_error 502",
        "1 finish upstream_connect_error by R14 no_route_left",
    ]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("terminal", [COMPLETED, INCOMPLETE, CANCELLED], ids=lambda event: event.type)
def test_a_terminal_is_a_result_and_delivered_unchanged(door: Door, terminal: Event) -> None:
    """R4: nobody is asked; there was no failure."""
    player = Player(door).plays(*BEGUN, (2, sends(terminal)))
    outcome = terminal.type.removeprefix("response.")
    assert player.lines == [f"2 deliver created in_progress {outcome}", f"2 finish {outcome}"]


# --- R4: what was metered ---------------------------------------------------------------------------------------------

SOMETHING = [
    {"input_tokens": 1},
    {"input_tokens": 0, "output_tokens": 1},
    {"input_tokens": -1, "output_tokens": 0},
    {"input_tokens": "12", "output_tokens": 0},
    {"input_tokens": 0, "output_tokens_details": {"reasoning_tokens": 5}},
    {"total_tokens": 1.5},
    "many",
    7,
    [{"tokens": 1}],
]
NOTHING: list[object] = [None, {}, ZEROS, {**ZEROS, "input_tokens_details": {"cached_tokens": 0}}, 0, []]


@pytest.mark.parametrize("usage", SOMETHING, ids=json.dumps)
@pytest.mark.parametrize("where", ["failed", "error", "created", "keepalive"])
def test_a_usage_in_any_event_of_the_attempt_keeps_it_from_a_replay(where: str, usage: object) -> None:
    """R4: "an event of the attempt carried a `usage`", partial and malformed counts included."""
    carriers: dict[str, list[Event]] = {
        "failed": [failed(usage=usage)],
        "error": [error(usage=usage), failed()],
        "created": [event("response.created", response={"id": "r", "usage": usage}), failed()],
        "keepalive": [event("keepalive", usage=usage), failed()],
    }
    player = Player(HTTP).plays((0, START), (1, sends(*carriers[where])))
    assert player.reason == "R4 usage_observed"


@pytest.mark.parametrize("usage", NOTHING, ids=json.dumps)
def test_a_usage_of_nothing_was_not_metered(usage: object) -> None:
    """R4: null or all zeros."""
    created = event("response.created", response={"id": "r", "usage": usage})
    player = Player(HTTP).plays((0, START), (1, sends(created, error(usage=usage), failed(usage=usage))))
    assert player.reason == "R15 replay"


@pytest.mark.parametrize("door", DOORS)
def test_a_result_in_an_error_counts_as_one_in_a_failed(door: Door) -> None:
    """R4: "a failure's `response.output` is not empty", and an `error` is a failure."""
    told = error(response={"output": [{"type": "message"}]})
    player = Player(door).plays(*BEGUN, (2, sends(told))).waits(3)
    assert player.reason == "R4 result_observed"


@pytest.mark.parametrize("door", DOORS)
def test_output_named_in_a_lifecycle_event_is_no_result(door: Door) -> None:
    """R4 speaks of failures and terminals."""
    busy = event("response.in_progress", response={"id": "r", "output": [{"type": "message"}]})
    assert Player(door).plays((0, START), (1, sends(busy, failed()))).reason == "R15 replay"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("dropped", "reason"), [
    (COMPLETED, "R4 usage_observed"),
    (CANCELLED, "R4 result_observed"),
    (error(usage=USAGE), "R4 usage_observed"),
    (event("response.vendor.meter", usage=USAGE), "R4 usage_observed"),
    (event("response.vendor.meter", usage=ZEROS), "R15 replay"),
    (DELTA, "R15 replay"),
])  # fmt: skip
def test_what_is_dropped_after_an_error_may_still_have_been_metered(door: Door, dropped: Event, reason: str) -> None:
    """R4, E6: any event of the attempt, and any result."""
    assert Player(door).plays(*BEGUN, (2, sends(error(), dropped))).reason == reason


def test_a_metered_attempt_that_was_replayed_all_the_same_would_be_in_its_report() -> None:
    """B2: its usage is booked to the house; only a flipped rule gets there."""
    player = Player(HTTP, rules=TurnRules(without=frozenset({"R4"}))).plays(*BEGUN, (2, sends(failed(usage=USAGE))))
    assert player.replays[0].report.usage == Usage(10, 3)


# --- how a turn that cannot be replayed ends in money -----------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_the_last_attempt_alone_is_billed(door: Door) -> None:
    """B2, B3."""
    player = Player(door).plays(*BEGUN, FAILS, (3, sends(CREATED, DELTA, COMPLETED)))
    ended = player.finish.ended
    assert (ended.by, ended.output_delivered, ended.usage, ended.failed) == (
        EndedBy.TERMINAL,
        True,
        Usage(10, 3),
        False,
    )


@pytest.mark.parametrize("door", DOORS)
def test_a_route_that_cannot_be_chosen_ends_the_turn_at_the_house_s_expense(door: Door) -> None:
    """§4's last point: status 500, reservation voided; and no attempt is reported twice."""
    player = Player(door, restarts=False).plays(*BEGUN, FAILS, (2, NO_CHOICE))
    assert player.lines == [
        "2 replay after server_error",
        "2 tell route_selection_failed 500",
        "2 finish route_selection_failed",
    ]
    assert (player.finish.report, player.finish.ended.by, player.finish.ended.usage) == (None, EndedBy.GATEWAY, None)


def test_the_reports_of_both_attempts_tell_what_became_of_them() -> None:
    """L1: a turn that succeeded after a replay shows the failed attempt too."""
    player = Player(HTTP).plays(*BEGUN, FAILS, (3, sends(CREATED)), (4, sends(DELTA)), (5, sends(COMPLETED)))
    first, last = player.replays[0].report, player.finish.report
    assert last is not None
    assert (first.outcome, first.started_at, first.first_event_at, first.first_output_at, first.ended_at) == (
        "server_error",
        0,
        1,
        None,
        2,
    )
    assert (last.outcome, last.started_at, last.first_event_at, last.first_output_at, last.ended_at) == (
        "completed",
        2,
        3,
        4,
        5,
    )
    assert (first.response_id, last.response_id, last.verdict) == ("resp_1", "resp_1", None)


def test_the_commands_of_a_verdict_come_in_the_order_of_their_effects() -> None:
    """Frames before the end; the client's bytes are not behind its books."""
    player = Player(WEBSOCKET).plays(*BEGUN, (2, RESET))
    kinds = [type(command).__name__ for command in player.said]
    assert kinds == ["Consult", "Deliver", "DeliverFailure", "Finish"]


def test_a_replay_says_nothing_to_the_client() -> None:
    """§4."""
    player = Player(HTTP).plays(*BEGUN, FAILS)
    assert not any(isinstance(command, Deliver | DeliverFailure) for command in player.said)
    assert isinstance(player.said[-1], Replay)


@pytest.mark.parametrize("split", range(1, 4))
def test_how_a_burst_is_split_into_reads_changes_nothing(split: int) -> None:
    """Case 1: created, in_progress, error, failed in one read or in several."""
    burst = [CREATED, IN_PROGRESS, error("server_is_overloaded"), failed("server_is_overloaded")]
    script: Script = [(0, START), (1, Batch(burst[:split])), (1, Batch(burst[split:]))]
    assert play(HTTP, *script) == ["1 replay after server_is_overloaded"]


@pytest.mark.parametrize("door", DOORS)
def test_a_replay_says_what_it_makes_up_for(door: Door) -> None:
    """R3, L1: the failure and the attempt that had it."""
    (replay,) = Player(door, **house()).plays(*BEGUN, FAILS).replays
    assert (replay.failure.code, replay.report.outcome, replay.report.ended_at) == ("server_error", "server_error", 2)
