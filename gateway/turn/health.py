"""What the process knows of each route: its circuit (C3) and who has an attempt on it (C6).

    choice of a route --take--> OpenAttempt --delivered, ended, leave--> RouteHealth: circuit, counts, log lines

One `OpenAttempt` for each attempt, from the choice of its route on: a probe, or the last place of a route that is full,
is taken at once, not when the attempt's record is written. It ends once, whatever ends the turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
import trio

from gateway.core.failures import Failure
from gateway.core.health import Circuit, State, wait_asked_seconds

logger = structlog.get_logger("gateway.turn")


@dataclass(slots=True)
class Room:
    """The places of a route at one upstream account (C6): they outlive what is known of the route's health."""

    open_attempts: int = 0


@dataclass(slots=True)
class RouteHealth:
    """One route. The counts only grow."""

    route: str
    room: Room = field(default_factory=Room)
    circuit: Circuit = field(default_factory=Circuit)
    coolings: int = 0
    probes: int = 0
    cooled_by: str | None = None
    """The code of the failure that it was left alone for last."""
    was_asked: bool = False
    """That one came with a `retry-after`."""
    wall_clock: Callable[[], float] = field(default=time.time, repr=False)
    """Seconds since the epoch: an upstream may name the time at which it wants to be asked again."""

    @property
    def open_attempts(self) -> int:
        """C6."""
        return self.room.open_attempts

    @property
    def takes_turns(self) -> bool:
        """Whether one may begin now (C3)."""
        return self.circuit.takes_turns(trio.current_time())

    @property
    def cools_for_seconds(self) -> float | None:
        """How long it will take no turn; None where it does, or where a probe decides."""
        seconds = self.circuit.cools_until - trio.current_time()
        return seconds if self.circuit.state is State.COOLING and seconds > 0 else None

    def take(self) -> OpenAttempt:
        """An attempt's place on the route."""
        before, self.circuit = self.circuit, self.circuit.begun(trio.current_time())
        if self.circuit is not before:
            self.probes += 1
            logger.info("route_probed", route=self.route)
        self.room.open_attempts += 1
        return OpenAttempt(self, self.circuit.generation)

    def delivered(self, generation: int) -> None:
        """Something of an attempt of that generation was."""
        self._becomes(self.circuit.delivered(generation))

    def ended(self, generation: int, failure: Failure | None) -> None:
        """An attempt of that generation has."""
        before, wall_now = self.circuit, self.wall_clock()
        self._becomes(before.ended(generation, failure, trio.current_time(), wall_now))
        if failure is not None and self.circuit.generation != before.generation:
            self._note_cooling(failure, wall_now)

    def left(self, generation: int) -> None:
        """An attempt of that generation has without a sign."""
        self.circuit = self.circuit.left(generation, trio.current_time())

    def _becomes(self, circuit: Circuit) -> None:
        before, self.circuit = self.circuit, circuit
        if before.state is State.PROBING and circuit.state in (State.TRIAL, State.SERVING):
            logger.info("route_back", route=self.route)

    def _note_cooling(self, failure: Failure, wall_now: float) -> None:
        self.coolings += 1
        self.cooled_by = failure.code
        self.was_asked = wait_asked_seconds(failure, wall_now) is not None
        logger.warning(
            "route_cooling",
            route=self.route,
            seconds=round(self.circuit.cools_until - trio.current_time(), 3),
            faults=self.circuit.faults,
            code=self.cooled_by,
            was_asked=self.was_asked,
        )

    def as_shown(self) -> dict[str, Any]:
        """For people and programs: plain data."""
        seconds = self.cools_for_seconds
        is_left_alone = self.circuit.state in (State.COOLING, State.PROBING)
        return {
            "state": self.circuit.state.value,
            "faults": self.circuit.faults,
            "cooled_by": self.cooled_by if is_left_alone else None,
            "was_asked": self.was_asked and is_left_alone,
            "cools_for_seconds": None if seconds is None else round(seconds, 3),
            "open_attempts": self.open_attempts,
            "coolings": self.coolings,
            "probes": self.probes,
        }


class OpenAttempt:
    """An attempt's place on its route (selection.RoutePlace)."""

    __slots__ = ("_generation", "_has_delivered", "_health", "_is_over")

    def __init__(self, health: RouteHealth, generation: int) -> None:
        self._health = health
        self._generation = generation
        self._has_delivered = False
        self._is_over = False

    def __repr__(self) -> str:
        return f"<OpenAttempt on {self._health.route}, over={self._is_over}>"

    def delivered(self) -> None:
        """Something of it is on its way to the client."""
        if not self._has_delivered and not self._is_over:
            self._has_delivered = True
            self._health.delivered(self._generation)

    def ended(self, failure: Failure | None) -> None:
        """It is over, by this failure or well."""
        if self._gives_its_place():
            self._health.ended(self._generation, failure)

    def leave(self) -> None:
        """It is over, or never began, and nothing was seen of the route."""
        if self._gives_its_place():
            self._health.left(self._generation)

    def _gives_its_place(self) -> bool:
        """The first time."""
        if self._is_over:
            return False
        self._is_over = True
        self._health.room.open_attempts -= 1
        return True
