"""A player for the turn machine: a script of moments goes in, a score of lines comes out.

    play(HTTP, (0, START), (1, sends(CREATED, DELTA)), (2, sends(COMPLETED))) == [
        "1 deliver created output_text.delta",
        "2 deliver completed",
        "2 finish completed",
    ]

The player stands where the engine stands: it ticks at each deadline, answers Consult, tells that the writer took the
frames (unless the client is slow), and starts the next attempt at once (unless told not to).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.core.events import Event, read_event
from gateway.core.failures import Failure, FailureKind, gateway_failure
from gateway.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Batch,
    Circumstances,
    ClientLeft,
    Command,
    Consult,
    Deliver,
    DeliverFailure,
    Door,
    DrainStarted,
    Finish,
    GatewayFailed,
    Handed,
    Input,
    Replay,
    Tick,
)
from gateway.core.rules import Phase, TurnRules
from gateway.core.turn import Turn

HTTP, WEBSOCKET = Door.HTTP, Door.WEBSOCKET
DOORS = (HTTP, WEBSOCKET)

Moment = tuple[float, Input]

# --- what an upstream sends -------------------------------------------------------------------------------------------


def event(event_type: str, /, **members: Any) -> Event:
    """An event as an upstream writes it: its type first."""
    return event_of(json.dumps({"type": event_type, **members}).encode())


def event_of(data: bytes) -> Event:
    """The event with this payload."""
    read = read_event(data, b"data: " + data + b"\n\n")
    assert read is not None, data
    return read


def error(code: str | None = "server_error", /, **members: Any) -> Event:
    """The `error` event, as most upstreams write it."""
    return event("error", error={"code": code, "message": f"error {code}"}, **members)


def failed(code: str | None = "server_error", /, *, number: int | None = None, **response: Any) -> Event:
    """`response.failed`."""
    numbered = {} if number is None else {"sequence_number": number}
    told = {"id": "resp_1", "error": {"code": code, "message": f"failed {code}"}, **response}
    return event("response.failed", **numbered, response=told)


USAGE = {"input_tokens": 10, "output_tokens": 3}
ZEROS = {"input_tokens": 0, "output_tokens": 0}
CREATED = event("response.created", sequence_number=0, response={"id": "resp_1", "status": "in_progress", "output": []})
IN_PROGRESS = event("response.in_progress", sequence_number=1, response={"id": "resp_1"})
QUEUED = event("response.queued", response={"id": "resp_1"})
KEEPALIVE = event("keepalive")
METADATA = event("response.metadata", headers={})
DELTA = event("response.output_text.delta", sequence_number=2, delta="hello")
COMPLETED = event("response.completed", sequence_number=3, response={"id": "resp_1", "usage": USAGE})
INCOMPLETE = event("response.incomplete", response={"id": "resp_1", "usage": USAGE})
CANCELLED = event("response.cancelled", response={"id": "resp_1"})
NOT_TEXT = event_of(b'{"type":"response.output_text.delta","delta":"\xff\xfe"}')


# --- inputs -----------------------------------------------------------------------------------------------------------

START = AttemptStarted(first_event_seconds=25.0, idle_seconds=300.0)
LEFT = ClientLeft()
HANDED = Handed()
TICK = Tick()


def starts(first_event: float = 25.0, idle: float = 300.0) -> AttemptStarted:
    """An attempt on a route with clocks of its own."""
    return AttemptStarted(first_event_seconds=first_event, idle_seconds=idle)


def sends(*events: Event) -> Batch:
    """One read that completed these events."""
    return Batch(events)


RESET = AttemptEnded(gateway_failure(FailureKind.READ_ERROR, "stream_read_error", "the connection was reset"))
UNREACHABLE = AttemptEnded(gateway_failure(FailureKind.NEVER_SENT, "upstream_connect_error", "connection refused"))
UNAVAILABLE = AttemptEnded(Failure(FailureKind.RETRYABLE, "server_is_overloaded", 503, "status 503"))
BUG = GatewayFailed(gateway_failure(FailureKind.INTERNAL, "internal_error", "a bug"))
NO_CHOICE = GatewayFailed(gateway_failure(FailureKind.ROUTE_SELECTION, "route_selection_failed", "the store is away"))


def ended_by(kind: FailureKind, code: str = "stream_read_error") -> AttemptEnded:
    """The upstream call ended so."""
    return AttemptEnded(Failure(kind, code, 502, kind.value))


def drains(until: float) -> DrainStarted:
    """SIGTERM."""
    return DrainStarted(until)


HEALTHY = Circumstances(another_route_is_left=True)


# --- the player -------------------------------------------------------------------------------------------------------


@dataclass
class Player:
    """One machine and everything it said. `is_late` never ticks by itself, `is_slow` takes no frame by itself, and
    with `restarts=False` a replay waits for the script to start it."""

    door: Door
    rules: TurnRules = field(default_factory=TurnRules)
    house: Circumstances = HEALTHY
    stateful: tuple[str, ...] = ()
    is_disabled: bool = False
    terms: AttemptStarted = START
    is_late: bool = False
    is_slow: bool = False
    restarts: bool = True

    turn: Turn = field(init=False)
    lines: list[str] = field(default_factory=list)
    said: list[Command] = field(default_factory=list)
    delivered: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turn = Turn(self.door, self.rules, stateful_reasons=self.stateful, replay_is_disabled=self.is_disabled)

    def plays(self, *moments: Moment) -> Player:
        """Step through a script, each deadline at its own instant unless late."""
        for at, arrived in moments:
            if not self.is_late:
                self.waits(at, through=False)
            self.steps(arrived, at)
        return self

    def waits(self, until: float, *, through: bool = True) -> Player:
        """Tick at each deadline before that time, and at it as well if `through`."""
        for _ in range(100):
            due = self.turn.deadline
            if due == math.inf or not (due <= until if through else due < until):
                return self
            self.steps(TICK, due)
        raise AssertionError("the deadlines do not come to an end")

    def steps(self, arrived: Input, at: float) -> None:
        """One step, with the answers that an engine gives at once."""
        commands = self.turn.step(arrived, at)
        for command in commands:
            self._note(command, at)
        if any(isinstance(command, Consult) for command in commands):
            self.steps(self.house, at)
        if any(isinstance(command, Deliver | DeliverFailure) for command in commands) and not self.is_slow:
            self.steps(HANDED, at)
        if self.restarts and (replays := [command for command in commands if isinstance(command, Replay)]):
            self.steps(self.terms, replays[0].report.ended_at)

    def _note(self, command: Command, at: float) -> None:
        self.said.append(command)
        if isinstance(command, Deliver):
            self.delivered += command.events
        if not isinstance(command, Consult):
            self.lines.append(f"{round(at, 6):g} {line_of(command)}")

    @property
    def finish(self) -> Finish:
        """The turn's one end."""
        (finish,) = (command for command in self.said if isinstance(command, Finish))
        return finish

    @property
    def failure(self) -> DeliverFailure:
        """The one failure in the gateway's words."""
        (failure,) = (command for command in self.said if isinstance(command, DeliverFailure))
        return failure

    @property
    def replays(self) -> list[Replay]:
        """The replays, of which there is at most one."""
        return [command for command in self.said if isinstance(command, Replay)]

    @property
    def types(self) -> list[str]:
        """What the client got, by type."""
        return names(self.delivered)

    @property
    def reason(self) -> str:
        """The first verdict, by rule and reason; "delivered" where the turn came to its end without one."""
        for command in self.said:
            if isinstance(command, Replay | Finish):
                verdict = command.report and command.report.verdict
                return f"{verdict.rule} {verdict.reason.value}" if verdict else "delivered"
        return "undecided"

    @property
    def is_done(self) -> bool:
        """Whether the turn is over."""
        return self.turn.phase is Phase.DONE


def play(door: Door, *moments: Moment, **options: Any) -> list[str]:
    """The score of one script."""
    return Player(door, **options).plays(*moments).lines


def names(events: Sequence[Event]) -> list[str]:
    """Events by type, without the prefix that nearly all have."""
    return [event.type.removeprefix("response.") for event in events]


def line_of(command: Command) -> str:
    """A command as a line of the score."""
    match command:
        case Deliver(events):
            return " ".join(["deliver", *names(events)])
        case DeliverFailure(failure):
            return f"tell {failure.code} {failure.status}"
        case Replay(report):
            return f"replay after {report.outcome}"
        case Finish(outcome, report):
            verdict = report and report.verdict
            return f"finish {outcome}" + (f" by {verdict.rule} {verdict.reason.value}" if verdict else "")
        case _:
            return type(command).__name__.lower()
