"""How the house stands: the facts that the replay decision and the choice of a route read (R12–R14, M1).

Draining, the replay budget (C4) and the health of the routes (C3) are the process's own. `throttled` and `cooling` can
be set from outside beside them: an operator's word, or a scenario's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import trio

from gateway.core.budget import ReplayBudget
from gateway.core.routing import draw_of
from gateway.turn.health import OpenAttempt, RouteHealth


class StandingHouse:
    """One process's house (selection.House, ports.Draining). Each of `workers` has its part of what they share (C6).
    `wall_clock` tells seconds since the epoch."""

    def __init__(self, workers: int = 1, wall_clock: Callable[[], float] = time.time) -> None:
        self._draining = trio.Event()
        self._budget = ReplayBudget(workers)
        self._routes: dict[str, RouteHealth] = {}
        self._draws = count()
        self._wall_clock = wall_clock
        self.throttled = False
        self.cooling: set[str] = set()

    def __repr__(self) -> str:
        return f"<StandingHouse draining={self.is_draining()} {self._budget} {list(self._routes.values())}>"

    # --- draining -----------------------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """T7: no new turn and no replay from now on."""
        self._draining.set()

    def is_draining(self) -> bool:
        """R12."""
        return self._draining.is_set()

    async def wait(self) -> None:
        """Return when draining begins."""
        await self._draining.wait()

    # --- the replay budget --------------------------------------------------------------------------------------

    def is_throttled(self) -> bool:
        """R13."""
        return self.throttled or self._budget.is_spent(trio.current_time())

    def turn_began(self) -> None:
        """C4."""
        self._budget.turn_began(trio.current_time())

    def replay_began(self) -> None:
        """C4."""
        self._budget.replay_began(trio.current_time())

    # --- routes -------------------------------------------------------------------------------------------------

    def is_cooling(self, route: str) -> bool:
        """C3, R14."""
        return route in self.cooling or not self._health(route).takes_turns

    def open_attempts(self, route: str) -> int:
        """C6."""
        return self._health(route).open_attempts

    def cools_for_seconds(self, route: str) -> float | None:
        """X2: nobody knows of one that was set from outside, nor of one that is being probed."""
        return None if route in self.cooling else self._health(route).cools_for_seconds

    def draw(self) -> float:
        """M1."""
        return draw_of(next(self._draws))

    def take(self, route: str) -> OpenAttempt:
        """C3, C6: a place on the route."""
        return self._health(route).take()

    def forget(self, route: str) -> None:
        """The name stands for another route from now on (C2): it begins as sound. Attempts that are still open on the
        former one end with it."""
        self._routes.pop(route, None)

    def counted(self, of: Callable[[RouteHealth], float]) -> dict[str, float]:
        """A figure of each route, by name."""
        return {name: of(health) for name, health in self._routes.items()}

    @property
    def routes(self) -> Mapping[str, RouteHealth]:
        """What is known of the routes that were asked for."""
        return self._routes

    def as_shown(self) -> dict[str, dict[str, Any]]:
        """The health of each route as plain data, for people and programs; what was set from outside included."""
        shown = {name: health.as_shown() for name, health in self._routes.items()}
        return {name: {**row, "is_cooling": self.is_cooling(name)} for name, row in shown.items()}

    def _health(self, route: str) -> RouteHealth:
        health = self._routes.get(route)
        if health is None:
            health = self._routes[route] = RouteHealth(route, wall_clock=self._wall_clock)
        return health


class PatientHouse(StandingHouse):
    """A house that leaves no route alone for its faults: where many failures in a row are what is to be seen."""

    def is_cooling(self, route: str) -> bool:
        """Only if somebody says so."""
        return route in self.cooling
