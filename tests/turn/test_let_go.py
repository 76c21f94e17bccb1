"""What is left of a turn once it has ended: nothing that waits for the collector of circles (W10)."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio

from gateway.core.request import RequestBody
from gateway.turn.running import RunningTurn
from gateway.upstream.scripted import Break, Reply
from support.conversations import answer, message
from support.gateways import DOORS, play, turn, world
from support.virtual import in_orders
from support.voices import A, B

REPLIES = {
    "completes": [answer("resp_1", message("one"))],
    "replayed": [Reply((Break(),)), B.answer()],
    "fails": [A.reply(A.created, A.delta("x"), Break())],
    "never begins": [Reply((), status=400)],
}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Only what nobody refers to goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> list[RunningTurn | RequestBody]:
    """What there is of turns and requests in this process; other tests may have left some."""
    return [one for one in gc.get_objects() if isinstance(one, RunningTurn | RequestBody)]


def assert_none_but(known: list[RunningTurn | RequestBody]) -> None:
    """What came since then is gone."""
    assert [one for one in alive() if not any(one is each for each in known)] == []


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REPLIES)
@in_orders(1)
async def test_a_turn_that_has_ended_is_gone_with_its_request(door: str, name: str) -> None:
    """Its request may be megabytes, which its connection does not count any more."""
    before = alive()
    w = world(*([reply] for reply in REPLIES[name]))
    await play(w, door)
    assert_none_but(before)


@pytest.mark.parametrize("name", REPLIES)
@in_orders(1)
async def test_its_socket_does_not_keep_it(name: str) -> None:
    """W1: which may stay open for an hour. What it may go on from is kept as bytes (W10)."""
    before = alive()
    w = world(*([reply] for reply in REPLIES[name]))
    async with turn(w, "websocket") as client:
        await client.wait_for(lambda client: client.has_last_word)
        await trio.sleep(1.0)
        assert_none_but(before)
