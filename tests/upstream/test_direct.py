"""The gateway's own connections: one write, one read, nothing resent, and the same cost however many there are."""

from __future__ import annotations

import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import ref

import pytest
import trio
import trustme

from gateway.limits import UPSTREAM_CONNECTION_IDLE_SECONDS_MAX
from gateway.lock.virtual import virtual_run
from gateway.upstream import direct
from gateway.upstream.calls import Broken, NeverSent
from gateway.upstream.direct import DirectAnswer, DirectCaller
from upstream.peers import FIN, OPEN, RESET, chunked, head, raw_peer
from upstream.stage import settle

pytestmark = pytest.mark.trio(run=virtual_run)

WHOLE = head("content-length: 2") + b"hi"
LARGE = b"x" * 30_000_000
"""More than any socket's buffers hold."""


async def whole(answer: DirectAnswer) -> bytes:
    body = b""
    while piece := await answer.read():
        body += piece
    await answer.aclose()
    return body


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[DirectCaller]:
    caller = DirectCaller(f"http://127.0.0.1:{port}/v1")
    yield caller
    await caller.aclose()


async def test_nothing_of_an_answer_waits_for_the_collector_of_garbage() -> None:
    """Issue 7: it would look through all that lives, for each few turns."""
    async with raw_peer((WHOLE, OPEN)) as peer, calling(peer.port) as caller:
        answer = await caller.call("POST", "/responses", [], b"")
        decoder = ref(answer._decoder)
        gc.disable()
        try:
            await whole(answer)
            del answer
            assert decoder() is None
        finally:
            gc.enable()


# --- the request -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://127.0.0.1:{port}/v1", b"POST /v1/responses HTTP/1.1", b"host: 127.0.0.1:{port}"),
        ("http://127.0.0.1:{port}/", b"POST /responses HTTP/1.1", b"host: 127.0.0.1:{port}"),
        ("http://127.0.0.1:{port}/a/b/", b"POST /a/b/responses HTTP/1.1", b"host: 127.0.0.1:{port}"),
    ],
)
async def test_a_request_is_one_head_and_the_body_to_the_byte(url: str, line: bytes, host: bytes) -> None:
    """H3."""
    async with raw_peer((WHOLE, OPEN)) as peer:
        caller = DirectCaller(url.format(port=peer.port))
        answer = await caller.call("POST", "/responses", [(b"x-name", b" value\xff ")], b'{"a": 1}')
        assert await whole(answer) == b"hi"
        await caller.aclose()

    named = host.replace(b"{port}", b"%d" % peer.port)
    assert peer.requests == [b"\r\n".join([line, named, b"x-name: value\xff", b"content-length: 8", b"", b'{"a": 1}'])]


@pytest.mark.parametrize("value", [b"a\r\nevil: b", b"a\nb", b"a\0b"])
async def test_a_header_that_would_be_another_one_does_not_go_up(value: bytes) -> None:
    """H4."""
    async with raw_peer((WHOLE, OPEN)) as peer, calling(peer.port) as caller:
        await whole(await caller.call("POST", "/responses", [(b"x", value), (b"y", b"1")], b""))

    assert b"\r\ny: 1\r\n" in peer.requests[0]
    assert b"\r\nx:" not in peer.requests[0]


# --- connections --------------------------------------------------------------------------------------------------


async def test_a_connection_whose_answer_is_whole_serves_the_next_call() -> None:
    async with raw_peer((WHOLE, OPEN)) as peer, calling(peer.port) as caller:
        for _ in range(3):
            assert await whole(await caller.call("POST", "/responses", [], b"")) == b"hi"
        assert peer.connections == 1


@pytest.mark.parametrize(
    ("answer", "reads_on"),
    [
        (head("content-length: 2", "connection: close") + b"hi", True),
        (head("content-length: 2") + b"hi" + b"HTTP/1.1 200 OK", True),
        (head("content-length: 3") + b"hi", False),
        (head("transfer-encoding: chunked") + chunked(b"hi", ends=False), False),
    ],
    ids=["it says so", "bytes behind the end", "not read to its end", "no last chunk"],
)
async def test_any_other_connection_is_closed(answer: bytes, reads_on: bool) -> None:
    """Bytes behind an answer would be taken for the next one's."""
    async with raw_peer((answer, OPEN), (WHOLE, OPEN)) as peer, calling(peer.port) as caller:
        first = await caller.call("POST", "/responses", [], b"")
        assert await first.read() == b"hi"
        if reads_on:
            assert await first.read() == b""
        await first.aclose()
        assert await whole(await caller.call("POST", "/responses", [], b"")) == b"hi"
        assert peer.connections == 2


@pytest.mark.parametrize("ending", [FIN, RESET])
async def test_an_idle_connection_found_dead_is_replaced_and_nothing_is_sent_twice(ending: str) -> None:
    """§4: no attempt; the peer has closed before the request was written."""
    async with raw_peer((WHOLE, ending)) as peer, calling(peer.port) as caller:
        for _ in range(2):
            assert await whole(await caller.call("POST", "/responses", [], b"")) == b"hi"
            await settle()
        assert (peer.connections, len(peer.requests)) == (2, 2)


async def test_a_peer_that_closes_upon_the_request_is_a_read_error_and_is_not_asked_again() -> None:
    """R15: whether it did anything with the request nobody knows."""
    async with raw_peer((WHOLE, OPEN), (b"", FIN)) as peer, calling(peer.port) as caller:
        await whole(await caller.call("POST", "/responses", [], b""))
        with pytest.raises(Broken):
            await caller.call("POST", "/responses", [], b"")
        assert len(peer.requests) == 2


@pytest.mark.parametrize(("seconds", "connections"), [(-0.01, 1), (0.0, 2)])
async def test_a_connection_that_idled_too_long_is_not_used(seconds: float, connections: int) -> None:
    """Just before its time, and at it."""
    async with raw_peer((WHOLE, OPEN)) as peer, calling(peer.port) as caller:
        await whole(await caller.call("POST", "/responses", [], b""))
        await trio.sleep(UPSTREAM_CONNECTION_IDLE_SECONDS_MAX + seconds)
        await whole(await caller.call("POST", "/responses", [], b""))
        assert peer.connections == connections


async def test_a_peer_that_answers_before_it_has_the_body_is_heard_and_sent_no_more() -> None:
    """A 413 in the middle of an upload is an answer, not a broken write; its connection serves nobody else."""
    answer = head("content-length: 2", "content-type: application/json", status="413 Content Too Large") + b"{}"
    async with raw_peer((answer, OPEN), reads_requests=False) as peer, calling(peer.port) as caller:
        with trio.fail_after(5):
            first = await caller.call("POST", "/responses", [], LARGE)
            assert (first.status, await whole(first)) == (413, b"{}")
        assert len(caller._pool) == 0


async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    """H7."""
    async with raw_peer((head("content-length: 9"), OPEN)) as peer, calling(peer.port) as caller:
        with trio.move_on_after(0.1):
            answer = await caller.call("POST", "/responses", [], b"")
            try:
                await answer.read()
            finally:
                await answer.aclose()
        await settle()
        assert peer.open_connections == 0


async def test_nobody_at_the_address_was_never_sent() -> None:
    """F2."""
    async with raw_peer((WHOLE, OPEN)) as peer:
        port = peer.port
    with pytest.raises(NeverSent, match="ConnectError"):
        await DirectCaller(f"http://127.0.0.1:{port}/v1").call("POST", "/responses", [], b"")


# --- TLS ----------------------------------------------------------------------------------------------------------

LONG = chunked(*[b"%05d" % number * 5000 for number in range(40)])
"""A megabyte, in many records."""


async def serve_tls(server: ssl.SSLContext, task_status: trio.TaskStatus[int]) -> None:
    async def answer_all(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                await stream.send_all(head("transfer-encoding: chunked") + LONG)

    listeners = await trio.open_ssl_over_tcp_listeners(0, server, host="127.0.0.1")
    port: int = listeners[0].transport_listener.socket.getsockname()[1]  # type: ignore[attr-defined]  # of TCP
    task_status.started(port)
    await trio.serve_listeners(answer_all, listeners)


@pytest.mark.trio(run=trio.run)  # TLS answers in several round trips, between which a virtual clock would jump
@pytest.mark.parametrize("trusts", [True, False])
async def test_tls_is_verified_and_read_to_the_last_record(trusts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """F2; what is decrypted already waits for no more bytes; the connection serves again."""
    authority, server = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    if trusts:
        authority.configure_trust(client)
    monkeypatch.setattr(direct, "trusted", lambda: client)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_tls, server)
        caller = DirectCaller(f"https://127.0.0.1:{port}/v1")
        if trusts:
            for _ in range(3):
                assert len(await whole(await caller.call("POST", "/responses", [], b"{}"))) == 40 * 25_000
                assert len(caller._pool) == 1
        else:
            with pytest.raises(NeverSent):
                await caller.call("POST", "/responses", [], b"{}")
        await caller.aclose()
        nursery.cancel_scope.cancel()
