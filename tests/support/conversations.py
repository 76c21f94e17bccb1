"""A conversation on one WebSocket: creates one after another, and upstreams whose answers have items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from gateway.lock.driver import AUTHORIZED, Client, Headers, connect
from gateway.upstream.scripted import Call, Reply, Step
from gateway.upstream.scripts import event, response_object, usage_object
from support.gateways import MODEL, World, assert_all_is_well, create_frame, hang_up
from support.voices import A

WEBSOCKET = 'transport = "websocket"'
ANSWERED = ["created", "output_item.done", "completed"]
SWITCHED_ON = "replay_expanded_continuations = true"


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def answer(name: str, *items: Any, told: Sequence[Any] = (), before: Sequence[Step] = ()) -> Reply:
    """A whole answer: its items as they are done, and those that its end tells of."""
    done = [event("response.output_item.done", output_index=place, item=item) for place, item in enumerate(items)]
    ended = response_object(name, "completed", MODEL, output=list(told), usage=usage_object(5, 1))
    created = event("response.created", response=response_object(name, "in_progress", MODEL))
    return A.reply(*before, created, *done, event("response.completed", response=ended))


@asynccontextmanager
async def socket(w: World, *, headers: Headers = ()) -> AsyncIterator[Client]:
    """A WebSocket to the gateway, left at the end of the block."""
    async with connect(w.app, "websocket", headers=(*AUTHORIZED, *headers)) as client:
        yield client
        await hang_up(client)
    assert_all_is_well(w, client)


async def ask(client: Client, **fields: Any) -> list[str]:
    """One create and what it is told."""
    words, told = client.last_words, len(client.told)
    client.send_text(create_frame(**fields))
    await client.wait_for(lambda client: client.last_words > words)
    await trio.sleep(1.0)
    return client.told[told:]


def body_of(call: Call) -> dict[str, Any]:
    """The call's members, less those that each call has."""
    return {name: value for name, value in call.fields.items() if name not in ("model", "type", "stream", "store")}
