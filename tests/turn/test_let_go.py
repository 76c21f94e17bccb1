"""What is left of a turn once it has ended: nothing that waits for the collector of circles (W10)."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gateway.core.request import RequestBody
from gateway.turn.running import RunningTurn
from gateway.upstream.scripted import Break, Reply
from support.conversations import answer, message
from support.gateways import DOORS, play, world
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


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REPLIES)
@in_orders(1)
async def test_a_turn_that_has_ended_is_gone_with_its_request(door: str, name: str) -> None:
    """Its request may be megabytes, which its connection does not count any more."""
    before = alive()
    w = world(*([reply] for reply in REPLIES[name]))
    await play(w, door)
    assert [one for one in alive() if not any(one is known for known in before)] == []
