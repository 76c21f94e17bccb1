"""T1: lifecycle and neutral events wait for the first output, at most ten seconds of the turn; through both doors."""

import pytest

from gateway.upstream.scripted import Break, Silence, Step
from gateway.upstream.scripts import event
from support.gateways import play, world
from support.virtual import in_every_order
from support.voices import ANSWERED, METADATA, NEUTRAL, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

OVERLOADED = "server_is_overloaded"
QUEUED = event("response.queued", sequence_number=1, response={"id": "resp_of_a", "status": "queued"})


def payloads(*blocks: bytes) -> list[bytes]:
    """What a WebSocket carries of these SSE blocks."""
    return [block.split(b"data: ")[1].removesuffix(b"\n\n") for block in blocks]


# --- with the first output --------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("output_at", "held_at"), [(0.0, 0.0), (3.0, 3.0), (9.999, 9.999), (10.0, 10.0), (10.001, 10.0), (200.0, 10.0)]
)
@in_every_order
async def test_held_events_leave_with_the_first_output_or_after_ten_seconds(
    door: str, output_at: float, held_at: float
) -> None:
    """T1: whichever comes first."""
    w = world(A.reply(A.prelude, output_at, A.delta(), A.completed()))
    client = await play(w, door)
    assert client.times == [
        (held_at, "created"),
        (held_at, "in_progress"),
        (output_at, "output_text.delta"),
        (output_at, "completed"),
    ]


@pytest.mark.parametrize(("ends_at", "held_at"), [(3.0, 3.0), (9.999, 9.999), (10.0, 10.0), (10.001, 10.0)])
@in_every_order
async def test_held_events_leave_with_the_terminal_event(door: str, ends_at: float, held_at: float) -> None:
    """T1: an answer without output."""
    w = world(A.reply(A.prelude, ends_at, A.completed()))
    client = await play(w, door)
    assert client.times == [(held_at, "created"), (held_at, "in_progress"), (ends_at, "completed")]


@pytest.mark.parametrize(("fails_at", "held_at"), [(3.0, 3.0), (9.999, 9.999), (10.0, 10.0), (10.001, 10.0)])
@in_every_order
async def test_held_events_leave_before_the_failure_that_is_not_replayed(
    door: str, fails_at: float, held_at: float
) -> None:
    """T1, R8: held events at a failure that is not replayed are always handed over first."""
    w = world(A.reply(A.prelude, fails_at, A.failed("invalid_prompt")), B.answer())
    client = await play(w, door)
    held = [(held_at, "created"), (held_at, "in_progress")]
    assert client.times == [*held, (fails_at, "failed invalid_prompt")]


@in_every_order
async def test_the_clock_starts_with_the_first_held_lifecycle_event(door: str) -> None:
    """T1: not with the turn, and not with a later event."""
    w = world(A.reply(4.0, A.created, 5.0, A.in_progress, 20.0, A.delta(), A.completed()))
    client = await play(w, door)
    assert [at for at, _ in client.times] == [14.0, 14.0, 29.0, 29.0]


@in_every_order
async def test_a_released_hold_holds_nothing_more(door: str) -> None:
    """T1: lifecycle and neutral events after the release leave as they come."""
    w = world(A.reply(A.created, 12.0, A.in_progress, 1.0, NEUTRAL, 1.0, A.delta(), A.completed()))
    client = await play(w, door)
    assert client.times[:4] == [
        (10.0, "created"),
        (12.0, "in_progress"),
        (13.0, "codex.rate_limits"),
        (14.0, "output_text.delta"),
    ]


@in_every_order
async def test_queued_is_held_like_the_others(door: str) -> None:
    """E1."""
    w = world(A.reply(A.created, QUEUED, 2.0, A.in_progress, A.delta(), A.completed()))
    client = await play(w, door)
    assert client.times[:3] == [(2.0, "created"), (2.0, "queued"), (2.0, "in_progress")]


# --- neutral events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neutral", [NEUTRAL, METADATA], ids=["codex.rate_limits", "response.metadata"])
@in_every_order
async def test_neutral_events_are_held_in_their_place(door: str, neutral: bytes) -> None:
    """E2, T1: they neither release the hold nor start its clock."""
    steps: list[Step] = [neutral, 6.0, A.created, 1.0, neutral, 1.0, A.in_progress]
    w = world(A.reply(*steps, 20.0, A.delta(), A.completed()))
    client = await play(w, door)
    name = "codex.rate_limits" if neutral is NEUTRAL else "metadata"
    assert client.times[:4] == [(16.0, name), (16.0, "created"), (16.0, name), (16.0, "in_progress")]


@in_every_order
async def test_neutral_events_alone_are_held_without_an_end(door: str) -> None:
    """E2, T1, T2: until the first-event timeout, before which they are handed over."""
    w = world(A.reply(NEUTRAL, 15.0, NEUTRAL, Silence()), B.answer())
    client = await play(w, door)
    assert client.times == [
        (25.0, "codex.rate_limits"),
        (25.0, "codex.rate_limits"),
        (25.0, "error first_event_timeout"),
    ]


# --- byte for byte ----------------------------------------------------------------------------------------------


@in_every_order
async def test_what_was_held_is_the_same_bytes_in_the_same_order() -> None:
    """E10, T1: on HTTP the blocks as they came."""
    events = [NEUTRAL, A.created, METADATA, A.in_progress, A.delta(), A.completed()]
    client = await play(world(A.reply(*events[:4], 11.0, *events[4:])), "http")
    assert client.body == b"".join(events)


@in_every_order
async def test_what_was_held_is_the_same_payload_in_the_same_order() -> None:
    """E10, T1: on a WebSocket one text frame for each payload."""
    events = [NEUTRAL, A.created, METADATA, A.in_progress, A.delta(), A.completed()]
    client = await play(world(A.reply(*events[:4], 11.0, *events[4:])), "websocket")
    assert [data for _, data in client.pieces] == payloads(*events)


# --- across a replay --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("output_at", "held_at"), [(9.999, 9.999), (10.0, 10.0), (10.001, 10.0), (15.0, 10.0)])
@in_every_order
async def test_the_clock_runs_on_across_a_replay(door: str, output_at: float, held_at: float) -> None:
    """T1: per turn, so that holding never costs a turn more than ten seconds."""
    first = A.reply(A.prelude, 5.0, A.failed(OVERLOADED))
    second = B.reply(1.0, B.prelude, output_at - 6.0, B.delta(), B.completed())
    client = await play(world(first, second), door)
    assert client.times == [
        (held_at, "created"),
        (held_at, "in_progress"),
        (output_at, "output_text.delta"),
        (output_at, "completed"),
    ]


@pytest.mark.parametrize("created_at", [10.0, 10.001, 14.0])
@in_every_order
async def test_where_the_clock_ran_out_between_two_attempts_the_next_event_leaves_at_once(
    door: str, created_at: float
) -> None:
    """T1: with the neutral ones before it; those alone are no reason to leave."""
    first = A.reply(A.prelude, 5.0, A.failed(OVERLOADED))
    second = B.reply(1.0, NEUTRAL, created_at - 6.0, B.created, 2.0, B.delta(), B.completed())
    client = await play(world(first, second), door)
    assert client.times[:3] == [
        (created_at, "codex.rate_limits"),
        (created_at, "created"),
        (created_at + 2.0, "output_text.delta"),
    ]


@in_every_order
async def test_a_clock_that_ran_out_while_nothing_was_held_commits_nothing(door: str) -> None:
    """T1: until the next lifecycle event a failure has its real status, and nothing but it is told."""
    w = world(A.reply(A.prelude, 5.0, A.failed(OVERLOADED)), B.reply(1.0, NEUTRAL, 8.0, Break()))
    client = await play(w, door)
    assert client.times == [(14.0, "codex.rate_limits"), (14.0, "error stream_read_error")]


@in_every_order
async def test_between_two_attempts_nothing_leaves(door: str) -> None:
    """R, T1: A's held events are discarded although their ten seconds end while B is silent."""
    w = world(A.reply(A.prelude, 5.0, A.failed(OVERLOADED)), B.answer(19.0))
    client = await play(w, door)
    assert client.times == [(24.0, label) for label in ANSWERED]


# --- nothing of a discarded attempt -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "discarded",
    [
        [A.prelude, A.failed(OVERLOADED)],
        [A.created, NEUTRAL, 3.0, A.error(OVERLOADED)],
        [A.prelude + A.error(OVERLOADED) + A.failed(OVERLOADED)],
        [3.0, Break()],
    ],
    ids=["failed", "error", "both at once", "reset"],
)
@in_every_order
async def test_nothing_of_a_discarded_attempt_reaches_the_client(door: str, discarded: list[Step]) -> None:
    """R: neither bytes nor ids nor headers; what comes is B's, byte for byte, in B's numbers."""
    answer = [B.created, B.in_progress, B.delta(), B.completed()]
    client = await play(world(A.reply(*discarded), B.reply(*answer)), door)
    assert b"of_a" not in client.body
    assert "of_a" not in str(client.headers)
    assert [heard.payload["sequence_number"] for heard in client.events] == [0, 1, 2, 3]
    assert client.body == (b"".join(answer) if door == "http" else b"".join(payloads(*answer)))


@in_every_order
async def test_headers_are_those_of_the_delivered_attempt() -> None:
    """H5: its request id under a name of its own, its limits; and one request id of the gateway's."""
    client = await play(world(A.reply(A.prelude, A.failed(OVERLOADED)), B.answer()), "http")
    assert client.headers["x-upstream-request-id"] == "req_of_b"
    assert client.headers["x-ratelimit-limit-tokens"] == "of_b"
    assert client.headers["x-request-id"] == "req_1"


@in_every_order
async def test_the_failed_attempt_is_on_record_all_the_same(door: str) -> None:
    """L1: its route, its outcome, its response id, and the upstream's request id."""
    w = world(A.reply(A.prelude, 2.0, A.failed(OVERLOADED)), B.answer())
    await play(w, door)
    first, second = w.closings
    assert (first.report.outcome, first.report.response_id, first.upstream_request_id) == (
        OVERLOADED,
        "resp_of_a",
        "req_of_a",
    )
    assert (first.report.started_at, first.report.first_event_at, first.report.ended_at) == (0.0, 0.0, 2.0)
    assert (second.report.outcome, second.report.response_id, second.upstream_request_id) == (
        "completed",
        "resp_of_b",
        "req_of_b",
    )
