"""Large bodies are read beside the event loop, and none has more values than a gateway can bear (H3, W5)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from gateway import limits
from gateway.aside import Aside, in_a_thread
from gateway.core.failures import Refusal
from gateway.downstream.bodies import read_body
from support.gateways import DOORS, play, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A

SMALL, LARGE = limits.INLINE_BODY_BYTES_MAX, limits.INLINE_BODY_BYTES_MAX + 1


@pytest.mark.trio
async def test_a_small_body_is_read_on_the_loop_and_a_large_one_in_a_thread() -> None:
    """A thread takes longer to wake than a small body to read."""
    aside = Aside(in_a_thread())

    threads = [await aside.run(size, threading.get_ident) for size in (SMALL, LARGE)]

    assert [ident == threading.get_ident() for ident in threads] == [True, False]


@pytest.mark.trio
async def test_large_bodies_are_read_one_after_the_other() -> None:
    """Two threads would take the interpreter from the loop twice as often."""
    aside, at_once, most = Aside(in_a_thread()), 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        sum(range(100_000))
        with lock:
            at_once -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(aside.run, LARGE, work)

    assert most == 1


@pytest.mark.trio
async def test_who_is_cancelled_does_not_wait_for_the_thread() -> None:
    """A drain's end does not wait for a body of a client that is cut."""
    aside, goes_on = Aside(in_a_thread()), threading.Event()

    with trio.move_on_after(0.05) as scope:
        await aside.run(LARGE, partial(goes_on.wait, 10))
    goes_on.set()

    assert scope.cancelled_caught


@pytest.mark.parametrize("door", DOORS)
@in_every_order
async def test_either_door_works_on_large_bodies_aside(door: str) -> None:
    """They are read, looked at for what binds them, spliced and remembered there; small ones not."""
    read: list[int] = []

    async def run_aside(work: Callable[[], Any]) -> Any:
        await trio.sleep(1)
        read.append(1)
        return work()

    w = world(A.answer(), run_aside=run_aside)

    clients = [await play(w, door, input="x" * size) for size in (10, LARGE)]

    assert [client.told for client in clients] == [ANSWERED, ANSWERED]
    assert len(read) == {"http": 3, "websocket": 4}[door]


def body_with(values: int) -> bytes:
    """A request that holds so many JSON values, in as few bytes as may be."""
    fields = {"model": "m", "store": False, "stream": True, "input": [0]}
    return json.dumps(fields).encode().replace(b"[0]", b"[" + b",".join([b"0"] * (values - 5)) + b"]")


def test_a_body_may_have_as_many_values_as_any_agent_sends() -> None:
    """A body's cost is in their number as much as in its bytes."""
    assert read_body(body_with(limits.BODY_VALUES_MAX)).get("model") == "m"
    with pytest.raises(Refusal) as refused:
        read_body(body_with(limits.BODY_VALUES_MAX + 1))

    assert (refused.value.code, refused.value.message) == (
        "invalid_request",
        "the body holds more than 1,000,000 JSON values",
    )


def test_text_holds_one_value_however_it_reads() -> None:
    """A prompt of commas and brackets is one string."""
    raw = json.dumps({"model": "m", "input": '[{,"\\' * limits.BODY_VALUES_MAX}).encode()

    assert len(read_body(raw).get("input")) == 5 * limits.BODY_VALUES_MAX
