"""What goes into the turn machine and what comes out: events in, commands out, one place does the I/O.

Every input is stepped with the time at which it was seen, in seconds of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from gateway import limits
from gateway.core.events import Event, JsonObject
from gateway.core.failures import RETRYABLE_CODES, Failure
from gateway.core.money import Ended, Usage
from gateway.core.replay import Verdict

Headers = tuple[tuple[str, str], ...]


class Door(Enum):
    """Where the client stands. On a WebSocket a turn has one terminal frame, and every frame is text (E6, E10)."""

    HTTP = "http"
    WEBSOCKET = "websocket"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an upstream's events: an SSE stream, or frames (a WebSocket), whose errors may stand for an HTTP
    status (X5)."""

    headers: Headers = field(default=(), repr=False)
    is_framed: bool = False


class Taken(Enum):
    """How much of a write that does not wait a client's transport has taken."""

    NOTHING = "nothing"
    """The write is still to be made, in the ordinary way."""
    PART = "part"
    """The rest stands before all else that is written, and somebody has to wait for it."""
    ALL = "all"


# --- inputs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An upstream call begins, with its route's clocks and codes."""

    first_event_seconds: float
    idle_seconds: float
    retryable_codes: frozenset[str] = RETRYABLE_CODES
    response_seconds: float = limits.RESPONSE_SECONDS


@dataclass(frozen=True, slots=True)
class Opened:
    """The upstream answered with an event stream."""

    head: Head


@dataclass(frozen=True, slots=True)
class Batch:
    """All events that one read completed, in order."""

    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The upstream call is over without a terminal event: why. An attempt's last input. `result_was_begun` says that
    a body that was to come whole had begun (H1)."""

    failure: Failure
    result_was_begun: bool = False


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """The client is gone: closed, half-closed, reset, or takes nothing any more (H7, T6)."""

    why: str = "disconnected"


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """The gateway is shutting down; turns that still run at `ends_at` are cut (T7)."""

    ends_at: float


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The answer to Consult: how the house stands at this moment."""

    is_draining: bool = False
    is_throttled: bool = False
    another_route_is_left: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """The writer took the frames it was given last."""


@dataclass(frozen=True, slots=True)
class GatewayFailed:
    """A failure of the gateway's own: a bug, a cancellation, a route that could not be chosen."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing came; a deadline may be due."""


Input = (
    AttemptStarted
    | Opened
    | Batch
    | AttemptEnded
    | ClientLeft
    | DrainStarted
    | Circumstances
    | Handed
    | GatewayFailed
    | Tick
)


# --- commands ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these events to the writer, as they are. `head` is the delivered attempt's."""

    events: Sequence[Event]
    head: Head | None


@dataclass(frozen=True, slots=True)
class DeliverFailure:
    """Hand a failure that is not made of upstream events to the writer. If `response.created` was delivered,
    `response` is the response object that the client knows; `next_sequence_number` is None where the upstream does
    not number its events (X3)."""

    failure: Failure
    head: Head | None
    response: JsonObject | None = field(default=None, repr=False)
    next_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class Consult:
    """An attempt failed: answer with Circumstances before anything else."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What became of one attempt (L1). Times are seconds of the monotonic clock."""

    outcome: str
    started_at: float
    ended_at: float
    verdict: Verdict | None = None
    first_event_at: float | None = None
    first_output_at: float | None = None
    response_id: str | None = None
    usage: Usage | None = None
    dropped_events: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """Discard the attempt, which ended by this failure, and start another on another route."""

    report: AttemptReport
    failure: Failure


@dataclass(frozen=True, slots=True)
class Finish:
    """The turn is over: its last attempt, the outcome by name, and what money asks."""

    outcome: str
    report: AttemptReport | None
    ended: Ended
    failure: Failure | None = None
    own_response_id: str | None = None
    """W9: of a response that the gateway made without an attempt."""


Command = Deliver | DeliverFailure | Consult | Replay | Finish
