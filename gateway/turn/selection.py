"""Which route serves a turn: asks `core.routing` with the house's live facts (M1, C2, C3, C5, R13, R14)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from gateway.core.failures import Refusal
from gateway.core.messages import Circumstances
from gateway.core.request import TurnRequest
from gateway.core.routing import next_route
from gateway.ports import House, Model, Route
from gateway.turn.tables import Table, Tables


class Selection:
    """The models the gateway serves and the routes behind them."""

    def __init__(self, tables: Tables, house: House) -> None:
        self._tables = tables
        self._house = house

    def __repr__(self) -> str:
        return f"<Selection of {', '.join(self._tables.current.models)}>"

    def turn(self) -> AbstractContextManager[Table]:
        """C2: a turn runs, for the block, on the table that is current as it begins."""
        return self._tables.turn()

    def model(self, name: str) -> Model:
        """The current table's model of that name. Raises Refusal `model_not_found`."""
        found = self._tables.current.models.get(name)
        if found is None:
            raise Refusal("model_not_found", f"the model {name!r} is not served here", param="model")
        return found

    def first(self, model: Model, request: TurnRequest) -> Route:
        """The route of a turn's first attempt. Raises Refusal `server_draining`, `payload_too_large` or
        `no_route_available`."""
        if self._house.is_draining():
            raise Refusal("server_draining", "the gateway is shutting down")
        if not self._candidates(model, request):
            raise Refusal("payload_too_large", f"no route for the model {model.name!r} carries a request of that size")
        route = self.next(model, (), request)
        if route is None:
            raise Refusal("no_route_available", f"every route for the model {model.name!r} is cooling down")
        return route

    def next(self, model: Model, tried: Collection[str], request: TurnRequest) -> Route | None:
        """Another route that may serve, or None."""
        by_name = self._candidates(model, request)
        cooling = {name for name in by_name if self._house.is_cooling(name)}
        name = next_route(tuple(by_name), tried, cooling)
        return None if name is None else by_name[name]

    def replacement(self, model: Model, tried: Collection[str], request: TurnRequest) -> Route:
        """The route of a replay. Raises LookupError where the one that was left is gone."""
        route = self.next(model, tried, request)
        if route is None:
            raise LookupError(f"no route is left for the model {model.name!r}")
        return route

    def circumstances(self, model: Model, tried: Collection[str], request: TurnRequest) -> Circumstances:
        """What the replay decision asks of the house, read at one moment."""
        return Circumstances(
            is_draining=self._house.is_draining(),
            is_throttled=self._house.is_throttled(),
            another_route_is_left=self.next(model, tried, request) is not None,
        )

    def _candidates(self, model: Model, request: TurnRequest) -> dict[str, Route]:
        """The model's routes, less those that the current table has not, or not unchanged (C2), and those whose
        transport is too small for the request (C5)."""
        standing = [route for route in model.routes if self._tables.stands(model, route)]
        return {route.name: route for route in standing if route.carries(request)}
