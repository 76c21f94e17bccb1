"""What waits for the app, and the disconnect, which never does (bug case O2)."""

from typing import Any, cast

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup
from trio.testing import wait_all_tasks_blocked

from gateway.lock.virtual import virtual_run
from gateway.server.hardened.inbox import Inbox

pytestmark = pytest.mark.trio(run=virtual_run)

GONE = {"type": "websocket.disconnect", "code": 1006}


def message(size: int) -> dict[str, Any]:
    return {"type": "websocket.receive", "bytes": None, "text": "x" * size}


async def blocks(inbox: Inbox, event: dict[str, Any]) -> bool:
    with trio.move_on_after(1) as scope:
        await inbox.put(event)
    return scope.cancelled_caught


async def test_events_come_in_their_order_and_the_disconnect_as_often_as_asked() -> None:
    inbox = Inbox(10)
    for event in (message(1), message(2), GONE):
        await inbox.put(event)
    assert [await inbox.receive() for _ in range(4)] == [message(1), message(2), GONE, GONE]


async def test_the_bound_counts_events_and_bytes() -> None:
    inbox = Inbox(2, bytes_max=10)
    assert not await blocks(inbox, message(100))  # one may always wait
    assert await blocks(inbox, message(1))
    await inbox.receive()
    assert [await blocks(inbox, message(5)) for _ in range(3)] == [False, False, True]


async def test_a_full_inbox_does_not_hold_the_disconnect_up(nursery: trio.Nursery) -> None:
    inbox = Inbox(1)
    await inbox.put(message(1))
    nursery.start_soon(inbox.put, message(2))
    await wait_all_tasks_blocked()
    assert not await blocks(inbox, GONE)
    assert [await inbox.receive(), await inbox.receive()] == [message(1), GONE]


async def test_the_stock_channel_holds_it_up() -> None:
    """What the inbox is for; if this fails, Hypercorn may have mended it."""

    async def deaf(*_arguments: Any) -> None:
        await trio.sleep_forever()

    async with TaskGroup() as group:
        put: Any = await cast(Any, group).spawn_app(deaf, Config(), {}, deaf)
        with trio.move_on_after(1) as scope:
            for _ in range(10):
                await put(message(1))
            await put(GONE)
        assert scope.cancelled_caught
        cast(Any, group)._nursery.cancel_scope.cancel()
