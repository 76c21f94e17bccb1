"""What clients' requests may hold: each message keeps a body's pace, and all of them together keep within one bound."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from gateway.beside_asgi import INBOUND
from gateway.lock.virtual import virtual_run
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.patience import Pace
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import frame, request, text
from server.hardened.stage import Stage, answering, connected

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("plane")]

OPEN = request("GET / HTTP/1.1", *HANDSHAKE)
PACE = Pace(head_seconds=5, body_pause_seconds=5, body_bytes_per_second=100, message_seconds=60)
PINGS: dict[str, Any] = {"websocket_ping_interval": 1e5}
BAD_PACE, TOO_LARGE, LATER = (b"\x03" + bytes((code,)) for code in (0xF0, 0xF1, 0xF5))
"""Close codes 1008, 1009, 1013."""


async def hoarding(scope: Any, receive: Any, send: Any) -> None:
    """Takes messages, and is done with none."""
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def dribble(stage: Stage, *, pieces: int, size: int) -> bytes:
    """One message, a part each second; what came back."""
    heard = await stage.say(OPEN)
    heard = await stage.say(frame(1, b"", final=False))
    for _ in range(pieces):
        try:
            heard += await stage.say(frame(0, b"x" * size, final=False))
        except trio.BrokenResourceError:
            break
        await trio.sleep(0.99)
    return heard


@pytest.mark.parametrize(
    ("size", "closed_at"),
    [
        pytest.param(0, 5, id="empty parts"),
        pytest.param(50, 9, id="half the pace"),
        pytest.param(200, 60, id="twice the pace, but for how long"),
    ],
)
async def test_a_message_must_keep_the_pace_of_a_body(size: int, closed_at: int) -> None:
    """W1: in whatever parts it comes."""
    async with connected(answering, pace=PACE, **PINGS) as stage:
        heard = await dribble(stage, pieces=100, size=size)
        await stage.ended.wait()

    assert BAD_PACE in heard
    assert trio.current_time() == pytest.approx(closed_at, abs=4)


async def test_a_message_that_ends_owes_nothing() -> None:
    async with connected(answering, pace=PACE, **PINGS) as stage:
        await stage.say(OPEN)
        await stage.say(frame(1, b"hel", final=False))
        heard = await stage.say(frame(0, b"lo"))
        await trio.sleep(1000)

        assert b"hello" in heard
        assert await stage.say(text("still here")) == frame(1, b"still here", masked=False)


async def test_an_app_that_takes_its_time_costs_the_peer_none() -> None:
    """What is not read cannot keep a pace."""

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await trio.sleep(100)
        await answering({"type": "websocket"}, receive, lambda message: send(message))

    async with connected(slow, pace=PACE, max_app_queue_size=1, **PINGS) as stage:
        await stage.say(OPEN)
        await stage.say(text("one") + text("two") + frame(1, b"thr", final=False))
        await trio.sleep(100)
        heard = await stage.hear()

    assert BAD_PACE not in heard


async def test_messages_beyond_the_bound_close_their_connection_until_there_is_room() -> None:
    """Each connection's end gives back what it held."""
    inbound = InboundBytes(1000)
    for _ in range(3):
        async with connected(hoarding, inbound=inbound) as stage:
            await stage.say(OPEN)
            assert LATER not in await stage.say(text("x" * 500) + frame(1, b"x" * 500, final=False))
            assert inbound.taken == 1000
            assert LATER in await stage.say(frame(0, b"x"))
            await stage.client.aclose()
            await stage.ended.wait()
        assert inbound.taken == 0


async def test_a_message_that_the_app_is_done_with_holds_nothing() -> None:
    """It says so by what the connection's state has for it."""
    inbound = InboundBytes(1000)

    async def done(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            scope["state"][INBOUND].give_back(len(message.get("text") or ""))

    async with connected(done, inbound=inbound) as stage:
        await stage.say(OPEN)
        heard = [await stage.say(text("x" * 900)) for _ in range(10)]

        assert (b"".join(heard), inbound.taken) == (b"", 0)


async def test_a_body_beyond_the_bound_is_refused_and_its_bytes_given_back() -> None:
    """X2: 503, in the shape of all errors."""
    inbound = InboundBytes(1000)
    async with connected(answering, inbound=inbound) as stage:
        head = request("POST / HTTP/1.1", "content-length: 1500")
        whole = request("POST / HTTP/1.1", "content-length: 1000", body=bytes(1000))
        answers = [await stage.say(whole), await stage.say(whole), await stage.say(head + bytes(1001))]

    assert [answer.split(b" ")[1] for answer in answers] == [b"200", b"200", b"503"]
    assert b'"code": "too_many_turns"' in answers[2]
    assert inbound.taken == 0


async def test_a_message_that_is_too_large_is_told_to_the_app_once_and_its_rest_dropped() -> None:
    """W1: the door answers with an error frame before it closes. One that never ends is closed here."""
    part = b"x" * 1001
    async with connected(answering, websocket_max_message_size=1000, **PINGS) as stage:
        await stage.say(OPEN)
        told = await stage.say(frame(1, part, final=False))
        dropped = await stage.say(frame(0, b"x" * 999, final=False) + frame(0, b"x"))
        after = await stage.say(text("next"))
        await stage.say(frame(1, part, final=False) + frame(9))
        endless = await stage.say(frame(0, part, final=False))

    assert told.endswith(part)
    assert (dropped, after) == (b"", frame(1, b"next", masked=False))
    assert TOO_LARGE in endless
