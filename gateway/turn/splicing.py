"""What is spliced into a turn's bytes on their way: megabytes of them beside the loop."""

from __future__ import annotations

from functools import partial

from gateway.aside import Aside
from gateway.core.alias import CARRY_A_RESPONSE, with_model
from gateway.core.messages import Batch
from gateway.ports import Order, Route, UpstreamCall


async def call_of(order: Order, route: Route, aside: Aside) -> UpstreamCall:
    """What goes up to a route."""
    request, elsewhere = order.request, route.elsewhere(order.request)
    call = UpstreamCall(
        order.turn_id,
        await aside.run(request.body.size_bytes, partial(route.body, request)),
        request.headers,
        continues=request.body.get("previous_response_id"),
        streams=request.streams,
        generates=not request.is_warm_up,
        path=request.path,
        is_background=request.is_background,
        elsewhere=None if elsewhere is None else partial(aside.run, order.size_bytes, elsewhere),
        may_go_on=order.may_go_on,
    )
    if order.may_go_on is None:  # of others the door makes what it remembers of them (W10)
        request.body.rest()
    return call


async def named(batch: Batch, model: str, aside: Aside) -> Batch:
    """What came down, with the model's name as its client knows it (M3). Most of it names none."""
    size_bytes = sum([len(event.data) for event in batch.events if event.kind in CARRY_A_RESPONSE])
    if not size_bytes:
        return batch
    return await aside.run(size_bytes, lambda: Batch([with_model(event, model) for event in batch.events]))
