"""No turn of megabytes holds the event loop: what takes long is worked on beside it, on both doors (limits
INLINE_BODY_BYTES_MAX)."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from gateway import limits
from gateway.aside import RunAside, in_a_thread
from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.upstream import scripted_websocket
from gateway.upstream.scripted import JSON_BODY, Reply
from gateway.upstream.scripts import response_object
from support.conversations import WEBSOCKET, answer, ask, body_of, message, socket, user
from support.gateways import DOORS, MODEL, create, create_frame, play, world
from support.virtual import in_orders
from support.voices import B

LARGE_BYTES = limits.INLINE_BODY_BYTES_MAX + 1
HUGE_BYTES = 30_000_000
HELD_SECONDS_MAX = 0.2
"""Of processor time: the longest step with 30 MB takes 0.05 s, and took 0.3 to 1.3 s."""
ANY_SIZE = f"{WEBSOCKET}\nrequest_bytes_max = 40_000_000"
RENAMED = 'model = "another"'


class Steps(trio.abc.Instrument):
    """How long the gateway's tasks held the loop at most: the test's own and its upstream's work on megabytes, too."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._began = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if converse.__name__ not in task.name and scripted_websocket.__name__ not in task.name:
            self.longest_seconds = max(self.longest_seconds, time.thread_time() - self._began)


def conversation_of(size_bytes: int) -> list[Any]:
    return [user("é" + "x" * 1000)] * (size_bytes // 1060)


def has_last_word_of(fields: dict[str, Any]) -> Callable[[Client], bool]:
    number = 2 if "previous_response_id" in fields else 1
    return lambda client: client.last_words == number


async def converse(door: str, items: list[Any]) -> None:
    """A turn, and on a WebSocket one that goes on from it, where the upstream's own socket is lost by then."""
    replies = [answer("resp_1", message("one")), answer("resp_2", message("two"))]
    route = f"{ANY_SIZE}\nsocket_idle_timeout = 0.01"
    w = world(replies, B.answer(), route=route, run_aside=in_a_thread(), limits="remembered_bytes_max = 40_000_000")
    prompt = {"id": "pmpt_1"} if door == "http" else ...
    body = json.dumps(create(input=items, prompt=prompt), ensure_ascii=False).encode() if door == "http" else None
    async with connect(w.app, door, headers=AUTHORIZED, body=body) as client:
        for fields in ({"input": items}, {"input": "x", "previous_response_id": "resp_1"}) if body is None else ():
            client.send_text(json.dumps(create_frame(**fields), ensure_ascii=False))
            await client.wait_for(has_last_word_of(fields))
            await trio.sleep(0.1)
        if body is None:
            client.leave()
    assert client.crash is None
    sizes = [len(call.body) for call in w.calls]
    assert min(sizes) > len(items) * 1000
    assert len(sizes) == (1 if door == "http" else 2)


@pytest.mark.parametrize("door", DOORS)
def test_thirty_megabytes_do_not_hold_the_loop(door: str) -> None:
    """Read, bound to a route, measured, spliced, expanded and remembered beside it."""
    steps = Steps()
    trio.run(partial(converse, door, conversation_of(HUGE_BYTES)), instruments=[steps])
    assert 0 < steps.longest_seconds < HELD_SECONDS_MAX


def noting(names: list[str]) -> RunAside:
    """Runs work at once, and notes what it was."""

    async def run(work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        names.append(getattr(getattr(work, "func", work), "__name__", "a call"))
        return work()

    return run


Played = Callable[[str, RunAside], Awaitable[None]]
ITEMS = conversation_of(LARGE_BYTES + 10_000)


async def chain(route: str, run_aside: RunAside, **second: Any) -> None:
    w = world([answer("resp_1", message("one")), answer("resp_2", message("two"))], route=route, run_aside=run_aside)
    async with socket(w) as client:
        await ask(client, input=ITEMS)
        await ask(client, previous_response_id="resp_1", **second)
    assert len(w.calls) == 2


async def warm_up(_route: str, run_aside: RunAside) -> None:
    tools = [{"type": "function", "name": "f", "description": "x" * LARGE_BYTES}]
    w = world([answer("resp_1", message("one")), answer("resp_2", message("two"))], run_aside=run_aside)
    async with socket(w) as client:
        await ask(client, generate=False, tools=tools)
        await ask(client, previous_response_id="resp_1_1", store=True)
        await ask(client, previous_response_id="resp_1", store=True)
    assert [body_of(call)["tools"] == tools for call in w.calls] == [True, True]


async def long_end(route: str, run_aside: RunAside) -> None:
    ended = answer("resp_1", told=[message("x" * LARGE_BYTES)])
    for door in DOORS:
        assert (await play(world(ended, route=route, run_aside=run_aside), door)).told[-1] == "completed"


async def whole(_route: str, run_aside: RunAside) -> None:
    body = json.dumps(response_object("resp_1", "completed", "m", output=[message("x" * LARGE_BYTES)])).encode()
    w = world(Reply((body,), headers=JSON_BODY), run_aside=run_aside)
    assert (await play(w, "http", stream=False)).told == ["completed"]


async def whole_of_frames(route: str, run_aside: RunAside) -> None:
    w = world(answer("resp_1", told=[message("x" * LARGE_BYTES)]), route=route, run_aside=run_aside)
    assert (await play(w, "http", stream=False)).told == ["completed"]


async def by_id(route: str, run_aside: RunAside) -> None:
    shown = response_object("resp_1", "completed", "another", output=[message("x" * LARGE_BYTES)], background=False)
    asked = Reply((json.dumps(shown).encode(),), headers=JSON_BODY)
    w = world([answer("resp_1"), asked], route=route, run_aside=run_aside)
    await play(w, "http", store=True)
    async with connect(w.app, "http", "/v1/responses/resp_1", method="GET", headers=AUTHORIZED) as client:
        pass
    assert client.events[0].payload["model"] == MODEL


READ = ["read_frame", "bond_of", "body"]
CASES: dict[str, tuple[Played, str, list[str]]] = {
    "a continuation": (chain, "", [*READ, "made_of", "expanded", "bond_of", "body", "made_of"]),
    "one whose socket is lost": (
        chain,
        f"{WEBSOCKET}\nsocket_idle_timeout = 0.5",
        [*READ, "made_of", "expanded", "bond_of", "body", "made_of"],
    ),
    "a warm-up": (
        warm_up,
        "",
        ["read_frame", "bond_of", "warm_up_events", "made_of", "expanded", "bond_of", "body", "made_of", "prepared"],
    ),
    "an event": (long_end, "", ["read_block", "read_block", "made_of"]),
    "a frame": (long_end, WEBSOCKET, ["events_of", "events_of", "made_of"]),
    "an event in the client's words": (long_end, RENAMED, ["read_block", "<lambda>"] * 2 + ["made_of"]),
    "one body": (whole, "", ["whole_event"]),
    "one body of frames": (whole_of_frames, WEBSOCKET, ["events_of", "bare_response"]),
    "a response by its id": (by_id, RENAMED, ["_no_object", "parse_object", "_respelled"]),
}


@pytest.mark.parametrize("case", CASES)
@in_orders(1)
async def test_what_is_long_is_worked_on_beside_the_loop(case: str) -> None:
    """Each kind of work once for each body or event that needs it."""
    play_it, route, expected = CASES[case]
    names: list[str] = []
    await play_it(route, noting(names))
    assert names[: len(expected)] == expected


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "stream", "generate"])
@pytest.mark.parametrize(("length", "is_refused"), [(65_536, False), (65_537, True)])
@pytest.mark.parametrize("door", DOORS)
@in_orders(1)
async def test_a_name_is_not_read_again_and_again(door: str, length: int, is_refused: bool, name: str) -> None:
    """H3, W5: what is asked for often is short, or refused by its name, before anything is reserved."""
    w = world(B.answer())
    fields: dict[str, Any] = {name: "x" * (length - 2)}
    client = await play(w, door, **fields)
    said = f"'{name}' has more than 65,536 characters"
    assert (said in client.body.decode()) is is_refused
    if is_refused:
        assert client.failure == (400, "invalid_request")
        assert w.reserved == []
