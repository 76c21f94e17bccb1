"""Upstreams gone wrong, whether a stream was asked for or one body (P7, P9, H1): bounded, and with the right code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import trio

from gateway.lock.virtual import virtual_run
from gateway.ports import UpstreamCall
from upstream.peers import FIN, OPEN, RESET, Ending, chunked, head, raw_peer
from upstream.stage import CALL, Inputs, attempt_at

ASKED_WHOLE = UpstreamCall("turn", b'{"model":"gpt-test"}', streams=False)
pytestmark = [
    pytest.mark.trio(run=virtual_run),
    pytest.mark.parametrize("call", [CALL, ASKED_WHOLE], ids=["a stream", "one body"]),
]

READ_ERROR = ("read_error", "stream_read_error")
BAD_RESPONSE = ("retryable", "upstream_bad_response")
OVERFLOW = ("buffer_overflow", "upstream_stream_buffer_limit")
JSON = "content-type: application/json"
RESPONSE = json.dumps({"id": "resp_a", "object": "response", "status": "completed", "output": []}).encode()
COMPLETED = b'data: {"type":"response.completed","response":' + RESPONSE + b"}\n\n"


async def answered(call: UpstreamCall, answer: bytes, ending: Ending = FIN, **settings: int) -> Inputs:
    async with raw_peer((answer, ending)) as peer:
        return await attempt_at(peer.port, call, **settings)


def whole_answer(call: UpstreamCall) -> bytes:
    body = COMPLETED if call.streams else RESPONSE
    return head(*([] if call.streams else [JSON]), f"content-length: {len(body)}") + body


# --- what is no answer to the question (P9) ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Same", "308 Same", "304 Not"])
async def test_a_redirect_is_not_followed(call: UpstreamCall, status: str) -> None:
    """P9: a credential goes where it was sent."""
    async with raw_peer((head("location: /v1/other", "content-length: 0", status=status), OPEN)) as peer:
        inputs = await attempt_at(peer.port, call)
    assert inputs.ended_as == BAD_RESPONSE
    assert peer.connections == 1


@pytest.mark.parametrize(
    "content",
    ["content-type: text/html", "content-type: application/json", "content-type: text/plain", ""],
)
@pytest.mark.parametrize("body", [b"<!doctype html><title>502</title>", b'"ok"', b"[]", b'{"error":{"code":"x"}}'])
async def test_a_success_that_is_none_cannot_be_used(call: UpstreamCall, content: str, body: bytes) -> None:
    """P9: whatever it says that it is."""
    inputs = await answered(call, head(content or "content-type:", f"content-length: {len(body)}") + body)
    assert inputs.ended_as == BAD_RESPONSE


async def test_the_other_kind_of_answer_cannot_be_used(call: UpstreamCall) -> None:
    """P9: one body for a stream, a stream for one body."""
    body, content = (RESPONSE, [JSON]) if call.streams else (COMPLETED, [])
    inputs = await answered(call, head(*content, f"content-length: {len(body)}") + body)
    assert inputs.ended_as == BAD_RESPONSE


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "299 Odd"])
async def test_any_success_with_the_right_body_is_one(call: UpstreamCall, status: str) -> None:
    """P9."""
    answer = whole_answer(call).replace(b"200 OK", status.encode(), 1)
    assert (await answered(call, answer)).words == ["opened", "response.completed"]


@pytest.mark.parametrize("status", ["100 Continue", "102 Processing", "103 Early Hints"])
async def test_informational_answers_are_passed_over(call: UpstreamCall, status: str) -> None:
    """RFC 9110, 15.2: however many."""
    early = f"HTTP/1.1 {status}\r\nlink: </x>\r\n\r\n".encode() * 200
    assert (await answered(call, early + whole_answer(call))).words == ["opened", "response.completed"]


async def test_nothing_but_informational_answers_is_a_read_error(call: UpstreamCall) -> None:
    """R15."""
    assert (await answered(call, b"HTTP/1.1 100 Continue\r\n\r\n")).ended_as == READ_ERROR


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=[
        "ssh",
        "tls",
        "a status of four digits",
        "a header without a colon",
        "a negative length",
        "a chunk of no size",
    ],
)
async def test_what_is_no_http_is_a_read_error(call: UpstreamCall, answer: bytes) -> None:
    """R15."""
    assert (await answered(call, answer)).ended_as == READ_ERROR


# --- bodies that break (R15, R4) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [FIN, RESET])
@pytest.mark.parametrize("sent", [0, 1, 10])
async def test_a_body_that_breaks(call: UpstreamCall, sent: int, ending: Ending) -> None:
    """H1: its first byte makes the difference for one body; a stream's is its first event."""
    content = () if call.streams else (JSON,)
    body = (COMPLETED if call.streams else RESPONSE)[:sent]
    inputs = await answered(call, head(*content, "content-length: 5000") + body, ending)
    (ended,) = [arrived for arrived, _ in inputs.stamped if type(arrived).__name__ == "AttemptEnded"]
    assert inputs.ended_as == READ_ERROR
    if ending is FIN:  # a reset may overtake what was sent before it
        assert ended.result_was_begun is (sent > 0 and not call.streams)  # type: ignore[union-attr]  # by its name


async def test_bytes_behind_a_whole_body_are_not_read(call: UpstreamCall) -> None:
    """E9: the length is the end; what follows spoils the connection and nothing else."""
    inputs = await answered(call, whole_answer(call) + b"HTTP/1.1 500 Smuggled\r\n\r\n")
    assert inputs.words == ["opened", "response.completed"]


@pytest.mark.parametrize("over", [0, 1])
async def test_a_body_in_chunks_is_bounded_to_the_byte(call: UpstreamCall, over: int) -> None:
    """P7, H1."""
    body = COMPLETED if call.streams else RESPONSE
    content = () if call.streams else (JSON,)
    sent = head(*content, "transfer-encoding: chunked") + chunked(*(bytes([byte]) for byte in body))
    inputs = await answered(call, sent, event_bytes_max=len(body) - over)
    assert inputs.words[-1] == ("ended" if over else "response.completed")
    if over:
        assert inputs.ended_as == OVERFLOW


# --- what has no end --------------------------------------------------------------------------------------------------

MANY_BYTES = 3_000_000
"""Far more than the adapter may take of anything that is bounded at 100 KiB here, with what the sockets hold."""


@dataclass
class Flood:
    """A peer that sends a beginning and then the same piece for as long as somebody takes it."""

    begins: bytes
    piece: bytes
    sent: int = 0
    port: int = 0

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pour, listeners)

    async def _pour(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.receive_some(65_536)
            await stream.send_all(self.begins)
            while self.sent < 100 * MANY_BYTES:
                await stream.send_all(self.piece)
                self.sent += len(self.piece)


@asynccontextmanager
async def flood(begins: bytes, piece: bytes) -> AsyncIterator[Flood]:
    peer = Flood(begins, piece)
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.serve)
        yield peer
        nursery.cancel_scope.cancel()


ENDLESS: dict[str, tuple[bytes, bytes, tuple[str, str]]] = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x-filler: " + b"y" * 990 + b"\r\n", READ_ERROR),
    "a header's line": (b"HTTP/1.1 200 OK\r\nx-filler: ", b"y" * 1000, READ_ERROR),
    "a status line": (b"HTTP/1.1 200 ", b"y" * 1000, READ_ERROR),
    "a chunk's size": (head("transfer-encoding: chunked"), b"0" * 1000, READ_ERROR),
    "a chunk's extension": (head("transfer-encoding: chunked") + b"1;", b"y" * 1000, READ_ERROR),
}


@pytest.mark.parametrize(("begins", "piece", "ended_as"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_what_has_no_end_in_a_head_is_bounded(
    call: UpstreamCall, begins: bytes, piece: bytes, ended_as: tuple[str, str]
) -> None:
    """P7: it is taken for what it is, no HTTP, long before it is large."""
    if not call.streams:
        begins = begins.replace(b"text/event-stream", b"application/json")
    async with flood(begins, piece) as peer:
        inputs = await attempt_at(peer.port, call)
    assert inputs.ended_as == ended_as
    assert peer.sent < 3 * MANY_BYTES


@pytest.mark.parametrize("begins", [b"", b": ", b"data: ", b'data: {"type":"', b"event: ", b'{"output":["'])
async def test_a_line_without_an_end_is_bounded(call: UpstreamCall, begins: bytes) -> None:
    """P7, H1: by `event_bytes_max`."""
    content = () if call.streams else (JSON,)
    async with flood(head(*content, "connection: close") + begins, b"y" * 1000) as peer:
        inputs = await attempt_at(peer.port, call, event_bytes_max=100_000)
    assert inputs.ended_as == OVERFLOW
    assert peer.sent < 3 * MANY_BYTES


async def test_an_error_s_body_without_an_end_is_bounded(call: UpstreamCall) -> None:
    """X1: a status decides, even where its body is no error object."""
    async with flood(head(JSON, "connection: close", status="500 Oops") + b'{"error":"', b"y" * 1000) as peer:
        inputs = await attempt_at(peer.port, call)
    assert inputs.ended_as == BAD_RESPONSE
    assert peer.sent < 3 * MANY_BYTES
