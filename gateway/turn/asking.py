"""A question that is no turn: it costs nothing, is on no record, and is asked of a route as a turn would be (H2, B9).

What was never sent is asked of one other route; whatever else comes of it is the answer.
"""

from __future__ import annotations

from functools import partial

import structlog
import trio

from gateway.aside import Aside
from gateway.core.failures import Failure, FailureKind
from gateway.core.messages import AttemptEnded, Batch, Deliver, DeliverFailure, Opened
from gateway.core.rules import EXPIRED, Clock
from gateway.ports import Model, Order, Route, Stamped, UpstreamCall
from gateway.turn.passing import OneByOne
from gateway.turn.selection import Chosen, Selection

logger = structlog.get_logger("gateway.turn")


async def ask(
    selection: Selection, order: Order, model: Model, first: Chosen, aside: Aside
) -> Deliver | DeliverFailure:
    """The answer, whole; `model` has the routes that may be asked, of which `first` is."""
    request = order.request
    answer = await _ask(first, order, aside)
    if isinstance(answer, DeliverFailure) and answer.failure.kind is FailureKind.NEVER_SENT:
        tried = (first.route.name,)
        house = selection.circumstances(model, tried, request)
        if house.another_route_is_left and not (house.is_throttled or house.is_draining):
            answer = await _ask(selection.replacement(model, tried, request), order, aside)
    return answer


async def _ask(chosen: Chosen, order: Order, aside: Aside) -> Deliver | DeliverFailure:
    """One exchange, which tells of its route's health what a turn would tell (C3)."""
    try:
        answer = await _exchange(chosen.route, order, aside)
        chosen.place.ended(answer.failure if isinstance(answer, DeliverFailure) else None)
    finally:
        chosen.place.leave()
    return answer


async def _exchange(route: Route, order: Order, aside: Aside) -> Deliver | DeliverFailure:
    """One exchange. It has as long as a turn's first event would have (T2)."""
    request = order.request
    body = await aside.run(request.body.size_bytes, partial(route.body, request))
    call = UpstreamCall(order.turn_id, body, request.headers, streams=False, path=request.path)
    sending, receiving = trio.open_memory_channel[Stamped](0)
    answer: Deliver | DeliverFailure = _failed(EXPIRED[Clock.T2])
    with trio.move_on_after(route.terms.first_event_seconds):
        async with trio.open_nursery() as nursery, receiving:
            nursery.start_soon(_attempt, route, call, sending)
            answer = await _read(receiving)
    outcome = answer.failure.code if isinstance(answer, DeliverFailure) else "completed"
    logger.info("asked", turn_id=order.turn_id, path=request.path, route=route.name, outcome=outcome)
    return answer


async def _attempt(route: Route, call: UpstreamCall, sending: trio.MemorySendChannel[Stamped]) -> None:
    async with sending:
        await route.upstream.attempt(call, OneByOne(sending))


async def _read(receiving: trio.MemoryReceiveChannel[Stamped]) -> Deliver | DeliverFailure:
    head = None
    async for arrived, _at in receiving:
        if isinstance(arrived, Opened):
            head = arrived.head
        elif isinstance(arrived, Batch):
            return Deliver(arrived.events, head)
        elif isinstance(arrived, AttemptEnded):
            return _failed(arrived.failure)
    raise AssertionError("an upstream ended an attempt without a word")


def _failed(failure: Failure) -> DeliverFailure:
    return DeliverFailure(failure, None)
