"""The rows of the replay decision (§4), each as it refuses and as it lets pass, through both doors.

What is retryable at all (R15) is in test_replay_r15.py; which requests are stateful (R10) in test_replay_stateful.py.
"""

import pytest
import trio

from gateway.upstream.scripted import Break, Reply, Silence, Step
from gateway.upstream.scripts import usage_object
from support.gateways import Seen, play, seen, turn, words_of_failure, world
from support.virtual import in_every_order
from support.voices import ANSWERED, COMMENT, NEUTRAL, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

OVERLOADED = "server_is_overloaded"
HELD = ["created", "in_progress"]
BREAKS = A.reply(Break())
FAILS = A.reply(A.prelude, A.failed(OVERLOADED))


def replayed(outcome: str) -> Seen:
    """A's failure stays unseen, B's answer is all the client gets and pays for."""
    return Seen(ANSWERED, ["a", "b"], [f"a {outcome} (replay)", "b completed"], ["settled 7000"])


def refused(told: list[str], outcome: str, reason: str, money: str = "voided") -> Seen:
    """A's failure is told; B is not called."""
    return Seen(told, ["a"], [f"a {outcome} ({reason})"], [money])


# --- R1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves_at", [2.999, 3.0])
@in_every_order
async def test_r1_nothing_is_replayed_for_a_client_that_left(door: str, leaves_at: float) -> None:
    """R1, §7: also at the instant of the failure, for the client that left goes first."""
    w = world(A.reply(3.0, Break()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(leaves_at)
        client.leave()
    assert seen(w, client) == refused([], "client_disconnected", "client_disconnected")


@in_every_order
async def test_r1_a_client_that_leaves_after_the_replay_began_ends_the_second_attempt(door: str) -> None:
    """R1, R15."""
    w = world(A.reply(3.0, Break()), B.answer(10.0))
    async with turn(w, door) as client:
        await trio.sleep_until(3.001)
        client.leave()
    attempts = ["a stream_read_error (replay)", "b client_disconnected (client_disconnected)"]
    assert seen(w, client) == Seen([], ["a", "b"], attempts, ["voided"])


# --- R2, R3 -----------------------------------------------------------------------------------------------------


@in_every_order
async def test_r2_a_break_after_output_is_told_and_not_replayed(door: str) -> None:
    """R2, X3, X4."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, Break()), B.answer())
    client = await play(w, door)
    told = [*HELD, "output_text.delta", *words_of_failure(door, "stream_read_error")]
    assert seen(w, client) == refused(told, "stream_read_error", "output_delivered", "settled 3000 estimated")


@pytest.mark.parametrize(
    "steps",
    [[A.prelude, A.delta(), 1.0, A.failed(OVERLOADED)], [A.prelude + A.delta() + A.failed(OVERLOADED)]],
    ids=["later", "in one piece"],
)
@in_every_order
async def test_r2_a_failure_after_output_is_told_in_its_own_words(door: str, steps: list[Step]) -> None:
    """R2, X1: behind the output, also where both came at once."""
    w = world(A.reply(*steps), B.answer())
    client = await play(w, door)
    told = [*HELD, "output_text.delta", f"failed {OVERLOADED}"]
    assert seen(w, client) == refused(told, OVERLOADED, "output_delivered", "settled 3000 estimated")


@pytest.mark.parametrize("fails_at", [10.0, 10.001, 20.0])
@in_every_order
async def test_r3_a_failure_is_not_replayed_once_the_held_events_were_released(door: str, fails_at: float) -> None:
    """R3, T1: at ten seconds the clock wins."""
    w = world(A.reply(A.prelude, fails_at, A.failed(OVERLOADED)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "lifecycle_delivered")


@pytest.mark.smoke
@in_every_order
async def test_r3_a_failure_just_before_the_hold_ends_is_replayed(door: str) -> None:
    """R3, T1, R15."""
    w = world(A.reply(A.prelude, 9.999, A.failed(OVERLOADED)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == replayed(OVERLOADED)


# --- R4 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "money"),
    [
        (usage_object(10, 3), "settled 16000 failed_metered"),
        ({"input_tokens": 4}, "voided"),
        ({"input_tokens": 0, "output_tokens": "3"}, "voided"),
        ("much", "voided"),
    ],
    ids=["complete", "partial", "malformed", "no object"],
)
@in_every_order
async def test_r4_a_failure_that_carries_usage_is_delivered_unchanged(door: str, usage: object, money: str) -> None:
    """R4, B3, B5: what is observed need not be complete; what is charged must be."""
    w = world(A.reply(A.prelude, A.failed(OVERLOADED, usage)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "usage_observed", money)


@in_every_order
async def test_r4_usage_of_any_event_of_the_attempt_counts(door: str) -> None:
    """R4: here it stands in `response.created`, and the stream breaks off."""
    metered = A.created.replace(b'"usage":null', b'"usage":{"input_tokens":7,"output_tokens":0}')
    w = world(A.reply(metered, Break()), B.answer())
    client = await play(w, door)
    told = ["created", *words_of_failure(door, "stream_read_error")]
    assert seen(w, client) == refused(told, "stream_read_error", "usage_observed", "settled 7000 failed_metered")


@pytest.mark.parametrize("usage", [None, {}, usage_object(0, 0)], ids=["null", "empty", "zeros"])
@in_every_order
async def test_r4_no_usage_and_zeros_do_not_stand_in_the_way(door: str, usage: object) -> None:
    """R4, R15."""
    w = world(A.reply(A.prelude, A.failed(OVERLOADED, usage)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == replayed(OVERLOADED)


@in_every_order
async def test_r4_a_failure_that_carries_output_is_delivered_unchanged(door: str) -> None:
    """R4."""
    w = world(A.reply(A.prelude, A.failed(OVERLOADED, output=[{"type": "message"}])), B.answer())
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "result_observed")


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled"])
@in_every_order
async def test_r4_a_result_behind_an_error_stands_in_the_way(door: str, status: str) -> None:
    """R4, E6: only `response.failed` joins an `error`; another terminal is dropped, but it was a result."""
    w = world(A.reply(A.prelude, A.error(OVERLOADED), A.ending(status)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"error {OVERLOADED}"], OVERLOADED, "result_observed")


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled"])
@in_every_order
async def test_r4_an_answer_without_output_is_an_answer(door: str, status: str) -> None:
    """R4, B3: delivered unchanged, not charged."""
    w = world(A.reply(A.prelude, A.ending(status)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == Seen([*HELD, status], ["a"], [f"a {status}"], ["voided unmetered"])


# --- R5, R6, R7 -------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@in_every_order
async def test_r5_no_event_in_time_is_not_replayed(door: str) -> None:
    """R5, T2, X2: the upstream may still be generating."""
    w = world(A.reply(Silence()), B.answer())
    client = await play(w, door)
    assert seen(w, client) == refused(["error first_event_timeout"], "first_event_timeout", "first_event_timeout")
    assert client.failure == (504, "first_event_timeout")


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (A.status(504, "slow_down"), "slow_down"),
        (A.status(524, None), "some_type"),
        (A.status(503, "timeout_error"), "timeout_error"),
        (A.reply(A.error("timeout_error")), "timeout_error"),
        (A.reply(A.error("server_error", status=504)), "server_error"),
        (A.reply(A.failed("timeout_error")), "timeout_error"),
    ],
    ids=["504", "524", "503 timeout_error", "error timeout_error", "error with status 504", "failed timeout_error"],
)
@in_every_order
async def test_r5_a_timeout_that_the_upstream_tells_of_is_not_replayed(door: str, reply: Reply, outcome: str) -> None:
    """R5, F1st: as an HTTP status, and inside the stream."""
    w = world(reply, B.answer())
    await play(w, door)
    assert (w.called, w.attempts, w.money) == (["a"], [f"a {outcome} (first_event_timeout)"], ["voided"])


@in_every_order
async def test_r6_silence_after_held_events_is_not_replayed(door: str) -> None:
    """R6, T4: held events first, then the failure."""
    w = world(A.reply(A.prelude, Silence()), B.answer(), route="idle_timeout = 5")
    client = await play(w, door)
    told = [*HELD, *words_of_failure(door, "stream_idle_timeout")]
    assert seen(w, client) == refused(told, "stream_idle_timeout", "idle_timeout")


@in_every_order
async def test_r6_a_pause_shorter_than_the_limit_stands_in_nobodys_way(door: str) -> None:
    """R6, R15."""
    w = world(A.reply(A.prelude, 4.999, A.failed(OVERLOADED)), B.answer(), route="idle_timeout = 5")
    client = await play(w, door)
    assert seen(w, client) == replayed(OVERLOADED)


@pytest.mark.parametrize(
    ("limits", "steps", "told"),
    [
        (f"hold_bytes_max = {len(A.prelude) - 1}", [A.created, A.in_progress], ["created", "in_progress"]),
        ("hold_events_max = 2", [A.created, NEUTRAL, A.in_progress], ["created", "codex.rate_limits", "in_progress"]),
        ("event_bytes_max = 900", [A.created, A.delta("x" * 900)], ["created"]),
        pytest.param(
            *("event_bytes_max = 900", [A.created, b"data: " + b"x" * 900], ["created"]), marks=pytest.mark.over_http
        ),
        ("event_bytes_max = 900", [A.created + A.delta("x" * 900)], ["created"]),
    ],
    ids=["bytes", "events", "one event", "one endless event", "all in one read"],
)
@in_every_order
async def test_r7_too_much_before_output_is_not_replayed(
    door: str, limits: str, steps: list[bytes], told: list[str]
) -> None:
    """R7: it would be too much on the next route, too. What was held is handed over first."""
    w = world(A.reply(*steps, Silence()), B.answer(), limits=limits)
    client = await play(w, door)
    code = "upstream_stream_buffer_limit"
    assert seen(w, client) == refused([*told, *words_of_failure(door, code)], code, "buffer_overflow")


@pytest.mark.parametrize(
    "limits",
    ["hold_events_max = 3", f"hold_bytes_max = {len(A.prelude + NEUTRAL)}", f"event_bytes_max = {len(A.completed())}"],
)
@in_every_order
async def test_r7_what_fits_may_be_replayed(door: str, limits: str) -> None:
    """R7, R15: at the bound, not beyond it."""
    w = world(A.reply(A.created, NEUTRAL, A.in_progress, A.failed(OVERLOADED)), B.answer(), limits=limits)
    client = await play(w, door)
    assert seen(w, client) == replayed(OVERLOADED)


# --- R9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [[], [Break()]], ids=["EOF", "reset"])
@in_every_order
async def test_r9_a_break_after_a_held_event_is_not_replayed(door: str, ending: list[Break]) -> None:
    """R9: the held events are handed over, then the failure."""
    w = world(A.reply(A.created, 1.0, *ending), B.answer())
    client = await play(w, door)
    told = ["created", *words_of_failure(door, "stream_read_error")]
    assert seen(w, client) == refused(told, "stream_read_error", "read_error_after_first_event")


@pytest.mark.parametrize("before", [[], [COMMENT], [NEUTRAL], [NEUTRAL, COMMENT]], ids=len)
@in_every_order
async def test_r9_comments_and_neutral_events_are_no_first_event(door: str, before: list[bytes]) -> None:
    """R9, E2, P4: before the first lifecycle, output, terminal or error event a break is replayed."""
    w = world(A.reply(*before, 1.0, Break()), B.answer())
    client = await play(w, door)
    assert seen(w, client) == replayed("stream_read_error")


# --- R10a, R11 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["never", " Never "])
@in_every_order
async def test_r10a_a_client_may_ask_for_no_replay(door: str, asked: str) -> None:
    """R10a, by header."""
    w = world(BREAKS, B.answer())
    client = await play(w, door, headers=[("x-gateway-replay", asked)])
    assert seen(w, client) == refused(["error stream_read_error"], "stream_read_error", "disabled")


@in_every_order
async def test_r10a_a_key_may_ask_for_no_replay(door: str) -> None:
    """R10a, by key."""
    w = world(BREAKS, B.answer(), key='replay = "never"')
    client = await play(w, door)
    assert seen(w, client) == refused(["error stream_read_error"], "stream_read_error", "disabled")


@in_every_order
async def test_r10a_any_other_wish_changes_nothing(door: str) -> None:
    """R10a."""
    w = world(BREAKS, B.answer())
    client = await play(w, door, headers=[("x-gateway-replay", "always")])
    assert seen(w, client) == replayed("stream_read_error")


@in_every_order
async def test_r11_a_second_failure_is_told_and_not_replayed(door: str) -> None:
    """R11: at most one replay, and what is told is the second attempt's own failure."""
    w = world(FAILS, B.reply(B.prelude, B.failed("server_error")))
    client = await play(w, door)
    attempts = [f"a {OVERLOADED} (replay)", "b server_error (replay_spent)"]
    assert seen(w, client) == Seen([*HELD, "failed server_error"], ["a", "b"], attempts, ["voided"])


# --- R12, R13, R14 ----------------------------------------------------------------------------------------------


@in_every_order
async def test_r12_a_draining_gateway_replays_nothing(door: str) -> None:
    """R12, T7: the turn may end by itself, but no second attempt begins."""
    w = world(A.reply(3.0, A.prelude, A.failed(OVERLOADED)), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "draining")


@pytest.mark.parametrize(
    ("fails_after", "reason"), [(9.999, "replay"), (10.0, "connection_limit"), (15.0, "connection_limit")]
)
@in_every_order
async def test_r12_after_sixty_minutes_nothing_is_replayed_on_a_socket(fails_after: float, reason: str) -> None:
    """R12, W6: a turn that began at 3590 s runs on in the grace, but no second attempt begins after 3600 s."""
    w = world(A.reply(fails_after, A.failed(OVERLOADED)), B.answer(), server="connection_grace = 60")
    await play(w, "websocket", begins_at=3590.0)
    assert w.attempts[0] == f"a {OVERLOADED} ({reason})"
    assert w.called == (["a", "b"] if reason == "replay" else ["a"])


@in_every_order
async def test_r13_a_spent_budget_replays_nothing(door: str) -> None:
    """R13, C4."""
    w = world(FAILS, B.answer())
    w.house.throttled = True
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "replay_throttled")


@in_every_order
async def test_r14_where_no_other_route_is_the_failure_keeps_its_own_code(door: str) -> None:
    """R14."""
    w = world(FAILS)
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "no_route_left")


@in_every_order
async def test_r14_a_route_that_cools_down_is_no_other_route(door: str) -> None:
    """R14, C3."""
    w = world(FAILS, B.answer())
    w.house.cooling.add("b")
    client = await play(w, door)
    assert seen(w, client) == refused([*HELD, f"failed {OVERLOADED}"], OVERLOADED, "no_route_left")
