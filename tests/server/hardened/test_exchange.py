"""A plain POST that is served straight: its peer and its app notice no difference, whatever becomes of it.

Each case is played on the plain plane, on the fast one, and on the fast one with an app that takes it straight.
"""

from __future__ import annotations

import gc
import random
import weakref
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypercorn.utils import UnexpectedMessageError

from gateway.beside_asgi import BODY, DIRECT, INBOUND, LEAVING
from gateway.core.messages import Taken
from gateway.lock.virtual import virtual_run
from gateway.server.hardened.exchange import Exchange
from gateway.server.hardened.http1 import HardenedHTTP1
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.inbox import WAITING_BYTES_MAX
from gateway.server.hardened.patience import Pace
from server.attacks.wire import request
from server.hardened.exchange_cases import (
    CASES,
    END,
    LENGTHLESS,
    App,
    Seen,
    Step,
    early,
    echo,
    piece,
    post,
    slow,
    whole_body,
)
from server.hardened.stage import PLANE, Stage, connected, socket_stream_pair
from server.hardened.test_framing import received_by_h11

pytestmark = pytest.mark.trio(run=virtual_run)

PLANES = {"plain": (False, False), "fast": (True, False), "straight": (True, True)}
PACE = Pace(head_seconds=5, body_pause_seconds=5, body_bytes_per_second=100)
SETTINGS: Any = {"include_date_header": False, "keep_alive_timeout": 75.0, "pace": PACE, "write_seconds": 20.0}


async def play(app: App, steps: list[Step], plane: str, **settings: Any) -> Seen:
    """What was noticed."""
    seen = Seen()

    async def played(scope: Any, receive: Any, send: Any) -> None:
        await app(seen, scope, receive, send)

    async def listen(stage: Stage) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stage.client.receive_some():
                seen.heard[seen.now()] = seen.heard.get(seen.now(), b"") + data
            seen.ended_at = seen.now()

    PLANE.is_fast, PLANE.is_straight = PLANES[plane]
    try:
        told: Any = {"on_cut": seen.cuts.append, "on_refused": seen.refused.append}
        async with connected(played, pair=socket_stream_pair, **{**SETTINGS, **told, **settings}) as stage:
            stage.nursery.start_soon(listen, stage)
            for step in steps:
                await take(step, stage)
            await trio.sleep(100)
    finally:
        PLANE.is_fast = PLANE.is_straight = False
    return seen


async def take(step: Step, stage: Stage) -> None:
    if isinstance(step, float):
        await trio.sleep(step)
    elif isinstance(step, bytes):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stage.client.send_all(step)
    elif step == "half":
        await stage.client.send_eof()
    else:
        await stage.client.aclose()


@pytest.fixture(autouse=True)
def _same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.server.hardened.refusals.secrets.token_hex", lambda size: "0" * 2 * size)


@pytest.mark.parametrize("case", CASES)
async def test_no_difference_is_noticed(case: str) -> None:
    app, steps = CASES[case]
    plain, fast, straight = [await play(app, steps, plane) for plane in PLANES]
    assert straight == fast
    assert plain == fast


@pytest.mark.parametrize("seed", range(30))
async def test_no_difference_is_noticed_in_whatever_parts_it_comes(seed: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(post(bytes(chance.choice([0, 1, 10, 1000])), *["x: y"] * chance.randint(0, 1)) for _ in range(5))
    cuts = sorted(chance.sample(range(len(whole)), 6))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    steps: list[Step] = [step for part in parts for step in (part, chance.choice([0.0, 0.5]))]
    plain, fast, straight = [await play(echo, steps, plane) for plane in PLANES]
    assert plain == fast == straight


async def test_of_a_bodys_bytes_no_more_are_held_than_may_be() -> None:
    """X2."""
    for plane in PLANES:
        inbound = InboundBytes(1000)
        steps: list[Step] = [post(bytes(1000)), 1.0] * 2
        steps += [post(bytes(600), size=1500), 1.0, bytes(401)]
        seen = await play(echo, steps, plane, inbound=inbound)
        answers = b"".join(seen.heard.values())
        assert (answers.count(b"HTTP/1.1 200 "), answers.count(b"HTTP/1.1 503 ")) == (2, 1)
        assert (inbound.taken, seen.cuts, seen.refused) == (0, ["inbound_bytes_max"], ["too_many_turns"])


async def test_an_answer_that_ends_while_the_bodys_end_waits_for_room_leaves_the_connection_as_it_is() -> None:
    """Ten pieces fill what waits for the app; it answers before it has read any."""
    unread = request("POST / HTTP/1.1", "transfer-encoding: chunked", body=b"1\r\n{\r\n" * 10 + b"0\r\n\r\n")
    for plane in PLANES:
        seen = await play(early, [unread + post()], plane)
        answers = b"".join(seen.heard.values())
        assert (answers.count(b"HTTP/1.1 413 "), seen.cuts) == (2, [])
        assert seen.ended_at == SETTINGS["keep_alive_timeout"]


async def test_a_peer_is_not_slow_while_nobody_reads_what_it_has_sent() -> None:
    """The app begins to read after half a minute, which is longer than a body may pause."""
    for plane in PLANES:
        seen = await play(slow, [post(bytes(2 * WAITING_BYTES_MAX))], plane)
        assert (b"".join(seen.heard.values())[:12], seen.cuts) == (b"HTTP/1.1 200", [])


async def test_what_is_taken_for_a_peer_that_has_left_is_not_kept() -> None:
    """X2: a body may still be decoded when its connection is over, and nobody is left to give its bytes back."""
    for plane in PLANES:
        inbound = InboundBytes(1000)

        async def decode(_seen: Seen, scope: Any, receive: Any, _send: Any) -> None:
            share = scope["state"][INBOUND]
            await whole_body(receive)
            await trio.sleep(5)
            assert share.take(900)

        await play(decode, [post(), 1.0, "whole", 10.0], plane, inbound=inbound)
        assert inbound.taken == 0


async def test_the_last_request_that_a_connection_may_have_is_told_so() -> None:
    steps: list[Step] = [post(), 1.0, post(), 1.0, post()]
    plain, fast, straight = [await play(echo, steps, plane, keep_alive_max_requests=2) for plane in PLANES]
    assert plain == fast == straight
    assert straight.heard[1.0].count(b"connection: close") == 1


async def test_the_date_stands_where_it_stood() -> None:
    heard = [(await play(echo, [post()], plane, include_date_header=True)).heard[0.0] for plane in PLANES]
    heads = [data.partition(b"\r\n\r\n")[0].split(b"\r\n") for data in heard]
    named = [[line.partition(b":")[0] for line in head] for head in heads]
    assert named[0] == named[1] == named[2]
    assert b"date" in named[0]


async def test_who_takes_nothing_is_dropped_at_the_write_deadline() -> None:
    """T6."""
    for plane in ("fast", "straight"):
        PLANE.is_fast, PLANE.is_straight = PLANES[plane]
        begun, cuts = trio.current_time(), list[str]()

        async def app(_scope: Any, receive: Any, send: Any) -> None:
            await whole_body(receive)
            await send(LENGTHLESS)
            await send(piece(bytes(500_000)))
            await send(piece(b"more", more=False))

        try:
            async with connected(app, on_cut=cuts.append, **{**SETTINGS, "keep_alive_timeout": 1e5}) as stage:
                await stage.client.send_all(post())
                await stage.ended.wait()
        finally:
            PLANE.is_fast = PLANE.is_straight = False
        assert (trio.current_time() - begun, cuts) == (SETTINGS["write_seconds"], ["stalled"])


# --- what the lane is -----------------------------------------------------------------------------------------------


@pytest.fixture
def straight() -> Any:
    PLANE.is_fast, PLANE.is_straight = PLANES["straight"]
    yield
    PLANE.is_fast = PLANE.is_straight = False


@pytest.mark.usefixtures("straight")
async def test_a_departure_is_told_by_a_call_and_a_whole_body_lies_at_hand() -> None:
    told: list[float] = []
    ways: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        state = scope["state"]
        ways.append((type(state[DIRECT]), state.pop(BODY)))
        state[LEAVING](lambda: told.append(trio.current_time()))
        await trio.sleep(5)
        await send(LENGTHLESS)
        await state[DIRECT].write((b"one",))
        await send(END)

    async with connected(app) as stage:
        await stage.client.send_all(post())
        await trio.sleep(7)
        assert (await stage.hear()).endswith(b"\r\n\r\n3\r\none\r\n0\r\n\r\n")
        await stage.client.send_all(post(b"left"))
        await trio.sleep(1)
        await stage.client.aclose()
        await stage.ended.wait()
    assert ways == [(Exchange, b"hello"), (Exchange, b"left")]
    assert told == [pytest.approx(8.01)], "of the second, and not of the first, whose answer had ended"


@pytest.mark.usefixtures("straight")
async def test_the_short_way_is_open_from_the_head_to_the_end() -> None:
    """beside_asgi.Direct."""
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        way = scope["state"][DIRECT]
        seen.append(way.write_at_once((b"early",)))
        with suppress(UnexpectedMessageError):
            await way.write((b"early",))
            seen.append("written")
        await send(LENGTHLESS)
        seen.append(way.write_at_once((b"behind the head, which is held back",)))
        await way.write((b"o", b"ne"))
        seen.append(way.write_at_once((b"t", b"wo")))
        await send(piece(b"three", more=False))
        seen.append(way.write_at_once((b"late",)))
        await way.write((b"late",))

    async with connected(app) as stage:
        heard = await stage.say(post())
    assert received_by_h11(heard, []) == (b"onetwothree", True)
    assert seen == [Taken.NOTHING, Taken.NOTHING, Taken.ALL, Taken.NOTHING]


@pytest.mark.usefixtures("straight")
async def test_who_has_left_is_told_at_once_and_sent_nothing() -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        state = dict(scope["state"])
        await trio.sleep(1)
        state[LEAVING](lambda: seen.append(trio.current_time()))
        for _ in range(3):
            await send(LENGTHLESS)
            await state[DIRECT].write((b"nobody",))
        seen.append(state[DIRECT].write_at_once((b"nobody",)))

    async with connected(app) as stage:
        await stage.client.send_all(post())
        await stage.client.aclose()
        await stage.ended.wait()
    assert seen == [1.0, Taken.NOTHING]


@pytest.mark.usefixtures("straight")
@pytest.mark.parametrize("has_nursery", [False, True])
async def test_what_is_cut_before_its_answer_is_answered_all_the_same(has_nursery: bool) -> None:
    """T7: at the drain's end, as Hypercorn does."""

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        if not has_nursery:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    async with connected(app) as stage:
        await stage.client.send_all(post())
        await trio.sleep(1)
        stage.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            heard = await stage.client.receive_some()
    assert heard.startswith(b"HTTP/1.1 500 \r\ncontent-length: 0\r\nconnection: close\r\n")


@pytest.mark.usefixtures("straight")
async def test_nothing_of_a_request_stays_behind_in_a_ring() -> None:
    held: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        held.append(weakref.ref(scope["state"][DIRECT]))
        await send(LENGTHLESS)
        await send(END)

    gc.collect()
    gc.disable()
    try:
        async with connected(app) as stage:
            for _ in range(3):
                await stage.say(post())
            assert [exchange() for exchange in held] == [None] * 3
    finally:
        gc.enable()


class Kept:
    """Something of a request."""


@pytest.mark.usefixtures("straight")
async def test_nothing_of_a_request_stays_behind_when_its_connection_is_over() -> None:
    """Its head has a credential."""
    kept: list[weakref.ref[Kept]] = []

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        scope["kept"] = value = Kept()
        kept.append(weakref.ref(value))
        while (await receive())["type"] != "http.disconnect":
            pass

    gc.collect()
    gc.disable()
    try:
        async with connected(app) as stage:
            await stage.client.send_all(post())
            await stage.client.aclose()
            await stage.ended.wait()
            assert [reference() for reference in kept] == [None]
    finally:
        gc.enable()


@pytest.mark.usefixtures("straight")
@pytest.mark.parametrize(
    ("settings", "is_straight"),
    [({}, True), ({"root_path": "/x"}, False), ({"server_names": ["a.test"]}, False), ({"accesslog": "-"}, False)],
)
async def test_where_hypercorns_layers_have_more_to_do_they_do_it(
    settings: Any, is_straight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []
    begin = HardenedHTTP1._begin_straight

    async def noting(self: HardenedHTTP1, plain: Any, data: bytes) -> None:
        begun.append(plain.path)
        await begin(self, plain, data)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await whole_body(receive)
        await send(LENGTHLESS)
        await send(END)

    monkeypatch.setattr(HardenedHTTP1, "_begin_straight", noting)
    async with connected(app, **settings) as stage:
        assert await stage.say(post())
    assert (begun == [b"/"]) is is_straight
