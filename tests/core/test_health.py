"""A route's circuit: each transition, at the instant before, of and after it (C3, F2)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import limits
from gateway.core.failures import Failure, FailureKind, UpstreamAnswer, failure_from_answer
from gateway.core.health import SIGN_OF, Circuit, Sign, State, sign_of, wait_asked_seconds

WALL_NOW = 1_767_225_620.0
"""Mon, 01 Jan 2026 00:00:20 GMT."""
FAULT = Failure(FailureKind.RETRYABLE, "server_error", 500, "")
OWN_FAULT = Failure(FailureKind.DETERMINISTIC, "invalid_prompt", 400, "")
LEFT = Failure(FailureKind.CLIENT_LEFT, "client_disconnected", 499, "")
CODES = frozenset({"slow_down"})


def answer(status: int, *headers: tuple[str, str], body: bytes = b"{}") -> Failure:
    return failure_from_answer(UpstreamAnswer(status, headers, body), CODES)


def after(circuit: Circuit, *ends: Failure | None, now: float = 0.0) -> Circuit:
    """A turn for each of these ends, one after the other, all at one instant."""
    for failure in ends:
        begun = circuit.begun(now)
        circuit = begun.ended(begun.generation, failure, now, WALL_NOW)
    return circuit


def opened(now: float = 0.0) -> Circuit:
    return after(Circuit(), *[FAULT] * limits.ROUTE_FAULTS_MAX, now=now)


# --- what is a fault --------------------------------------------------------------------------------------------


def test_every_kind_of_failure_has_its_sign() -> None:
    """C3: F2, retryable failures, read errors, timeouts; nothing that is the request's, the client's or our own."""
    assert SIGN_OF.keys() == set(FailureKind)
    assert {kind.value for kind, sign in SIGN_OF.items() if sign is Sign.FAULT} == {
        "route_fault", "never_sent", "read_error", "retryable", "upstream_timeout", "first_event_timeout",
        "idle_timeout",
    }  # fmt: skip
    assert Sign.SOUND not in SIGN_OF.values()
    assert sign_of(None) is Sign.SOUND


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        pytest.param(429, [("retry-after", "7")], 7.0, id="429"),
        pytest.param(503, [("retry-after", "7")], 7.0, id="503"),
        pytest.param(503, [("retry-after", "1")], 1.0, id="just-the-least"),
        pytest.param(503, [("retry-after", "300")], 300.0, id="just-the-most"),
        pytest.param(503, [("retry-after", "301")], 300.0, id="more-than-the-most"),
        pytest.param(503, [("retry-after", "604800")], 300.0, id="a-week"),
        pytest.param(503, [("retry-after", "9" * 5000)], 300.0, id="more-than-a-number-holds"),
        pytest.param(503, [("retry-after", "0")], None, id="nothing-to-wait-for"),
        pytest.param(503, [("retry-after", "soon")], None, id="no-time"),
        pytest.param(503, [], None, id="none"),
        pytest.param(500, [("retry-after", "7")], None, id="another-status"),
        pytest.param(401, [("retry-after", "7")], None, id="our-own-account"),
        pytest.param(
            503,
            [("retry-after", "Mon, 01 Jan 2026 00:00:30 GMT"), ("date", "Mon, 01 Jan 2026 00:00:10 GMT")],
            20.0,
            id="a-date-by-the-upstreams-own-clock",
        ),
        pytest.param(
            503,
            [("retry-after", "Mon, 01 Jan 2026 00:00:10 GMT"), ("date", "Mon, 01 Jan 2026 00:00:30 GMT")],
            None,
            id="a-date-that-is-over",
        ),
        pytest.param(503, [("retry-after", "Mon, 01 Jan 2026 00:00:30 GMT")], 10.0, id="a-date-by-our-own-clock"),
        pytest.param(503, [("retry-after", "Mon, 01 Jan 2026 00:00:20 GMT")], None, id="a-date-that-is-now"),
        pytest.param(503, [("retry-after", "Mon, 99 Xyz 2026 00:00:20 GMT")], None, id="a-date-of-no-month"),
        pytest.param(503, [("retry-after", "Monday, 01-Jan-26 00:00:30 GMT")], 10.0, id="a-date-in-the-oldest-form"),
        pytest.param(503, [("retry-after", "Mon, 01 Jan 2026 00:00:30 +0100")], None, id="a-date-of-another-zone"),
        pytest.param(503, [("retry-after", "Mon, 01 Jan 2046 00:00:20 GMT")], 300.0, id="a-date-far-away"),
        pytest.param(
            503,
            [("retry-after", "Mon, 01 Jan 2026 00:00:30 GMT"), ("date", "yesterday")],
            10.0,
            id="a-date-with-a-broken-clock",
        ),
        pytest.param(
            503,
            [("retry-after", "Mon Jan  1 00:00:30 2026"), ("date", "Mon, 01 Jan 2026 00:00:10 GMT")],
            20.0,
            id="a-date-in-the-form-that-names-no-zone",
        ),
    ],
)
def test_how_long_an_upstream_asks_to_be_left_alone(
    status: int, headers: list[tuple[str, str]], seconds: float | None
) -> None:
    """C3: a 429/503 with `retry-after`, at most 300 s."""
    assert wait_asked_seconds(answer(status, *headers), WALL_NOW) == seconds


def test_a_request_that_is_too_large_for_any_minute_asks_for_nothing() -> None:
    """F, row 3: a 429 that is the request's own fault."""
    body = b'{"error":{"code":"rate_limit_exceeded","message":"Request too large for gpt"}}'
    assert wait_asked_seconds(answer(429, ("retry-after", "7"), body=body), WALL_NOW) is None
    assert wait_asked_seconds(None, WALL_NOW) is None
    assert wait_asked_seconds(FAULT, WALL_NOW) is None


# --- opening ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("faults", "state"), [(4, State.SERVING), (5, State.COOLING)])
def test_the_fifth_fault_in_a_row_opens_the_circuit(faults: int, state: State) -> None:
    """C3."""
    assert after(Circuit(), *[FAULT] * faults).state is state


def test_a_sound_turn_ends_the_row() -> None:
    """C3: consecutive."""
    assert after(Circuit(), *[FAULT] * 4, None, *[FAULT] * 4).state is State.SERVING


@pytest.mark.parametrize("end", [OWN_FAULT, LEFT], ids=["a-requests-own-fault", "a-client-that-left"])
def test_what_says_nothing_neither_lengthens_nor_ends_the_row(end: Failure) -> None:
    """C3."""
    assert after(Circuit(), *[end] * 50).faults == 0
    assert after(Circuit(), *[FAULT] * 4, end, FAULT).state is State.COOLING


@pytest.mark.parametrize(("now", "takes"), [(10.0, False), (10.999, False), (11.0, True), (11.001, True)])
def test_it_cools_for_a_second(now: float, takes: bool) -> None:
    """C3: at its end, not before."""
    assert opened(10.0).takes_turns(now) is takes


def test_each_failed_probe_doubles_the_time_up_to_a_minute() -> None:
    """C3."""
    circuit, now, lasted = opened(), 0.0, []
    for _ in range(9):
        lasted.append(circuit.cools_until - now)
        now = circuit.cools_until
        circuit = after(circuit, FAULT, now=now)
    assert lasted == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_outage_of_years_is_a_minute_at_a_time() -> None:
    """No power of two grows without bound."""
    assert after(opened(), *[FAULT] * 5).openings == 1
    circuit = Circuit(state=State.PROBING, openings=10**9)
    assert circuit.ended(0, FAULT, 0.0, WALL_NOW).cools_until == 60.0


def test_faults_and_openings_are_counted_one_by_one() -> None:
    """C3: as they are logged and shown; the generation tells the attempts of one opening from those of the next."""
    circuit = opened()
    assert (circuit.faults, circuit.openings, circuit.generation) == (5, 1, 1)
    circuit = after(circuit, FAULT, now=1.0)
    assert (circuit.faults, circuit.openings, circuit.generation) == (6, 2, 2)
    circuit = after(Circuit(), answer(429, ("retry-after", "20")))
    assert (circuit.faults, circuit.openings, circuit.generation) == (1, 0, 1)


def test_a_sound_probe_makes_the_next_time_short_again() -> None:
    """C3."""
    circuit = opened()
    for _ in range(4):
        circuit = after(circuit, FAULT, now=circuit.cools_until)
    closed = after(circuit, None, now=circuit.cools_until)
    assert (closed.state, closed.faults, closed.openings) == (State.SERVING, 0, 0)
    assert after(closed, *[FAULT] * 5, now=100.0).cools_until == 101.0


# --- retry-after ------------------------------------------------------------------------------------------------


def test_one_answer_with_retry_after_cools_for_that_long() -> None:
    """C3: at once, and as told: neither five faults nor a backoff."""
    circuit = after(Circuit(), answer(429, ("retry-after", "20")), now=5.0)
    assert [circuit.takes_turns(now) for now in (5.0, 24.999, 25.0)] == [False, False, True]


def test_one_that_names_a_time_cools_until_then() -> None:
    """C3: by the gateway's own clock, where the answer shows none."""
    circuit = after(Circuit(), answer(503, ("retry-after", "Mon, 01 Jan 2026 00:00:30 GMT")), now=5.0)
    assert circuit.cools_until == 15.0


def test_a_probe_that_is_told_to_wait_waits_as_told() -> None:
    """C3: the upstream knows better than the backoff, which stays as it was."""
    circuit = after(opened(), answer(503, ("retry-after", "3")), now=1.0)
    assert (circuit.cools_until, circuit.openings) == (4.0, 1)
    assert after(circuit, FAULT, now=4.0).cools_until == 6.0


def test_a_shorter_wait_does_not_shorten_a_longer_one() -> None:
    """C3: two answers of one burst."""
    begun = Circuit().begun(0.0)
    circuit = begun.ended(0, answer(429, ("retry-after", "60")), 0.0, WALL_NOW).ended(
        0, answer(429, ("retry-after", "5")), 1.0, WALL_NOW
    )
    assert circuit.cools_until == 60.0
    assert circuit.ended(0, answer(429, ("retry-after", "60")), 2.0, WALL_NOW).cools_until == 62.0


# --- half open --------------------------------------------------------------------------------------------------


def test_one_turn_probes_and_no_other_is_taken() -> None:
    """C3."""
    probing = opened().begun(1.0)
    assert (probing.state, probing.takes_turns(1.0), probing.takes_turns(1e9)) == (State.PROBING, False, False)


def test_a_turn_that_begins_while_it_cools_is_no_probe() -> None:
    """Nobody chooses it; whoever has to ask it all the same finds it as it is."""
    assert opened().begun(0.999) == opened()


@pytest.mark.parametrize("end", [OWN_FAULT, LEFT], ids=["a-requests-own-fault", "a-client-that-left"])
def test_a_probe_without_a_verdict_is_given_back(end: Failure) -> None:
    """C3: the next turn may probe at once, and the time is not doubled."""
    circuit = after(opened(), end, now=1.0)
    assert (circuit.state, circuit.takes_turns(1.0)) == (State.COOLING, True)
    assert after(circuit, FAULT, now=1.0).cools_until == 3.0


def test_a_probe_that_saw_nothing_of_the_route_is_given_back() -> None:
    """C3: its client left before it began, or it never began; and one of an earlier generation holds no probe."""
    probing = opened().begun(1.0)
    left = probing.left(probing.generation, 1.0)
    assert (left.state, left.takes_turns(1.0)) == (State.COOLING, True)
    assert probing.left(probing.generation - 1, 1.0) is probing


def test_what_a_probe_delivers_lets_others_in_before_it_ends() -> None:
    """C3: a turn may last for minutes."""
    probing = opened().begun(1.0)
    trial = probing.delivered(probing.generation)
    assert (trial.state, trial.faults, trial.takes_turns(1.0)) == (State.TRIAL, 0, True)
    assert trial.delivered(trial.generation) == trial


@pytest.mark.parametrize(
    ("end", "state", "cools_until"),
    [
        pytest.param(None, State.SERVING, 1.0, id="sound"),
        pytest.param(FAULT, State.COOLING, 32.0, id="fault"),
        pytest.param(LEFT, State.TRIAL, 1.0, id="nothing"),
    ],
)
def test_the_first_verdict_after_it_was_let_in_decides(end: Failure | None, state: State, cools_until: float) -> None:
    """C3: streams that all break after their first output would otherwise never open it again."""
    probing = opened().begun(1.0)
    ended = probing.delivered(probing.generation).ended(probing.generation, end, 30.0, WALL_NOW)
    assert (ended.state, ended.cools_until) == (state, cools_until)


def test_attempts_from_before_the_opening_are_not_heard() -> None:
    """C3: neither do late faults of one outage count for the next, nor does a late success end the cooling."""
    circuit = opened()
    late = circuit.generation - 1
    assert circuit.ended(late, FAULT, 0.5, WALL_NOW) == circuit
    assert circuit.ended(late, None, 0.5, WALL_NOW) == circuit
    assert late == Circuit().begun(0.0).generation
    probing = circuit.begun(1.0)
    assert (
        probing.ended(late, FAULT, 1.5, WALL_NOW)
        == probing.ended(late, None, 1.5, WALL_NOW)
        == probing.delivered(late)
        == probing
    )
    closed = probing.ended(probing.generation, None, 2.0, WALL_NOW)
    assert closed.ended(late, FAULT, 25.0, WALL_NOW) == closed


# --- whatever happens -------------------------------------------------------------------------------------------

ENDS = st.sampled_from([FAULT, OWN_FAULT, LEFT, None, answer(429, ("retry-after", "9"))])
ACTS = st.tuples(st.sampled_from(["begin", "deliver", "end"]), st.integers(0, 50), ENDS, st.floats(0, 5))


@given(st.lists(ACTS, max_size=80))
def test_no_history_makes_two_probes_or_a_cooling_without_end(
    acts: list[tuple[str, int, Failure | None, float]],
) -> None:
    """C3: and every route is back for some turn within its longest wait."""
    circuit, now = Circuit(), 0.0
    out: list[int] = []
    probes: set[int] = set()
    for act, which, failure, pause in acts:
        now += pause
        if act == "begin" and circuit.takes_turns(now):
            was_cooling = circuit.state is State.COOLING
            circuit = circuit.begun(now)
            assert not (was_cooling and circuit.generation in probes)
            out.append(circuit.generation)
            probes |= {circuit.generation} if was_cooling else set()
        elif act == "deliver" and out:
            circuit = circuit.delivered(out[which % len(out)])
        elif act == "end" and out:
            generation = out.pop(which % len(out))
            circuit = circuit.ended(generation, failure, now, WALL_NOW)
            if circuit.state is State.COOLING:
                probes.discard(circuit.generation)
        assert circuit.cools_until <= now + limits.ROUTE_WAIT_SECONDS_MAX
        assert circuit.state is not State.PROBING or circuit.generation in out
        assert not math.isnan(circuit.cools_until)
