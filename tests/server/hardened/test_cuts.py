"""Each connection that the server cuts is counted once, with why; one that ends well is not."""

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import lockstep_stream_pair

from gateway import limits
from gateway.lock.virtual import virtual_run
from gateway.server.hardened.http1 import BEHIND_BYTES_MAX, HardenedHTTP1
from gateway.server.hardened.patience import Pace
from gateway.server.hardened.settings import Cut
from gateway.server.sockets import Sockets
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import frame, request, text
from server.hardened.stage import answering, connected

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("plane")]

GET = request("GET / HTTP/1.1")
OPEN = request("GET / HTTP/1.1", *HANDSHAKE)


async def mute(_scope: Any, receive: Any, _send: Any) -> None:
    """Never answers."""
    while (await receive())["type"] != "http.disconnect":
        pass


CASES: dict[str, tuple[Any, list[bytes], list[Cut]]] = {
    # the app, what its client sends, what is counted
    "a whole request": (answering, [GET], []),
    "no HTTP": (answering, [b"garbage\r\n\r\n"], [Cut.BAD_REQUEST]),
    "no HTTP, twice": (answering, [b"garbage\r\n\r\n", b"garbage\r\n\r\n"], [Cut.BAD_REQUEST]),
    "too large a head": (answering, [b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000], [Cut.BAD_REQUEST]),
    "too much behind a request": (mute, [GET, b"x" * (BEHIND_BYTES_MAX + 1)], [Cut.BAD_REQUEST]),
    "a slow head": (answering, [GET[:10]], [Cut.SLOW]),
    "a slow body": (answering, [request("POST / HTTP/1.1", "content-length: 5")], [Cut.SLOW]),
    "a WebSocket that closes": (answering, [OPEN, text("hello"), frame(8, b"\x03\xe8")], []),
    "a frame that is not masked": (answering, [OPEN, frame(1, b"{}", masked=False)], [Cut.BAD_FRAME]),
    "text that is no UTF-8": (answering, [OPEN, text(b"\xff")], [Cut.BAD_FRAME]),
    "twice too large a message": (
        answering,
        [OPEN, frame(1, b"x" * 1001, final=False), frame(0, b"x" * 1001)],
        [Cut.BAD_FRAME],
    ),
    "a slow message": (answering, [OPEN, frame(1, b"x", final=False)], [Cut.SLOW]),
    "no pongs": (answering, [OPEN], [Cut.SILENT]),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_cut_is_counted_once(case: str) -> None:
    app, sent, expected = CASES[case]
    cuts: list[Cut] = []
    settings: dict[str, Any] = {
        "pace": Pace(5, 5, 500),
        "websocket_ping_interval": 20.0,
        "websocket_max_message_size": 1000,
    }
    async with connected(app, on_cut=cuts.append, keep_alive_timeout=1000, **settings) as stage:
        for data in sent:
            try:
                await stage.say(data)
            except trio.BrokenResourceError:
                break
        await trio.sleep(5 * limits.PING_SECONDS)
    assert cuts == expected


@pytest.mark.parametrize(
    ("sent", "codes"),
    [
        (GET, []),
        (b"garbage\r\n\r\n", ["invalid_request"]),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, ["payload_too_large"]),
        (GET[:10], ["invalid_request"]),
    ],
)
async def test_an_answer_of_the_servers_own_is_counted_by_its_code(sent: bytes, codes: list[str]) -> None:
    """X2: the app's refusals are counted by the app."""
    refused: list[str] = []
    async with connected(answering, on_refused=refused.append, pace=Pace(5, 5, 500)) as stage:
        await stage.say(sent)
        await trio.sleep(10)
    assert refused == codes


async def test_a_fault_of_the_servers_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: HardenedHTTP1) -> None:
        raise RuntimeError

    monkeypatch.setattr(HardenedHTTP1, "_handle_events", fail)
    cuts: list[Cut] = []
    async with connected(answering, on_cut=cuts.append) as stage:
        await stage.client.send_all(GET)
        await stage.ended.wait()
    assert cuts == [Cut.FAULT]


async def test_a_peer_that_takes_nothing_is_counted() -> None:
    cuts: list[Cut] = []

    async def talking(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x" * 1_000_000})

    async with connected(talking, pair=lockstep_stream_pair, on_cut=cuts.append, write_seconds=1.0) as stage:
        await stage.client.send_all(GET)
        await stage.ended.wait()
    assert cuts == [Cut.STALLED]


async def test_a_socket_beyond_the_bound_is_counted() -> None:
    cuts: list[Cut] = []
    sockets = Sockets(0, partial(cuts.append, Cut.NO_SOCKET))
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.testing.open_stream_to_socket_listener(listener) as theirs:
        await theirs.send_eof()
        async with await listener.accept() as ours:
            await sockets.serve(trio.aclose_forcefully, ours)
    assert cuts == [Cut.NO_SOCKET]
