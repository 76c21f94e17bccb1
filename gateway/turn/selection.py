"""Which route serves a turn: asks `core.routing` with the house's live facts (M1, C2, C3, C5, C6, R13, R14).

What is chosen is taken in the same breath: between the choice of a route and its attempt lie waits for the stores, and
one probe, or one last place, must not be given to two turns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from gateway import limits
from gateway.core.failures import Failure, Refusal
from gateway.core.messages import Circumstances
from gateway.core.origin import Maker
from gateway.core.request import TurnRequest
from gateway.core.routing import by_affinity, in_order, next_route
from gateway.ports import Model, Route
from gateway.turn.tables import Table, Tables


class RoutePlace(Protocol):
    """An attempt's place on its route (C3, C6), from the choice of the route until the attempt is judged. Each of the
    ends may be told several times; the first one counts."""

    def delivered(self) -> None:
        """Something of the attempt is on its way to the client."""
        ...

    def ended(self, failure: Failure | None) -> None:
        """The attempt is over: by this failure, the one that the replay decision judged, or well."""
        ...

    def leave(self) -> None:
        """The attempt is over, or never began, and says nothing of its route."""
        ...


class House(Protocol):
    """How the house stands: facts that the replay decision and the choice of a route read, and who tells it of them."""

    def is_draining(self) -> bool:
        """R12, T7."""
        ...

    def is_throttled(self) -> bool:
        """R13: the replay budget is spent."""
        ...

    def is_cooling(self, route: str) -> bool:
        """C3, R14: the route takes no turn at the moment."""
        ...

    def open_attempts(self, route: str) -> int:
        """C6: how many places on the route are taken."""
        ...

    def cools_for_seconds(self, route: str) -> float | None:
        """In how many seconds a route that is cooling may take a turn again; None where nobody knows."""
        ...

    def draw(self) -> float:
        """M1: another number of [0, 1), by which routes of one priority share the turns."""
        ...

    def take(self, route: str) -> RoutePlace:
        """An attempt has chosen the route, and holds a place on it from now on."""
        ...

    def turn_began(self) -> None:
        """C4: a turn that counts for the replay budget."""
        ...

    def replay_began(self) -> None:
        """C4: a replay that is taken from it."""
        ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """A route with a place on it, which whoever has it gives back."""

    route: Route
    place: RoutePlace


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

    # --- choosing -----------------------------------------------------------------------------------------------

    def first(self, model: Model, request: TurnRequest, who: str | None = None) -> Chosen:
        """The route of a turn's first attempt; `who` is what a refusal calls the routes. Raises Refusal
        `server_draining`, `payload_too_large` or `no_route_available`."""
        if self._house.is_draining():
            raise Refusal("server_draining", "the gateway is shutting down")
        candidates = self._candidates(model, request)
        if not candidates:
            raise Refusal("payload_too_large", f"no route for the model {model.name!r} carries a request of that size")
        route = self._next(model, (), candidates, self._house.draw())
        if route is None:
            raise self._none_available(who or f"every route for the model {model.name!r}", candidates.values())
        return self._taken(route)

    def only(self, model: Model, request: TurnRequest, origin: Maker) -> Chosen:
        """O2: the route that made what the request goes on from; no other will do, be it of that name (C2). Raises
        Refusal as `first` does."""
        route = _made_by(origin, model)
        if route is None:
            text = f"the route that has what the request goes on from does not serve the model {model.name!r}"
            raise Refusal("no_route_available", text)
        return self.first(narrowed(model, route), request, "the route that has what the request goes on from")

    def has_left(self, model: Model, maker: Maker) -> bool:
        """W10, C2, C3: whether a route was taken away, became another upstream, or drains: its sockets are closed then.
        One that cools down, or is full, may be back."""
        route = _made_by(maker, model)
        return route is None or route.is_draining or not self._tables.stands(model, route)

    def holds(self, model: Model, request: TurnRequest, origin: str, response_id: str) -> bool:
        """W10: whether a route could take a continuation on the socket that holds what it goes on from."""
        route = self._candidates(model, request).get(origin)
        return route is not None and not self._is_closed(route) and route.upstream.holds(response_id, request.headers)

    def by_affinity(self, model: Model, request: TurnRequest, account: str, affinity: str) -> Chosen:
        """O3: the route of a bound request whose origin nobody knows. Raises Refusal as `first` does."""
        ranked = by_affinity(tuple(route.name for route in model.routes), account, affinity)
        return self.first(replace(model, listed=in_order(ranked)), request)

    def replacement(self, model: Model, tried: Collection[str], request: TurnRequest) -> Chosen:
        """The route of a replay, which is taken from the budget (C4). Raises LookupError where the one that was left is
        gone."""
        route = self._next(model, tried, self._candidates(model, request), self._house.draw())
        if route is None:
            raise LookupError(f"no route is left for the model {model.name!r}")
        self._house.replay_began()
        return self._taken(route)

    def turn_began(self) -> None:
        """C4: a turn that was admitted counts for the replay budget."""
        self._house.turn_began()

    def circumstances(self, model: Model, tried: Collection[str], request: TurnRequest) -> Circumstances:
        """What the replay decision asks of the house, read at one moment."""
        return Circumstances(
            is_draining=self._house.is_draining(),
            is_throttled=self._house.is_throttled(),
            another_route_is_left=self._next(model, tried, self._candidates(model, request)) is not None,
        )

    def _candidates(self, model: Model, request: TurnRequest) -> dict[str, Route]:
        """The model's routes, less those that the current table has not, or not unchanged (C2), and those whose
        transport is too small for the request (C5)."""
        stands = self._tables.stands
        return {route.name: route for route in model.routes if stands(model, route) and route.carries(request)}

    def _next(
        self, model: Model, tried: Collection[str], candidates: Mapping[str, Route], draw: float = 0.0
    ) -> Route | None:
        listed = [entry for entry in model.listed if entry.name in candidates]
        closed = {name for name, route in candidates.items() if self._is_closed(route)}
        name = next_route(listed, tried, closed, draw)
        return None if name is None else candidates[name]

    def _is_closed(self, route: Route) -> bool:
        """C3, C6: whether it takes no attempt at the moment; one that drains takes no replay either."""
        return route.is_draining or self._house.is_cooling(route.name) or self._is_full(route)

    def _is_full(self, route: Route) -> bool:
        return route.attempts_max is not None and self._house.open_attempts(route.name) >= route.attempts_max

    def _taken(self, route: Route) -> Chosen:
        return Chosen(route, self._house.take(route.name))

    # --- when there is none -------------------------------------------------------------------------------------

    def _none_available(self, who: str, routes: Collection[Route]) -> Refusal:
        """X2: with the time at which the first of them may be back, as far as that is known."""
        why = [self._why_closed(route) for route in routes]
        soonest = min((seconds for _, seconds in why if seconds is not None), default=None)
        bounded = None if soonest is None else min(max(1, math.ceil(soonest)), limits.RETRY_ROUTE_SECONDS_MAX)
        words = " or ".join(dict.fromkeys(word for word, _ in why))
        text = f"{who} is {words}"
        return Refusal("no_route_available", text, retry_after_seconds=bounded)

    def _why_closed(self, route: Route) -> tuple[str, float | None]:
        """In a word, and for how long: a place on a route that is full may be free at any moment."""
        if route.is_draining:
            return "draining", None
        if self._house.is_cooling(route.name):
            return "cooling down", self._house.cools_for_seconds(route.name)
        return "full", 0.0


def _made_by(maker: Maker, model: Model) -> Route | None:
    return next((route for route in model.routes if maker.is_still(route.name, route.fingerprint)), None)


def narrowed(model: Model, route: Route) -> Model:
    """The model with one of its routes and no other: only its routes are candidates, whatever is listed."""
    return replace(model, routes=(route,))


def remembering(model: Model) -> Model:
    """W9: the model with those of its routes whose upstreams know warm-ups."""
    return replace(model, routes=tuple(route for route in model.routes if route.remembers))
