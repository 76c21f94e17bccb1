"""How a turn's books are opened: what is set aside (B6), and what its record says as it begins (L1)."""

from __future__ import annotations

import time

from gateway.core.continuation import input_measure
from gateway.core.eligibility import BACKGROUND, STORED
from gateway.core.messages import Door
from gateway.core.money import Price, estimate_input_tokens, reservation_nanodollars
from gateway.core.request import TurnRequest
from gateway.ports import Model, Order, Route, TurnOpening
from gateway.turn.books import BookKeeping, Books


async def open_books(
    keeping: BookKeeping, order: Order, model: Model, first: Route, door: Door, *, is_answered_here: bool
) -> Books:
    """Set the money aside and record the turn, which calls its `first` route unless it is answered here. Raises Refusal
    `insufficient_balance` or `ledger_unavailable`."""
    request = order.request
    input_tokens = estimate_input_tokens(input_measure(request, order.remembered), keeping.parts)
    output_tokens = _output_tokens(request, model)
    amount = reservation_nanodollars(input_tokens, output_tokens, _candidate_prices(model, request))
    opening = TurnOpening(
        turn_id=order.turn_id,
        account=order.account,
        model=model.name,
        door=door,
        reserved_nanodollars=0 if is_answered_here else amount,
        opened_at=time.time(),
        client_retry_count=request.client_retry_count,
        client_address=order.client_address,
        key=order.key,
    )
    books = Books(
        keeping,
        opening,
        input_tokens,
        order.spend_limits,
        is_stored=STORED in request.stateful_reasons,
        is_whole=not request.streams,
        is_background=BACKGROUND in request.stateful_reasons,
        is_warm_up=request.is_warm_up,
        table=model.table,
    )
    await books.open(None if is_answered_here else first.name)
    return books


def _output_tokens(request: TurnRequest, model: Model) -> int:
    """B6, W9: a warm-up generates nothing. What an upstream reads for one is the house's affair (B9), and set aside all
    the same: an account that could not pay for it has no turn to prepare."""
    if request.is_warm_up:
        return 0
    limit = request.max_output_tokens
    return model.max_output_tokens if limit is None else limit


def _candidate_prices(model: Model, request: TurnRequest) -> tuple[Price, ...]:
    """B6: of the routes that the turn may come to. One that drains takes no replay either (C3), and one whose transport
    is too small for the request is no candidate (C5); one that is cooling down may be back for the replay."""
    return tuple([route.price for route in model.routes if not route.is_draining and route.carries(request)])
