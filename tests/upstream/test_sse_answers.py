"""What an upstream answers other than a plain event stream, and as which failure the adapter tells it (P8, P9, F)."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
import trio

from gateway import limits
from gateway.core.messages import Headers
from gateway.encodings import zstd
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import EVENT_STREAM, JSON_BODY, Break, Reply, Silence, Step
from gateway.upstream.scripts import event, prelude, response_object
from upstream.stage import FACES, attempt, script_of, upstream_on

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.parametrize("face", FACES)]

HTML: Headers = (("content-type", "text/html; charset=utf-8"),)
READ_ERROR = ("read_error", "stream_read_error")
BAD_RESPONSE = ("retryable", "upstream_bad_response")
CREATED, IN_PROGRESS = prelude("resp_a")
DELTA = event("response.output_text.delta", sequence_number=2, delta="hi")
COMPLETED = event("response.completed", sequence_number=3, response=response_object("resp_a", "completed"))
ANSWER = CREATED + IN_PROGRESS + DELTA + COMPLETED


def encoded(encoding: str, base: Headers = EVENT_STREAM) -> Headers:
    return (*base, ("content-encoding", encoding))


# --- a 2xx that is no event stream, a 3xx (P9) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<html>it works</html>", HTML),
        (b'{"error":{"code":"server_error","message":"busy"}}', JSON_BODY),
        (b'{"id":"resp_1","object":"response","output":[]}', JSON_BODY),
        (ANSWER, (("content-type", "text/plain"),)),
        (ANSWER, ()),
        (b"x" * (limits.ERROR_BODY_BYTES_MAX + 1), HTML),
    ],
    ids=["html", "a JSON error", "a whole response", "events as text", "no content-type", "more than is read"],
)
async def test_a_success_that_is_no_event_stream_cannot_be_used(face: str, body: bytes, headers: Headers) -> None:
    """P9: whatever it is, it is retryable."""
    async with upstream_on(face, script_of(Reply((body,), headers=headers))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["ended"]
    assert inputs.ended_as == BAD_RESPONSE
    assert inputs.failure.status == 502
    assert inputs.failure.answer is None


async def test_a_route_may_take_bad_responses_as_final(face: str) -> None:
    """F: the codes that are retryable are the route's own."""
    reply = Reply((b"<html></html>",), headers=HTML)
    async with upstream_on(face, script_of(reply), retryable_codes=frozenset({"server_error"})) as upstream:
        assert (await attempt(upstream)).ended_as == ("not_retryable", "upstream_bad_response")


@pytest.mark.parametrize("headers", [HTML, JSON_BODY, EVENT_STREAM, ()])
@pytest.mark.parametrize("status", [200, 204])
async def test_an_empty_success_is_a_broken_stream(face: str, status: int, headers: Headers) -> None:
    """P9; case 3."""
    async with upstream_on(face, script_of(Reply((), status=status, headers=headers))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words[-1] == "ended"
    assert inputs.ended_as == READ_ERROR


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed(face: str, status: int) -> None:
    """P9: a request with a credential goes where it was sent."""
    reply = Reply((), status=status, headers=(("location", "/v1/elsewhere"),))
    script = script_of(reply)
    async with upstream_on(face, script) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["ended"]
    assert inputs.ended_as == BAD_RESPONSE
    assert len(script.calls) == 1


# --- a failure by its status (F, X1) ------------------------------------------------------------------------------

ERROR = (
    b'{\n  "error": {\n    "message": "caf\xc3\xa9 \\u00e9",   "type": "t",\n "param": null, '
    b'"code": "some_code"\n  }\n}\n'
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "deterministic"),
        (404, "deterministic"),
        (408, "retryable"),
        (409, "retryable"),
        (413, "deterministic"),
        (422, "deterministic"),
        (429, "retryable"),
        (500, "retryable"),
        (501, "not_retryable"),
        (502, "retryable"),
        (503, "retryable"),
        (504, "upstream_timeout"),
        (505, "not_retryable"),
        (524, "upstream_timeout"),
    ],
)
async def test_a_failure_keeps_its_status_its_headers_and_its_body_to_the_byte(
    face: str, status: int, kind: str
) -> None:
    """F, X1: nothing of it is written anew."""
    headers = (*JSON_BODY, ("X-Request-Id", "req_up"), ("Retry-After", "7"))
    async with upstream_on(face, script_of(Reply((ERROR[:9], ERROR[9:]), status=status, headers=headers))) as upstream:
        inputs = await attempt(upstream)

    answer = inputs.failure.answer
    assert inputs.words == ["ended"]
    assert inputs.ended_as == (kind, "some_code")
    assert answer is not None
    assert (answer.status, answer.body) == (status, ERROR)
    assert answer.header("x-request-id") == "req_up"
    assert answer.header("retry-after") == "7"


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refused_credential_is_told_in_the_gateway_s_words(face: str, status: int) -> None:
    """F2: the gateway's own account is at fault: never passed on as the client's."""
    async with upstream_on(face, script_of(Reply((ERROR,), status=status, headers=JSON_BODY))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.ended_as == ("route_fault", "upstream_auth_error")
    assert inputs.failure.answer is None
    assert inputs.failure.status == 502


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"", JSON_BODY), (b"<html>bad gateway</html>", HTML), (b"\xff\xfe not JSON", JSON_BODY), (b"[1,2]", JSON_BODY)],
)
async def test_a_failure_without_an_error_object_is_kept_all_the_same(face: str, body: bytes, headers: Headers) -> None:
    """X1, E8."""
    async with upstream_on(face, script_of(Reply((body,), status=502, headers=headers))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.ended_as == ("retryable", "upstream_bad_response")
    assert inputs.failure.answer is not None
    assert inputs.failure.answer.body == body


@pytest.mark.parametrize("excess", [0, 1])
async def test_an_error_body_is_kept_up_to_its_bound(face: str, excess: int) -> None:
    """limits.ERROR_BODY_BYTES_MAX: beyond it, it is no error object, and the status alone decides."""
    body = b"x" * (limits.ERROR_BODY_BYTES_MAX + excess)
    async with upstream_on(face, script_of(Reply((body,), status=400, headers=HTML))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.failure.kind.value == "deterministic"
    assert (inputs.failure.answer is None) is (excess == 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "deterministic"), (429, "retryable"), (500, "retryable"), (504, "upstream_timeout"), (501, "not_retryable")],
)
@pytest.mark.parametrize(
    ("steps", "headers"),
    [
        ((b"x" * (limits.ERROR_BODY_BYTES_MAX + 1),), HTML),
        ((ERROR[:20], Break()), JSON_BODY),
        ((gzip.compress(ERROR)[:30],), encoded("gzip", JSON_BODY)),
        ((b"no gzip at all",), encoded("gzip", JSON_BODY)),
        ((b"\x0b\x02\x80",), encoded("br", JSON_BODY)),
    ],
    ids=["too large", "broken off", "truncated gzip", "corrupt gzip", "an unknown encoding"],
)
async def test_a_status_decides_even_where_its_body_cannot_be_read(
    face: str, steps: tuple[Step, ...], headers: Headers, status: int, kind: str
) -> None:
    """F, R5, R8: a 504 may still be generating, a 400 would be one again, whatever came of their bodies."""
    async with upstream_on(face, script_of(Reply(steps, status=status, headers=headers))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["ended"]
    assert inputs.ended_as == (kind, "upstream_bad_response")
    assert inputs.failure.answer is None


async def test_a_refused_credential_is_one_even_where_its_body_cannot_be_read(face: str) -> None:
    """F2."""
    async with upstream_on(face, script_of(Reply((b"?",), status=401, headers=encoded("br", JSON_BODY)))) as upstream:
        assert (await attempt(upstream)).ended_as == ("route_fault", "upstream_auth_error")


async def test_a_status_that_never_ends_its_body_is_left_when_the_turn_leaves(face: str) -> None:
    """The turn's clocks bound the wait; the connection is closed."""
    script = script_of(Reply((b"{", Silence()), status=500, headers=JSON_BODY))
    async with upstream_on(face, script) as upstream:
        with trio.move_on_after(25):
            await attempt(upstream)
        await trio.sleep(0.01)

    assert script.calls[0].closed_at == pytest.approx(25.0, abs=0.05)


# --- encodings (P8) -----------------------------------------------------------------------------------------------


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)


def flushed(pieces: tuple[bytes, ...]) -> list[Step]:
    """Each piece compressed and flushed, a second apart, as a proxy in between sends a stream."""
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    steps: list[Step] = []
    for piece in pieces:
        steps += [compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)]
        steps += [1.0]
    return [*steps, compressor.flush()]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(ANSWER)),
        ("x-gzip", gzip.compress(ANSWER)),
        ("GZip", gzip.compress(ANSWER)),
        ("deflate", deflated(ANSWER)),
        ("zstd", zstd.compress(ANSWER)),
        ("identity", ANSWER),
        ("", ANSWER),
    ],
)
async def test_a_compressed_stream_is_decoded(face: str, encoding: str, body: bytes) -> None:
    """P8: it was not asked for, and is read all the same."""
    steps = tuple(body[start : start + 7] for start in range(0, len(body), 7))
    async with upstream_on(face, script_of(Reply(steps, headers=encoded(encoding)))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.blocks == [CREATED, IN_PROGRESS, DELTA, COMPLETED]
    assert inputs.words[-1] == "response.completed"


async def test_a_compressed_stream_is_decoded_as_it_comes(face: str) -> None:
    """P8: incrementally: an event is told when it is there, not at the end."""
    reply = Reply(flushed((CREATED, DELTA, COMPLETED)), headers=encoded("gzip"))
    async with upstream_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)

    assert [at for _, at in inputs.stamped] == pytest.approx([0.0, 0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    "steps",
    [
        (gzip.compress(CREATED + DELTA)[:-1],),
        (gzip.compress(CREATED + DELTA)[:-8],),
        (gzip.compress(CREATED + DELTA + COMPLETED)[:40],),
        (gzip.compress(b"")[:3],),
        (gzip.compress(CREATED)[:-8] + b"\x00" * 8,),
        (b"\x1f\x8b but no gzip",),
        (CREATED + DELTA,),
    ],
    ids=["the last byte", "the trailer", "the middle", "the header", "a wrong checksum", "garbage", "not encoded"],
)
async def test_a_truncated_or_corrupt_compressed_stream_is_a_broken_one(face: str, steps: tuple[bytes, ...]) -> None:
    """P8."""
    async with upstream_on(face, script_of(Reply(steps, headers=encoded("gzip")))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words[-1] == "ended"
    assert inputs.ended_as == READ_ERROR


async def test_a_terminal_event_counts_though_its_compressed_stream_is_truncated_behind_it(face: str) -> None:
    """E9: nothing behind a terminal event says anything."""
    steps = flushed((CREATED, COMPLETED))[:-1]
    async with upstream_on(face, script_of(Reply(steps, headers=encoded("gzip")))) as upstream:
        assert (await attempt(upstream)).words == ["opened", "response.created", "response.completed"]


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, gzip", "identity, gzip", "nonsense"])
async def test_a_stream_in_an_unknown_encoding_cannot_be_used(face: str, encoding: str) -> None:
    """P8: `identity` was asked for."""
    async with upstream_on(face, script_of(Reply((ANSWER,), headers=encoded(encoding)))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["ended"]
    assert inputs.ended_as == BAD_RESPONSE


async def test_a_compressed_error_body_is_kept_decoded(face: str) -> None:
    """P8, case 43: its framing describes the upstream's encoding, not ours."""
    reply = Reply((gzip.compress(ERROR),), status=429, headers=encoded("gzip", JSON_BODY))
    async with upstream_on(face, script_of(reply)) as upstream:
        inputs = await attempt(upstream)

    assert inputs.failure.answer is not None
    assert inputs.failure.answer.body == ERROR
    assert inputs.failure.code == json.loads(ERROR)["error"]["code"]


async def test_a_compressed_flood_is_bounded_like_any_other(face: str) -> None:
    """P7, P8: some KiB on the wire that are many MiB in memory."""
    bomb = gzip.compress(b"data: " + b"x" * (8 * limits.MIB))
    reply = Reply((bomb, Silence()), headers=encoded("gzip"))
    async with upstream_on(face, script_of(reply), event_bytes_max=limits.MIB) as upstream:
        assert (await attempt(upstream)).ended_as == ("buffer_overflow", "upstream_stream_buffer_limit")
