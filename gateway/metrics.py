"""Metrics for Prometheus (ports.Meter): one registry for each gateway, read by the admin listener.

Everything is counted once for each turn, attempt, refusal or scrape; nothing for an event, which must cost no more than
its bytes. Labels have few values: a word that an upstream made up is counted as "other".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.failures import PUBLIC_CODES, RETRYABLE_CODES
from gateway.core.messages import AttemptReport, Door
from gateway.measures import TurnMeasures

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 300.0, 600.0)
"""Buckets from a refused connect (5 ms) to the longest answers (10 min); 10 and 25 are T1 and T2."""
LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

ENDS: Final = ("completed", "incomplete", "cancelled", "failed", "client_disconnected")
KNOWN_OUTCOMES: Final = frozenset({*ENDS, *PUBLIC_CODES, *RETRYABLE_CODES})
OTHER: Final = "other"
NO_REASON: Final = "none"
"""The reason of a turn that did not fail: nothing was decided."""


class PrometheusMeter:
    """Counts for one gateway (ports.Meter)."""

    def __init__(self, worker: str = "0") -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        is_worker = Gauge("gateway_worker", "Which worker this is.", ["worker"], registry=self.registry)
        is_worker.labels(worker).set(1)
        self._turns = self._counter("turns", "Turns that ended.", "door", "outcome", "reason")
        self._attempts = self._counter("attempts", "Upstream calls that ended.", "route", "outcome")
        self._replays = self._counter("replays", "Attempts that were discarded and replayed elsewhere.", "route")
        self._refusals = self._counter("refusals", "Requests that became no turn.", "door", "code")
        self._cuts = self._counter("connections_cut", "Connections that the server ended.", "why")
        self._reloads = self._counter("route_reloads", "Times that models and routes were read again.", "result")
        self._table = Gauge("gateway_route_table", "Which table serves.", ["table"], registry=self.registry)
        self._money = Counter("gateway_settled_nanodollars", "What clients were charged.", registry=self.registry)
        self._seconds = self._histogram("turn_seconds", "A turn, from its reservation to its end.", "door")
        self._hold = self._histogram("hold_seconds", "How long a turn's first events were held back.", "door")
        self._output = self._histogram("first_output_seconds", "From a turn's start to its first output.", "door")
        self._first_event = self._histogram("first_event_seconds", "From an upstream call to its first event.", "route")
        self._lag = Histogram(
            "gateway_loop_lag_seconds", "How late the loop wakes a task.", buckets=LAG_SECONDS, registry=self.registry
        )

    def __repr__(self) -> str:
        return "<PrometheusMeter>"

    # --- what happens (ports.Meter) -----------------------------------------------------------------------------

    def refused(self, door: Door, code: str) -> None:
        """A request became no turn."""
        self._refusals(door.value, code).inc()

    def attempt_ended(self, route: str, report: AttemptReport) -> None:
        """Whatever ended it, also one that is replayed."""
        self._attempts(route, outcome_label(report.outcome)).inc()
        if report.first_event_at is not None:
            self._first_event(route).observe(report.first_event_at - report.started_at)
        if report.verdict is not None and report.verdict.replay:
            self._replays(route).inc()

    def turn_ended(self, measures: TurnMeasures) -> None:
        """Whatever ended it."""
        door = measures.door.value
        self._turns(door, outcome_label(measures.outcome), measures.reason or NO_REASON).inc()
        self._seconds(door).observe(measures.seconds)
        if measures.hold_seconds is not None:
            self._hold(door).observe(measures.hold_seconds)
        if measures.first_output_seconds is not None:
            self._output(door).observe(measures.first_output_seconds)
        if measures.nanodollars:
            self._money.inc(measures.nanodollars)

    def reloaded(self, result: str) -> None:
        """The configuration's files were read again (C2), and what came of it."""
        self._reloads(result).inc()

    def table_serves(self, table: str) -> None:
        """From now on turns begin on the table of that hash."""
        self._table.clear()
        self._table.labels(table).set(1)

    def connection_cut(self, why: str) -> None:
        """The server ended a connection, in one of its words for it."""
        self._cuts(why).inc()

    # --- what is the case ---------------------------------------------------------------------------------------

    def watch(self, name: str, text: str, count: Callable[[], float]) -> None:
        """A gauge that asks for its value when it is scraped, and costs nothing in between."""
        Gauge(f"gateway_{name}", text, registry=self.registry).set_function(count)

    def watch_total(self, name: str, text: str, count: Callable[[], float]) -> None:
        """A counter that somebody else counts, asked for its value in the same way."""
        self.registry.register(_WatchedTotal(f"gateway_{name}", text, count))

    def watch_routes(self, name: str, text: str, counts: Callable[[], Mapping[str, float]]) -> None:
        """The same for a gauge of each route."""
        self.registry.register(_WatchedRoutes(GaugeMetricFamily, f"gateway_{name}", text, counts))

    def watch_route_totals(self, name: str, text: str, counts: Callable[[], Mapping[str, float]]) -> None:
        """The same for a counter of each route."""
        self.registry.register(_WatchedRoutes(CounterMetricFamily, f"gateway_{name}", text, counts))

    def loop_lagged(self, seconds: float) -> None:
        """A probe of the event loop woke so late."""
        self._lag.observe(seconds)

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)

    # --- making -------------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, *labels: str) -> Callable[..., Counter]:
        """The counter of some labels' values. Looked up once for each: that is most of what counting costs."""
        counter = Counter(f"gateway_{name}", text, labels, registry=self.registry)
        return cache(counter.labels)

    def _histogram(self, name: str, text: str, *labels: str) -> Callable[..., Histogram]:
        """The same for a histogram of seconds."""
        return cache(Histogram(f"gateway_{name}", text, labels, buckets=SECONDS, registry=self.registry).labels)


class _WatchedTotal(Collector):
    """One counter, read where it is counted."""

    def __init__(self, name: str, text: str, count: Callable[[], float]) -> None:
        self._name = name
        self._text = text
        self._count = count

    def collect(self) -> Iterable[Metric]:
        """As Prometheus asks."""
        yield CounterMetricFamily(self._name, self._text, value=self._count())


class _WatchedRoutes(Collector):
    """One figure for each route, read where it is kept."""

    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        counts: Callable[[], Mapping[str, float]],
    ) -> None:
        self._family = family
        self._name = name
        self._text = text
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        """As Prometheus asks."""
        family = self._family(self._name, self._text, labels=["route"])
        for route, count in self._counts().items():
            family.add_metric([route], count)
        yield family


def outcome_label(outcome: str) -> str:
    """An outcome as a label: an upstream's own codes would make a series each."""
    return outcome if outcome in KNOWN_OUTCOMES else OTHER
