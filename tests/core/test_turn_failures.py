"""Failures told by events, in one step or two, and failures in the gateway's words (E6, X3)."""

from typing import Any

import pytest

from gateway.core.events import Event
from gateway.core.failures import FailureKind
from gateway.core.messages import Batch, Door, Head, Input, Opened
from gateway.core.money import EndedBy, Usage
from gateway.core.rules import TurnRules
from support.machine import (
    BUG,
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
    NOT_TEXT,
    RESET,
    START,
    UNREACHABLE,
    USAGE,
    WEBSOCKET,
    ZEROS,
    Moment,
    Player,
    ended_by,
    error,
    event,
    event_of,
    failed,
    play,
    sends,
)

E, F = error("server_error"), failed("slow_down")
REFUSED: dict[str, Any] = {"is_disabled": True}
"""The failure is delivered, not replayed: so one sees what the client gets."""


def told(door: Door, *reads: list[Event], ends: Input | None = None, begun: bool = False, **options: Any) -> Player:
    """A turn that fails in these reads, a tenth of a second apart."""
    script: list[Moment] = [(0, START), (1, sends(CREATED, DELTA) if begun else sends(CREATED))]
    script += [(2 + index / 10, Batch(read)) for index, read in enumerate(reads)]
    script += [] if ends is None else [(2.2, ends)]
    return Player(door, **{**REFUSED, **options}).plays(*script).waits(5)


# --- what comes together, on each door, before and after the commit point ---------------------------------------------

SEQUENCES: list[tuple[str, list[list[Event]], Input | None, str, list[str], list[str], int]] = [
    # name, reads, end, outcome, frames on HTTP, frames on WebSocket, events dropped
    ("error alone", [[E]], None, "server_error", ["error"], ["error"], 0),
    ("failed alone", [[F]], None, "slow_down", ["failed"], ["failed"], 0),
    ("error, failed", [[E, F]], None, "slow_down", ["error", "failed"], ["failed"], 0),
    ("error | failed", [[E], [F]], None, "slow_down", ["error", "failed"], ["failed"], 0),
    ("failed, error", [[F, E]], None, "slow_down", ["failed"], ["failed"], 1),
    ("failed | error", [[F], [E]], None, "slow_down", ["failed"], ["failed"], 0),
    ("error, output", [[E, DELTA]], None, "server_error", ["error"], ["error"], 1),
    ("error | output", [[E], [DELTA]], None, "server_error", ["error"], ["error"], 1),
    ("error, output, failed", [[E, DELTA, F]], None, "server_error", ["error"], ["error"], 2),
    ("error, error", [[E, error("invalid_prompt")]], None, "server_error", ["error"], ["error"], 1),
    ("error | error", [[E], [error("invalid_prompt")]], None, "server_error", ["error"], ["error"], 1),
    ("error, completed", [[E, COMPLETED]], None, "server_error", ["error"], ["error"], 1),
    ("error | incomplete", [[E], [INCOMPLETE]], None, "server_error", ["error"], ["error"], 1),
    ("error, EOF", [[E]], RESET, "server_error", ["error"], ["error"], 0),
    ("error, failed, EOF", [[E], [F]], RESET, "slow_down", ["error", "failed"], ["failed"], 0),
    (
        "error, keepalive, failed",
        [[E, KEEPALIVE, F]],
        None,
        "slow_down",
        ["error", "keepalive", "failed"],
        ["keepalive", "failed"],
        0,
    ),
    (
        "error | metadata | failed",
        [[E], [METADATA], [F]],
        None,
        "slow_down",
        ["error", "metadata", "failed"],
        ["metadata", "failed"],
        0,
    ),
    (
        "error | in_progress, failed",
        [[E], [IN_PROGRESS, F]],
        None,
        "slow_down",
        ["error", "in_progress", "failed"],
        ["in_progress", "failed"],
        0,
    ),
    ("error, keepalive", [[E, KEEPALIVE]], None, "server_error", ["error"], ["error"], 1),
    ("error, keepalive, EOF", [[E, KEEPALIVE]], RESET, "server_error", ["error"], ["error"], 1),
    ("error, keepalive, output", [[E, KEEPALIVE, DELTA]], None, "server_error", ["error"], ["error"], 2),
    ("error, keepalive, error", [[E, KEEPALIVE], [E, F]], None, "server_error", ["error"], ["error"], 3),
]
SEQUENCE_IDS = [name for name, *_ in SEQUENCES]
Sequence = tuple[str, list[list[Event]], Input | None, str, list[str], list[str], int]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("begun", [False, True], ids=["held", "committed"])
@pytest.mark.parametrize("sequence", SEQUENCES, ids=SEQUENCE_IDS)
def test_only_a_failed_joins_an_error(door: Door, begun: bool, sequence: Sequence) -> None:
    """E6: on HTTP both in order, on WebSocket one terminal frame; what else ended the grace is dropped and counted."""
    _, reads, ends, outcome, on_http, on_websocket, dropped = sequence
    player = told(door, *reads, ends=ends, begun=begun)
    before = ["created", "output_text.delta"] if begun else ["created"]
    report = player.finish.report
    assert report is not None
    assert (player.types, player.finish.outcome, report.dropped_events) == (
        [*before, *(on_http if door is HTTP else on_websocket)],
        outcome,
        dropped,
    )


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("sequence", SEQUENCES, ids=SEQUENCE_IDS)
def test_each_of_them_before_output_is_replayed_once(door: Door, sequence: Sequence) -> None:
    """R15, E6: nothing of it reaches the client, unless what followed the error was metered or a result (R4)."""
    name, reads, ends, outcome, *_ = sequence
    player = told(door, *reads, ends=ends, is_disabled=False)
    expected = "R4 usage_observed" if "complete" in name else "R15 replay"
    assert (player.reason, player.replays[0].report.outcome if player.replays else outcome) == (expected, outcome)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=SEQUENCE_IDS)
def test_how_a_failure_is_split_into_reads_changes_nothing(sequence: Sequence) -> None:
    """Case 1: each event in a read of its own gives the same frames as all in one."""
    _, reads, ends, *_ = sequence
    events = [event for read in reads for event in read]
    together = told(HTTP, events, ends=ends)
    reads_apart: list[Moment] = [(2, sends(event)) for event in events]
    end: list[Moment] = [] if ends is None else [(2.2, ends)]
    apart = Player(HTTP, **REFUSED).plays((0, START), (1, sends(CREATED)), *reads_apart, *end)
    assert apart.waits(5).types == together.types


def test_after_the_commit_point_an_http_client_gets_the_error_at_once() -> None:
    """E6; on WebSocket it waits for the grace, for it may not be the last frame."""
    scores = [
        Player(door).plays((0, START), (1, sends(DELTA)), (2, sends(E)), (2.1, sends(KEEPALIVE)), (2.2, sends(F))).lines
        for door in DOORS
    ]
    end = "2.2 finish slow_down by R2 output_delivered"
    assert scores == [
        ["1 deliver output_text.delta", "2 deliver error", "2.2 deliver keepalive failed", end],
        ["1 deliver output_text.delta", "2.2 deliver keepalive failed", end],
    ]


@pytest.mark.parametrize("door", DOORS)
def test_after_an_expired_hold_a_failure_is_told_as_after_output(door: Door) -> None:
    """E6, R3: the commit point is what was handed over, not output."""
    lines = play(door, (0, START), (1, sends(CREATED)), (12, sends(E)), (12.1, sends(F)))
    told_at_once = ["12 deliver error"] if door is HTTP else []
    assert lines == [
        "11 deliver created",
        *told_at_once,
        "12.1 deliver failed",
        "12.1 finish slow_down by R3 lifecycle_delivered",
    ]


# --- code, kind, usage: from which of the two -------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("events", "outcome", "reason"), [
    ([error("invalid_prompt"), failed("server_error")], "server_error", "R8 deterministic"),
    ([error("server_error"), failed("invalid_prompt")], "invalid_prompt", "R8 deterministic"),
    ([error("mystery"), failed("server_error")], "server_error", "R15 replay"),
    ([error("server_error"), failed("mystery")], "mystery", "R8a not_retryable"),
    ([error("server_error"), failed(None)], "server_error", "R15 replay"),
    ([error(None), failed("server_error")], "server_error", "R15 replay"),
    ([error("insufficient_quota")], "insufficient_quota", "R15 replay"),
    ([event_of(b'{"error":{"code":"server_error"}}')], "server_error", "R15 replay"),
    ([error("server_error", usage=USAGE), failed("server_error")], "server_error", "R4 usage_observed"),
    ([error("server_error"), failed("server_error", usage=USAGE)], "server_error", "R4 usage_observed"),
    ([error("server_error", usage=USAGE), failed("server_error", usage=ZEROS)], "server_error", "R4 usage_observed"),
    ([error("server_error", response={"output": [1]}), failed("server_error")], "server_error", "R4 result_observed"),
])  # fmt: skip
def test_the_failure_is_judged_by_both_of_its_events(
    door: Door, events: list[Event], outcome: str, reason: str
) -> None:
    """E6: the code is the `failed`'s, else the `error`'s; deterministic in either wins."""
    player = Player(door).plays((0, START), (1, sends(*events))).waits(1.25)
    last = player.replays[0].report if player.replays else player.finish
    assert (last.outcome, player.reason) == (outcome, reason)


@pytest.mark.parametrize(("events", "usage"), [
    ([error(usage=USAGE), failed()], Usage(10, 3)),
    ([error(), failed(usage=USAGE)], Usage(10, 3)),
    ([error(usage={"input_tokens": 1, "output_tokens": 1}), failed(usage=USAGE)], Usage(10, 3)),
    ([error(usage=USAGE), failed(usage=ZEROS)], Usage(10, 3)),
    ([error(usage=USAGE), failed(usage={"input_tokens": 9})], Usage(10, 3)),
    ([error(usage=USAGE), failed(usage=None)], Usage(10, 3)),
    ([failed(usage=ZEROS)], Usage(0, 0)),
    ([failed()], None),
    ([failed(usage={"input_tokens": 9})], None),
    ([event("response.in_progress", response={"id": "r", "usage": ZEROS}), failed()], None),
    ([event("response.in_progress", response={"id": "r", "usage": USAGE}), failed()], Usage(10, 3)),
])  # fmt: skip
def test_the_usage_is_read_from_either_of_its_events(events: list[Event], usage: Usage | None) -> None:
    """E6, B5: what was metered is not lost to zeros or to a broken count; zeros alone count at the end only."""
    player = Player(HTTP, **REFUSED).plays((0, START), (1, sends(*events)))
    assert player.finish.ended.usage == usage


@pytest.mark.parametrize("door", DOORS)
def test_zeros_in_the_first_event_are_no_usage_of_a_broken_stream(door: Door) -> None:
    """B3, B5: output without usage is estimated; "never zero-token success"."""
    created = event("response.created", response={"id": "r", "usage": ZEROS})
    ended = Player(door).plays((0, START), (1, sends(created, DELTA)), (2, RESET)).finish.ended
    assert (ended.usage, ended.output_delivered, ended.by) == (None, True, EndedBy.UPSTREAM_OR_CLIENT)


def test_a_read_error_in_the_grace_is_not_a_read_error() -> None:
    """E6: R9 does not apply."""
    lines = play(HTTP, (0, START), (1, sends(CREATED)), (2, sends(E)), (2.1, RESET))
    assert lines == ["2.1 replay after server_error"]


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_leaves_in_the_grace_ends_the_turn(door: Door) -> None:
    """R1, H7: the failure is not replayed and not told."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (2, sends(E)), (2.1, LEFT))
    assert player.lines == ["2.1 finish client_disconnected by R1 client_disconnected"]


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_leaves_at_the_end_of_the_grace_gets_no_second_attempt(door: Door) -> None:
    """T: client left before T9."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (2, sends(E)), (2.25, LEFT))
    assert player.lines == ["2.25 finish client_disconnected by R1 client_disconnected"]


BIG = event("keepalive", padding="x" * 1000)


@pytest.mark.parametrize(("rules", "kept"), [
    (TurnRules(hold_events_max=2), 2),
    (TurnRules(hold_bytes_max=3 * len(BIG.block)), 3),
    (TurnRules(hold_bytes_max=3 * len(BIG.block) - 1), 2),
])  # fmt: skip
def test_what_comes_between_error_and_failed_is_bounded_as_the_hold_is(rules: TurnRules, kept: int) -> None:
    """R7's bounds, for the same reason: then the grace is over."""
    within = told(HTTP, [E, *[BIG] * kept, F], rules=rules)
    beyond = told(HTTP, [E, *[BIG] * (kept + 1), F], rules=rules)
    assert (within.finish.outcome, beyond.finish.outcome, beyond.types) == (
        "slow_down",
        "server_error",
        ["created", "error"],
    )


def test_an_error_is_no_held_event() -> None:
    """R7: a failure larger than the hold is still that failure."""
    big = error("slow_down", detail="x" * 5000)
    player = told(HTTP, [big], rules=TurnRules(hold_bytes_max=1000))
    assert (player.types, player.finish.outcome) == (["created", "error"], "slow_down")


# --- R7: the hold's bounds through the machine ------------------------------------------------------------------------

SIZE = len(CREATED.block)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("rules", "overflows"), [
    (TurnRules(hold_events_max=3), False),
    (TurnRules(hold_events_max=2), True),
    (TurnRules(hold_bytes_max=3 * SIZE), False),
    (TurnRules(hold_bytes_max=3 * SIZE - 1), True),
])  # fmt: skip
def test_a_prefix_that_passes_a_bound_ends_the_turn_with_all_that_came(
    door: Door, rules: TurnRules, overflows: bool
) -> None:
    """R7: not replayed; the held events first, the one that passed the bound included."""
    player = Player(door, rules=rules).plays((0, START), (1, sends(CREATED, CREATED)), (2, sends(CREATED)))
    expected = [
        "2 deliver created created created",
        "2 tell upstream_stream_buffer_limit 502",
        "2 finish upstream_stream_buffer_limit by R7 buffer_overflow",
    ]
    assert player.lines == (expected if overflows else [])


def test_a_bound_that_is_met_still_lets_output_through() -> None:
    """R7."""
    rules = TurnRules(hold_events_max=2)
    assert play(HTTP, (0, START), (1, sends(CREATED, KEEPALIVE, DELTA)), rules=rules) == [
        "1 deliver created keepalive output_text.delta"
    ]


def test_the_bounds_hold_no_committed_turn() -> None:
    """R7 is about the prefix."""
    rules = TurnRules(hold_events_max=2)
    player = Player(HTTP, rules=rules).plays((0, START), (1, sends(DELTA)), (2, sends(*[KEEPALIVE] * 9)))
    assert len(player.delivered) == 10


# --- X3: failures in the gateway's words ------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("events", "number", "response_id"), [
    ([], None, None),
    ([KEEPALIVE], None, None),
    ([CREATED], 1, "resp_1"),
    ([CREATED, IN_PROGRESS], 2, "resp_1"),
    ([CREATED, DELTA], 3, "resp_1"),
    ([CREATED, DELTA, KEEPALIVE], 3, "resp_1"),
    ([DELTA], 3, None),
    ([event("response.created", response={"id": "r9"}), event("response.x")], None, "r9"),
])  # fmt: skip
def test_a_failure_of_ours_continues_the_stream_that_the_client_knows(
    door: Door, events: list[Event], number: int | None, response_id: str | None
) -> None:
    """X3: last delivered + 1 if the upstream numbers; the delivered response's id."""
    failure = Player(door, **REFUSED).plays((0, START), (1, sends(*events)), (2, RESET)).failure
    known = None if failure.response is None else failure.response["id"]
    assert (failure.next_sequence_number, known) == (number, response_id)


def test_events_that_were_dropped_are_not_counted_as_delivered() -> None:
    """X3: the number follows what the client has."""
    late = event("response.output_text.delta", sequence_number=99, delta="late")
    player = Player(WEBSOCKET, **REFUSED).plays((0, START), (1, sends(CREATED, DELTA)), (2, sends(NOT_TEXT, late)))
    assert player.failure.next_sequence_number == 3


@pytest.mark.parametrize("door", DOORS)
def test_a_failure_of_ours_carries_the_head_of_its_attempt(door: Door) -> None:
    """H5: as a delivery does."""
    head = Head((("x-request-id", "a"),))
    assert Player(door, **REFUSED).plays((0, START), (1, Opened(head)), (2, RESET)).failure.head == head


@pytest.mark.parametrize("door", DOORS)
def test_a_failure_with_an_answer_of_the_upstream_is_told_behind_what_was_held(door: Door) -> None:
    """X1, X5: the failure is passed on as it is; the door words it."""
    player = Player(door, **REFUSED).plays((0, START), (1, sends(KEEPALIVE)), (2, UNREACHABLE))
    assert (player.types, player.failure.failure) == (["keepalive"], UNREACHABLE.failure)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("begun", [False, True], ids=["held", "committed"])
def test_a_bug_of_ours_is_told_as_ours_and_costs_the_client_nothing(door: Door, begun: bool) -> None:
    """B3: the gateway's own fault."""
    player = told(door, [IN_PROGRESS], ends=BUG, begun=begun)
    assert (player.lines[-2:-1], player.finish.ended.by) == (["2.2 tell internal_error 500"], EndedBy.GATEWAY)


# --- E10: text on WebSocket -------------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_pass_on_http() -> None:
    """E10 (case 9)."""
    player = Player(HTTP).plays((0, START), (1, sends(NOT_TEXT)), (2, sends(DELTA, NOT_TEXT)))
    assert player.delivered == [NOT_TEXT, DELTA, NOT_TEXT]


@pytest.mark.parametrize(("script", "reason", "types"), [
    ([sends(NOT_TEXT)], "R15 replay", []),
    ([sends(CREATED, NOT_TEXT)], "R9 read_error_after_first_event", ["created"]),
    ([sends(DELTA, NOT_TEXT, DELTA)], "R2 output_delivered", ["output_text.delta"]),
    ([sends(DELTA), sends(NOT_TEXT)], "R2 output_delivered", ["output_text.delta"]),
    ([sends(E), sends(NOT_TEXT)], "R15 replay", []),
])  # fmt: skip
def test_bytes_that_are_no_text_are_a_read_error_on_websocket(
    script: list[Batch], reason: str, types: list[str]
) -> None:
    """E10: judged as one, by what came before."""
    player = Player(WEBSOCKET).plays((0, START), *((1 + index / 10, read) for index, read in enumerate(script)))
    assert (player.reason, player.types) == (reason, types)


def test_what_could_not_be_carried_is_counted_with_what_follows_it() -> None:
    """E9, E10."""
    report = Player(WEBSOCKET).plays((0, START), (1, sends(DELTA, NOT_TEXT, DELTA))).finish.report
    assert report is not None
    assert report.dropped_events == 2


@pytest.mark.parametrize(("text", "reason"), [
    (b'{"type":"response.completed","note":"\xff","response":{"usage":{"input_tokens":1}}}', "R4 usage_observed"),
    (b'{"type":"response.completed","note":"\xff"}', "R4 result_observed"),
    (b'{"type":"keepalive","note":"\xff"}', "R15 replay"),
])  # fmt: skip
def test_what_is_no_text_may_still_have_been_metered(text: bytes, reason: str) -> None:
    """E10, R4: a read error, but of an attempt that is not to be paid twice."""
    assert Player(WEBSOCKET).plays((0, START), (1, sends(event_of(text)))).reason == reason


def test_a_read_error_of_text_is_told_in_the_gateway_s_words() -> None:
    """E10, X: `stream_read_error`, 502."""
    lines = play(WEBSOCKET, (0, START), (1, sends(DELTA, NOT_TEXT)))
    assert lines == [
        "1 deliver output_text.delta",
        "1 tell stream_read_error 502",
        "1 finish stream_read_error by R2 output_delivered",
    ]


# --- kinds that no event tells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.CLIENT_LEFT])
@pytest.mark.parametrize("door", DOORS)
def test_whatever_ends_an_attempt_ends_in_one_verdict(door: Door, kind: FailureKind) -> None:
    """The table is total."""
    player = Player(door, **REFUSED).plays((0, START), (1, sends(CREATED)), (2, ended_by(kind)))
    assert (player.types, player.finish.failure and player.finish.failure.kind) == (["created"], kind)
