"""The targets: what each figure must be, what it should be, and what it is. A row of `TARGETS` is a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from bench.lab import results as figure
from bench.lab.loads import ALONE, GATEWAY, OPEN, POOLED, SQLITE, TLS_UPSTREAM, TWO_WORKERS, WEBSOCKET
from bench.lab.results import Results


class Verdict(Enum):
    """How a figure stands to its target."""

    GOAL = "goal"
    MUST = "must"
    FAILS = "**FAILS**"
    SEEN = "short of the goal"
    """Of a row that has a goal and no must."""
    UNMEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Target:
    """A row: at most, or at least, so much."""

    what: str
    value: Callable[[Results], float | None]
    must: float | None
    goal: float | None
    unit: str = "×"
    is_least: bool = False

    def verdict(self, results: Results) -> Verdict:
        """Of these results."""
        value = self.value(results)
        if value is None:
            return Verdict.UNMEASURED
        if self.goal is not None and self._meets(value, self.goal):
            return Verdict.GOAL
        if self.must is None:
            return Verdict.SEEN
        return Verdict.MUST if self._meets(value, self.must) else Verdict.FAILS

    def _meets(self, value: float, bound: float) -> bool:
        return value >= bound if self.is_least else value <= bound


def over(name: str, load: str, other: str, entrant: str = GATEWAY) -> Callable[[Results], float | None]:
    """The entrant's figure over another's, in the same run."""
    return lambda results: results.ratio(name, load, entrant, other)


def under(name: str, load: str, other: str) -> Callable[[Results], float | None]:
    """Another's figure over the gateway's: how many times less the gateway takes."""
    return lambda results: results.ratio(name, load, other, GATEWAY)


def own(name: str, load: str, entrant: str = GATEWAY) -> Callable[[Results], float | None]:
    """The figure itself."""
    return lambda results: results.median(entrant, load, name)


def more(name: str, load: str, entrant: str) -> Callable[[Results], float | None]:
    """What the entrant takes beyond the plain gateway."""

    def difference(results: Results) -> float | None:
        ours, plain = results.median(entrant, load, name), results.median(GATEWAY, load, name)
        return None if ours is None or plain is None else ours - plain

    return difference


def crowded(load: str) -> Callable[[Results], float | None]:
    """A short turn's price under that load over its price alone."""
    return lambda results: results.ratio(figure.CPU_MS_PER_TURN, load, GATEWAY, GATEWAY, ALONE)


EVENT, TURN, TURNS = figure.CPU_US_PER_EVENT, figure.CPU_MS_PER_TURN, figure.TURNS_PER_CPU_SECOND

TARGETS: Final = (
    Target("paced256, CPU per event, over nginx", over(EVENT, "paced256", "nginx"), 2.0, 1.5),
    Target("paced256, CPU per event, over Portkey", over(EVENT, "paced256", "Portkey"), 1 / 1.8, None),
    Target("paced256, CPU per event, over smg", over(EVENT, "paced256", "smg"), None, 1.0),
    Target("paced256, CPU per event, over Caddy", over(EVENT, "paced256", "Caddy"), None, 0.85),
    Target("paced64, CPU per event, less than LiteLLM", under(EVENT, "paced64", "LiteLLM"), 5, 7, is_least=True),
    Target("short turn in memory, CPU, over nginx", over(TURN, "short", "nginx"), 12, 7),
    Target("short turn in memory, CPU, over smg", over(TURN, "short", "smg"), None, 1.0),
    Target("short turn in SQLite, CPU, over nginx", over(TURN, "short", "nginx", SQLITE), 16, 10),
    Target("short turn in memory, CPU, less than LiteLLM", under(TURN, "short", "LiteLLM"), 35, None, is_least=True),
    Target("burst16, turns per core, over LiteLLM", over(TURNS, "burst16", "LiteLLM"), 50, 90, is_least=True),
    Target("burst16, turns per core, over vllm-router", over(TURNS, "burst16", "vllm-router"), 2, 3.5, is_least=True),
    Target("paced streams per core", own(figure.STREAMS_MAX, "ladder"), 700, 1100, "streams", is_least=True),
    Target("low32, event p50, over nginx", over(figure.EVENT_P50_MS, "low32", "nginx"), 1.3, 1.1),
    Target("low32, event p99, over nginx", over(figure.EVENT_P99_MS, "low32", "nginx"), 2.5, 1.7),
    Target("low32, first event p50", own(figure.FIRST_P50_MS, "low32"), 1.2, 0.8, "ms"),
    Target("memory per held stream", own(figure.KB_PER_STREAM, "held"), 25, 16, "KB"),
    Target("paced256, CPU per event, WebSocket door over HTTP", over(EVENT, "paced256", GATEWAY, WEBSOCKET), 1.25, 1.1),
    Target("short turn beside 1,000 pooled connections, CPU", crowded(POOLED), 1.1, 1.0),
    Target("short turn beside 2,000 open streams, CPU", crowded(OPEN), 1.1, 1.0),
    Target("2 workers, turns per core, over one", over(TURNS, "short", SQLITE, TWO_WORKERS), 0.85, 0.95, is_least=True),
    Target("paced64, CPU per event, TLS upstream beyond plain", more(EVENT, "paced64", TLS_UPSTREAM), 15, 10, "µs"),
    Target("2 workers, held streams, most over fewest", own(figure.UNEVENNESS, "held", TWO_WORKERS), 1.5, 1.2),
)
"""As issue 7 has them. A worker of two is compared with one on the same store."""


def failing(results: Results) -> list[Target]:
    """Those whose must is not met."""
    return [target for target in TARGETS if target.verdict(results) is Verdict.FAILS]
