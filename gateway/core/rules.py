"""A turn's limits as data, the clocks that guard it, and the failures they make (T, R7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from gateway import limits
from gateway.core.failures import Failure, FailureKind, gateway_failure


@dataclass(frozen=True, slots=True)
class TurnRules:
    """A turn's limits as data: seconds, bytes and numbers; `limits.py` has their reasons."""

    hold_seconds: float = limits.HOLD_SECONDS_MAX
    failure_grace_seconds: float = limits.FAILURE_GRACE_SECONDS
    hold_bytes_max: int = limits.HOLD_BYTES_MAX
    hold_events_max: int = limits.HOLD_EVENTS_MAX
    connection_limit_at: float = math.inf
    """R12: from here on nothing is replayed."""
    cut_at: float = math.inf
    """T5 with its grace: here a running turn is cut."""
    is_whole: bool = False
    """H1: the client gets one body, with the terminal event; T1, T2 and T4 do not apply."""
    without: frozenset[str] = frozenset()
    """Replay rules left out, by id: only to prove that each one matters (K4)."""


class Phase(Enum):
    """Where a turn stands; DONE cannot be left."""

    WAITING = "waiting"
    RUNNING = "running"
    GRACE = "grace"
    JUDGING = "judging"
    DONE = "done"


class Clock(IntEnum):
    """The deadlines, in the order in which they win at one instant."""

    T5 = 1
    T7 = 2
    T2 = 3
    H1 = 4
    T4 = 5
    T1 = 6
    T9 = 7


Due = tuple[float, Clock]
"""A deadline: when, and which. The earlier one is the lesser, at one instant the one that wins."""
NEVER: Final[Due] = (math.inf, Clock.T9)

CONNECTION_LIMIT: Final = gateway_failure(
    FailureKind.CONNECTION_LIMIT,
    "websocket_connection_limit_reached",
    "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue.",
)
EXPIRED: Final[dict[Clock, Failure]] = {
    Clock.T2: gateway_failure(
        FailureKind.FIRST_EVENT_TIMEOUT, "first_event_timeout", "the upstream sent no event in time"
    ),
    Clock.H1: gateway_failure(
        FailureKind.FIRST_EVENT_TIMEOUT, "first_event_timeout", "the upstream sent no whole response in time"
    ),
    Clock.T4: gateway_failure(
        FailureKind.IDLE_TIMEOUT, "stream_idle_timeout", "the upstream fell silent in mid-response"
    ),
    Clock.T5: CONNECTION_LIMIT,
    Clock.T7: gateway_failure(FailureKind.DRAINING, "server_draining", "the gateway is shutting down"),
}

OWN_KINDS: Final = frozenset({FailureKind.DRAINING, FailureKind.ROUTE_SELECTION, FailureKind.INTERNAL})
"""B3: the gateway's own fault costs the client nothing."""
FINAL_KINDS: Final = OWN_KINDS | {FailureKind.CLIENT_LEFT, FailureKind.CONNECTION_LIMIT}
"""Failures that end the turn whatever the house's circumstances are: nobody is asked."""


def client_left(why: str) -> Failure:
    """R1: nobody is there to be told, so its code is for the log only."""
    return Failure(FailureKind.CLIENT_LEFT, "client_disconnected", 499, why)


HOLD_OVERFLOW: Final = gateway_failure(
    FailureKind.BUFFER_OVERFLOW, "upstream_stream_buffer_limit", "too much came before the first output event"
)
INVALID_TEXT: Final = gateway_failure(
    FailureKind.READ_ERROR, "stream_read_error", "the upstream sent an event that is not UTF-8"
)
