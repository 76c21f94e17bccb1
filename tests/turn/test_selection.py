"""The choice of a route, asked directly: in which words it is refused, and what it takes (M1, C2, C3, C5, C6, X2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import trio

from gateway import limits
from gateway.core.failures import Failure, FailureKind, Refusal, UpstreamAnswer, failure_from_answer
from gateway.core.messages import AttemptStarted, Circumstances
from gateway.core.money import FREE
from gateway.core.origin import Maker
from gateway.core.request import RequestBody, TurnRequest
from gateway.core.routing import Listed, draw_of, in_order
from gateway.ports import Model, Route, Upstream
from gateway.turn.house import StandingHouse
from gateway.turn.selection import Chosen, Selection
from gateway.turn.tables import Table, Tables
from support.virtual import in_orders

TERMS = AttemptStarted(first_event_seconds=25.0, idle_seconds=300.0)
A = Route("a", cast(Upstream, None), TERMS, FREE, request_bytes_max=1_000_000)
B = replace(A, name="b")
REQUEST = TurnRequest(RequestBody(b'{"model": "m"}'), "m", (), splices_store=False)
NEVER_SENT = Failure(FailureKind.NEVER_SENT, "upstream_connect_error", 502, "")


class House(StandingHouse):
    """A house that draws zeros, so that the first of a list has its share."""

    def draw(self) -> float:
        """M1."""
        return 0.0


def model_of(*routes: Route) -> Model:
    return Model("m", routes, 1000, in_order([route.name for route in routes]))


def selection_of(house: StandingHouse, model: Model) -> Selection:
    return Selection(Tables(Table("hash", {"m": model}, model.routes)), house)


def refusal(choose: Callable[[], object]) -> tuple[str, int | None]:
    with pytest.raises(Refusal) as refused:
        choose()
    return str(refused.value), refused.value.public.retry_after_seconds


def waits(seconds: int) -> Failure:
    return failure_from_answer(UpstreamAnswer(429, (("retry-after", str(seconds)),), b""), frozenset({"x"}))


# --- choosing -----------------------------------------------------------------------------------------------------


@in_orders(1)
async def test_a_model_that_is_not_served_is_refused_by_its_parameter() -> None:
    """X, M1."""
    model = model_of(A)
    selection = selection_of(House(), model)
    assert selection.model("m") is model
    with pytest.raises(Refusal, match="model_not_found: the model 'n' is not served here") as refused:
        selection.model("n")
    assert refused.value.param == "model"


@in_orders(1)
async def test_a_choice_takes_a_place_on_the_route_it_names() -> None:
    """C3, C6: in the same breath."""
    house = House()
    chosen = selection_of(house, model_of(A, B)).first(model_of(A, B), REQUEST)
    assert (chosen.route, house.open_attempts("a"), house.open_attempts("b")) == (A, 1, 0)
    chosen.place.leave()
    assert house.open_attempts("a") == 0


@in_orders(1)
async def test_a_replacement_is_taken_from_the_budget_and_is_never_one_that_was_tried() -> None:
    """C4, R14, R15."""
    house = House()
    model = model_of(A, B)
    selection = selection_of(house, model)
    assert selection.replacement(model, ("a",), REQUEST).route is B
    assert repr(house).count("1 replays") == 1
    with pytest.raises(LookupError, match="no route is left for the model 'm'"):
        selection.replacement(model, ("a", "b"), REQUEST)
    assert repr(house).count("1 replays") == 1


@in_orders(1)
async def test_routes_of_one_priority_share_first_attempts_and_replays_by_the_house_s_draws() -> None:
    """M1: each choice has a draw of its own; whether a route is left needs none."""
    house = StandingHouse()
    model = replace(model_of(A, B), listed=(Listed("a"), Listed("b")))
    selection = selection_of(house, model)
    firsts = [selection.first(model, REQUEST).route.name for _ in range(3)]
    assert selection.circumstances(model, (), REQUEST).another_route_is_left
    replays = [selection.replacement(model, (), REQUEST).route.name for _ in range(3)]
    names = ["ab"[int(draw_of(number) * 2)] for number in range(6)]
    assert ([*firsts, *replays], set(replays)) == (names, {"a", "b"})


@in_orders(1)
async def test_a_route_that_the_current_table_has_not_unchanged_is_no_candidate() -> None:
    """C2: the turn goes on on its own table."""
    mine = model_of(A, B)
    selection = selection_of(House(), model_of(replace(A), B))
    assert selection.first(mine, REQUEST).route is B
    assert selection.circumstances(mine, ("b",), REQUEST) == Circumstances(another_route_is_left=False)


@in_orders(1)
async def test_a_route_that_is_too_small_for_the_request_is_no_candidate() -> None:
    """C5, X: 413 where none is left."""
    small = replace(A, request_bytes_max=10, upstream=cast(Upstream, Verbatim()))
    model = model_of(small, B)
    selection = selection_of(House(), model)
    assert selection.first(model, REQUEST).route is B
    assert selection.circumstances(model, ("b",), REQUEST).another_route_is_left is False
    alone = model_of(small)
    assert refusal(lambda: selection_of(House(), alone).first(alone, REQUEST)) == (
        "payload_too_large: no route for the model 'm' carries a request of that size",
        None,
    )


class Verbatim:
    """As far as a route asks an upstream."""

    def body_of(self, request: TurnRequest, upstream_model: str | None) -> bytes:
        """The client's own bytes."""
        return request.body.text.encode()


@in_orders(1)
async def test_the_house_is_read_at_one_moment() -> None:
    """R12, R13, R14."""
    house = House()
    model = model_of(A, B)
    selection = selection_of(house, model)
    assert selection.circumstances(model, ("a",), REQUEST) == Circumstances(another_route_is_left=True)
    house.throttled = True
    house.begin_drain()
    assert selection.circumstances(model, ("a", "b"), REQUEST) == Circumstances(
        is_draining=True, is_throttled=True, another_route_is_left=False
    )
    assert refusal(lambda: selection.first(model, REQUEST)) == ("server_draining: the gateway is shutting down", 1)


# --- O2, O3 -------------------------------------------------------------------------------------------------------


@in_orders(1)
async def test_an_origin_is_the_only_candidate() -> None:
    """O2: no other will do."""
    house = House()
    model = model_of(A, B)
    selection = selection_of(house, model)
    assert selection.only(model, REQUEST, Maker("b")).route is B
    house.cooling.add("b")
    assert refusal(lambda: selection.only(model, REQUEST, Maker("b"))) == (
        "no_route_available: the route that has what the request goes on from is cooling down",
        5,
    )
    assert refusal(lambda: selection.only(model, REQUEST, Maker("c"))) == (
        "no_route_available: the route that has what the request goes on from does not serve the model 'm'",
        5,
    )


@in_orders(1)
async def test_an_affinity_has_its_route_and_the_other_while_that_is_closed() -> None:
    """O3."""
    house = House()
    model = model_of(A, B)
    selection = selection_of(house, model)
    routes = {key: selection.by_affinity(model, REQUEST, "main", key).route.name for key in ("one", "two", "to a")}
    assert set(routes.values()) == {"a", "b"}
    for key, name in routes.items():
        assert selection.by_affinity(model, REQUEST, "main", key).route.name == name
    house.cooling.add("a")
    assert {selection.by_affinity(model, REQUEST, "main", key).route.name for key in routes} == {"b"}


# --- when there is none (X2) --------------------------------------------------------------------------------------


def taken(selection: Selection, model: Model, failure: Failure | None) -> Chosen:
    """A turn on the first route that is left, ended so."""
    chosen = selection.first(model, REQUEST)
    chosen.place.ended(failure)
    return chosen


@pytest.mark.parametrize(
    ("asked", "told"), [((7, 9), 7), ((9, 7), 7), ((1, 1), 1), ((60, 300), 60), ((61, 61), 60), ((300, 300), 60)]
)
@in_orders(1)
async def test_a_client_is_told_when_the_first_is_back(asked: tuple[int, int], told: int) -> None:
    """X2: at most a minute."""
    house = House()
    model = model_of(A, B)
    selection = selection_of(house, model)
    for seconds in asked:
        taken(selection, model, waits(seconds))
    words = "no_route_available: every route for the model 'm' is cooling down"
    assert refusal(lambda: selection.first(model, REQUEST)) == (words, told)
    await trio.sleep(0.5)
    assert refusal(lambda: selection.first(model, REQUEST)) == (words, min(told, limits.RETRY_ROUTE_SECONDS_MAX))


@in_orders(1)
async def test_each_reason_is_named_once_and_a_full_route_may_be_free_at_any_moment() -> None:
    """X2, C3, C6."""
    house = House()
    full, draining = replace(B, attempts_max=1), replace(A, name="c", is_draining=True)
    model = model_of(A, full, draining, replace(draining, name="d"))
    selection = selection_of(house, model)
    taken(selection, model, waits(7))
    place = selection.first(model, REQUEST).place
    assert refusal(lambda: selection.first(model, REQUEST)) == (
        "no_route_available: every route for the model 'm' is cooling down or full or draining",
        1,
    )
    place.leave()
    assert selection.first(model, REQUEST).route is full


@in_orders(1)
async def test_where_nobody_knows_the_code_s_own_time_is_told() -> None:
    """X2: a probe is out, an operator has said so, or the routes drain."""
    house = House()
    model = model_of(A)
    selection = selection_of(house, model)
    taken(selection, model, waits(7))
    await trio.sleep(7)
    selection.first(model, REQUEST)
    words = "no_route_available: every route for the model 'm' is cooling down"
    assert refusal(lambda: selection.first(model, REQUEST)) == (words, 5)
    await trio.sleep(7)
    taken(selection_of(both := House(), model), model, waits(7))
    both.cooling.add("a")
    assert refusal(lambda: selection_of(both, model).first(model, REQUEST)) == (words, 5)
    drains = model_of(replace(A, is_draining=True))
    words = "no_route_available: every route for the model 'm' is draining"
    assert refusal(lambda: selection_of(House(), drains).first(drains, REQUEST)) == (words, 5)
