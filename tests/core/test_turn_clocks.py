"""The law of time: each clock just before, at and just after its instant, and who wins at one instant (T)."""

import math
from itertools import combinations

import pytest

from gateway.core.events import Event
from gateway.core.failures import FailureKind
from gateway.core.messages import Batch, ClientLeft, Door, Input
from gateway.core.rules import Clock, Phase, TurnRules
from support.machine import (
    BUG,
    COMPLETED,
    CREATED,
    DELTA,
    DOORS,
    HANDED,
    HTTP,
    IN_PROGRESS,
    KEEPALIVE,
    LEFT,
    METADATA,
    QUEUED,
    RESET,
    START,
    TICK,
    WEBSOCKET,
    Moment,
    Player,
    drains,
    ended_by,
    error,
    failed,
    play,
    sends,
    starts,
)

CUT = "finish websocket_connection_limit_reached by R12 connection_limit"
DRAINED = "finish server_draining by R12 draining"

# --- T1: the hold -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("until", "lines"), [
    (9.999, []),
    (10.0, ["10 deliver created"]),
    (10.001, ["10 deliver created"]),
])  # fmt: skip
def test_held_events_are_released_after_ten_seconds_exactly(door: Door, until: float, lines: list[str]) -> None:
    """T1: at most 10 s."""
    assert Player(door).plays((0, START), (0, sends(CREATED))).waits(until).lines == lines


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("at", "line"), [
    (9.999, "9.999 replay after server_error"),
    (10.0, "10 finish server_error by R3 lifecycle_delivered"),
    (10.001, "10.001 finish server_error by R3 lifecycle_delivered"),
])  # fmt: skip
def test_a_failure_at_the_hold_s_end_finds_the_turn_committed(door: Door, at: float, line: str) -> None:
    """T1, R3: strictly before, the failure wins; at the instant, the clock."""
    assert play(door, (0, START), (0, sends(CREATED)), (at, sends(failed())))[-1] == line


@pytest.mark.parametrize("at", [9.999, 10.0, 10.001])
def test_output_takes_the_held_events_with_it_in_their_order(at: float) -> None:
    """T1: together with the first output event."""
    player = Player(HTTP).plays((0, START), (0, sends(CREATED, KEEPALIVE)), (5, sends(QUEUED)), (at, sends(DELTA)))
    assert player.types == ["created", "keepalive", "queued", "output_text.delta"]


def test_the_terminal_takes_the_held_events_with_it() -> None:
    """T1."""
    assert play(HTTP, (0, START), (1, sends(CREATED, METADATA)), (2, sends(COMPLETED))) == [
        "2 deliver created metadata completed",
        "2 finish completed",
    ]


def test_the_hold_is_counted_from_the_first_held_lifecycle_event() -> None:
    """T1: neither from the attempt's start, nor from a neutral event, nor from the last."""
    player = Player(HTTP).plays(
        (0, START), (1, sends(KEEPALIVE)), (2, sends(CREATED)), (8, sends(IN_PROGRESS)), (9, sends(METADATA))
    )
    assert player.waits(20).lines == ["12 deliver keepalive created in_progress metadata"]


def test_neutral_events_alone_are_held_without_a_limit_of_time() -> None:
    """E2: they neither release the hold nor start its clock."""
    assert Player(HTTP).plays((0, starts(first_event=60)), (1, sends(KEEPALIVE, METADATA))).waits(59.9).lines == []


@pytest.mark.parametrize("event", [IN_PROGRESS, KEEPALIVE, METADATA], ids=lambda event: event.type)
def test_after_the_release_everything_passes_at_once(event: Event) -> None:
    """T1: the turn is committed."""
    player = Player(HTTP).plays((0, START), (0, sends(CREATED)), (12, sends(event)))
    assert player.lines[-1] == f"12 deliver {event.type.removeprefix('response.')}"


@pytest.mark.parametrize("door", DOORS)
def test_the_hold_is_counted_once_per_turn_across_a_replay(door: Door) -> None:
    """T1 (ruling): holding never costs a turn more than 10 s."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (6, sends(failed())), (7, sends(CREATED)))
    assert player.waits(20).lines == ["6 replay after server_error", "11 deliver created"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("at", [11.0, 11.001, 30.0])
def test_a_clock_that_ran_out_between_attempts_holds_no_further_lifecycle_event(door: Door, at: float) -> None:
    """T1: nothing is committed meanwhile; the next lifecycle event leaves at once with the neutral ones before it."""
    player = Player(door).plays(
        (0, START), (1, sends(CREATED)), (6, sends(failed())), (7, sends(KEEPALIVE)), (at, sends(METADATA, CREATED))
    )
    assert player.lines == ["6 replay after server_error", f"{at:g} deliver keepalive metadata created"]


@pytest.mark.parametrize("door", DOORS)
def test_neutral_events_wait_on_after_a_clock_that_ran_out_between_attempts(door: Door) -> None:
    """T1, E2."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (6, sends(failed())), (12, sends(KEEPALIVE)))
    assert (player.waits(30).lines, player.turn.is_committed) == (["6 replay after server_error"], False)


def test_an_expired_hold_does_not_commit_a_turn_that_waits_for_its_second_attempt() -> None:
    """T1: "nothing is committed"."""
    player = Player(HTTP, restarts=False).plays((0, START), (1, sends(CREATED)), (6, sends(failed()))).waits(20)
    assert (player.turn.is_committed, player.turn.deadline) == (False, math.inf)


def test_a_hold_of_eleven_seconds_is_another_behaviour() -> None:
    """K4."""
    player = Player(HTTP, rules=TurnRules(hold_seconds=11)).plays((0, START), (0, sends(CREATED))).waits(30)
    assert player.lines == ["11 deliver created"]


# --- T2: the first event ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("event", [CREATED, DELTA, COMPLETED, error(), failed()], ids=lambda event: event.type)
@pytest.mark.parametrize(("at", "is_in_time"), [(24.999, True), (25.0, False), (25.001, False)])
def test_the_first_event_must_come_strictly_within_its_limit(
    door: Door, event: Event, at: float, is_in_time: bool
) -> None:
    """T2, R5."""
    player = Player(door).plays((0, START), (at, sends(event)))
    assert (player.reason != "R5 first_event_timeout") is is_in_time


@pytest.mark.parametrize("at", [25.0, 25.001, 60.0])
def test_a_first_event_timeout_is_told_at_its_own_instant(at: float) -> None:
    """T2: whatever comes later is too late."""
    assert Player(HTTP).plays((0, START)).waits(at).lines == [
        "25 tell first_event_timeout 504",
        "25 finish first_event_timeout by R5 first_event_timeout",
    ]


def test_neutral_events_do_not_stop_the_first_event_clock() -> None:
    """T2 (case 20)."""
    moments = [(float(at), sends(KEEPALIVE, METADATA)) for at in range(1, 25)]
    assert Player(HTTP).plays((0, START), *moments).waits(30).lines[-1] == (
        "25 finish first_event_timeout by R5 first_event_timeout"
    )


def test_the_first_event_clock_is_the_attempt_s_own() -> None:
    """T2: per attempt, from its start, per route."""
    player = Player(HTTP, terms=starts(first_event=7)).plays((0, START), (20, RESET)).waits(60)
    assert player.lines == [
        "20 replay after stream_read_error",
        "27 tell first_event_timeout 504",
        "27 finish first_event_timeout by R5 first_event_timeout",
    ]


def test_a_read_error_at_the_first_event_s_deadline_is_a_timeout() -> None:
    """T2, R5, R15: at the deadline the clock wins."""
    reasons = [Player(HTTP).plays((0, START), (at, RESET)).reason for at in (24.999, 25.0)]
    assert reasons == ["R15 replay", "R5 first_event_timeout"]


# --- T4: idle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("first", [CREATED, DELTA], ids=lambda event: event.type)
@pytest.mark.parametrize(("at", "is_idle"), [(300.999, False), (301.0, True), (301.001, True)])
def test_silence_ends_a_turn_after_the_idle_limit_exactly(door: Door, first: Event, at: float, is_idle: bool) -> None:
    """T4, whether or not the hold expired meanwhile: the release at 11 is no event."""
    player = Player(door).plays((0, START), (1, sends(first)), (at, sends(DELTA)))
    assert (player.is_done, "301 tell stream_idle_timeout 504" in player.lines) == (is_idle, is_idle)


def test_any_event_keeps_a_stream_from_being_idle() -> None:
    """T4: neutral ones count."""
    moments = [(1 + 299.0 * n, sends(event)) for n, event in enumerate([CREATED, KEEPALIVE, METADATA, DELTA, DELTA])]
    player = Player(HTTP).plays((0, START), *moments).waits(2000)
    assert player.lines[-1] == "1497 finish stream_idle_timeout by R2 output_delivered"


def test_neutral_events_before_the_first_event_start_no_idle_clock() -> None:
    """T2, T4: silence before the first event is T2's."""
    player = Player(HTTP).plays((0, starts(first_event=25, idle=5)), (1, sends(KEEPALIVE))).waits(60)
    assert player.lines[-1] == "25 finish first_event_timeout by R5 first_event_timeout"


def test_silence_before_output_is_not_replayed() -> None:
    """R6."""
    player = Player(HTTP).plays((0, starts(idle=5)), (1, sends(CREATED))).waits(60)
    assert player.lines == [
        "6 deliver created",
        "6 tell stream_idle_timeout 504",
        "6 finish stream_idle_timeout by R6 idle_timeout",
    ]


SLOW: list[Moment] = [(0, starts(idle=20)), (1, sends(DELTA))]


def test_the_idle_clock_stands_still_while_the_client_is_the_slow_side() -> None:
    """T4 (case 24): a client that reads for 50 s does not make its upstream idle."""
    player = Player(HTTP, is_slow=True).plays(*SLOW).waits(51)
    player.plays((51, HANDED)).waits(70.999)
    running = player.is_done
    assert (running, player.waits(71).lines[-1]) == (False, "71 finish stream_idle_timeout by R2 output_delivered")


def test_the_idle_clock_goes_on_where_it_stood() -> None:
    """T4: the release of the hold at 11 is no event, and only the two seconds of its hand-over do not count."""
    player = Player(HTTP, is_slow=True).plays((0, starts(idle=20)), (1, sends(CREATED))).waits(12)
    assert player.plays((13, HANDED)).waits(60).lines == [
        "11 deliver created",
        "23 tell stream_idle_timeout 504",
        "23 finish stream_idle_timeout by R3 lifecycle_delivered",
    ]


def test_an_event_read_while_the_client_was_slow_is_not_old_when_it_is_handled() -> None:
    """T4: it was seen at 2, and waited until 51 because of the client."""
    player = Player(HTTP, is_slow=True).plays(*SLOW)
    player.steps(HANDED, 51)
    player.steps(sends(DELTA), 2)
    player.steps(HANDED, 91)
    assert player.waits(500).lines[-1] == "111 finish stream_idle_timeout by R2 output_delivered"


def test_a_hand_over_without_a_pause_gives_the_upstream_no_extra_time() -> None:
    """T4: every event restarts the clock, its hand-over does not."""
    player = Player(HTTP).plays(*SLOW, (5, sends(DELTA)), (6, HANDED), (7, HANDED)).waits(60)
    assert player.lines[-1] == "25 finish stream_idle_timeout by R2 output_delivered"


AGAIN: list[Moment] = [(0, START), (1, sends(CREATED)), (2, sends(failed()))]
COMMITTED: list[Moment] = [(0, START), (1, sends(DELTA)), (1, HANDED)]


@pytest.mark.parametrize("script", [
    [(0, START), (1, sends(DELTA))],
    [(0, START), (1, sends(CREATED)), (11, TICK)],
    [*AGAIN, (12, sends(CREATED))],
    [*COMMITTED, (2, sends(DELTA))],
    [*COMMITTED, (2, sends(DELTA, KEEPALIVE))],
    [*COMMITTED, (2, sends(KEEPALIVE))],
    [*COMMITTED, (2, sends(KEEPALIVE, DELTA))],
    [*COMMITTED, (2, sends(error()))],
], ids=["output", "release", "late", "stream", "mixed", "neutral", "mixed again", "error"])  # fmt: skip
def test_whatever_is_handed_over_stops_the_attempt_s_clocks_until_it_was_taken(script: list[Moment]) -> None:
    """T4: whoever is slow, nobody listens to the upstream meanwhile."""
    player = Player(HTTP, is_slow=True).plays(*script)
    while_slow = player.turn.deadline
    player.steps(HANDED, script[-1][0])
    assert (while_slow, player.turn.deadline < math.inf) == (math.inf, True)


def test_the_grace_on_a_websocket_waits_for_the_frames_before_the_error_too() -> None:
    """T9, E6: the `error` itself is kept back there, what came before it is not."""
    player = Player(WEBSOCKET, is_slow=True).plays(*COMMITTED, (2, sends(DELTA, error())))
    while_slow = player.turn.deadline
    player.steps(HANDED, 2)
    assert (while_slow, player.turn.deadline) == (math.inf, 2.25)


@pytest.mark.parametrize("clock", ["T5", "T7"])
def test_the_house_s_clocks_do_not_wait_for_a_slow_client(clock: str) -> None:
    """T5, T7: they run on during a hand-over."""
    rules = TurnRules(cut_at=30) if clock == "T5" else TurnRules()
    moments: list[Moment] = [] if clock == "T5" else [(2, drains(30))]
    player = Player(WEBSOCKET, rules=rules, is_slow=True).plays(*SLOW, *moments).waits(100)
    assert player.lines[-1].startswith("30 finish ")


# --- T5, R12: the connection's sixty minutes --------------------------------------------------------------------------

HOUR = TurnRules(connection_limit_at=3600, cut_at=3600)
BEGUN_LATE: list[Moment] = [(3590, START), (3595, sends(CREATED))]


@pytest.mark.parametrize(("at", "lines"), [
    (3599.5, ["3599.5 deliver created completed", "3599.5 finish completed"]),
    (3600.0, ["3600 deliver created", "3600 tell websocket_connection_limit_reached 400", f"3600 {CUT}"]),
    (3600.5, ["3600 deliver created", "3600 tell websocket_connection_limit_reached 400", f"3600 {CUT}"]),
])  # fmt: skip
def test_a_running_turn_is_cut_at_sixty_minutes(at: float, lines: list[str]) -> None:
    """T5, W6: held events if any, then one error frame."""
    assert Player(WEBSOCKET, rules=HOUR).plays(*BEGUN_LATE, (at, sends(COMPLETED))).lines == lines


@pytest.mark.parametrize(("at", "reason"), [
    (3599.999, "R15 replay"),
    (3600.0, "R12 connection_limit"),
    (3600.001, "R12 connection_limit"),
])  # fmt: skip
def test_with_a_grace_the_turn_runs_on_but_is_not_replayed_any_more(at: float, reason: str) -> None:
    """R12, W6: `connection_limit_at` ends replays, `cut_at` ends the turn."""
    rules = TurnRules(connection_limit_at=3600, cut_at=3660)
    player = Player(WEBSOCKET, rules=rules).plays(*BEGUN_LATE, (at, sends(failed())))
    assert player.reason == reason


@pytest.mark.parametrize(("at", "outcome"), [(3659.999, "completed"), (3660, "websocket_connection_limit_reached")])
def test_the_connection_s_grace_ends_the_turn_too(at: float, outcome: str) -> None:
    """W6: `connection_grace`."""
    rules = TurnRules(connection_limit_at=3600, cut_at=3660)
    player = Player(WEBSOCKET, rules=rules).plays(*BEGUN_LATE, (at, sends(COMPLETED)))
    assert player.finish.outcome == outcome


def test_a_turn_between_two_attempts_is_cut_as_well() -> None:
    """T5: its money is resolved though no attempt runs."""
    player = Player(WEBSOCKET, rules=HOUR, restarts=False).plays((3590, START), (3595, RESET)).waits(4000)
    assert player.lines[-1] == "3600 finish websocket_connection_limit_reached"


def test_an_attempt_that_would_start_after_the_cut_does_not_start() -> None:
    """T5: the end is told by the step that brought the start."""
    player = Player(WEBSOCKET, rules=HOUR, restarts=False).plays((3590, START), (3595, RESET))
    player.steps(START, 3600)
    assert (player.is_done, player.lines[-1]) == (True, "3600 finish websocket_connection_limit_reached")


# --- T7: drain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("at", "outcome"), [
    (39.999, "completed"),
    (40.0, "server_draining"),
    (40.001, "server_draining"),
])  # fmt: skip
def test_a_turn_may_end_by_itself_until_the_drain_s_end(door: Door, at: float, outcome: str) -> None:
    """T7."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (10, drains(40)), (at, sends(COMPLETED)))
    assert player.finish.outcome == outcome


@pytest.mark.parametrize("door", DOORS)
def test_a_drained_turn_gets_what_was_held_and_the_reason(door: Door) -> None:
    """T7, B3: the gateway's own fault."""
    player = Player(door).plays((0, START), (1, drains(5)), (2, sends(CREATED))).waits(10)
    assert player.lines == ["5 deliver created", "5 tell server_draining 503", f"5 {DRAINED}"]


def test_nothing_is_replayed_once_the_drain_began() -> None:
    """R12: the machine knows of it though the house has not been asked yet."""
    player = Player(HTTP).plays((0, START), (1, drains(40)), (2, RESET))
    assert player.lines == ["2 tell stream_read_error 502", "2 finish stream_read_error by R12 draining"]


def test_a_drain_that_is_over_at_once_ends_the_turn_at_once() -> None:
    """T7: a limit of nothing."""
    assert Player(HTTP).plays((0, START), (3, drains(3))).waits(3).lines[-1] == f"3 {DRAINED}"


def test_a_turn_that_waits_for_its_attempt_is_drained_too() -> None:
    """T7."""
    assert Player(HTTP).plays((0, drains(3))).waits(5).lines == [
        "3 tell server_draining 503",
        "3 finish server_draining",
    ]


# --- T9: the grace of a failure ---------------------------------------------------------------------------------------

TOLD: list[Moment] = [(0, START), (1, sends(CREATED)), (2, sends(error("server_error")))]


@pytest.mark.parametrize(("at", "line"), [
    (2.249, "2.249 replay after slow_down"),
    (2.25, "2.25 replay after server_error"),
    (2.251, "2.25 replay after server_error"),
])  # fmt: skip
def test_a_failed_joins_its_error_strictly_within_the_grace(at: float, line: str) -> None:
    """T9, E6: the code is the `failed`'s, else the `error`'s."""
    assert play(HTTP, *TOLD, (at, sends(failed("slow_down"))))[0] == line


def test_the_grace_ends_by_itself() -> None:
    """T9."""
    assert Player(HTTP).plays(*TOLD).waits(2.25).lines == ["2.25 replay after server_error"]


@pytest.mark.parametrize("door", DOORS)
def test_the_hold_does_not_expire_during_the_grace(door: Door) -> None:
    """E6: the failure is stamped when its `error` was seen, before the hold's end at 11."""
    player = Player(door).plays((0, START), (1, sends(CREATED)), (10.9, sends(error()))).waits(11.2)
    assert player.lines == ["11.15 replay after server_error"]


@pytest.mark.parametrize(("error_at", "reason"), [(10.999, "R15 replay"), (11.0, "R3 lifecycle_delivered")])
def test_an_error_at_the_hold_s_end_finds_the_turn_committed(error_at: float, reason: str) -> None:
    """E6, T1."""
    player = Player(HTTP).plays((0, START), (1, sends(CREATED)), (error_at, sends(error()))).waits(12)
    assert player.reason == reason


@pytest.mark.parametrize(("clock", "terms"), [("T4", starts(idle=2)), ("T2", starts(first_event=2.1))])
def test_no_other_clock_of_the_attempt_runs_during_the_grace(clock: str, terms: Input) -> None:
    """E6: it failed already."""
    player = Player(HTTP).plays((0, terms), (1.99, sends(error()))).waits(4)
    assert player.lines == ["2.24 replay after server_error"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("rules", "moments", "reason"), [
    (TurnRules(cut_at=2.1, connection_limit_at=2.1), [], "R12 connection_limit"),
    (TurnRules(cut_at=2.1), [], "R12 connection_limit"),
    (TurnRules(), [(1.5, drains(2.1))], "R12 draining"),
])  # fmt: skip
def test_a_failure_that_was_told_is_not_overtaken_by_the_house_s_end(
    door: Door, rules: TurnRules, moments: list[Moment], reason: str
) -> None:
    """E6, T: its `error` was stamped strictly before T5 or T7, which only end the grace."""
    player = Player(door, rules=rules).plays((0, START), (1, sends(CREATED)), *moments, (2, sends(error()))).waits(3)
    assert player.lines == ["2.1 deliver created error", f"2.1 finish server_error by {reason}"]


def test_the_grace_waits_until_a_slow_client_lets_us_listen_again() -> None:
    """T9: a `failed` that was read in time joins, though the client took its time for the `error`."""
    player = Player(HTTP, is_slow=True).plays((0, START), (1, sends(DELTA)), (1, HANDED), (2, sends(error())))
    player.steps(HANDED, 30)
    player.steps(sends(failed("slow_down")), 2.249)
    assert player.lines[-1] == "2.249 finish slow_down by R2 output_delivered"


def test_the_grace_is_over_when_a_slow_client_took_longer() -> None:
    """T9: what was read too late does not join; the turn ends as soon as we listen again."""
    player = Player(HTTP, is_slow=True).plays((0, START), (1, sends(DELTA)), (1, HANDED), (2, sends(error())))
    player.steps(HANDED, 30)
    player.steps(TICK, 30)
    assert player.lines[-1] == "30 finish server_error by R2 output_delivered"


# --- who wins at one instant ------------------------------------------------------------------------------------------

INSTANT = 100.0
ORDER = ["left", "T5", "T7", "T2", "T4", "T1", "T9"]

ATTEMPTS: dict[str, list[Moment]] = {
    # an attempt whose clocks run out at the instant
    "none": [(75, START), (80, sends(CREATED))],
    "T2": [(75, starts(first_event=25))],
    "T4": [(75, starts(idle=10)), (90, sends(CREATED))],
    "T1": [(75, START), (90, sends(CREATED))],
    "T9": [(75, START), (95, sends(CREATED)), (INSTANT - 0.25, sends(error()))],
}
OUTCOMES = {
    "left": "finish client_disconnected by R1 client_disconnected",
    "T5": CUT,
    "T7": DRAINED,
    "T2": "finish first_event_timeout by R5 first_event_timeout",
    "T4": "finish stream_idle_timeout by R6 idle_timeout",
    "T1": "deliver created",
    "T9": "replay after server_error",
    "T5 T9": "finish server_error by R12 connection_limit",
    "T7 T9": "finish server_error by R12 draining",
}
"""The failure was told before T5 or T7: they only end the grace."""

NEVER_TOGETHER = {("T2", "T4"), ("T2", "T1"), ("T2", "T9"), ("T4", "T9"), ("T1", "T9")}
PAIRS = [pair for pair in combinations(ORDER, 2) if pair not in NEVER_TOGETHER]


def running_out(door: Door, *clocks: str) -> Player:
    """A turn in which these clocks run out at the instant, just before it."""
    rules = TurnRules(
        hold_seconds=10 if "T1" in clocks else 50,
        cut_at=INSTANT if "T5" in clocks else math.inf,
    )
    attempt = next((ATTEMPTS[clock] for clock in clocks if clock in ATTEMPTS), ATTEMPTS["none"])
    drain: list[Moment] = [(60, drains(INSTANT))] if "T7" in clocks else []
    return Player(door, rules=rules, restarts=False).plays(*drain, *attempt)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("first", "second"), PAIRS, ids="-".join)
def test_at_one_instant_the_order_of_the_law_decides(door: Door, first: str, second: str) -> None:
    """T: client left, T5, T7, T2, T4, T1, T9."""
    player = running_out(door, first, second).plays((INSTANT, LEFT if first == "left" else TICK))
    assert player.lines[-1] == f"100 {OUTCOMES.get(f'{first} {second}', OUTCOMES[first])}"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("clock", ORDER[1:])
@pytest.mark.parametrize("at", [INSTANT - 0.001, INSTANT, INSTANT + 0.001])
def test_a_clock_alone_runs_out_at_its_instant_and_not_before(door: Door, clock: str, at: float) -> None:
    """T: just before, at, just after."""
    lines = running_out(door, clock).waits(at).lines
    assert lines[-1:] == ([] if at < INSTANT else [f"100 {OUTCOMES[clock]}"])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("clock", ["T5", "T7", "T2", "T4", "T9"])
@pytest.mark.parametrize("arrived", [sends(failed("slow_down")), sends(COMPLETED), RESET], ids=["fail", "end", "reset"])
def test_at_its_instant_a_clock_wins_over_what_arrives(door: Door, clock: str, arrived: Input) -> None:
    """T: "at the deadline the clock wins"."""
    assert running_out(door, clock).plays((INSTANT, arrived)).lines[-1] == f"100 {OUTCOMES[clock]}"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("arrived", "line"), [
    (sends(failed("slow_down")), "100 finish slow_down by R3 lifecycle_delivered"),
    (RESET, "100 finish stream_read_error by R3 lifecycle_delivered"),
    (BUG, "100 finish internal_error by R3 lifecycle_delivered"),
])  # fmt: skip
def test_at_its_end_the_hold_is_released_before_what_arrives(door: Door, arrived: Input, line: str) -> None:
    """T1, R3."""
    assert running_out(door, "T1").plays((INSTANT, arrived)).lines[-1] == line


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("clock", ORDER[1:])
def test_strictly_before_its_instant_what_arrives_wins_over_a_clock(door: Door, clock: str) -> None:
    """T: "one stamped strictly before a deadline wins"."""
    player = running_out(door, clock).plays((INSTANT - 0.001, sends(failed("slow_down"))))
    assert player.lines[-1].split(" by ")[0] in ("99.999 replay after slow_down", "99.999 finish slow_down")


@pytest.mark.parametrize("door", DOORS)
def test_all_that_is_due_at_one_instant_gives_one_end(door: Door) -> None:
    """T: and the client that left is the first of all."""
    ends = [
        running_out(door, "T5", "T7", "T4", "T1").plays((INSTANT, arrived)).finish.outcome for arrived in (TICK, LEFT)
    ]
    assert ends == ["websocket_connection_limit_reached", "client_disconnected"]


def test_the_clocks_are_numbered_in_the_law_s_order() -> None:
    """T: the tie is decided by the number."""
    assert [clock.name for clock in sorted(Clock) if clock is not Clock.H1] == ORDER[1:]
    assert Clock.T2 < Clock.H1 < Clock.T4


# --- late steps -------------------------------------------------------------------------------------------------------


def test_a_late_step_goes_through_the_deadlines_in_their_order() -> None:
    """T: the hold at 11, then the silence at 21, then what arrives."""
    player = Player(HTTP, is_late=True, is_slow=True)
    player.plays((0, starts(idle=20)), (1, sends(CREATED)))
    player.steps(TICK, 11)
    player.steps(HANDED, 11)
    player.steps(sends(DELTA), 400)
    assert player.lines[-1] == "400 finish stream_idle_timeout by R3 lifecycle_delivered"


def test_a_late_step_dates_the_end_at_the_deadline() -> None:
    """L1: the attempt ended when its clock ran out, not when somebody looked."""
    player = Player(HTTP, is_late=True).plays((0, START), (400, sends(CREATED)))
    report = player.finish.report
    assert report is not None
    assert (report.ended_at, report.dropped_events) == (25, 1)


@pytest.mark.parametrize("left_at", [25.001, 26.0])
def test_a_client_that_left_after_a_deadline_does_not_change_its_verdict(left_at: float) -> None:
    """T: the timeout came first; nobody is there to be told."""
    player = Player(HTTP, is_late=True).plays((0, START), (left_at, LEFT))
    assert player.lines == [f"{left_at:g} finish first_event_timeout by R5 first_event_timeout"]


def test_a_client_that_left_while_a_deadline_was_judged_keeps_it_from_a_replay() -> None:
    """R1, H7: the grace ended at 2.25 and would be replayed, but the client left at 2.3: no second call."""
    player = Player(HTTP, is_late=True).plays(*TOLD, (2.3, ClientLeft("stalled")))
    failure, report = player.finish.failure, player.finish.report
    assert player.lines == ["2.3 finish client_disconnected by R1 client_disconnected"]
    assert failure is not None
    assert report is not None
    assert (failure.message, report.ended_at) == ("stalled", 2.3)


def test_a_drain_that_began_while_a_deadline_was_judged_is_known_to_the_verdict() -> None:
    """R12."""
    player = Player(HTTP, is_late=True).plays(*TOLD, (2.3, drains(60)))
    assert player.lines[-1] == "2.3 finish server_error by R12 draining"


def test_a_gateway_that_cannot_answer_ends_the_turn_in_mid_judgement() -> None:
    """B1: a bug between the question and its answer still ends in a Finish."""
    player = Player(HTTP)
    player.plays((0, START), (1, sends(CREATED)))
    asked = player.turn.step(RESET, 2)
    ended = player.turn.step(BUG, 2)
    kinds = [type(command).__name__ for command in (*asked, *ended)]
    assert (kinds, player.turn.phase) == (["Consult", "Deliver", "DeliverFailure", "Finish"], Phase.DONE)


@pytest.mark.parametrize("arrived", [sends(COMPLETED), RESET, TICK, HANDED, START], ids=lambda i: type(i).__name__)
def test_while_the_house_is_asked_nothing_of_the_attempt_counts_any_more(arrived: Input) -> None:
    """Consult: answer before anything else."""
    player = Player(HTTP).plays((0, START), (1, sends(CREATED)))
    player.turn.step(ended_by(FailureKind.RETRYABLE, "server_error"), 2)
    assert (player.turn.step(arrived, 3), player.turn.deadline) == ([], math.inf)


def test_what_comes_while_the_house_is_asked_is_dropped_and_counted() -> None:
    """E9."""
    player = Player(HTTP, is_late=True).plays((0, START), (25, Batch([CREATED, DELTA, COMPLETED])))
    assert player.finish.report is not None
    assert player.finish.report.dropped_events == 3


# --- the deadline as the engine reads it ------------------------------------------------------------------------------


def test_the_deadline_is_that_of_the_clock_that_runs() -> None:
    """T: one number for the engine's wait."""
    player = Player(HTTP, rules=TurnRules(cut_at=3600), is_slow=True)
    seen = [player.turn.deadline]
    for arrived, at in (
        (START, 1.0),
        (sends(KEEPALIVE), 2.0),
        (sends(CREATED), 3.0),
        (sends(DELTA), 4.0),
        (HANDED, 5.0),
        (drains(50), 6.0),
        (sends(error()), 7.0),
        (HANDED, 8.0),
        (sends(failed()), 7.1),
    ):
        player.steps(arrived, at)
        seen.append(player.turn.deadline)
    assert seen == [3600, 26, 26, 13, 3600, 305, 50, 50, 7.25, math.inf]
