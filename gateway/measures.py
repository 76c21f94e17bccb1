"""What doors and engine tell whoever counts: refusals, attempts, turns; never more than once for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.core.messages import AttemptReport, Door


@dataclass(frozen=True, slots=True)
class TurnMeasures:
    """A turn that is over, for the metrics: durations are seconds, None where the turn did not get so far."""

    door: Door
    outcome: str
    reason: str | None
    seconds: float
    hold_seconds: float | None
    first_output_seconds: float | None
    nanodollars: int | None


class Meter(Protocol):
    """What is counted. Each method is called once for what it counts, none for an event; none waits or raises."""

    def refused(self, door: Door, code: str) -> None:
        """A request became no turn."""
        ...

    def attempt_ended(self, route: str, report: AttemptReport) -> None:
        """Whatever ended it, also one that is replayed."""
        ...

    def turn_ended(self, measures: TurnMeasures) -> None:
        """Whatever ended it."""
        ...


class NoMeter:
    """Counts nothing (Meter)."""

    def refused(self, door: Door, code: str) -> None:
        """Nothing."""

    def attempt_ended(self, route: str, report: AttemptReport) -> None:
        """Nothing."""

    def turn_ended(self, measures: TurnMeasures) -> None:
        """Nothing."""
