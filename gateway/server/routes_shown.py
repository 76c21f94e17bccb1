"""What `gateway routes show` tells, as plain data: the table as configured, and how its routes stand (C2, C3, C6).

configured  of each route: where it is, its transport, concurrency and state; of each model: priorities and weights
live        of each process that serves: its table, and each route's attempts, circuit, and why it is left alone
summed      of each route: over all processes that have answered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config import Config

Live = Sequence[Mapping[str, Any]]


def table_as_shown(config: Config) -> dict[str, Any]:
    """The configured table: no secret, no price."""
    return {
        "table": config.table_hash,
        "file": str(config.routes_file or config.file),
        "models": [
            {
                "name": name,
                "routes": list(model.routes),
                "listed": [{"name": one.name, "priority": one.priority, "weight": one.weight} for one in model.listed],
                "max_output_tokens": model.max_output_tokens,
            }
            for name, model in config.models.items()
        ],
        "routes": [
            {
                "name": name,
                "transport": route.transport,
                "base_url": route.base_url,
                "model": route.upstream_model,
                "concurrency": route.attempts_max,
                "state": "drain" if route.is_draining else "serve",
            }
            for name, route in config.routes.items()
        ],
    }


def summed(live: Live) -> list[dict[str, Any]]:
    """Each route over all processes that have answered, in the order in which they name them."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for process in live:
        for name, route in process["routes"].items():
            found.setdefault(name, []).append(route)
    return [{"name": name, **_sum(routes)} for name, routes in found.items()]


def _sum(routes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds = [route["cools_for_seconds"] for route in routes if route["cools_for_seconds"] is not None]
    return {
        "open_attempts": sum(route["open_attempts"] for route in routes),
        "workers": len(routes),
        "cooling_workers": sum(route["is_cooling"] for route in routes),
        "cools_for_seconds": max(seconds, default=None),
        "is_drained": all(route["is_drained"] for route in routes),
    }
