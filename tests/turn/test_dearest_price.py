"""B6, M2: a turn reserves at the dearest price of its routes, and pays that of the one that delivered."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.app import Gateway, Parts
from gateway.core.money import Price, Usage
from gateway.core.rules import TurnRules
from gateway.stores import Stores
from gateway.upstream.scripted import Break, Reply, ScriptedTransport
from gateway.upstream.scripts import usage_object
from support.gateways import World, play, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

DEAR = Price(input=3_000_000_000, cached_input=3_000_000_000, output=7_000_000_000, reasoning=9_000_000_000)
RESERVED = 1 * 3000 + 1000 * 9000
"""One token of input, 1,000 of output, all of them perhaps reasoning."""
CHEAP = 1 * 1000 + 1000 * 2000


def two_routes(first: Reply, second: Reply, dear: str, rules: TurnRules | None = None, **change: Any) -> World:
    """`a` and `b`, one of which has the DEAR price."""
    w = world(first, second)
    config = w.gateway.config
    routes = {**config.routes, dear: replace(config.routes[dear], price=DEAR, **change)}
    parts = Parts(
        transports={name: ScriptedTransport(script) for name, script in w.scripts.items()},
        stores=Stores(w.ledger, w.records),
        house=w.house,
        rules=rules,
    )
    w.gateway = Gateway(replace(config, routes=routes), parts)
    return w


@pytest.mark.parametrize("dear", ["a", "b"])
@in_every_order
async def test_b6_the_dearest_candidate_decides_wherever_it_stands(door: str, dear: str) -> None:
    """B6: a replay may come to the second route, and its price must be covered."""
    w = two_routes(A.answer(), B.answer(), dear)
    await play(w, door)
    assert (w.called, w.reserved) == (["a"], [RESERVED])


@pytest.mark.parametrize(
    ("change", "reserves_dear"),
    [({}, True), ({"is_draining": True}, False), ({"request_bytes_max": 10}, False)],
    ids=["serves", "drains", "too small"],
)
@in_orders(1)
async def test_b6_a_route_that_the_turn_cannot_come_to_is_no_candidate(
    door: str, change: dict[str, Any], reserves_dear: bool
) -> None:
    """B6, C3, C5: its price would refuse turns that the balance covers."""
    w = two_routes(A.reply(Break()), B.answer(), "b", **change)
    await play(w, door)
    assert (w.called, w.reserved) == ((["a", "b"], [RESERVED]) if reserves_dear else (["a"], [CHEAP]))


@in_every_order
async def test_m2_the_route_that_delivered_sets_the_price(door: str) -> None:
    """M2, B2."""
    cheap, dear = two_routes(A.answer(), B.answer(), "b"), two_routes(A.reply(Break()), B.answer(), "b")
    await play(cheap, door)
    await play(dear, door)

    (usage,) = {closing.report.usage for closing in cheap.closings}
    assert usage is not None
    assert cheap.charged == cheap.gateway.config.routes["a"].price.cost_nanodollars(usage)
    assert (dear.called, dear.charged) == (["a", "b"], DEAR.cost_nanodollars(usage))


@pytest.mark.parametrize("dear", ["a", "b"])
@in_orders(1)
async def test_b2_the_house_bears_a_discarded_attempt_at_its_own_routes_price(door: str, dear: str) -> None:
    """B2, M2: R4 keeps that from happening; so it is left out here."""
    usage = Usage(10, 3)
    metered = A.reply(A.prelude, A.failed("server_error", usage_object(10, 3)))
    w = two_routes(metered, B.answer(), dear, TurnRules(without=frozenset({"R4"})))
    await play(w, door)
    price = w.gateway.config.routes["a"].price
    assert (w.called, w.house_paid) == (["a", "b"], price.cost_nanodollars(usage))
