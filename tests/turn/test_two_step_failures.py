"""E6, T9: an `error` is read on from, for a quarter of a second, to the `response.failed` that may join it.

HTTP tells both, in order, and the `error` at once after the commit point; a WebSocket has one terminal frame per turn.
"""

import pytest
import trio

from gateway.upstream.scripted import Break, Silence, Step
from gateway.upstream.scripts import usage_object
from support.gateways import Seen, play, seen, turn, world
from support.virtual import in_every_order
from support.voices import ANSWERED, COMMENT, NEUTRAL, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

OVERLOADED = "server_is_overloaded"
HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
ENDLESS = [COMMENT, 0.1, COMMENT, Silence()]


def both(door: str, error: str, failed: str) -> list[str]:
    """How a failure of two steps is told."""
    return [f"error {error}", f"failed {failed}"] if door == "http" else [f"failed {failed}"]


# --- what ends the grace ----------------------------------------------------------------------------------------

ENDS: dict[str, tuple[list[Step], float]] = {
    # what follows the `error`, and when the failure is decided
    "response.failed": ([0.1, A.failed(OVERLOADED)], 0.1),
    "a completed": ([0.1, A.ending("completed"), Silence()], 0.1),
    "output": ([0.1, A.delta(), Silence()], 0.1),
    "a second error": ([0.1, A.error("invalid_prompt"), Silence()], 0.1),
    "EOF": ([0.1], 0.1),
    "a reset": ([0.1, Break()], 0.1),
    "silence": ([Silence()], 0.25),
    "comments": ([COMMENT, 0.1, COMMENT, 0.1, COMMENT, 0.1, COMMENT, Silence()], 0.25),
    "neutral events": ([NEUTRAL, 0.1, NEUTRAL, 0.1, NEUTRAL, 0.1, NEUTRAL, Silence()], 0.25),
    "lifecycle events": ([A.in_progress, 0.2, A.in_progress, 0.1, A.in_progress, Silence()], 0.25),
}


@pytest.mark.parametrize("end", [end for end in ENDS if end != "a completed"])
@in_every_order
async def test_whatever_ends_the_grace_a_retryable_error_is_replayed(door: str, end: str) -> None:
    """E6, R15: decided when the grace ends; what ended it is dropped, and is neither told nor held against it."""
    steps, decided_at = ENDS[end]
    w = world(A.reply(A.prelude, A.error(OVERLOADED), *steps), B.answer())
    client = await play(w, door)
    attempts = [f"a {OVERLOADED} (replay)", "b completed"]
    assert seen(w, client) == Seen(ANSWERED, ["a", "b"], attempts, ["settled 7000"])
    assert client.times == [(decided_at, label) for label in ANSWERED]


@pytest.mark.parametrize("end", [end for end in ENDS if end != "response.failed"])
@in_every_order
async def test_whatever_ends_the_grace_the_error_is_told_as_it_came(door: str, end: str) -> None:
    """E6, X1: with no route left. Only `response.failed` joins; everything else is dropped."""
    steps, decided_at = ENDS[end]
    w = world(A.reply(A.prelude, A.error(OVERLOADED), *steps))
    client = await play(w, door)
    assert client.times == [(decided_at, label) for label in [*HELD, f"error {OVERLOADED}"]]
    assert (w.money, w.closed_at) == (["voided"], [decided_at])


@in_every_order
async def test_what_was_dropped_is_counted(door: str) -> None:
    """E6, E9: output that ended the grace, and what came with it."""
    w = world(A.reply(A.prelude, A.error(OVERLOADED), A.delta() + A.delta() + A.completed()))
    await play(w, door)
    assert w.closings[0].report.dropped_events >= 1


@pytest.mark.parametrize("status", ["completed", "incomplete", "cancelled"])
@in_every_order
async def test_another_terminal_is_dropped_but_its_usage_counts(door: str, status: str) -> None:
    """E6, R4, B3: usage from either; a result behind the error keeps it from being replayed."""
    w = world(A.reply(A.prelude, A.error(OVERLOADED), A.ending(status, usage_object(5, 1))), B.answer())
    client = await play(w, door)
    told = [*HELD, f"error {OVERLOADED}"]
    assert (client.told, w.called, w.money) == (told, ["a"], ["settled 7000 failed_metered"])


# --- T9 at its instant ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joins_after", [0.0, 0.1, 0.249])
@in_every_order
async def test_t9_a_failed_that_comes_in_time_joins(door: str, joins_after: float) -> None:
    """T9, E6: decided at once."""
    w = world(A.reply(A.prelude, A.error("some"), joins_after, A.failed("invalid_prompt")), B.answer())
    client = await play(w, door)
    told = [*HELD, *both(door, "some", "invalid_prompt")]
    assert client.times == [(joins_after, label) for label in told]
    assert w.attempts == ["a invalid_prompt (deterministic)"]


@pytest.mark.parametrize("comes_after", [0.25, 0.251, 5.0])
@in_every_order
async def test_t9_a_failed_that_comes_at_the_limit_is_too_late(door: str, comes_after: float) -> None:
    """T9: the clock wins; the `error` alone decides."""
    w = world(A.reply(A.prelude, A.error("some"), comes_after, A.failed("invalid_prompt")), B.answer())
    client = await play(w, door)
    assert client.times == [(0.25, label) for label in [*HELD, "error some"]]
    assert (w.attempts, w.closed_at) == (["a some (not_retryable)"], [0.25])


@pytest.mark.parametrize("errs_at", [9.751, 9.999])
@in_every_order
async def test_t9_the_hold_does_not_expire_in_the_grace(door: str, errs_at: float) -> None:
    """E6, T1: the failure is stamped when the `error` was seen."""
    w = world(A.reply(A.prelude, errs_at, A.error(OVERLOADED), Silence()), B.answer())
    client = await play(w, door)
    assert (client.told, w.attempts) == (ANSWERED, [f"a {OVERLOADED} (replay)", "b completed"])
    assert client.events[0].at == round(errs_at + 0.25, 6)


@in_every_order
async def test_t9_a_break_in_the_grace_is_no_break_after_the_first_event(door: str) -> None:
    """E6: R9 does not apply."""
    w = world(A.reply(A.prelude, 1.0, A.error(OVERLOADED), 0.2, Break()), B.answer())
    client = await play(w, door)
    assert (client.told, w.attempts) == (ANSWERED, [f"a {OVERLOADED} (replay)", "b completed"])


@in_every_order
async def test_t9_an_error_just_before_the_first_event_timeout_is_an_event(door: str) -> None:
    """T2, E6."""
    w = world(A.reply(24.999, A.error(OVERLOADED), Silence()), B.answer())
    client = await play(w, door)
    assert client.times == [(25.249, label) for label in ANSWERED]


# --- which of the two decides -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "failed", "outcome", "reason"),
    [
        (OVERLOADED, "server_error", "server_error", "replay"),
        ("mystery", "server_error", "server_error", "replay"),
        (OVERLOADED, "mystery", "mystery", "not_retryable"),
        (OVERLOADED, None, OVERLOADED, "replay"),
        (OVERLOADED, "invalid_prompt", "invalid_prompt", "deterministic"),
        ("invalid_prompt", "server_error", "server_error", "deterministic"),
        ("server_error", "timeout_error", "timeout_error", "first_event_timeout"),
    ],
)
@in_every_order
async def test_the_code_is_the_faileds_else_the_errors(
    door: str, error: str, failed: str | None, outcome: str, reason: str
) -> None:
    """E6: and deterministic in either wins."""
    w = world(A.reply(A.prelude + A.error(error) + A.failed(failed)), B.answer())
    await play(w, door)
    assert w.attempts[0] == f"a {outcome} ({reason})"


@pytest.mark.parametrize("bearer", ["error", "failed"])
@in_every_order
async def test_usage_is_taken_from_either(door: str, bearer: str) -> None:
    """E6, R4, B3."""
    usage = usage_object(5, 1)
    error = A.error(OVERLOADED, usage=usage) if bearer == "error" else A.error(OVERLOADED)
    failed = A.failed(OVERLOADED, usage) if bearer == "failed" else A.failed(OVERLOADED)
    w = world(A.reply(A.prelude + error + failed), B.answer())
    client = await play(w, door)
    assert client.told == [*HELD, *both(door, OVERLOADED, OVERLOADED)]
    assert (w.attempts, w.money) == ([f"a {OVERLOADED} (usage_observed)"], ["settled 7000 failed_metered"])


# --- after the commit point -------------------------------------------------------------------------------------


@in_every_order
async def test_after_output_http_gets_the_error_at_once_and_the_failed_when_it_comes() -> None:
    """E6: and a turn that is told its failure goes on for the grace at most."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.error(OVERLOADED), 0.2, A.failed(OVERLOADED)), B.answer())
    client = await play(w, "http")
    assert client.times[3:] == [(1.0, f"error {OVERLOADED}"), (1.2, f"failed {OVERLOADED}")]
    assert (w.attempts, client.body_ended_at) == ([f"a {OVERLOADED} (output_delivered)"], 1.2)


@in_every_order
async def test_after_output_a_websocket_gets_one_terminal_frame() -> None:
    """E6, X4: the `response.failed`, when it came."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.error(OVERLOADED), 0.2, A.failed(OVERLOADED)), B.answer())
    client = await play(w, "websocket")
    assert client.times[3:] == [(1.2, f"failed {OVERLOADED}")]


@in_every_order
async def test_after_output_an_error_alone_ends_the_turn_after_the_grace(door: str) -> None:
    """E6: HTTP had it at once, a WebSocket gets it with the decision; both end then."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.error(OVERLOADED), Silence()), B.answer())
    client = await play(w, door)
    told_at = 1.0 if door == "http" else 1.25
    assert client.times[3:] == [(told_at, f"error {OVERLOADED}")]
    assert (w.attempts, w.closed_at) == ([f"a {OVERLOADED} (output_delivered)"], [1.25])


@pytest.mark.parametrize("end", ["response.failed", "a completed", "output", "a second error", "a reset"])
@in_every_order
async def test_after_output_nothing_that_ends_the_grace_is_told_but_failed(door: str, end: str) -> None:
    """E6, E9."""
    steps, decided_at = ENDS[end]
    w = world(A.reply(A.prelude, A.delta(), A.error(OVERLOADED), *steps), B.answer())
    client = await play(w, door)
    told = both(door, OVERLOADED, OVERLOADED) if end == "response.failed" else [f"error {OVERLOADED}"]
    assert [label for label in client.told[3:] if label in told] == told
    assert "completed" not in client.told
    assert client.told.count("output_text.delta") == 1
    assert (w.called, w.closed_at) == (["a"], [decided_at])


@in_every_order
async def test_after_the_holds_release_the_error_is_told_at_once_too() -> None:
    """E6, R3: the commit point is what counts, not output."""
    w = world(A.reply(A.prelude, 12.0, A.error(OVERLOADED), 0.2, A.failed(OVERLOADED)), B.answer())
    client = await play(w, "http")
    assert client.times[2:] == [(12.0, f"error {OVERLOADED}"), (12.2, f"failed {OVERLOADED}")]
    assert w.attempts == [f"a {OVERLOADED} (lifecycle_delivered)"]


# --- shapes -----------------------------------------------------------------------------------------------------


@in_every_order
async def test_an_object_with_an_error_and_no_type_is_an_error(door: str) -> None:
    """E5, E8: some upstreams leave the type out; on a WebSocket it is put in, with a status."""
    bare = b'data: {"error":{"code":"invalid_prompt","message":"m"}}\n\n'
    client = await play(world(A.reply(A.prelude, bare), B.answer()), door)
    assert client.told == [*HELD, "error invalid_prompt"]
    if door == "websocket":
        assert (client.events[-1].payload["type"], client.events[-1].payload["status"]) == ("error", 400)


@in_every_order
async def test_a_client_that_leaves_in_the_grace_has_left(door: str) -> None:
    """R1, E6: no replay, the upstream closed at once."""
    w = world(A.reply(A.prelude, A.error(OVERLOADED), Silence()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(0.125)
        client.leave()
    assert (w.attempts, w.closed_at) == (["a client_disconnected (client_disconnected)"], [0.125])
