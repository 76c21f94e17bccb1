"""What happens on a real network, and as which failure the SSE adapter tells it: on loopback sockets, byte for byte."""

from __future__ import annotations

import socket

import pytest
import trio

from gateway.lock.virtual import virtual_run
from gateway.ports import UpstreamCall
from gateway.upstream.scripted import Reply
from gateway.upstream.scripts import event, prelude, response_object
from upstream.peers import FIN, OPEN, RESET, chunked, head, raw_peer
from upstream.stage import attempt, attempt_at, script_of, settle, upstream_at, upstream_on

pytestmark = pytest.mark.trio(run=virtual_run)

CREATED, IN_PROGRESS = prelude("resp_a")
COMPLETED = event("response.completed", sequence_number=2, response=response_object("resp_a", "completed"))
ANSWER = CREATED + IN_PROGRESS + COMPLETED
NEVER_SENT = ("never_sent", "upstream_connect_error")
READ_ERROR = ("read_error", "stream_read_error")
CHUNKED = "transfer-encoding: chunked"


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


# --- never sent (F2, T3) ------------------------------------------------------------------------------------------


async def test_a_refused_connection_was_never_sent_on_a_socket() -> None:
    """F2: not a byte of the request was written."""
    inputs = await attempt(upstream_at(free_port()))

    assert inputs.words == ["ended"]
    assert inputs.ended_as == NEVER_SENT
    assert inputs.failure.status == 502


async def test_a_refused_connection_was_never_sent_in_memory() -> None:
    """F2, and the same words."""
    script = script_of(Reply(refuses=True))
    async with upstream_on("memory", script) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words == ["ended"]
    assert inputs.ended_as == NEVER_SENT
    assert script.calls == []


@pytest.mark.parametrize(("seconds", "told"), [(4.999, "opened"), (5.001, "ended")])
async def test_a_connect_has_five_seconds(seconds: float, told: str) -> None:
    """T3, before and after."""
    async with upstream_on("memory", script_of(Reply((ANSWER,), connect_seconds=seconds))) as upstream:
        inputs = await attempt(upstream)

    assert inputs.words[0] == told
    if told == "ended":
        assert inputs.ended_as == NEVER_SENT
        assert inputs.stamped[-1][1] == pytest.approx(5.0)


async def test_a_handshake_that_is_not_answered_is_a_connect_that_took_too_long() -> None:
    """T3, F2: TLS counts as connecting, on a real socket that says nothing."""
    async with raw_peer((b"", OPEN)) as peer:
        upstream = upstream_at(peer.port, "https", connect_seconds=2.0)
        inputs = await attempt(upstream)

        assert inputs.ended_as == NEVER_SENT
        assert inputs.stamped[-1][1] == pytest.approx(2.0)
        await settle()
        assert peer.open_connections == 0


async def test_a_handshake_that_fails_was_never_sent() -> None:
    """F2: a plain port where TLS was meant."""
    async with raw_peer((b"HTTP/1.1 400 Bad Request\r\n\r\n", FIN), reads_requests=False) as peer:
        upstream = upstream_at(peer.port, "https")
        assert (await attempt(upstream)).ended_as == NEVER_SENT


async def test_a_failure_names_no_host_and_no_port() -> None:
    """What a client may know of the network behind the gateway: nothing."""
    port = free_port()
    failure = (await attempt_at(port)).failure
    assert "127.0.0.1" not in failure.message
    assert str(port) not in failure.message


# --- sent, and broken (R15, R9, P6) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (b"", FIN),
        (b"", RESET),
        (b"HTTP/1.1 200", FIN),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-st", RESET),
        (b"\x00\x01\x02 this is no HTTP \xff\r\n\r\n", FIN),
        (b"SSH-2.0-OpenSSH_9.6\r\n", FIN),
        (b"HTTP/1.1 abc OK\r\n\r\n", FIN),
        (b"HTTP/2.0 200 OK\r\n\r\n", FIN),
        (head("content-length: -1"), FIN),
        (head("content-length: 5", "content-length: 6"), FIN),
        (head("x: " + "y" * 200_000, CHUNKED), FIN),
        (b"HTTP/1.1 100 Continue\r\n\r\n", FIN),
    ],
    ids=[
        "closed before the head",
        "reset before the head",
        "half a status line",
        "half a head",
        "garbage",
        "another protocol",
        "no status",
        "another version",
        "a negative length",
        "two lengths",
        "an endless head",
        "only a 100",
    ],
)
async def test_an_answer_that_breaks_before_its_head_is_a_read_error(answer: bytes, ending: str) -> None:
    """R15: before the first event; nothing was opened."""
    async with raw_peer((answer, ending)) as peer:
        inputs = await attempt_at(peer.port)
        await settle()

        assert inputs.words == ["ended"]
        assert inputs.ended_as == READ_ERROR
        assert peer.open_connections == 0
        assert len(peer.requests) == 1, "a transport-level resend"


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (head(CHUNKED) + chunked(CREATED, ends=False), FIN),
        (head(CHUNKED) + chunked(CREATED, ends=False), RESET),
        (head(CHUNKED) + chunked(CREATED, ends=False) + b"ff\r\nhalf a chunk", FIN),
        (head(CHUNKED) + chunked(CREATED, ends=False) + b"nonsense\r\n", OPEN),
        (head(f"content-length: {len(CREATED) + 1}") + CREATED, FIN),
        (head(f"content-length: {len(CREATED) + 1}") + CREATED, RESET),
        (head("connection: close") + CREATED, RESET),
        (head("connection: close") + CREATED, FIN),
        (head(CHUNKED) + chunked(CREATED), FIN),
        (head(f"content-length: {len(CREATED)}") + CREATED, OPEN),
    ],
    ids=[
        "chunked, closed",
        "chunked, reset",
        "closed in a chunk",
        "a chunk without a size",
        "shorter than said, closed",
        "shorter than said, reset",
        "until close, reset",
        "until close, closed",
        "a whole chunked body",
        "a whole body of a known length",
    ],
)
async def test_a_stream_that_ends_in_its_middle_is_a_read_error_behind_its_events(answer: bytes, ending: str) -> None:
    """P9, R9; case 17: no end is taken for success, however clean."""
    async with raw_peer((answer, ending)) as peer:
        inputs = await attempt_at(peer.port)

        assert inputs.words == ["opened", "response.created", "ended"]
        assert inputs.blocks == [CREATED]
        assert inputs.ended_as == READ_ERROR


@pytest.mark.parametrize(
    ("answer", "ending", "last"),
    [
        (head("connection: close") + CREATED + COMPLETED[:-2], FIN, "response.completed"),
        (head("connection: close") + CREATED + COMPLETED[:-2], RESET, "ended"),
        (head(CHUNKED) + chunked(CREATED + COMPLETED[:-2]), FIN, "response.completed"),
        (head(CHUNKED) + chunked(CREATED + COMPLETED[:-2], ends=False), FIN, "ended"),
        (head("connection: close") + CREATED + COMPLETED[:-40], FIN, "ended"),
    ],
    ids=["closed", "reset", "the last chunk came", "the last chunk is missing", "cut in the middle"],
)
async def test_a_whole_event_pending_counts_at_a_clean_end_only(answer: bytes, ending: str, last: str) -> None:
    """P6; case 11."""
    async with raw_peer((answer, ending)) as peer:
        assert (await attempt_at(peer.port)).words[-1] == last


async def test_trailers_and_chunk_extensions_are_no_events() -> None:
    """RFC 9112: they belong to the framing."""
    body = b"%x;note=x\r\n%s\r\n0\r\nx-usage: 7\r\n\r\n" % (len(ANSWER), ANSWER)
    async with raw_peer((head(CHUNKED) + body, FIN)) as peer:
        inputs = await attempt_at(peer.port)

    assert b"".join(inputs.blocks) == ANSWER


@pytest.mark.parametrize("status", ["101 Switching Protocols", "199 What", "999 Request denied"])
async def test_a_status_that_is_no_answer_is_never_passed_on(status: str) -> None:
    """P9: a client must not get a status that its server cannot send."""
    async with raw_peer((head("content-length: 2", status=status) + b"{}", FIN)) as peer:
        inputs = await attempt_at(peer.port)

    assert inputs.words == ["ended"]
    assert inputs.failure.answer is None
    assert inputs.failure.status == 502


async def test_an_informational_answer_before_the_real_one_is_passed_over() -> None:
    """RFC 9110: 100 and 103 come first."""
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with raw_peer((hints + head(CHUNKED) + chunked(ANSWER), FIN)) as peer:
        assert (await attempt_at(peer.port)).words[-1] == "response.completed"


async def test_header_values_pass_in_the_bytes_they_came_in() -> None:
    """Case 43: names in lower case, values as they are, latin-1 and repeated ones too."""
    lines = ("X-RateLimit-Reset: caf\xe9", "X-Request-Id: one", "x-request-id: two", CHUNKED)
    async with raw_peer((head(*lines) + chunked(ANSWER), FIN)) as peer:
        inputs = await attempt_at(peer.port)

    assert inputs.head == (
        ("content-type", "text/event-stream"),
        ("x-ratelimit-reset", "caf\xe9"),
        ("x-request-id", "one"),
        ("x-request-id", "two"),
    )


async def test_an_upstream_that_does_not_read_its_request_can_be_left() -> None:
    """H7: a write that is stuck ends with the attempt."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        with trio.move_on_after(3) as scope:
            await attempt_at(listener.getsockname()[1], UpstreamCall("turn", b"x" * 30_000_000))
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(3.0)
