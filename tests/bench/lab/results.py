"""What was measured: figures by entrant and load, several rounds of each, and their medians."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

CPU_US_PER_EVENT: Final = "cpu_us_per_event"
CPU_MS_PER_TURN: Final = "cpu_ms_per_turn"
TURNS_PER_CPU_SECOND: Final = "turns_per_cpu_second"
EVENT_P50_MS: Final = "event_p50_ms"
EVENT_P99_MS: Final = "event_p99_ms"
FIRST_P50_MS: Final = "first_p50_ms"
PACE: Final = "pace"
"""The events that came through, over those that the upstream would have sent to a client that keeps up."""
KB_PER_STREAM: Final = "kb_per_stream"
STREAMS_MAX: Final = "streams_max"
UNEVENNESS: Final = "unevenness"
KB_PER_1000_TURNS: Final = "kb_per_1000_turns"

PACE_MIN: Final = 0.95
"""Below it somebody fell behind: what an event costs then says little of what it costs at its pace."""


@dataclass
class Results:
    """Figures by entrant, load and name, a list of one per round; and what could not be measured."""

    about: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    rounds: int = 1
    figures: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Sentences."""

    def add(self, entrant: str, load: str, figures: Mapping[str, float | None]) -> None:
        """One round's."""
        place = self.figures.setdefault(entrant, {}).setdefault(load, {})
        for name, figure in figures.items():
            if figure is not None:
                place.setdefault(name, []).append(round(figure, 4))

    def median(self, entrant: str, load: str, name: str) -> float | None:
        """Of its rounds; None if there are none."""
        figures = self.figures.get(entrant, {}).get(load, {}).get(name)
        return statistics.median(figures) if figures else None

    def ratio(self, name: str, load: str, entrant: str, other: str, other_load: str | None = None) -> float | None:
        """The entrant's figure over the other's."""
        ours, theirs = self.median(entrant, load, name), self.median(other, other_load or load, name)
        return ours / theirs if ours is not None and theirs else None

    def write(self, file: Path) -> None:
        """As JSON."""
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def read_results(file: Path) -> Results:
    """What `write` wrote."""
    return Results(**json.loads(file.read_text("utf-8")))
