"""Each create on a WebSocket is a new request, until the connection has to end (W4, W3, T7, X)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from quart_trio import QuartTrio

from gateway.core.accounts import SpendLimit
from gateway.core.failures import Refusal
from gateway.core.keys import Key
from gateway.core.money import Result
from gateway.downstream.auth import Keys
from gateway.downstream.connections import WebSocketConnection
from gateway.downstream.websocket import WebSocketDoor, WebSocketSettings
from gateway.ledger.memory import MemoryLedger
from gateway.lock.driver import Client, connect
from gateway.ports import LedgerUnavailable
from gateway.upstream.scripted import Reply
from support.gateways import World, create_frame, world
from support.stores import SlowLedger, underway
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

SLOW = A.reply(A.created, 1.0, A.delta(), 1.0, A.completed())
SLOW_ANSWER = ["created", "output_text.delta", "completed"]


class RevocableKeys(Keys):
    """One key, which may be taken back or given another account."""

    def __init__(self) -> None:
        super().__init__([])
        self.key: Key | None = Key("laptop", "main")

    async def admit(self, authorization: str | None) -> Key:
        """The key, while it is there."""
        if self.key is None:
            raise Refusal("invalid_api_key", "the key was revoked")
        return self.key


class FlakyLedger(MemoryLedger):
    """A ledger that may be away."""

    is_away = False

    @underway
    async def reserve(self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()) -> Result:
        """No new turn while it is."""
        if self.is_away:
            raise LedgerUnavailable
        return await super().reserve(turn_id, account, nanodollars, limits)


def door_with(w: World, keys: Keys) -> QuartTrio:
    """The WebSocket door on the world's engine, with keys of its own."""
    app = QuartTrio("door")
    app.asgi_websocket_class = WebSocketConnection
    WebSocketDoor(w.gateway.engine, keys, WebSocketSettings(), w.house, lambda: "req_1").open(app)
    return app


async def until(client: Client, told: Sequence[str]) -> None:
    """Wait for these labels, and no others."""
    await client.wait_for(lambda client: len(client.told) >= len(told))
    assert client.told == list(told)


# --- a new request each (W4) ----------------------------------------------------------------------------------------


@in_every_order
async def test_a_key_that_was_revoked_opens_no_turn_on_an_open_connection() -> None:
    """W4: it is read when the create leaves the line; the running turn is not touched."""
    w, keys = world(SLOW), RevocableKeys()
    async with connect(door_with(w, keys), "websocket") as client:
        client.send_text(create_frame())
        client.send_text(create_frame(event_id="e", stream_id="s"))
        await trio.sleep(0.5)
        keys.key = None
        await until(client, [*SLOW_ANSWER, "error invalid_api_key"])
        client.leave()

    frame = client.events[-1].payload
    assert (frame["status"], frame["event_id"], frame["stream_id"]) == (401, "e", "s")
    assert len(w.turns) == 1
    w.assert_at_rest()


@in_every_order
async def test_a_key_s_rules_are_those_of_the_moment() -> None:
    """W4, R10a: `replay = "never"` set between two turns of one connection."""
    w, keys = world([A.status(500), A.status(500)], B.answer()), RevocableKeys()
    async with connect(door_with(w, keys), "websocket") as client:
        client.send_text(create_frame())
        await until(client, ANSWERED)
        keys.key = Key("laptop", "main", replay_never=True)
        client.send_text(create_frame())
        await until(client, [*ANSWERED, "error some_code"])
        client.leave()

    assert w.attempts == ["a some_code (replay)", "b completed", "a some_code (disabled)"]


@in_every_order
async def test_a_balance_that_the_last_turn_used_up_is_too_low_for_the_next() -> None:
    """W4, B6: with the connection usable afterwards."""
    w = world([A.reply(A.prelude, A.delta(), A.completed(5, 1_000)), A.answer()], balance="0.003")
    async with connect(w.app, "websocket") as client:
        for _ in range(3):
            client.send_text(create_frame())
        client.send_text("nope")
        await until(client, [*ANSWERED, *["error insufficient_balance"] * 2, "error invalid_json"])
        client.leave()

    assert (client.events[-2].payload["status"], w.called) == (402, ["a"])
    w.assert_at_rest()


@in_every_order
async def test_no_turn_starts_while_the_ledger_is_away_and_the_next_one_does() -> None:
    """X: 503, and the connection stays."""
    w = world(A.answer(), ledger=FlakyLedger)
    assert isinstance(w.ledger, FlakyLedger)
    async with connect(w.app, "websocket") as client:
        w.ledger.is_away = True
        client.send_text(create_frame())
        await until(client, ["error ledger_unavailable"])
        w.ledger.is_away = False
        client.send_text(create_frame())
        await until(client, ["error ledger_unavailable", *ANSWERED])
        client.leave()

    assert client.events[0].payload["status"] == 503
    assert client.events[0].payload["error"]["retry_after"] == 1


@in_every_order
async def test_a_route_table_without_a_route_that_serves_is_read_at_each_create() -> None:
    """W4, R14."""
    w = world(A.answer(), B.answer())
    async with connect(w.app, "websocket") as client:
        w.house.cooling = {"a", "b"}
        client.send_text(create_frame())
        await until(client, ["error no_route_available"])
        w.house.cooling = {"a"}
        client.send_text(create_frame())
        await until(client, ["error no_route_available", *ANSWERED])
        client.leave()

    assert w.called == ["b"]


@pytest.mark.parametrize(
    ("first", "label"),
    [
        (A.reply(A.error("invalid_prompt")), "error invalid_prompt"),
        (A.reply(A.failed("server_error")), "failed server_error"),
        (A.reply(A.ending("incomplete")), "incomplete"),
        (A.status(400), "error some_code"),
        (Reply(refuses=True), "error upstream_connect_error"),
        (Reply((b"<html>",), headers=(("content-type", "text/html"),)), "error upstream_bad_response"),
    ],
)
@in_every_order
async def test_however_a_turn_ends_the_next_one_may_follow(first: Reply, label: str) -> None:
    """X4: one frame, and the socket stays open."""
    w = world([first, A.answer()])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.has_last_word)
        client.send_text(create_frame())
        await until(client, [label, *ANSWERED])
        client.leave()

    assert client.close_code is None
    w.assert_at_rest()


# --- drain (T7, W3) -------------------------------------------------------------------------------------------------


async def drained_at(w: World, seconds: float, *frames: Any) -> Client:
    """A connection that sends these frames at once, in a gateway that begins to drain so many seconds later."""
    async with connect(w.app, "websocket") as client:
        for frame in frames:
            client.send_text(frame)
        await trio.sleep(seconds)
        w.gateway.drain()
        await client.wait_for(lambda client: client.close_code is not None)
        client.leave()
    assert client.crash is None
    w.assert_at_rest()
    return client


@in_every_order
async def test_an_idle_connection_is_closed_at_once_when_the_gateway_drains() -> None:
    """T7, W6: with 1012, on which agents reconnect."""
    client = await drained_at(world(A.answer()), 7.0)

    assert (client.told, client.close_code, client.closed_at) == ([], 1012, 7.0)


@in_every_order
async def test_a_busy_connection_is_closed_behind_its_turn() -> None:
    """T7."""
    client = await drained_at(world(SLOW), 0.5, create_frame())

    assert (client.told, client.close_code, client.closed_at) == (SLOW_ANSWER, 1012, 2.0)


@in_every_order
async def test_a_busy_connection_is_closed_behind_its_turn_and_not_behind_its_books() -> None:
    """T7, T10: the reservation takes three seconds, the settlement three more, and no client asks into them."""
    client = await drained_at(world(SLOW, ledger=SlowLedger), 0.5, create_frame())

    assert (client.told, client.close_code, client.closed_at) == (SLOW_ANSWER, 1012, 5.0)


@in_every_order
async def test_creates_that_wait_when_the_gateway_drains_are_refused_in_their_order() -> None:
    """W3, T7: each with its `event_id`; other frames get their own answers."""
    w = world(SLOW)
    client = await drained_at(w, 0.5, create_frame(), create_frame(event_id="e1"), "nope", create_frame(event_id="e2"))

    assert client.told == [*SLOW_ANSWER, "error server_draining", "error invalid_json", "error server_draining"]
    assert [e.payload.get("event_id") for e in client.events[-3:]] == ["e1", None, "e2"]
    assert client.events[-1].payload["status"] == 503
    assert (client.close_code, client.closed_at, w.called) == (1012, 2.0, ["a"])
