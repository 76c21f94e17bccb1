"""Routes swapped while turns run (C2): a turn ends on the table it began on, and is replayed on what still stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import pytest
import trio

from gateway.config import Config, RouteConfig
from gateway.core.money import Price
from gateway.core.routing import in_order
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply
from support.gateways import MODEL, World, create_frame, play, seen, turn, turn_beside, world
from support.voices import A, B

pytestmark = pytest.mark.trio(run=virtual_run)

Change = Callable[[Config], Config]
FAILS_LATE = Reply((2.0, Break()))
"""Before its first event, so that only the table can stand in the way of a replay."""


def with_routes(config: Config, listed: list[str], **routes: RouteConfig) -> Config:
    """The configuration with these routes over its own, of which the model has the listed ones."""
    model = replace(config.models[MODEL], listed=in_order(listed))
    return replace(config, routes={**config.routes, **routes}, models={MODEL: model})


def without_b(config: Config) -> Config:
    routes: Mapping[str, RouteConfig] = {"a": config.routes["a"]}
    return replace(with_routes(config, ["a"]), routes=routes)


def not_listing_b(config: Config) -> Config:
    return with_routes(config, ["a"])


def without_the_model(config: Config) -> Config:
    return replace(config, models={"other": replace(config.models[MODEL], name="other")})


def with_dearer_b(config: Config) -> Config:
    return with_routes(config, ["a", "b"], b=replace(config.routes["b"], price=Price(9, 9, 9, 9)))


def with_another_key_for_b(config: Config) -> Config:
    return with_routes(config, ["a", "b"], b=replace(config.routes["b"], credential="rotated"))


def with_other_a_and_order(config: Config) -> Config:
    return with_routes(config, ["b", "a"], a=replace(config.routes["a"], base_url="http://elsewhere.test/v1"))


def swapping_at(at: float, w: World, *changes: Change) -> Callable[[], Any]:
    async def swap() -> None:
        await trio.sleep_until(at)
        for change in changes:
            w.gateway.swap(change(w.gateway.config))

    return swap


# --- replays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [without_b, not_listing_b, without_the_model, with_dearer_b, with_another_key_for_b])
async def test_no_replay_goes_to_a_route_that_no_longer_stands_unchanged(door: str, change: Change) -> None:
    """C2, R14: gone, not listed for the model, without its model, or in one setting another."""
    w = world(FAILS_LATE, B.answer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(1.0, w, change))
        client = await play(w, door)

    assert w.attempts == ["a stream_read_error (no_route_left)"]
    assert (w.called, w.money) == (["a"], ["voided"])
    assert "stream_read_error" in client.body.decode() + "".join(client.told)


@pytest.mark.parametrize("changes", [[with_other_a_and_order], [without_b, lambda config: config]])
async def test_a_replay_goes_to_a_route_that_stands_as_it_did(door: str, changes: list[Change]) -> None:
    """C2: whatever became of the others; and if it was gone for a while."""
    w = world(FAILS_LATE, B.answer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(1.0, w, *changes))
        await play(w, door)

    assert w.attempts == ["a stream_read_error (replay)", "b completed"]


@pytest.mark.parametrize(("at", "attempts"), [(1.999, 1), (2.001, 2)])
async def test_the_table_counts_that_is_newest_as_the_failure_is_judged(door: str, at: float, attempts: int) -> None:
    """C2: just before, and just after."""
    w = world(FAILS_LATE, B.answer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(at, w, without_b))
        await play(w, door)

    assert len(w.attempts) == attempts


# --- turns that run ---------------------------------------------------------------------------------------------


async def test_a_running_turn_ends_as_if_nothing_had_been_swapped(door: str) -> None:
    """C2: even if its route is no more."""
    w = world(Reply((1.0, *A.answer().steps[:3], 2.0, *A.answer().steps[3:])), B.answer())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(2.0, w, without_a))
        disturbed = seen(w, await play(w, door))
    alone = world(A.answer(), B.answer())

    assert disturbed == seen(alone, await play(alone, door))


def without_a(config: Config) -> Config:
    routes: Mapping[str, RouteConfig] = {"b": config.routes["b"]}
    return replace(with_routes(config, ["b"]), routes=routes)


async def test_the_next_turn_begins_on_the_new_table(door: str) -> None:
    """C2."""
    w = world(A.answer(), B.answer())
    await play(w, door)
    w.gateway.swap(without_a(w.gateway.config))
    await play(w, door)

    assert w.called == ["a", "b"]


async def test_a_waiting_create_gets_the_table_that_stands_as_it_leaves_the_queue() -> None:
    """W4."""
    w = world([Reply((*A.answer().steps[:3], 2.0, *A.answer().steps[3:])), A.answer()], B.answer())
    async with turn_beside(w, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep(1)
        w.gateway.swap(without_a(w.gateway.config))
        await client.wait_for(lambda client: client.last_words >= 2)

    assert w.called == ["a", "b"]


async def test_a_model_that_was_taken_away_is_not_found(door: str) -> None:
    w = world(A.answer(), B.answer())
    w.gateway.swap(without_the_model(w.gateway.config))
    client = await play(w, door)

    assert "model_not_found" in client.body.decode() + "".join(client.told)
    assert w.called == []


async def test_a_turns_log_line_names_the_table_it_began_on(door: str, logged: list[MutableMapping[str, Any]]) -> None:
    """C2."""
    w = world(Reply((2.0, *A.answer().steps)), B.answer())
    before = w.gateway.config.table_hash
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(1.0, w, without_b))
        await play(w, door)
    await play(w, door)

    tables = [entry["table"] for entry in logged if entry["event"] == "turn"]
    assert tables == [before[:12], without_b(w.gateway.config).table_hash[:12]]
    assert tables[0] != tables[1]


# --- what stands behind the routes ------------------------------------------------------------------------------


async def test_routes_that_stand_keep_their_connections_and_those_that_went_lose_theirs() -> None:
    """C2: an idle socket of a route that is gone is closed at once."""
    w = world(A.answer(), B.answer(), transport="websocket")
    await play(w, "http")
    assert w.gateway.routes.idle_sockets == 1
    w.gateway.swap(with_dearer_b(w.gateway.config))
    await trio.sleep(1)
    assert w.gateway.routes.idle_sockets == 1
    w.gateway.swap(without_a(w.gateway.config))
    await trio.sleep(1)
    assert w.gateway.routes.idle_sockets == 0


async def test_a_route_is_closed_when_its_last_turn_has_ended(logged: list[MutableMapping[str, Any]]) -> None:
    """C2: and not before."""
    w = world(Reply((*A.answer().steps[:3], 4.0, *A.answer().steps[3:])), B.answer())

    def closed() -> list[str]:
        return [entry["route"] for entry in logged if entry["event"] == "route_closed"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(w.gateway.routes.close_left)
        async with turn(w, "http"):
            await trio.sleep(1)
            w.gateway.swap(without_a(w.gateway.config))
            await trio.sleep(1)
            assert closed() == []
        await trio.sleep(0.1)
        assert closed() == ["a"]
        nursery.cancel_scope.cancel()


async def test_a_route_that_comes_back_in_time_was_never_away() -> None:
    """C2: its adapter is the same, and keeps sockets again."""
    w = world(Reply((*A.answer().steps[:3], 4.0, *A.answer().steps[3:])), B.answer(), transport="websocket")
    route = w.gateway.routes.tables.current.models[MODEL].routes[0]
    async with turn(w, "http"):
        await trio.sleep(1)
        w.gateway.swap(without_a(w.gateway.config))
        w.gateway.swap(w.gateway.config)
    assert w.gateway.routes.tables.current.models[MODEL].routes[0] is route
    assert w.gateway.routes.idle_sockets == 1
    assert w.gateway.routes.tables.held == [w.gateway.routes.tables.current]


# --- what an upstream stores by default -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_stores", "store", "attempts"),
    [
        (False, ..., ["a stream_read_error (replay)", "b completed"]),
        (False, None, ["a stream_read_error (replay)", "b completed"]),
        (False, True, ["a stream_read_error (stored)"]),
        (True, ..., ["a stream_read_error (stored)"]),
    ],
)
async def test_s1_a_request_that_does_not_say_store_is_judged_by_its_routes_default(
    door: str, first_stores: bool, store: Any, attempts: list[str]
) -> None:
    """S1: an explicit value stands; the default is that of the route whose attempt failed."""
    first = {"a": f"stores_by_default = {str(first_stores).lower()}"}
    w = world(FAILS_LATE, B.answer(), route_extras=first)
    await play(w, door, store=store)

    assert w.attempts == attempts


async def test_a_route_that_comes_back_begins_as_sound_as_one_that_was_changed() -> None:
    """C2, C3: the name stands for another route then; one that only stayed keeps what was seen of it."""
    throttles = A.status(429, headers=(("retry-after", "200"),))
    w = world([throttles, A.answer()], B.answer())
    config = w.gateway.config
    gone = replace(with_routes(config, ["b"]), routes={"b": config.routes["b"]})
    await play(w, "http")
    assert w.house.is_cooling("a")
    w.gateway.swap(replace(config, models={MODEL: replace(config.models[MODEL], max_output_tokens=7)}))
    assert w.house.is_cooling("a")
    with trio.move_on_after(1):
        w.gateway.swap(gone)
        await w.gateway.routes.close_left()
    w.gateway.swap(config)
    assert not w.house.is_cooling("a")


# --- attempts that are open while their route is edited -----------------------------------------------------------


def with_concurrency(number: int | None, **others: Any) -> Change:
    return lambda config: with_routes(config, ["a"], a=replace(config.routes["a"], attempts_max=number, **others))


def stands_elsewhere(config: Config) -> Config:
    return with_routes(config, ["a"], a=replace(config.routes["a"], base_url="http://elsewhere.test/v1"))


SLOW = Reply((*A.answer().steps[:3], 10.0, *A.answer().steps[3:]))


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        pytest.param(with_concurrency(1), [False, True, True], id="nothing"),
        pytest.param(with_concurrency(2), [False, False, True], id="a-higher-limit"),
        pytest.param(with_concurrency(1, price=Price(9, 9, 9, 9)), [False, True, True], id="the-price"),
        pytest.param(with_concurrency(1, idle_seconds=7.0), [False, True, True], id="a-timeout"),
        pytest.param(with_concurrency(1, credential="another"), [False, False, True], id="another-account"),
    ],
)
async def test_attempts_that_are_open_at_an_account_count_on_when_its_route_is_edited(
    door: str, change: Change, refused: list[bool]
) -> None:
    """C6, C2: one runs from 0 to 10 s; the route is edited at 1 s; turns at 2 and 3 s find room, or do not. At another
    account the one that runs takes no place."""
    w = world(SLOW, B.answer(), route_extras={"a": "concurrency = 1"}, listed='["a"]')
    clients: list[Any] = []

    async def one(at: float) -> None:
        await trio.sleep_until(at)
        async with turn_beside(w, door, begins_at=at) as client:
            clients.append((at, client))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(swapping_at(1.0, w, change))
        for at in (0.0, 2.0, 3.0):
            nursery.start_soon(one, at)
    found = ["error no_route_available" in client.told for _, client in sorted(clients, key=lambda pair: pair[0])]
    assert found == refused
    assert w.house.open_attempts("a") == 0
    w.assert_at_rest()


async def test_attempts_at_an_account_that_is_come_back_to_still_count() -> None:
    """C6, C2: pointed elsewhere and back while one runs; at the end nothing is remembered of either."""
    w = world(SLOW, B.answer(), route_extras={"a": "concurrency = 1"}, listed='["a"]')
    async with turn(w, "http"):
        await trio.sleep(1)
        w.gateway.swap(stands_elsewhere(w.gateway.config))
        assert w.house.open_attempts("a") == 0
        elsewhere = w.house.take("a")
        w.gateway.swap(with_concurrency(2)(w.gateway.config))
        assert w.house.open_attempts("a") == 1
    assert w.house.open_attempts("a") == 0
    elsewhere.leave()
    w.gateway.swap(w.gateway.config)
    assert w.house.open_attempts("a") == 0


@pytest.mark.parametrize("is_edited", [False, True])
async def test_attempts_at_a_route_that_was_removed_still_count_when_it_is_back(is_edited: bool) -> None:
    """C6, C2: its places outlive a removal as they outlive an edit."""
    w = world(SLOW, B.answer(), route_extras={"a": "concurrency = 1"}, listed='["a"]')
    first = w.gateway.config
    gone = replace(with_routes(first, ["b"]), routes={"b": first.routes["b"]})
    async with turn(w, "http"):
        await trio.sleep(1)
        if is_edited:
            w.gateway.swap(with_concurrency(1, idle_seconds=111.0)(first))
        w.gateway.swap(gone)
        await trio.sleep(1)
        w.gateway.live()
        w.gateway.swap(first)
        assert w.house.open_attempts("a") == 1
    assert w.house.open_attempts("a") == 0
