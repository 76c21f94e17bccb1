"""Which route serves a turn: asks `core.routing` with the house's live facts (M1, C3, C5, R13, R14)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gateway.core.failures import Refusal
from gateway.core.messages import Circumstances
from gateway.core.request import TurnRequest
from gateway.core.routing import by_affinity, next_route
from gateway.ports import House, Model, Route


class Selection:
    """The models the gateway serves and the routes behind them."""

    def __init__(self, models: Mapping[str, Model], house: House) -> None:
        self._models = models
        self._house = house

    def __repr__(self) -> str:
        return f"<Selection of {', '.join(self._models)}>"

    def model(self, name: str) -> Model:
        """The model of that name. Raises Refusal `model_not_found`."""
        found = self._models.get(name)
        if found is None:
            raise Refusal("model_not_found", f"the model {name!r} is not served here", param="model")
        return found

    def first(self, model: Model, request: TurnRequest) -> Route:
        """The route of a turn's first attempt. Raises Refusal `server_draining`, `payload_too_large` or
        `no_route_available`."""
        self._require_candidates(model, request)
        return _chosen(self.next(model, (), request), model)

    def only(self, model: Model, request: TurnRequest, origin: str) -> Route:
        """O2: the route that made what the request goes on from; no other will do. Raises Refusal as `first` does."""
        own = replace(model, routes=tuple(route for route in model.routes if route.name == origin))
        if not own.routes:
            text = f"the route that has what the request goes on from does not serve the model {model.name!r}"
            raise Refusal("no_route_available", text)
        self._require_candidates(own, request)
        route = self.next(own, (), request)
        if route is None:
            raise Refusal("no_route_available", "the route that has what the request goes on from is cooling down")
        return route

    def by_affinity(self, model: Model, request: TurnRequest, account: str, affinity: str) -> Route:
        """O3: the route of a bound request whose origin nobody knows. Raises Refusal as `first` does."""
        self._require_candidates(model, request)
        by_name = {route.name: route for route in model.routes}
        ranked = tuple(by_name[name] for name in by_affinity(tuple(by_name), account, affinity))
        return _chosen(self.next(replace(model, routes=ranked), (), request), model)

    def _require_candidates(self, model: Model, request: TurnRequest) -> None:
        if self._house.is_draining():
            raise Refusal("server_draining", "the gateway is shutting down")
        if not _candidates(model, request):
            raise Refusal("payload_too_large", f"no route for the model {model.name!r} carries a request of that size")

    def next(self, model: Model, tried: Collection[str], request: TurnRequest) -> Route | None:
        """Another route that may serve, or None."""
        by_name = _candidates(model, request)
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


def _chosen(route: Route | None, model: Model) -> Route:
    if route is None:
        raise Refusal("no_route_available", f"every route for the model {model.name!r} is cooling down")
    return route


def _candidates(model: Model, request: TurnRequest) -> dict[str, Route]:
    """C5: the model's routes, less those whose transport is too small for the request."""
    return {route.name: route for route in model.routes if route.carries(request)}
