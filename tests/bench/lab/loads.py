"""The loads: what each asks of a system, and who is measured under which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.lab.ours import Settings


@dataclass(frozen=True, slots=True)
class Load:
    """Turns one after another on so many connections, measured for `seconds` behind a warm-up."""

    name: str
    what: str
    model: str
    connections: int
    warm: float
    seconds: float
    ramp: float

    @property
    def events_per_turn(self) -> int:
        """Of its script (wire.h)."""
        return int(self.model.rpartition("-")[2]) + 8

    @property
    def events_per_second(self) -> int:
        """Of all its streams, by their pace; 0 is as many as come."""
        return int(self.model.split("-")[1]) * self.connections


def paced(name: str, connections: int) -> Load:
    """The shape of real tokens. A turn takes four seconds: the connections begin spread over that time, and the window
    has that length, so that beginnings, middles and ends are in it as they are in a long run."""
    what = f"{connections} streams, each with 50 events a second"
    return Load(name, what, "m-50-200", connections, warm=4.5, seconds=4.0, ramp=4.0)


STEADY: Final = {
    load.name: load
    for load in (
        paced("low32", 32),
        paced("paced64", 64),
        paced("paced256", 256),
        Load("burst16", "16 connections, turns of 208 events as fast as they come", "m-0-200", 16, 1.0, 2.0, 0.2),
        Load("short", "8 connections, turns of 9 events as fast as they come", "m-0-1", 8, 1.0, 2.0, 0.2),
    )
}

LADDER: Final = (50, 100, 200, 300, 400, 550, 700, 850, 1000, 1100, 1200, 1400)
"""Streams at once, each step tried if the one before held."""
LADDER_P99_MS_MAX: Final = 50.0


OTHERS: Final = {
    "held": "1,000 streams that wait for their output, in a process that has served nobody before",
    "streams per core": f"the most paced streams whose events' p99 is at most {LADDER_P99_MS_MAX:g} ms, at their pace",
}


def ladder_step(streams: int) -> Load:
    """One step."""
    return Load(f"{streams} streams", "a step of the ladder", "m-50-200", streams, warm=4.5, seconds=3.0, ramp=4.0)


HELD_STREAMS: Final = 1000
"""Waiting before their output."""
POOLED_CONNECTIONS: Final = 1000
OPEN_STREAMS: Final = 2000
ALONE: Final = "short, alone"
POOLED: Final = "short, 1,000 pooled"
OPEN: Final = "short, 2,000 open"


# --- who is measured ----------------------------------------------------------------------------------------------

DIRECT: Final = "no gateway"
GATEWAY: Final = "gateway"
WEBSOCKET: Final = "gateway, WebSocket door"
UPSTREAM_WEBSOCKET: Final = "gateway, WebSocket upstream"
SQLITE: Final = "gateway, SQLite"
POSTGRES: Final = "gateway, PostgreSQL"
TWO_WORKERS: Final = "gateway, 2 workers"
TLS_UPSTREAM: Final = "gateway, TLS upstream"

OURS: Final[Mapping[str, Settings]] = {
    GATEWAY: Settings(),
    UPSTREAM_WEBSOCKET: Settings(transport="websocket"),
    SQLITE: Settings(store="sqlite"),
    POSTGRES: Settings(store="postgres"),
    TWO_WORKERS: Settings(store="sqlite", workers=2),
    TLS_UPSTREAM: Settings(has_tls_upstream=True),
}
"""The gateways that run beside each other. Several workers need a store that they share."""

THREE_WAYS: Final = (GATEWAY, WEBSOCKET, UPSTREAM_WEBSOCKET)
ENTRANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "low32": (DIRECT, GATEWAY, WEBSOCKET),
    "paced64": (*THREE_WAYS, TLS_UPSTREAM),
    "paced256": THREE_WAYS,
    "burst16": THREE_WAYS,
    "short": (*THREE_WAYS, SQLITE, POSTGRES, TWO_WORKERS),
}
"""By load; each peer is measured under all of them."""

QUICK: Final[Mapping[str, tuple[str, ...]]] = {
    "paced64": (GATEWAY, WEBSOCKET),
    "burst16": (GATEWAY, WEBSOCKET),
    "short": (GATEWAY, WEBSOCKET, SQLITE),
}
"""The slice that shows within a minute or two whether a change gains anything."""


def system_of(entrant: str) -> str:
    """Which running system it is: the WebSocket door is the other door of the same gateway."""
    return GATEWAY if entrant == WEBSOCKET else entrant


def door_of(entrant: str) -> str:
    """The door it is asked at."""
    return "websocket" if entrant == WEBSOCKET else "http"
