"""A warm-up on a route that knows none: told to its client, put on record, and never sent anywhere (W9, B9)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import trio

from gateway.aside import Aside
from gateway.core.continuation import is_self_contained
from gateway.core.failures import Refusal
from gateway.core.messages import Deliver, Finish
from gateway.core.money import Ended, EndedBy
from gateway.core.warm_up import warm_up_events, warm_up_id
from gateway.ports import Downstream, Order
from gateway.turn.books import Books

GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


def require_rememberable(order: Order) -> None:
    """What goes on from a state that only an upstream has cannot be prepared here: raises Refusal
    `unsupported_parameter`."""
    if not is_self_contained(order.request, order.remembered):
        text = "'generate': false is not supported here for what goes on from a state that is stored elsewhere"
        raise Refusal("unsupported_parameter", text, param="generate")


async def answer_warm_up(
    order: Order, client: Downstream, books: Books, created_at: float, write_seconds: float, aside: Aside
) -> None:
    """Both events, while the books are closed: nothing is charged, and no attempt was made. A client that takes
    nothing is left alone after `write_seconds` (T6)."""
    ended = Ended(EndedBy.TERMINAL, output_delivered=False, usage=None, failed=False)
    finish = Finish("completed", None, ended, own_response_id=warm_up_id(order.turn_id))
    previous = None if order.remembered is None else order.remembered.response_id
    telling = partial(warm_up_events, order.turn_id, order.request, previous, created_at)
    events = await aside.run(order.request.body.size_bytes, telling)
    async with trio.open_nursery() as nursery:
        books.close(finish, None, nursery)
        with trio.move_on_after(write_seconds), suppress(*GONE):
            await client.write(Deliver(events, None))
            await client.end()
