"""How many may be here at once: at the bound everybody is served, one more is turned away, and a place that is given
back can be taken again. Through the whole app, on both doors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest
import trio

from gateway.config import ConfigError, Limits
from gateway.config.tables import SHARED
from gateway.config.workers import WORKER, WORKERS
from gateway.core.failures import Refusal
from gateway.lock.driver import Client, connect, post
from gateway.turn.places import BoundedPlaces, Room
from gateway.upstream.scripted import Break
from support.gateways import World, create, create_frame, hang_up, play, turn_beside, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A

LONG = A.reply(A.prelude, A.delta(), 20.0, A.completed())
OTHER_KEY = """
[keys.other]
account = "main"
secret = { inline = "other-key" }
"""
OTHER = (("authorization", "Bearer other-key"), ("content-type", "application/json"))
BOUND = 2


@asynccontextmanager
async def running(w: World, door: str, count: int) -> AsyncIterator[list[Client]]:
    """So many turns, a second old."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(turn_beside(w, door)) for _ in range(count)]
        await trio.sleep(1.0)
        yield clients


async def one_more(w: World, door: str) -> Client:
    """A further turn: what is answered."""
    if door == "http":
        return await post(w.app, create())
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await hang_up(client)
    return client


@pytest.mark.parametrize("bound", ["turns_max", "turns_per_key_max"])
@in_every_order
async def test_at_the_bound_every_turn_runs_and_one_more_reserves_nothing(door: str, bound: str) -> None:
    """X: 503 `too_many_turns`, also for a key's own bound."""
    w = world(LONG, limits=f"{bound} = {BOUND}")
    async with running(w, door, BOUND) as clients:
        refused = await one_more(w, door)
        assert refused.failure == (503, "too_many_turns")
        assert (len(w.reserved), len(w.calls)) == (BOUND, BOUND)
    assert [client.told for client in clients] == [ANSWERED] * BOUND
    w.assert_at_rest()


@in_every_order
async def test_a_turn_that_is_turned_away_may_come_again() -> None:
    """X2: nothing was sent."""
    w = world(LONG, limits="turns_max = 1")
    async with running(w, "http", 1):
        refused = await one_more(w, "http")
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("1", "true")
    error = json.loads(refused.body)["error"]
    assert (error["type"], error["retryable"], error["retry_after"]) == ("service_unavailable_error", True, 1)


@in_every_order
async def test_a_websocket_stays_open_when_its_turn_is_turned_away(door: str) -> None:
    """X4; the doors share the bound."""
    w = world(LONG, limits="turns_max = 1")
    async with connect(w.app, "websocket") as waiting:
        async with running(w, door, 1):
            waiting.send_text(create_frame())
            await waiting.wait_for(lambda client: len(client.told) == 1)
        waiting.send_text(create_frame())
        await waiting.wait_for(lambda client: len(client.told) == 1 + len(ANSWERED))
        waiting.leave()
    assert waiting.told == ["error too_many_turns", *ANSWERED]


@pytest.mark.parametrize("reply", [LONG, A.reply(A.prelude, Break()), A.status(500), A.reply(refuses=True)])
@in_every_order
async def test_whatever_ends_a_turn_its_place_is_free_again(door: str, reply: object) -> None:
    w = world([reply, A.answer()], limits="turns_max = 1\nconnections_max = 1")  # type: ignore[list-item]  # replies
    await play(w, door)
    assert w.gateway.places.open_turns == 0
    assert (await play(w, door)).told == ANSWERED


@pytest.mark.parametrize("after", [0.0, 1.0, 30.0])
@in_every_order
async def test_a_client_that_leaves_gives_its_places_back(door: str, after: float) -> None:
    w = world(LONG, limits="turns_max = 1\nconnections_max = 1")
    async with turn_beside(w, door) as client:
        await trio.sleep(after)
        client.leave()
    assert (w.gateway.places.open_turns, w.gateway.places.open_connections) == (0, 0)
    w.assert_at_rest()


@in_every_order
async def test_a_request_whose_body_still_arrives_has_its_place() -> None:
    """So bodies are bounded by the turns, and one that never comes is given up with its client."""
    w = world(A.answer(), limits="turns_max = 1")
    async with connect(w.app, "http", body=None) as slow:
        await trio.sleep(1.0)
        refused = await one_more(w, "http")
        slow.leave()
    assert refused.failure == (503, "too_many_turns")
    assert w.gateway.places.open_turns == 0


@in_every_order
async def test_requests_beyond_the_connections_are_refused() -> None:
    w = world(LONG, limits=f"connections_max = {BOUND}")
    async with running(w, "http", BOUND) as clients:
        refused = await one_more(w, "http")
    assert refused.failure == (503, "too_many_turns")
    assert [client.told for client in clients] == [ANSWERED] * BOUND


@pytest.mark.parametrize("bound", ["connections_max", "connections_per_key_max"])
@in_every_order
async def test_an_upgrade_beyond_the_connections_is_refused_with_503_never_429(bound: str) -> None:
    """X, W1: agents take 429 for the end."""
    w = world(A.answer(), limits=f"{bound} = {BOUND}")
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect(w.app, "websocket")) for _ in range(BOUND)]
        await trio.sleep(1.0)
        async with connect(w.app, "websocket") as refused:
            pass
        for socket in sockets:
            socket.leave()
    assert (refused.status, refused.events[0].code, refused.headers["retry-after"]) == (503, "too_many_turns", "1")
    assert w.gateway.places.open_connections == 0
    async with connect(w.app, "websocket") as again:
        await trio.sleep(1.0)
        again.leave()
    assert again.status == 0


@in_every_order
async def test_a_keys_bound_is_no_other_keys() -> None:
    w = world(LONG, limits="turns_per_key_max = 1\nconnections_per_key_max = 1", key=OTHER_KEY)
    async with running(w, "websocket", 1), connect(w.app, "websocket", headers=OTHER) as other:
        other.send_text(create_frame())
        await hang_up(other)
    assert other.told == ANSWERED


@in_every_order
async def test_a_bad_key_is_told_so_even_where_all_places_are_taken() -> None:
    w = world(LONG, limits="connections_max = 1")
    async with running(w, "websocket", 1), connect(w.app, "websocket", headers=()) as refused:
        pass
    assert refused.status == 401


# --- the rooms themselves ---------------------------------------------------------------------------------------


def test_a_room_forgets_the_keys_that_have_left() -> None:
    room = Room("turns", 3, 2)
    with room.place("a"), room.place("a"), room.place(None):
        with pytest.raises(Refusal, match="no more than 3 turns at once"):
            room.place("b").__enter__()
        assert (room.taken, room.taken_by_keys) == (3, 2)
    assert (room.taken, room.taken_by_keys, repr(room)) == (0, 0, "<Room, 0 of 3 turns>")


def test_a_refusal_holds_nothing() -> None:
    places = BoundedPlaces(turns_max=5, turns_per_key_max=1)
    with ExitStack() as held:
        held.enter_context(places.turn("a"))
        with pytest.raises(Refusal, match="a key may have no more than 1 turns at once"):
            held.enter_context(places.turn("a"))
        assert places.open_turns == 1
        held.enter_context(places.turn("b"))
    assert places.open_turns == 0


@in_every_order
async def test_a_body_that_takes_too_long_is_cut_and_gives_its_place_back() -> None:
    """H3: 408, in the shape of all errors, and nothing reserved."""
    w = world(A.answer(), limits="turns_max = 1", server="body_timeout = 5")
    async with connect(w.app, "http", body=None) as client:
        await client.wait_for(lambda client: client.has_last_word)
        assert trio.current_time() == 5.0
        client.leave()
    assert (client.failure, w.reserved) == ((408, "invalid_request"), [])
    assert (await play(w, "http")).told == ANSWERED


# --- several workers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "bound"), [("1", 5), ("2", 2), ("5", 1), ("6", 1), ("", 5)])
@in_every_order
async def test_a_worker_has_its_part_of_what_all_share(
    workers: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: limit / N, rounded down, at least 1."""
    monkeypatch.setenv(WORKERS, workers)
    w = world(LONG, limits="turns_max = 5")
    async with running(w, "http", bound):
        assert (await one_more(w, "http")).failure == (503, "too_many_turns")
    w.assert_at_rest()


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 100])
def test_all_parts_together_keep_within_the_limit(workers: int) -> None:
    """C6; what is each turn's or connection's own is not shared."""
    whole = Limits().model_dump()
    part = Limits().shared_by(workers).model_dump()
    assert {name for name in whole if workers > 1 and part[name] != whole[name]} == set(SHARED if workers > 1 else ())
    assert all(part[name] * workers <= whole[name] < (part[name] + 1) * workers for name in SHARED)
    assert part["sockets_max"] >= part["connections_max"]


@pytest.mark.parametrize(("name", "value"), [(WORKERS, "0"), (WORKERS, "two"), (WORKER, "-1"), (WORKER, "²")])
def test_an_environment_that_says_nonsense_is_told(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"the environment: {name}: is not such a number; write [01] or more"):
        world(LONG)


def test_a_workers_part_of_the_inbound_bytes_takes_a_body_of_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: or it would turn away for ever what the others take by chance."""
    monkeypatch.setenv("GATEWAY_WORKERS", "256")
    w = world(A.answer(), limits="body_bytes_max = 5000\ninbound_bytes_max = 25600")

    assert [w.gateway.inbound.take(size) for size in (5000, 1)] == [True, False]
