"""What happens on a connection stays on it, and nothing on it waits for ever."""

from contextlib import suppress
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import lockstep_stream_pair

from gateway.lock.virtual import virtual_run
from gateway.server import hardened
from gateway.server.hardened.connection import LINGER_SECONDS_MAX
from gateway.server.hardened.http1 import CONTINUE_SECONDS, HardenedHTTP1
from gateway.server.hardened.websockets import EARLY_BYTES_MAX, OPENING_SECONDS_MAX
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import request
from server.hardened.exchange_cases import cancelled_by_the_disconnect
from server.hardened.stage import answering, connected

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("plane")]

GET = request("GET / HTTP/1.1")
KEPT_SECONDS = 5.0


SENDS = 1000
MUCH = "x" * 1_000_000
"""More than any kernel takes for a peer that does not read."""


class Talker:
    """An app that sends much without looking whether anyone listens; and notes when its first send returned, when it
    was told of its client's leaving, and how often others had their turn meanwhile."""

    def __init__(self) -> None:
        self.sent_at: list[float] = []
        self.told_at: list[float] = []
        self.turns_of_others = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request or WebSocket."""
        is_websocket = scope["type"] == "websocket"
        await send({"type": "websocket.accept"} if is_websocket else {"type": "http.response.start", "status": 200})
        more = {"type": "http.response.body", "body": b"x", "more_body": True}
        much = {"type": "websocket.send", "text": MUCH} if is_websocket else {**more, "body": MUCH.encode()}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, receive)
            await send(much)
            self.sent_at.append(trio.current_time())
            nursery.start_soon(self._be_another)
            for _ in range(SENDS):
                await send({"type": "websocket.send", "text": "x"} if is_websocket else more)
            nursery.cancel_scope.cancel()

    async def _watch(self, receive: Any) -> None:
        while not (await receive())["type"].endswith("disconnect"):
            pass
        self.told_at.append(trio.current_time())

    async def _be_another(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns_of_others += 1


@pytest.mark.parametrize("opening", [GET, request("GET / HTTP/1.1", *HANDSHAKE)])
async def test_a_peer_that_takes_nothing_is_dropped_at_the_write_deadline(opening: bytes) -> None:
    """T6, bug case 24. Behind it the app's sends return at once, and yield: its own tasks and others go on."""
    talker = Talker()
    with capture_logs() as logs:
        async with connected(talker, pair=lockstep_stream_pair, write_seconds=60.0) as stage:
            await stage.client.send_all(opening)
            await stage.ended.wait()
    assert (talker.sent_at, talker.told_at) == ([60], [60])
    assert talker.turns_of_others > SENDS / 2
    assert [log["event"] for log in logs] == ["client_stalled"]


async def test_the_stock_server_waits_for_it_for_ever() -> None:
    async with connected(Talker(), "stock", pair=lockstep_stream_pair) as stage:
        await stage.client.send_all(GET)
        with trio.move_on_after(1000) as patience:
            await stage.ended.wait()
        assert patience.cancelled_caught
        await stage.client.aclose()  # else this test would wait for ever, too


async def test_a_cancelled_connection_does_not_wait_for_its_peer() -> None:
    """O3: at the drain's end, and on a second signal, a write has a moment left."""
    async with connected(Talker(), pair=lockstep_stream_pair, write_seconds=60.0) as stage:
        await stage.client.send_all(GET)
        await trio.sleep(1)
        stage.nursery.cancel_scope.cancel()
    assert trio.current_time() == 1.25


async def test_a_bug_in_a_protocol_layer_ends_one_connection_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: HardenedHTTP1) -> None:
        raise RuntimeError("the peer's own words")

    monkeypatch.setattr(HardenedHTTP1, "_handle_events", fail)
    with capture_logs() as logs:
        async with connected(answering) as stage:
            await stage.client.send_all(GET)
            await stage.ended.wait()
    assert stage.outcome == [None]
    (log,) = logs
    assert (log["event"], log["error"]) == ("connection_dropped", "RuntimeError")
    assert "words" not in str(log)


@pytest.mark.parametrize("opening", [request("GET / HTTP/1.0"), request("GET / HTTP/1.1", "connection: close")])
async def test_a_connection_that_is_to_close_closes(opening: bytes) -> None:
    async with connected(answering) as stage:
        await stage.client.send_all(opening)
        await stage.ended.wait()
        assert trio.current_time() == 0


async def test_an_idle_connection_closes_in_time() -> None:
    async with connected(answering, keep_alive_timeout=KEPT_SECONDS) as stage:
        await trio.sleep(2)
        await stage.client.send_all(GET)
        await stage.ended.wait()
        assert trio.current_time() == 2 + KEPT_SECONDS


async def test_an_app_that_is_cancelled_by_its_own_disconnect_leaves_a_connection_that_serves_on() -> None:
    """Quart-Trio and a turn cancel what they were doing once they hear of the disconnect, which comes with the end of
    every response: in the midst of the connection's own preparations for the next request."""

    async def hasty(_scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled_by_the_disconnect, receive, nursery)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            await trio.sleep_forever()

    async with connected(hasty, keep_alive_timeout=KEPT_SECONDS) as stage:
        for _ in range(3):
            assert (await stage.say(GET + GET)).count(b"HTTP/1.1 200 ") == 2
        await stage.ended.wait()
        assert trio.current_time() <= KEPT_SECONDS + 0.1


async def test_another_version_than_the_measured_one_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hardened.MEASURED_ON, "quart", "0.21.0")
    with pytest.raises(hardened.UnmeasuredVersion) as raised:
        hardened.install()
    assert str(raised.value) == (
        "quart 0.22.0 is installed, but the gateway's hardening was measured on 0.21.0; install quart==0.21.0"
    )


@pytest.mark.parametrize("behind", [b"", bytes(200_000)])
async def test_a_handshake_that_is_refused_for_its_server_name_closes(behind: bytes) -> None:
    """Hypercorn answers it, and waits for more."""
    async with connected(answering, server_names=["another.test"]) as stage:
        heard = await stage.say(request("GET / HTTP/1.1", *HANDSHAKE))
        with suppress(trio.BrokenResourceError):
            await stage.client.send_all(behind)
        await stage.client.aclose()
        with trio.fail_after(LINGER_SECONDS_MAX):
            await stage.ended.wait()

    assert heard.startswith(b"HTTP/1.1 404 ")


async def test_frames_do_not_wait_for_an_accept_for_ever() -> None:
    """Whoever sends more than is kept for it is not read meanwhile, and could leave unseen."""

    async def undecided(_scope: Any, receive: Any, _send: Any) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async with connected(undecided) as stage:
        await stage.say(request("GET / HTTP/1.1", *HANDSHAKE))
        await stage.client.send_all(bytes(EARLY_BYTES_MAX + 1))
        await stage.client.aclose()
        await stage.ended.wait()

    assert trio.current_time() == pytest.approx(OPENING_SECONDS_MAX, abs=LINGER_SECONDS_MAX + 1)


async def refusing(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers 401 without reading."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


EXPECTING = request("POST / HTTP/1.1", "expect: 100-continue", "content-length: 5")


async def test_a_body_is_asked_for_only_if_the_app_does_not_refuse_it() -> None:
    """RFC 9110, 10.1.1: a client with a bad key need not send 32 MiB to learn that."""
    async with connected(answering) as stage, connected(refusing) as other:
        await stage.say(EXPECTING)
        refused = await other.say(EXPECTING)
        await trio.sleep(2 * CONTINUE_SECONDS)
        asked = await stage.hear()
        answered = await stage.say(b"hello")
        after = await other.hear()

    assert asked.startswith(b"HTTP/1.1 100 ")
    assert answered.startswith(b"HTTP/1.1 200 ")
    assert (refused[:13], b" 100 " in refused + after) == (b"HTTP/1.1 401 ", False)


async def test_a_body_that_comes_unasked_is_not_asked_for() -> None:
    async with connected(answering) as stage:
        answered = await stage.say(EXPECTING + b"hello")
        await trio.sleep(2 * CONTINUE_SECONDS)
        answered += await stage.say(EXPECTING)
        await trio.sleep(2 * CONTINUE_SECONDS)
        asked = await stage.hear()

    assert answered.startswith(b"HTTP/1.1 200 ")
    assert (b" 100 " in answered, asked[:13]) == (False, b"HTTP/1.1 100 ")
