"""The short way past ASGI keeps its place among all else that is written, and every promise of the long one."""

import gc
import socket
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import CloseConnection, Ping, TextMessage

from gateway.beside_asgi import DIRECT, Direct
from gateway.core.messages import Taken
from gateway.lock.virtual import virtual_run
from gateway.server.hardened.connection import WRITES_PER_PASS
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import frame, request, text
from server.hardened.stage import PLANE, Stage, connected
from server.hardened.test_framing import received_by_h11

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("fast")]

GET = request("GET / HTTP/1.1")
UPGRADE = request("GET / HTTP/1.1", *HANDSHAKE)
START: Any = {"type": "http.response.start", "status": 200, "headers": []}
END: Any = {"type": "http.response.body", "body": b"", "more_body": False}
ACCEPT: Any = {"type": "websocket.accept"}
MUCH = b"x" * 300_000

Speak = Callable[[Direct, Any], Awaitable[None]]


@pytest.fixture
def fast() -> Any:
    PLANE.is_fast = True
    yield
    PLANE.is_fast = False


def speaking(speak: Speak, *, start: Any = START, end: Any = END) -> Any:
    """An app that begins, speaks on the short way, and ends."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT if scope["type"] == "websocket" else start)
        await speak(scope["state"][DIRECT], receive)
        if scope["type"] == "http":
            await send(end)

    return app


def saying(*pieces: bytes) -> Speak:
    async def speak(direct: Direct, _receive: Any) -> None:
        for piece in pieces:
            await direct.write((piece,))

    return speak


async def hear_all(stage: Stage) -> bytes:
    """All that comes until the end, by a client that reads a little at a time."""
    heard = b""
    while data := await stage.client.receive_some(1000):
        heard += data
        await trio.sleep(0.01)
    return heard


# --- HTTP ---------------------------------------------------------------------------------------------------------


async def test_a_body_goes_directly_and_its_connection_serves_the_next_request() -> None:
    async with connected(speaking(saying(b"one", b"two"))) as stage:
        for _ in range(3):
            assert received_by_h11(await stage.say(GET), []) == (b"onetwo", True)


async def test_the_head_leaves_in_one_write_with_the_first_piece() -> None:
    async def pause(direct: Direct, _receive: Any) -> None:
        await direct.write((b"one",))
        await trio.sleep(1)

    async with connected(speaking(pause)) as stage:
        await stage.client.send_all(GET)
        assert (await stage.client.receive_some()).endswith(b"\r\n\r\n3\r\none\r\n")
        assert (await stage.client.receive_some(), trio.current_time()) == (b"0\r\n\r\n", 1)


async def test_the_head_of_an_app_that_fails_behind_it_leaves_all_the_same() -> None:
    async def fail(_direct: Direct, _receive: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError

    async with connected(speaking(fail)) as stage:
        heard = await stage.say(GET)
        await stage.ended.wait()
    assert heard.startswith(b"HTTP/1.1 200 ")
    assert received_by_h11(heard, []) == (b"", False)


@pytest.mark.parametrize("opening", [request("GET / HTTP/1.0"), request("GET / HTTP/1.1", "connection: close")])
async def test_an_answer_that_is_its_connections_last_ends_it(opening: bytes) -> None:
    async with connected(speaking(saying(b"one", b"two"))) as stage:
        await stage.client.send_all(opening)
        assert received_by_h11(await hear_all(stage), [])[0] == b"onetwo"
        await stage.ended.wait()


@pytest.mark.parametrize(
    ("opening", "start", "body"),
    [
        (request("GET / HTTP/1.0"), START, b"onetwo"),
        (request("HEAD / HTTP/1.1"), START, b""),
        (GET, {**START, "status": 204}, b""),
        (GET, {**START, "headers": [(b"content-length", b"6")]}, b"onetwo"),
        (GET, START, b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
    ],
)
async def test_a_body_is_framed_as_its_response_says(opening: bytes, start: Any, body: bytes) -> None:
    async with connected(speaking(saying(b"one", b"two"), start=start)) as stage:
        assert (await stage.say(opening)).partition(b"\r\n\r\n")[2] == body


async def test_an_empty_piece_does_not_end_a_body() -> None:
    async with connected(speaking(saying(b"one", b"", b"two"))) as stage:
        assert received_by_h11(await stage.say(GET), []) == (b"onetwo", True)


async def test_a_client_that_reads_slowly_gets_every_byte_and_holds_its_app_up() -> None:
    written: list[float] = []
    pieces = [b"%d" % number * 1000 for number in range(100)]

    async def speak(direct: Direct, _receive: Any) -> None:
        for piece in pieces:
            await direct.write((piece,))
            written.append(trio.current_time())

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(request("GET / HTTP/1.1", "connection: close"))
        assert received_by_h11(await hear_all(stage), []) == (b"".join(pieces), True)
    assert written[20] < written[50] < written[99], "the app was held up all the way"


@pytest.mark.parametrize(("opening", "seconds"), [(GET, 60.0), (UPGRADE, 60.0)])
async def test_a_client_that_takes_nothing_is_dropped_at_the_write_deadline(opening: bytes, seconds: float) -> None:
    """T6. Behind it the writes go nowhere, and yield."""
    after: list[float] = []

    async def speak(direct: Direct, _receive: Any) -> None:
        await direct.write((MUCH,))
        after.append(trio.current_time())
        for _ in range(1000):
            await direct.write((b"more",))
        after.append(trio.current_time())

    async with connected(speaking(speak), write_seconds=seconds) as stage:
        await stage.client.send_all(opening)
        await stage.ended.wait()
    assert after == [seconds, seconds]


async def test_a_write_that_is_cancelled_is_whole_or_has_not_begun() -> None:
    """T10: what was cut is not told from what was not by half a chunk."""

    async def speak(direct: Direct, _receive: Any) -> None:
        with trio.move_on_after(1):
            for _ in range(100):
                await direct.write((MUCH,))

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(request("GET / HTTP/1.1", "connection: close"))
        await trio.sleep(2)
        body, has_ended = received_by_h11(await hear_all(stage), [])
    assert has_ended
    assert len(body) % len(MUCH) == 0 < len(body)


async def test_what_a_client_is_sent_after_it_left_reaches_nobody_who_has_its_descriptor() -> None:
    """A number is given away again at once; a socket object that is closed is nobody's."""
    strangers: list[socket.socket] = []
    sent = trio.Event()

    async def speak(direct: Direct, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await trio.sleep(1)
        for _ in range(50):
            strangers.extend(socket.socketpair())
        for _ in range(50):
            await direct.write((b"not for you",))
        sent.set()

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(GET)
        await stage.client.aclose()
        with trio.fail_after(10):
            await sent.wait()
    for stranger in strangers:
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(100)
    for stranger in strangers:
        stranger.close()


async def test_200_clients_that_leave_while_they_are_written_to_end_one_connection_each() -> None:
    """A write that finds its peer gone is no error of the server's."""

    async def speak(direct: Direct, _receive: Any) -> None:
        for _ in range(100):
            await direct.write((b"x" * 1000,))
            await trio.lowlevel.checkpoint()

    for opening in (GET, UPGRADE) * 100:
        async with connected(speaking(speak)) as stage:
            await stage.client.send_all(opening)
            await stage.client.receive_some(10)
            stage.client.socket.close()
            await stage.ended.wait()
            assert stage.outcome == [None]


async def test_writes_that_never_wait_let_others_have_their_turn() -> None:
    turns = 0

    async def speak(direct: Direct, _receive: Any) -> None:
        nonlocal turns
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            for _ in range(10 * WRITES_PER_PASS):
                await direct.write((b"x",))
            nursery.cancel_scope.cancel()

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def read(stage: Stage) -> None:
        while await stage.client.receive_some():
            pass

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(request("GET / HTTP/1.1", "connection: close"))
        await read(stage)
    assert turns >= 9


async def test_nothing_of_a_request_stays_behind_in_a_ring() -> None:
    held: list[Any] = []

    async def speak(direct: Direct, _receive: Any) -> None:
        await direct.write((b"one",))
        held.append(weakref.ref(direct))

    gc.collect()
    gc.disable()
    try:
        async with connected(speaking(speak)) as stage:
            await stage.say(GET)
            assert held[0]() is None
    finally:
        gc.enable()


# --- without a wait -----------------------------------------------------------------------------------------------

OPENINGS = {"http": request("GET / HTTP/1.1", "connection: close"), "websocket": UPGRADE}


async def fill(direct: Direct) -> list[bytes]:
    """Write at once more than the kernel has room for, behind a head, which waits for a write: what was taken, the last
    of it in part."""
    await direct.write((b"zero",))
    assert direct.write_at_once((b"one", b"two")) is Taken.ALL
    assert direct.write_at_once((MUCH,)) is Taken.PART
    assert direct.write_at_once((b"while a rest waits",)) is Taken.NOTHING
    return [b"zero", b"one", b"two", MUCH]


@pytest.mark.parametrize("door", OPENINGS)
async def test_what_was_taken_in_part_goes_on_with_the_next_write(door: str) -> None:
    """No byte is lost, doubled or overtaken, whatever is written next."""
    filled: list[bytes] = []

    async def speak(direct: Direct, receive: Any) -> None:
        filled.extend(await fill(direct))
        await direct.write(())
        assert direct.write_at_once((b"again",)) is Taken.ALL
        await direct.write((b"last",))
        if door == "websocket":
            await receive()

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(OPENINGS[door])
        heard = b""
        with trio.move_on_after(5):
            while data := await stage.client.receive_some(997):
                heard += data
                await trio.sleep(0.01)
    expected = [*filled, b"again", b"last"]
    if door == "http":
        assert received_by_h11(heard, []) == (b"".join(expected), True)
    else:
        assert told(heard) == [piece.decode() for piece in expected]


async def test_a_ping_stands_behind_the_rest_of_what_was_taken_in_part() -> None:
    """W7: it tears no frame, and is itself what the rest leaves with."""

    filled: list[bytes] = []

    async def speak(direct: Direct, receive: Any) -> None:
        filled.extend(await fill(direct))
        await receive()

    async with connected(speaking(speak), websocket_ping_interval=1.0) as stage:
        await stage.client.send_all(UPGRADE)
        await trio.sleep(0.5)
        heard = b""
        with trio.move_on_after(1):
            while data := await stage.client.receive_some():
                heard += data
    assert [message for message in told(heard) if message != "ping"] == [piece.decode() for piece in filled]
    assert told(heard)[-1] == "ping"


@pytest.mark.parametrize("door", OPENINGS)
async def test_nothing_is_taken_while_another_write_is_under_way(door: str) -> None:
    taken: list[Taken] = []

    async def speak(direct: Direct, _receive: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(direct.write, (MUCH,))
            await trio.sleep(1)
            taken.append(direct.write_at_once((b"too early",)))
            nursery.cancel_scope.cancel()

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(OPENINGS[door])
        assert b"too early" not in await hear_all(stage)
    assert taken == [Taken.NOTHING]


@pytest.mark.parametrize("opening", [request("GET / HTTP/1.0"), request("HEAD / HTTP/1.1")])
async def test_nothing_is_taken_where_a_piece_would_be_framed_otherwise(opening: bytes) -> None:
    taken: list[Taken] = []

    async def speak(direct: Direct, _receive: Any) -> None:
        taken.append(direct.write_at_once((b"one",)))
        await direct.write((b"one",))

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(opening)
        assert b"3\r\n" not in await hear_all(stage)
    assert taken == [Taken.NOTHING]


@pytest.mark.parametrize("door", OPENINGS)
async def test_a_client_that_has_left_takes_nothing_and_the_next_write_finds_it_out(door: str) -> None:
    left = trio.Event()

    async def speak(direct: Direct, _receive: Any) -> None:
        await direct.write((b"x",))
        await left.wait()
        for _ in range(3):
            assert direct.write_at_once((b"x",)) is Taken.NOTHING
            await direct.write((b"x",))

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(OPENINGS[door])
        await stage.client.receive_some(10)
        stage.client.socket.close()
        left.set()
        await stage.ended.wait()
        assert stage.outcome == [None]


@pytest.mark.parametrize("door", OPENINGS)
async def test_a_client_that_takes_no_rest_is_dropped_at_the_write_deadline(door: str) -> None:
    """T6."""

    async def speak(direct: Direct, _receive: Any) -> None:
        await fill(direct)
        await trio.sleep(10)
        await direct.write(())

    async with connected(speaking(speak)) as stage:
        await stage.client.send_all(OPENINGS[door])
        await stage.ended.wait()
    assert trio.current_time() == 70


async def test_behind_a_close_no_text_is_taken() -> None:
    taken: list[Taken] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        await send({"type": "websocket.close", "code": 1012})
        taken.append(scope["state"][DIRECT].write_at_once((b"behind",)))

    async with connected(app) as stage:
        assert told(await stage.say(UPGRADE)) == [1012]
    assert taken == [Taken.NOTHING]


# --- WebSocket ----------------------------------------------------------------------------------------------------


def told(data: bytes) -> list[Any]:
    """What a client makes of the frames behind the handshake: texts, `ping`, and a close's code."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data.partition(b"\r\n\r\n")[2])
    heard: list[Any] = []
    message = ""
    for event in client.events():
        if isinstance(event, TextMessage):
            message += event.data
            if event.message_finished:
                heard.append(message)
                message = ""
        elif isinstance(event, Ping):
            heard.append("ping")
        elif isinstance(event, CloseConnection):
            heard.append(event.code)
    assert message == "", "no frame was torn"
    assert client.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING)
    return heard


async def test_texts_go_in_one_write_and_each_is_a_message() -> None:
    async def speak(direct: Direct, receive: Any) -> None:
        await direct.write((b"one", "zwölf".encode(), b"", b"x" * 70_000))
        await receive()

    async with connected(speaking(speak)) as stage:
        assert told(await stage.say(UPGRADE)) == ["one", "zwölf", "", "x" * 70_000]


async def test_pings_and_pongs_stand_between_the_frames_of_a_client_that_reads_slowly() -> None:
    """W7: what the protocol writes waits until a frame is whole."""
    texts = [b"%d" % number * 5000 for number in range(10)]

    async def speak(direct: Direct, receive: Any) -> None:
        for piece in texts:
            await direct.write((piece, piece))
        await receive()

    async with connected(speaking(speak), websocket_ping_interval=0.05) as stage:
        await stage.client.send_all(UPGRADE + frame(9, b"are you there"))
        heard = b""
        with trio.move_on_after(3):
            while data := await stage.client.receive_some(997):
                heard += data
                await trio.sleep(0.01)
    messages = told(heard)
    assert [message for message in messages if message != "ping"] == [p.decode() for p in texts for _ in range(2)]
    first, last = messages.index("0" * 5000), len(messages) - messages[::-1].index("9" * 5000)
    assert "ping" in messages[first:last], "at least one came while a frame was on its way"
    assert heard.count(b"are you there") == 1


async def test_behind_a_close_there_are_no_texts_whoever_began_it() -> None:
    async def speak(direct: Direct, receive: Any) -> None:
        await direct.write((b"before",))
        while (await receive())["type"] != "websocket.disconnect":
            pass
        await direct.write((b"behind",))

    async with connected(speaking(speak)) as stage:
        assert told(await stage.say(UPGRADE)) == ["before"]
        answer = await stage.say(frame(8, (1000).to_bytes(2, "big")))
        await stage.ended.wait()
    assert answer == b"\x88\x02\x03\xe8"


async def test_behind_the_apps_own_close_there_are_no_texts() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        await send({"type": "websocket.close", "code": 1012})
        await scope["state"][DIRECT].write((b"behind",))

    async with connected(app) as stage:
        assert told(await stage.say(UPGRADE)) == [1012]


async def test_texts_are_a_sign_of_life_of_their_connection() -> None:
    """W7: a client that reads much may come to no ping for long."""

    async def speak(direct: Direct, receive: Any) -> None:
        for _ in range(20):
            await direct.write((b"x",))
            await trio.sleep(10)
        await receive()

    async with connected(speaking(speak), websocket_ping_interval=20.0) as stage:
        await stage.client.send_all(UPGRADE)
        while await stage.client.receive_some():
            pass
        await stage.ended.wait()
    assert trio.current_time() == 260, "three pings after the last text"


async def test_a_client_is_heard_while_it_is_written_to() -> None:
    heard: list[Any] = []

    async def speak(direct: Direct, receive: Any) -> None:
        await direct.write((b"one",))
        heard.append((await receive())["text"])
        await direct.write((b"two",))
        await receive()

    async with connected(speaking(speak)) as stage:
        assert told(await stage.say(UPGRADE)) == ["one"]
        assert (await stage.say(text("and"))) == b"\x81\x03two"
    assert heard == ["and"]


async def test_on_the_plain_plane_there_is_no_short_way() -> None:
    PLANE.is_fast = False
    seen: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        seen.append(DIRECT in scope["state"])
        await send(START)
        await send(END)

    async with connected(app) as stage:
        assert b"0\r\n\r\n" in await stage.say(GET)
    assert seen == [False]
