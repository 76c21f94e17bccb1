"""The scripted upstream itself: a fake that is shipped is tested like any other part. Both faces play the same."""

from __future__ import annotations

from contextlib import suppress

import httpx2
import pytest
import trio

from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import (
    JSON_BODY,
    Break,
    Reply,
    Script,
    ScriptedTransport,
    Silence,
    serve_scripted,
)
from gateway.upstream.scripts import http_failure, text_answer, two_step_failure
from upstream.stage import network, script_of, settle

pytestmark = pytest.mark.trio(run=virtual_run)
both_faces = pytest.mark.parametrize("face", ["memory", "socket"])

Chunk = tuple[float, bytes]


async def played(face: str, script: Script, *, calls: int = 1, leave_at: float = 1e5) -> list[tuple[int, bytes, str]]:
    """What plain HTTP calls to the script get: status, body, and the error that ended it."""
    async with trio.open_nursery() as nursery:
        url, transport = "http://upstream.test", ScriptedTransport(script)
        if face == "socket":
            port = await nursery.start(serve_scripted, script, "127.0.0.1", 0)
            url, transport = f"http://127.0.0.1:{port}", network()  # type: ignore[assignment]  # either is a transport
        got = []
        async with httpx2.AsyncClient(transport=transport, timeout=None) as client:
            for _ in range(calls):
                with trio.move_on_after(leave_at):
                    got.append(await _call(client, url))
        await settle()
        nursery.cancel_scope.cancel()
    return got


async def _call(client: httpx2.AsyncClient, url: str) -> tuple[int, bytes, str]:
    body = b""
    try:
        async with client.stream("POST", url, content=b'{"model":"m"}', headers={"x-who": "me"}) as response:
            async for chunk in response.aiter_raw():
                body += chunk
            return response.status_code, body, ""
    except httpx2.TransportError as error:
        return 0, body, "connect" if isinstance(error, httpx2.ConnectError) else "read"


@both_faces
async def test_a_reply_is_played_step_by_step(face: str) -> None:
    """Bytes are sent, numbers are waited, and the end is clean."""
    reply = Reply((b"a", 1.0, b"b", 2, b"c"), status=201, headers=JSON_BODY, head_seconds=0.5)
    script = script_of(reply)

    assert await played(face, script) == [(201, b"abc", "")]
    assert script.calls[0].at == 0.0
    assert script.calls[0].closed_at == pytest.approx(3.5)


@both_faces
async def test_a_call_is_on_record_as_it_came(face: str) -> None:
    """Whom, when, with which headers and which body."""
    script = script_of(Reply((b"x",)))
    await played(face, script)

    (call,) = script.calls
    assert (call.upstream, call.at, call.body, call.fields) == ("a", 0.0, b'{"model":"m"}', {"model": "m"})
    assert {name.lower(): value for name, value in call.headers}["x-who"] == "me"
    assert repr(script) == "<Script a, 1 calls>"
    assert "model" not in repr(call)


@both_faces
async def test_replies_are_handed_out_in_order_and_the_last_one_stays(face: str) -> None:
    """A script of one reply gives it for ever."""
    script = script_of(Reply((b"1",)), Reply((b"2",), status=500), Reply((b"3",)))

    assert [body for _, body, _ in await played(face, script, calls=5)] == [b"1", b"2", b"3", b"3", b"3"]


@both_faces
async def test_a_cycle_starts_again(face: str) -> None:
    """As the demo's failing upstream does."""
    script = script_of(Reply((b"1",)), Reply((b"2",)), is_cycle=True)

    assert [body for _, body, _ in await played(face, script, calls=5)] == [b"1", b"2", b"1", b"2", b"1"]


async def test_a_script_has_at_least_one_reply() -> None:
    """There would be nothing to say."""
    with pytest.raises(ValueError, match="no replies"):
        Script("a", ())


@both_faces
async def test_a_break_is_a_reset_behind_what_was_sent(face: str) -> None:
    """What came before it is there."""
    assert await played(face, script_of(Reply((b"ab", Break(), b"never")))) == [(0, b"ab", "read")]


@both_faces
async def test_a_refusal_gives_no_answer(face: str) -> None:
    """In memory the connect fails; a real listener can only reset what it has accepted."""
    ((status, body, error),) = await played(face, script_of(Reply(refuses=True)))

    assert (status, body) == (0, b"")
    assert error == {"memory": "connect", "socket": "read"}[face]


@both_faces
async def test_silence_lasts_until_the_client_leaves(face: str) -> None:
    """And the call knows when it did."""
    script = script_of(Reply((b"ab", Silence(), b"never")))

    assert await played(face, script, leave_at=7.0) == []
    assert script.calls[0].closed_at == pytest.approx(7.0)


@both_faces
@pytest.mark.parametrize("leave_at", [0.5, 1.5, 2.5])
async def test_a_client_that_leaves_ends_the_reply_and_nothing_else(face: str, leave_at: float) -> None:
    """Before the head, between two pieces, and while the upstream has much to say: the next call is served."""
    script = script_of(Reply((b"a", 1.0, *[b"x" * 200_000] * 50, Silence()), head_seconds=1.0), Reply((b"next",)))

    assert await played(face, script, calls=2, leave_at=leave_at) == [(200, b"next", "")]
    assert [call.closed_at for call in script.calls] == [pytest.approx(leave_at)] * 2


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"nonsense\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"\x00" * 100,
        b"x" * 200_000,
    ],
)
async def test_a_peer_that_speaks_no_http_harms_nobody(request_bytes: bytes) -> None:
    """A scanner at the demo's port: its connection is closed, the others go on."""
    script = script_of(Reply((b"ok",)))
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_scripted, script, "127.0.0.1", 0)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            with trio.fail_after(5):
                assert b"200" not in await _answer_to(stream, request_bytes)
        async with httpx2.AsyncClient(transport=network()) as client:
            assert (await client.post(f"http://127.0.0.1:{port}", content=b"{}")).content == b"ok"
        nursery.cancel_scope.cancel()


async def _answer_to(stream: trio.SocketStream, data: bytes) -> bytes:
    answer = b""
    with suppress(trio.BrokenResourceError):
        await stream.send_all(data)
        await stream.send_eof()
        while more := await stream.receive_some():
            answer += more
    return answer


@both_faces
@pytest.mark.parametrize("excess", [-1, 1])
async def test_a_reply_that_lies_about_its_length_breaks_its_own_connection_only(face: str, excess: int) -> None:
    """Case 17: a content-length that is not what is sent; the next call is served."""
    headers = (*JSON_BODY, ("content-length", str(4 + excess)))
    script = script_of(Reply((b"body",), headers=headers), Reply((b"next",)))
    first, second = await played(face, script, calls=2)

    assert first[2] == {"memory": "", "socket": "read"}[face]
    assert second == (200, b"next", "")


@both_faces
@pytest.mark.parametrize(
    ("reply", "status", "last"),
    [
        (text_answer(["a", "b"], response_id="resp_1", pause=1.0, first_pause=2.0), 200, b"response.completed"),
        (two_step_failure("server_error", "busy", response_id="resp_1"), 200, b"response.failed"),
        (http_failure(429, "rate_limit_exceeded", "slower"), 429, b"rate_limit_exceeded"),
    ],
)
async def test_the_ready_replies_play_on_both_faces(face: str, reply: Reply, status: int, last: bytes) -> None:
    """gateway.upstream.scripts."""
    ((got, body, error),) = await played(face, script_of(reply))

    assert (got, error) == (status, "")
    assert last in body
