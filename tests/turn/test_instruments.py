"""A repr is an instrument: what stands in a turn's house shows itself and no content."""

from __future__ import annotations

from gateway.core.messages import Deliver
from gateway.records.memory import MemoryRecords
from gateway.turn.health import RouteHealth
from gateway.turn.house import PatientHouse, StandingHouse
from gateway.turn.origins import Origins, Traces
from gateway.turn.selection import Selection
from gateway.turn.tables import Table, Tables
from support.gateways import MODEL, world
from support.machine import CREATED
from support.virtual import in_orders
from support.voices import A, B


@in_orders(1)
async def test_all_that_a_gateway_is_made_of_says_what_it_is() -> None:
    w = world(A.answer(), B.answer())
    tables = Tables(Table("0123456789abcdef", {MODEL: w.gateway.engine, "other": w.gateway.engine}, ()))  # type: ignore[dict-item]  # only names are shown
    assert repr(tables) == "<Tables, 0123456789ab and 0 before it>"
    assert repr(Selection(tables, w.house)) == f"<Selection of {MODEL}, other>"
    assert repr(w.gateway.background).startswith("<BackgroundTurns by <Routes, 2 stand")


@in_orders(1)
async def test_a_house_shows_its_routes() -> None:
    house = StandingHouse()
    attempt = house.take("a")
    assert repr(attempt) == "<OpenAttempt on a, over=False>"
    assert repr(house).startswith(
        "<StandingHouse draining=False <ReplayBudget, 0 replays, 0 turns> [RouteHealth(route='a'"
    )
    house.take("b")
    assert house.counted(lambda health: health.open_attempts) == {"a": 1, "b": 1}


@in_orders(1)
async def test_a_patient_house_leaves_a_route_alone_only_if_somebody_says_so() -> None:
    """C3."""
    house = PatientHouse()
    assert not house.is_cooling("a")
    house.cooling.add("a")
    assert (house.is_cooling("a"), house.is_cooling("b")) == (True, False)


def test_traces_show_the_response_and_how_much_is_known() -> None:
    traces = Traces(is_stored=True)
    traces.new(Deliver([CREATED], None))
    assert repr(traces) == "<Traces of resp_1, 0 marks>"


@in_orders(1)
async def test_origins_show_how_many_are_recent() -> None:
    assert repr(Origins(MemoryRecords())) == "<Origins, 0 are recent>"
    assert RouteHealth("a").as_shown()["state"] == "serving"
