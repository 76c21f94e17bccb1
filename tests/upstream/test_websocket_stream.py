"""The Upstream port, kept by the WebSocket adapter on both faces of a scripted upstream: same scripts, same inputs."""

from __future__ import annotations

import json
import random
from typing import ClassVar

import pytest
import trio

from gateway import limits
from gateway.core.messages import Batch
from gateway.core.request import RequestBody, TurnRequest
from gateway.lock.virtual import virtual_run
from gateway.ports import Stamped, UpstreamCall
from gateway.upstream.answers import Credential
from gateway.upstream.scripted import JSON_BODY, Break, Close, Raw, Reply, Silence, Step
from gateway.upstream.scripted_websocket import frames
from gateway.upstream.scripts import event, http_failure, prelude, response_object, usage_object
from upstream.stage import CALL, FACES, Inputs, Listener, attempt, script_of, settle, websocket_on

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
NEVER_SENT = ("never_sent", "upstream_connect_error")


async def told_by(face: str, *steps: Step, **settings: object) -> Inputs:
    """What one attempt is told by a reply of these steps."""
    async with websocket_on(face, script_of(Reply(steps)), **settings) as upstream:
        return await attempt(upstream)


async def test_each_frame_is_an_event_wrapped_as_a_block_and_nothing_follows_the_terminal(face: str) -> None:
    """E9, E10: the frame's bytes, as `event:` and `data:` lines for an HTTP client."""
    inputs = await told_by(face, *ANSWER)
    assert inputs.words == ANSWER_WORDS
    assert inputs.blocks == list(ANSWER)


async def test_events_carry_the_time_at_which_they_were_seen(face: str) -> None:
    """T."""
    reply = Reply((1.0, CREATED, 2.0, DELTA, 0.5, COMPLETED), head_seconds=3.0)
    async with websocket_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)
    assert [at for _, at in inputs.stamped] == pytest.approx([0.0, 4.0, 6.0, 6.5])


@pytest.mark.parametrize("payload", ['{"type":"response.x","a":\n 1,\r\n"b":\r2}', '{"type":"a b\\n","z":1.50}'])
async def test_a_frame_of_several_lines_becomes_as_many_data_lines(face: str, payload: str) -> None:
    """E10, P1: and a type that is no plain name stands in the payload alone."""
    inputs = await told_by(face, Raw(frames([payload.encode()])), COMPLETED)
    lines = [line.removeprefix(b"data: ") for line in inputs.blocks[0].split(b"\n") if line.startswith(b"data: ")]
    assert b"\n".join(lines) == payload.replace("\r\n", "\n").replace("\r", "\n").encode()
    assert (b"event: " in inputs.blocks[0]) is ("response.x" in payload)


@pytest.mark.parametrize("behind", [(DELTA,), (COMPLETED,), (Break(),), (Close(1011),), (b": ping\n\n",)], ids=str)
async def test_what_follows_a_terminal_event_is_not_told(face: str, behind: tuple[Step, ...]) -> None:
    """E9; case 18: in the same read or in a later one."""
    for between in ((), (0.01,)):
        assert (await told_by(face, *ANSWER, *between, *behind)).words == ANSWER_WORDS


@pytest.mark.parametrize("data", [b"[DONE]", b"7", b"{half", b"[]"])
async def test_a_frame_that_is_no_json_object_is_not_forwarded(face: str, data: bytes) -> None:
    """E7."""
    assert (await told_by(face, Raw(frames([data])), *ANSWER)).words == ANSWER_WORDS


# --- an end without a terminal event (F4) -------------------------------------------------------------------------

CLOSES = {
    **dict.fromkeys((0, 1000, 1001, 1011, 1012, 1013), READ_ERROR),
    **dict.fromkeys((1002, 1003, 1007, 1008, 1009, 3000, 4000, 4999), ("deterministic", "upstream_bad_response")),
    4402: ("route_fault", "upstream_bad_response"),
}


@pytest.mark.parametrize("code", CLOSES)
@pytest.mark.parametrize("before", [(), (CREATED,), (CREATED, DELTA)], ids=len)
async def test_a_close_before_a_terminal_event_is_judged_by_its_code(
    face: str, before: tuple[bytes, ...], code: int
) -> None:
    """F4; case 17: behind the events that came before it; the code is named."""
    inputs = await told_by(face, *before, Close(code, "a reason" if code else ""))
    assert (inputs.blocks, inputs.ended_as) == (list(before), CLOSES[code])
    assert str(code or 1005) in inputs.failure.message
    assert "a reason" not in inputs.failure.message


@pytest.mark.parametrize(
    "ending",
    [
        (Break(),),
        (Raw(frames([b'{"type":"response.x"}'])[:-4]), Break()),
        (Raw(b"\x81\xfe"), Break()),
        (Raw(b"\x82\x02{}"), Silence()),
        (Raw(b"\x81\x02\xff\xfe"), Silence()),
        (Raw(frames([b'{"type":"response.x","delta":"\xff\xfe"}'])), Silence()),
        (Raw(b"\x83\x00"), Silence()),
        (Raw(b"\xc1\x02{}"), Silence()),
        (Raw(b"\x81\x82\x00\x00\x00\x00{}"), Silence()),
        (Raw(b"\x88\x01x"), Silence()),
        (Raw(b"\x80\x02{}"), Silence()),
        (Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Silence()),
    ],
    ids=[
        "a drop",
        "half a frame",
        "half a head",
        "a binary frame",
        "no text",
        "invalid UTF-8 in an event",
        "an unknown opcode",
        "a reserved bit",
        "a masked frame",
        "a broken close",
        "a continuation of nothing",
        "no frames at all",
    ],
)
async def test_bytes_that_are_no_text_frames_are_a_read_error(face: str, ending: tuple[Step, ...]) -> None:
    """F4, E10: the upstream broke the protocol, at once, whatever it does next."""
    inputs = await told_by(face, CREATED, *ending)
    assert (inputs.blocks, inputs.ended_as) == ([CREATED], READ_ERROR)
    assert inputs.stamped[-1][1] == 0.0


async def test_fragments_with_pings_between_are_one_frame(face: str) -> None:
    """RFC 6455, 5.4."""
    data = COMPLETED.split(b"data: ")[1].strip()
    first = b"\x01\x7e" + len(data[:200]).to_bytes(2, "big") + data[:200]
    last = b"\x80\x7e" + len(data[200:]).to_bytes(2, "big") + data[200:]
    assert (await told_by(face, CREATED, Raw(first), Raw(b"\x89\x01x"), 1.0, Raw(last))).blocks == [CREATED, COMPLETED]


async def test_what_was_read_ahead_is_sent_and_does_not_pass_as_if_it_came_now(face: str) -> None:
    """H6, ports.Inputs: a client that stalled for 20 s is owed nothing from 19 s ago; each keeps its time (T)."""

    class Slow(Listener):
        passed: ClassVar[list[float]] = []

        def take(self, batch: Batch, at: float) -> bool:
            self.passed.append(trio.current_time() - at)
            return super().take(batch, at)

        async def send(self, value: Stamped, /) -> None:
            await super().send(value)
            if isinstance(value[0], Batch) and len(self.stamped) == 3:
                await trio.sleep(20.0)

    script = script_of(Reply((CREATED, DELTA, 1.0, DELTA, 1.0, DELTA, 30.0, DELTA, COMPLETED)))
    async with websocket_on(face, script) as upstream:
        with trio.CancelScope() as patience:
            turn = Slow(patience)
            await upstream.attempt(CALL, turn)
    assert max(turn.passed) == pytest.approx(0.0, abs=0.01)
    assert [at for _, at in turn.stamped][3:6] == pytest.approx([1.0, 2.0, 32.0], abs=0.05)


# --- sizes (P7, R7) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["x" * 5000, "北" * 2000], ids=["characters", "bytes"])
async def test_a_frame_that_is_too_large_ends_the_attempt_behind_the_events_before_it(face: str, text: str) -> None:
    """R7; case 10: counted in bytes."""
    large = event("response.output_text.delta", delta=text)
    inputs = await told_by(face, CREATED, DELTA, large, Silence(), event_bytes_max=5000)
    assert inputs.words == ["opened", "response.created", "response.output_text.delta", "ended"]
    assert inputs.ended_as == ("buffer_overflow", "upstream_stream_buffer_limit")


@pytest.mark.parametrize(("excess", "last"), [(0, "response.completed"), (1, "ended")])
async def test_a_frame_may_have_exactly_the_limit(face: str, excess: int, last: str) -> None:
    """P7."""
    size = len(COMPLETED.split(b"data: ")[1].strip())
    assert (await told_by(face, COMPLETED, event_bytes_max=size - excess)).words[-1] == last


async def test_a_frame_of_some_mebibytes_is_told_whole(face: str) -> None:
    """Case 10: trio-websocket's own limit is 1 MiB."""
    large = event("response.image_generation_call.partial_image", partial_image_b64="A" * (4 * limits.MIB))
    assert (await told_by(face, CREATED, large, COMPLETED)).blocks == [CREATED, large, COMPLETED]


# --- what is sent (H3, H4) ----------------------------------------------------------------------------------------


async def test_a_create_is_sent_to_the_byte_in_one_message_however_large(face: str) -> None:
    """H3; case 51: in fragments, with characters of any size at their edges."""
    body = ('{"type":"response.create","a" : 1.50,"input":"' + "x北🙂" * 60_000 + '"}').encode()
    script = script_of(Reply(ANSWER))
    async with websocket_on(face, script) as upstream:
        await attempt(upstream, UpstreamCall("turn", body))
    assert [call.body for call in script.calls] == [body]


async def test_the_handshake_carries_the_routes_credential_and_what_may_go_up(face: str) -> None:
    """H4."""
    script = script_of(Reply(ANSWER))
    call = UpstreamCall("turn", CALL.body, (("openai-beta", "the client's"), ("x-codex-note", "caf\xe9")))
    async with websocket_on(
        face, script, credential=Credential("sk-route"), headers=(("openai-beta", "ours"),)
    ) as upstream:
        await attempt(upstream, call)
        assert "sk-route" not in f"{upstream!r} {upstream._settings!r}"
    got = {n: v for n, v in script.calls[0].headers if not n.startswith("sec-") and n not in ("upgrade", "connection")}
    assert got == {
        "openai-beta": "ours",
        "x-codex-note": "caf\xe9",
        "user-agent": "responses-gateway",
        "authorization": "Bearer sk-route",
    }


async def test_the_body_is_a_response_create(face: str) -> None:
    """H3: `type` added; `stream`, `stream_id` and `event_id` cut; every other byte as it came."""
    raw = b'{ "model" : "m",  "stream": true, "x":[1.50], "stream_id":"s" }'
    async with websocket_on(face, script_of(Reply(ANSWER))) as upstream:
        body = upstream.body_of(TurnRequest(RequestBody(raw), "m", (), splices_store=False), "upstream-name")
    assert body == b'{"type":"response.create", "model" : "upstream-name",  "x":[1.50] }'


# --- instead of an upgrade (§5) -----------------------------------------------------------------------------------

ERROR = b'{\n  "error": {"message": "caf\xc3\xa9", "type": "t", "code": "some_code"}\n}\n'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "deterministic"),
        (404, "deterministic"),
        (426, "deterministic"),
        (429, "retryable"),
        (500, "retryable"),
        (501, "not_retryable"),
        (503, "retryable"),
        (504, "upstream_timeout"),
    ],
)
async def test_a_refused_handshake_is_its_status_with_its_body_to_the_byte(face: str, status: int, kind: str) -> None:
    """F, X1."""
    reply = Reply((ERROR,), status=status, headers=(*JSON_BODY, ("Retry-After", "7")))
    async with websocket_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)
    answer = inputs.failure.answer
    assert (inputs.words, inputs.ended_as) == (["ended"], (kind, "some_code"))
    assert answer is not None
    assert (answer.status, answer.body, answer.header("retry-after")) == (status, ERROR, "7")


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refused_credential_is_told_in_the_gateways_words(face: str, status: int) -> None:
    """F2."""
    async with websocket_on(face, script_of(http_failure(status, "x", "y"))) as upstream:
        inputs = await attempt(upstream)
    assert (inputs.ended_as, inputs.failure.answer) == (("route_fault", "upstream_auth_error"), None)


@pytest.mark.parametrize("status", [200, 204, 301, 302])
async def test_an_answer_that_is_neither_upgrade_nor_failure_cannot_be_used(face: str, status: int) -> None:
    """P9: a redirect is not followed."""
    script = script_of(Reply((), status=status, headers=(("location", "/elsewhere"), ("content-type", "text/html"))))
    async with websocket_on(face, script) as upstream:
        assert (await attempt(upstream)).ended_as == ("retryable", "upstream_bad_response")
    assert len(script.calls) == 1


@pytest.mark.parametrize(
    "steps", [(b"x" * (limits.ERROR_BODY_BYTES_MAX + 1),), (ERROR[:20], Break()), (ERROR[:20], Silence())], ids=len
)
async def test_a_status_decides_even_where_its_body_is_not_whole(face: str, steps: tuple[Step, ...]) -> None:
    """F, R8: too large, broken off, or never ended within the time of a connect (T3)."""
    async with websocket_on(face, script_of(Reply(steps, status=400, headers=JSON_BODY))) as upstream:
        inputs = await attempt(upstream)
    assert (inputs.failure.kind.value, inputs.failure.answer) == ("deterministic", None)
    assert trio.current_time() <= limits.CONNECT_SECONDS + 0.01


async def test_a_connect_and_its_handshake_have_five_seconds(face: str) -> None:
    """T3, F2: a handshake that is not answered was never sent."""
    reply = Reply((ERROR,), status=503, headers=JSON_BODY, head_seconds=6.0)
    async with websocket_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)
    assert (inputs.ended_as, inputs.stamped[-1][1]) == (NEVER_SENT, 5.0)


async def test_a_refused_connection_was_never_sent(face: str) -> None:
    """F2."""
    async with websocket_on(face, script_of(Reply(refuses=True))) as upstream:
        inputs = await attempt(upstream)
    assert (inputs.words, inputs.ended_as) == (["ended"], NEVER_SENT)
    assert "127.0.0.1" not in inputs.failure.message


# --- left (H7) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
async def test_an_attempt_cancelled_at_any_time_closes_its_connection(face: str, seed: int) -> None:
    """H7: during the connect, in the silence before the first frame, between events; and the next one is clean."""
    left_at = random.Random(seed).uniform(0, 2)
    script = script_of(Reply((0.5, CREATED, 0.5, DELTA, Silence()), connect_seconds=0.3), Reply(ANSWER))
    async with websocket_on(face, script) as upstream:
        with trio.move_on_after(left_at):
            await attempt(upstream)
        ended_at = trio.current_time()
        await settle()
        assert ended_at == pytest.approx(left_at)
        assert [call.closed_at for call in script.calls] == [pytest.approx(ended_at, abs=0.01)] * len(script.calls)
        assert upstream.idle_sockets == 0
        assert (await attempt(upstream)).words == ANSWER_WORDS


async def test_an_attempt_cancelled_at_any_step_leaves_no_line(face: str) -> None:
    """H7: wherever in the library the cancellation meets it."""
    script = script_of(Reply((CREATED, DELTA, Silence())))
    async with websocket_on(face, script) as upstream:
        for passes in range(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(attempt, upstream)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        await settle()
        assert upstream.idle_sockets == 0
        assert all(call.closed_at is not None for call in script.calls)
        assert len(script.calls) > 10


async def test_an_error_frame_is_told_and_a_failed_behind_it(face: str) -> None:
    """E6: the adapter reads on; what it means is the turn's to say."""
    error = event("error", status=500, error={"code": "server_error"})
    failed = event("response.failed", response=response_object("resp_a", "failed"))
    inputs = await told_by(face, error, 0.2, failed)
    assert (inputs.words, inputs.blocks) == (["opened", "error", "response.failed"], [error, failed])
    assert json.loads(inputs.blocks[0].split(b"data: ")[1])["status"] == 500
