"""The line in which a WebSocket's frames wait: answers in order, one turn at a time, within bounds (W3, W5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gateway.beside_asgi import INBOUND
from gateway.lock.driver import Client, connect
from gateway.upstream.scripted import Silence
from support.gateways import World, create_frame, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A

SLOW = A.reply(A.created, 1.0, A.delta(), 1.0, A.delta("more"), 1.0, A.completed())
SLOW_ANSWER = ["created", "output_text.delta", "output_text.delta", "completed"]


@asynccontextmanager
async def socket(w: World) -> AsyncIterator[Client]:
    """A WebSocket that its client leaves at the block's end."""
    async with connect(w.app, "websocket") as client:
        yield client
        await trio.sleep(1.0)
        client.leave()
    assert client.crash is None
    w.assert_at_rest()


async def answered(client: Client, count: int) -> None:
    """Wait for so many frames."""
    await client.wait_for(lambda client: len(client.told) >= count)


def last(client: Client) -> dict[str, Any]:
    """The last frame."""
    return client.events[-1].payload


@in_every_order
async def test_answers_are_sent_in_the_order_of_their_frames_and_never_within_a_turn() -> None:
    """W5; case 42: a client would take an error frame for the end of its turn."""
    w = world(SLOW)
    async with socket(w) as client:
        client.send_text(create_frame(event_id="first"))
        await trio.sleep(0.5)
        client.send_text("nope")
        client.send_text(create_frame(event_id="second"))
        client.send_bytes(b"binary")
        client.send_text({"type": "response.steer", "input": "x"})
        await client.wait_for(lambda client: len(client.told) == 11)

    assert client.told == [
        *SLOW_ANSWER,
        "error invalid_json",
        *SLOW_ANSWER,
        "error invalid_request",
        "steer.failed",
    ]
    assert [event.at for event in client.events if event.label.startswith(("error", "steer"))] == [3.0, 6.0, 6.0]


@in_every_order
async def test_creates_that_wait_are_served_in_their_order() -> None:
    """W3; case 42: one active response for each connection."""
    replies = [A.reply(A.created, 1.0, A.delta(str(number)), A.completed()) for number in range(5)]
    w = world(replies)
    async with socket(w) as client:
        for number in range(5):
            client.send_text(create_frame(input=f"input {number}"))
        await client.wait_for(lambda client: client.told.count("completed") == 5)

    assert client.told == ["created", "output_text.delta", "completed"] * 5
    assert [call.at for call in w.calls] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [call.fields["input"] for call in w.calls] == [f"input {number}" for number in range(5)]
    assert [e.payload["delta"] for e in client.events if "delta" in e.payload] == ["0", "1", "2", "3", "4"]


@in_every_order
async def test_a_create_at_the_instant_of_the_last_one_s_end_is_not_lost() -> None:
    """W3; case 42."""
    w = world(SLOW)
    async with socket(w) as client:
        client.send_text(create_frame())
        await trio.sleep_until(3.0)
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told.count("completed") == 2)

    assert client.told == SLOW_ANSWER * 2


@pytest.mark.parametrize("waiting", [16, 17])
@in_every_order
async def test_sixteen_creates_may_wait_and_the_next_is_refused_when_it_is_its_turn(waiting: int) -> None:
    """W3: in its place in the order, with its `event_id`; nothing reserved for it."""
    w = world([SLOW, *[A.answer()] * 20])
    async with socket(w) as client:
        client.send_text(create_frame())
        await trio.sleep(0.5)
        for number in range(waiting):
            client.send_text(create_frame(event_id=f"e{number}"))
        await trio.sleep(5)

    assert client.told == [*SLOW_ANSWER, *ANSWERED * 16, *["error response_queue_full"] * (waiting - 16)]
    assert len(w.turns) == 17
    if waiting == 17:
        assert (last(client)["event_id"], last(client)["status"]) == ("e16", 503)


@in_every_order
async def test_what_waits_is_bounded_in_bytes() -> None:
    """W3: `waiting_bytes_max`."""
    frame = json.dumps(create_frame())
    w = world([SLOW, *[A.answer()] * 5], limits=f"waiting_bytes_max = {2 * len(frame)}")
    async with socket(w) as client:
        client.send_text(frame)
        await trio.sleep(0.5)
        for _ in range(3):
            client.send_text(frame)
        await trio.sleep(5)

    assert client.told == [*SLOW_ANSWER, *ANSWERED * 2, "error response_queue_full"]


@pytest.mark.parametrize(("refused", "close_code"), [(64, None), (65, 1008)])
@in_every_order
async def test_more_than_64_refused_frames_without_an_answer_close_the_connection(
    refused: int, close_code: int | None
) -> None:
    """W5: and with it the running turn, whose upstream is closed."""
    w = world(SLOW)
    async with socket(w) as client:
        client.send_text(create_frame())
        await trio.sleep(0.5)
        for _ in range(refused):
            client.send_text("nope")
        await trio.sleep(5)

    assert client.close_code == close_code
    assert client.told == (["created"][:0] if close_code else [*SLOW_ANSWER, *["error invalid_json"] * 64])
    assert w.closed_at == [0.5 if close_code else 3.0]


@in_every_order
async def test_refused_frames_that_are_answered_are_not_counted_for_ever() -> None:
    """W5: a client may err as often as it likes, a few at a time."""
    w = world(A.answer())
    async with socket(w) as client:
        for bunch in range(1, 4):
            for _ in range(60):
                client.send_text("nope")
            await trio.sleep(1)
            assert len(client.told) == 60 * bunch

    assert client.close_code is None


@in_every_order
async def test_a_client_that_floods_and_drops_ends_its_turn() -> None:
    """Case 42: no frame of it keeps the handler or the upstream."""
    w = world(A.reply(A.created, A.delta(), Silence()))
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep(1)
        for _ in range(50):
            client.send_text(create_frame())
        client.leave()

    assert client.ended_at == pytest.approx(1.0)
    assert w.closed_at == [1.0]
    w.assert_at_rest()


class CountedBytes:
    """A server's count of what a client's messages hold."""

    def __init__(self) -> None:
        self.given_back = 0

    def take(self, size_bytes: int) -> bool:
        return True

    def give_back(self, size_bytes: int) -> None:
        self.given_back += size_bytes


@in_every_order
async def test_each_message_is_given_back_when_the_door_is_done_with_it() -> None:
    """Whatever became of it: a turn, a refusal, an answer."""
    counted, w = CountedBytes(), world(A.answer(), limits="waiting_creates_max = 0")
    frames = [
        json.dumps(create_frame(input="北京")),
        json.dumps(create_frame(input="there is no room for it")),
        "no JSON",
        json.dumps({"type": "response.steer", "input": "left"}),
    ]
    async with connect(w.app, "websocket", state={INBOUND: counted}) as client:
        for frame in frames:
            client.send_text(frame)
        await client.wait_for(lambda client: len(client.told) >= len(ANSWERED) + 3)
        assert counted.given_back == sum(len(frame.encode()) for frame in frames)
        client.leave()
