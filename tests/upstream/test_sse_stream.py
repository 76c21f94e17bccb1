"""The Upstream port, kept by the SSE adapter on both faces of a scripted upstream: same scripts, same inputs."""

from __future__ import annotations

import random

import pytest
import trio

from gateway import limits
from gateway.core.messages import Batch
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply, Script, Silence, Step
from gateway.upstream.scripts import event, prelude, response_object, text_answer, usage_object
from upstream.stage import FACES, attempt, script_of, upstream_on

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.parametrize("face", FACES)]

CREATED, IN_PROGRESS = prelude("resp_a")
DELTA = event("response.output_text.delta", sequence_number=2, delta="hi")
COMPLETED = event(
    "response.completed",
    sequence_number=3,
    response=response_object("resp_a", "completed", usage=usage_object(3, 1)),
)
ANSWER = (CREATED, IN_PROGRESS, DELTA, COMPLETED)
ANSWER_WORDS = [
    "opened",
    "response.created",
    "response.in_progress",
    "response.output_text.delta",
    "response.completed",
]
READ_ERROR = ("read_error", "stream_read_error")


def cut(data: bytes, seed: int) -> list[Step]:
    """The bytes in random pieces, some a moment apart."""
    chance = random.Random(seed)
    steps: list[Step] = []
    while data:
        size = chance.choice([1, 2, 3, 7, 50, 400])
        steps += [data[:size]]
        steps += [chance.choice([0.0, 0.001, 0.5])]
        data = data[size:]
    return steps


async def test_the_head_comes_first_then_each_event_in_its_bytes_and_nothing_after_the_terminal(face: str) -> None:
    """E9, E10: a terminal event ends the attempt; the end of the body says nothing more."""
    async with upstream_on(face, script_of(Reply(ANSWER))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ANSWER_WORDS
    assert inputs.blocks == list(ANSWER)
    assert inputs.head == (("content-type", "text/event-stream; charset=utf-8"),)


async def test_events_carry_the_time_at_which_they_were_seen(face: str) -> None:
    """T: each input is stamped when its last byte came."""
    steps = (1.0, CREATED[:20], 1.0, CREATED[20:], 2.0, DELTA, 0.5, COMPLETED)
    async with upstream_on(face, script_of(Reply(steps, head_seconds=3.0))) as upstream:
        inputs = await attempt(upstream)

    assert [at for _, at in inputs.stamped] == pytest.approx([3.0, 5.0, 7.0, 7.5])


@pytest.mark.parametrize("seed", range(12))
async def test_chunks_cut_anywhere_give_the_same_events(face: str, seed: int) -> None:
    """P2; case 9: a character cut in two is whole again."""
    answer = (CREATED, event("response.output_text.delta", delta="北🙂 U+2028:\u2028."), COMPLETED)
    async with upstream_on(face, script_of(Reply(cut(b"".join(answer), seed)))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.blocks == list(answer)


async def test_all_events_of_one_read_come_as_one_batch(face: str) -> None:
    """The cost of a read does not grow with a hand-over for each event."""
    async with upstream_on(face, script_of(Reply((b"".join(ANSWER),)))) as upstream:
        inputs = await attempt(upstream)

    assert [type(arrived).__name__ for arrived, _ in inputs.stamped] == ["Opened", "Batch"]


async def test_a_long_run_of_events_comes_in_batches_that_let_others_work_between(face: str) -> None:
    """limits.BATCH_EVENTS_MAX."""
    deltas = [event("response.output_text.delta", delta=str(number)) for number in range(1300)]
    async with upstream_on(face, script_of(Reply((b"".join((*deltas, COMPLETED)),)))) as upstream:
        inputs = await attempt(upstream)

    sizes = [len(arrived.events) for arrived, _ in inputs.stamped if isinstance(arrived, Batch)]
    assert inputs.blocks == [*deltas, COMPLETED]
    assert max(sizes) <= limits.BATCH_EVENTS_MAX


@pytest.mark.parametrize(
    "behind",
    [(DELTA,), (COMPLETED,), (event("error", error={"code": "x"}),), (Break(),), (b"data: {half",), (b": ping\n\n",)],
    ids=["output", "a second terminal", "an error", "a reset", "half an event", "a comment"],
)
async def test_what_follows_a_terminal_event_is_not_told(face: str, behind: tuple[Step, ...]) -> None:
    """E9; case 18: in the same read or in a later one."""
    for between in ((), (0.01,)):
        async with upstream_on(face, script_of(Reply((*ANSWER, *between, *behind)))) as upstream:
            assert (await attempt(upstream)).words == ANSWER_WORDS


async def test_an_upstream_that_stays_open_behind_its_terminal_event_is_left_within_the_bound(face: str) -> None:
    """E9; case 18: the connection is closed, not waited for."""
    script = script_of(Reply((*ANSWER, Silence())))
    async with upstream_on(face, script) as upstream:
        inputs = await attempt(upstream)
        ended_at = trio.current_time()
        await trio.sleep(0.01)

        assert inputs.words == ANSWER_WORDS
        assert ended_at == pytest.approx(limits.UPSTREAM_DRAIN_SECONDS_MAX)
        assert script.calls[0].closed_at == pytest.approx(ended_at)


# --- an end without a terminal event ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((), ()),
        ((b": ping\n\n", 1.0, b": ping\n\n"), ()),
        ((b"\n\n\n",), ()),
        ((b"data: [DONE]\n\n",), ()),
        ((b"event: keepalive\n\n",), ()),
        ((CREATED, IN_PROGRESS), (CREATED, IN_PROGRESS)),
        ((CREATED, IN_PROGRESS, DELTA), (CREATED, IN_PROGRESS, DELTA)),
        ((CREATED, DELTA + b"data: [DONE]\n\n"), (CREATED, DELTA)),
        ((CREATED, DELTA[:-30]), (CREATED,)),
        ((Break(),), ()),
        ((CREATED, Break()), (CREATED,)),
        ((CREATED, IN_PROGRESS, DELTA, Break()), (CREATED, IN_PROGRESS, DELTA)),
        ((CREATED, DELTA[:-30], Break()), (CREATED,)),
        ((CREATED, COMPLETED[:-2], Break()), (CREATED,)),
    ],
)
async def test_a_stream_without_a_terminal_event_is_broken(
    face: str, steps: tuple[Step, ...], told: tuple[bytes, ...]
) -> None:
    """P9, P6, E7; cases 3, 11, 17: a clean end, a reset, or nothing at all. What came whole is told before."""
    async with upstream_on(face, script_of(Reply(steps))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.blocks == list(told)
    assert inputs.words[0] == "opened"
    assert inputs.words[-1] == "ended"
    assert inputs.ended_as == READ_ERROR


@pytest.mark.parametrize("missing", [1, 2], ids=["one line end is missing", "both are missing"])
async def test_a_whole_event_pending_at_a_clean_end_counts(face: str, missing: int) -> None:
    """P6; case 11: it is sent on with its missing line ends."""
    async with upstream_on(face, script_of(Reply((CREATED, DELTA, COMPLETED[:-missing])))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["opened", "response.created", "response.output_text.delta", "response.completed"]
    assert inputs.blocks == [CREATED, DELTA, COMPLETED]


async def test_a_whole_event_pending_at_a_clean_end_that_is_no_terminal_is_told_before_the_end(face: str) -> None:
    """P6."""
    async with upstream_on(face, script_of(Reply((CREATED, DELTA[:-1])))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["opened", "response.created", "response.output_text.delta", "ended"]
    assert inputs.ended_as == READ_ERROR


# --- sizes (P7) ---------------------------------------------------------------------------------------------------


async def test_an_event_that_is_too_large_ends_the_attempt_behind_the_events_before_it(face: str) -> None:
    """P7, R7; case 10: in one read with them, without an end, and complete."""
    large = event("response.output_text.delta", delta="x" * 5000)
    for steps in ((CREATED + DELTA + large + COMPLETED,), (CREATED, DELTA, large[:4500], Silence())):
        async with upstream_on(face, script_of(Reply(steps)), event_bytes_max=4000) as upstream:
            inputs = await attempt(upstream)

        assert inputs.words == ["opened", "response.created", "response.output_text.delta", "ended"]
        assert inputs.ended_as == ("buffer_overflow", "upstream_stream_buffer_limit")


@pytest.mark.parametrize(("excess", "last"), [(0, "response.completed"), (1, "ended")])
async def test_an_event_may_have_exactly_the_limit(face: str, excess: int, last: str) -> None:
    """P7."""
    async with upstream_on(face, script_of(Reply((COMPLETED,))), event_bytes_max=len(COMPLETED) - excess) as upstream:
        assert (await attempt(upstream)).words[-1] == last


async def test_a_large_event_in_many_reads_is_told_whole(face: str) -> None:
    """P7; case 10: an image of some MiB."""
    large = event("response.image_generation_call.partial_image", partial_image_b64="A" * (4 * limits.MIB))
    steps = [large[start : start + 60_000] for start in range(0, len(large), 60_000)]
    async with upstream_on(face, script_of(Reply((CREATED, *steps, COMPLETED)))) as upstream:
        assert (await attempt(upstream)).blocks == [CREATED, large, COMPLETED]


# --- any 2xx ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 203])
@pytest.mark.parametrize("content_type", ["text/event-stream", "TEXT/Event-Stream; charset=utf-8"])
async def test_any_success_with_an_event_stream_is_one(face: str, status: int, content_type: str) -> None:
    """P9."""
    reply = Reply(ANSWER, status=status, headers=(("Content-Type", content_type),))
    async with upstream_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ANSWER_WORDS
    assert inputs.head == (("content-type", content_type),)


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_the_script_the_face_tells_what_came(face: str, seed: int) -> None:
    """Both faces tell the same: what a plain reading of the script's bytes gives, and why it ended."""
    script, events, is_whole = _any_script(seed)
    async with upstream_on(face, script) as upstream:
        inputs = await attempt(upstream)

    assert inputs.blocks == events
    assert inputs.words[0] == "opened"
    assert is_whole is (inputs.words[-1] == "response.completed")
    assert is_whole or inputs.ended_as == READ_ERROR


def _any_script(seed: int) -> tuple[Script, list[bytes], bool]:
    """A script, the events that must be told of it, and whether a terminal event is the last of them."""
    chance = random.Random(seed)
    pieces = chance.choices([CREATED, IN_PROGRESS, DELTA, b": ping\n\n", COMPLETED, b"data: [DONE]\n\n"], k=6)
    events = [piece for piece in pieces if b'"type"' in piece]
    if COMPLETED in events:
        events = events[: events.index(COMPLETED) + 1]
    steps = [*cut(b"".join(pieces) + chance.choice([b"", DELTA[:-9]]), seed), *chance.choice([(), (Break(),)])]
    return script_of(Reply(steps, head_seconds=chance.choice([0.0, 1.0]))), events, COMPLETED in events


async def test_a_whole_answer_has_the_shape_that_real_upstreams_send(face: str) -> None:
    """The demo's own reply is a stream like any other."""
    reply = text_answer(["Hello", ", ", "world"], response_id="resp_a")
    async with upstream_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)

    assert b"".join(inputs.blocks) == b"".join(step for step in reply.steps if isinstance(step, bytes))
    assert inputs.words[-1] == "response.completed"
