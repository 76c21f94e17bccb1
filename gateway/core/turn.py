"""The turn machine: everything that is decided about a turn, and when (T, E6, E9, R3, R7).

    step(input, at) -> commands                 deadline: when to step with Tick, if nothing comes before

    WAITING --AttemptStarted--> RUNNING --error event--> GRACE
       ^                           |                       |
       |                           +------ a failure ------+
       |                                       v
       +------- Replay <--- yes --- JUDGING (Consult, Circumstances) --- no ---> DONE
                                   a terminal event, a client that left, the house's own end ---> DONE

Law of time: an input stamped strictly before a deadline wins; at the deadline the clock wins; of several deadlines at
one instant the order is: client left, T5, T7, T2, H1, T4, T1, T9. The machine reads no clock: it is told. A step that
comes late gives what a step in time would have given: first every deadline that was due, each at its own instant. Only
a verdict that is still open hears of what came after its deadline: of a drain, a bug, a client that left (R1, R12).

Law of the hold: lifecycle and neutral events are held until the first output event, the terminal event or a failure,
at most 10 s from the turn's first held lifecycle event (T1). What is handed over commits the turn. A replay discards
what is held, whole; a failure that is not replayed hands it over first.

Law of the end: an attempt's failure is dated by its `error`, whatever cuts the grace (T5, T7). Nothing is handed to a
client that left. DONE answers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.core.attempt import Attempt, End, end_of
from gateway.core.delivery import Delivery
from gateway.core.eligibility import BACKGROUND
from gateway.core.events import Event, EventClass
from gateway.core.failures import Failure, FailureKind
from gateway.core.hold import NOTHING_HELD, Hold
from gateway.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Batch,
    Circumstances,
    ClientLeft,
    Command,
    Consult,
    Deliver,
    Door,
    DrainStarted,
    Finish,
    GatewayFailed,
    Handed,
    Head,
    Input,
    Opened,
    Replay,
    Tick,
)
from gateway.core.money import Ended, EndedBy
from gateway.core.replay import Facts, decide
from gateway.core.rules import (
    EXPIRED,
    FINAL_KINDS,
    HOLD_OVERFLOW,
    INVALID_TEXT,
    NEVER,
    Clock,
    Due,
    Phase,
    TurnRules,
    client_left,
)


class Turn:
    """One turn. Neither concurrent nor asynchronous: `step` takes the inputs in the order in which they are handled."""

    def __init__(
        self,
        door: Door,
        rules: TurnRules,
        *,
        stateful_reasons: tuple[str, ...] = (),
        replay_is_disabled: bool = False,
    ) -> None:
        self.phase = Phase.WAITING
        self._rules = rules
        self._stateful_reasons = stateful_reasons
        self._replay_is_disabled = replay_is_disabled
        self._replays_spent = 0
        self._attempt: Attempt | None = None
        self._failure: tuple[Failure, float] | None = None
        self._left: tuple[ClientLeft, float] | None = None
        self._is_draining = False
        self._house_due: Due = (rules.cut_at, Clock.T5)
        self._due, self._has_passed = self._house_due, False
        self._hold = Hold(rules.hold_seconds, rules.hold_bytes_max, rules.hold_events_max)
        self._aside: Hold = NOTHING_HELD
        self._delivery = Delivery(door, is_whole=rules.is_whole, outlives_stream=BACKGROUND in stateful_reasons)
        self._commands: list[Command] = []
        self._end: End | None = None

    def __repr__(self) -> str:
        return f"<Turn {self.phase.value}, {self._hold}, {self._delivery}>"

    @property
    def is_committed(self) -> bool:
        """Whether anything was handed over: from then on nothing can be replayed."""
        return self._delivery.has_begun

    @property
    def deadline(self) -> float:
        """The next instant at which the machine wants a step, infinity for none."""
        return self._next_due()[0] if self._has_passed else self._due[0]

    def lets_pass(self, events: Sequence[Event], at: float) -> bool:
        """Whether a batch seen at `at` may go to the client past `step`: output behind output, all before it handed
        over, no deadline due by then. Whoever has handed it over says `passed`."""
        if self.phase is not Phase.RUNNING or self._delivery.handing_since is not None:
            return False
        return (at < self._due[0] or at < self.deadline) and self._delivery.passing(events) == len(events)

    def passed(self, events: Sequence[Event], at: float) -> None:
        """What `step` would have made of a batch that was handed over as it was seen: T4 is due later than it was."""
        if self._attempt is not None:
            self._attempt.heard_at(at)
            self._delivery.passed(events)
            self._has_passed = True

    def step(self, arrived: Input, at: float) -> list[Command]:
        """Take one input seen at `at`; first every deadline that was due by then. What one step delivers is one piece,
        and the first command: one write, and one Handed for all of it."""
        if isinstance(arrived, ClientLeft) and self._left is None:
            self._left = arrived, at
        if self._has_passed:
            self._due, self._has_passed = self._next_due(), False
        while self._due[0] < at or (self._due[0] == at and not isinstance(arrived, ClientLeft)):
            self._expire(*self._due)
            self._due = self._next_due()
        if self.phase is not Phase.DONE:
            _HANDLERS[type(arrived)](self, arrived, at)
            self._due = self._next_due()
        return self._take_commands()

    def _take_commands(self) -> list[Command]:
        """Frames first. The end is told when its input was looked at whole: it counts what came behind a terminal."""
        commands, end, self._commands, self._end = self._commands, self._end, [], None
        if self._delivery.outgoing:
            commands.insert(0, Deliver(self._delivery.take_outgoing(), self._head))
        if end is not None:
            commands.append(self._finish(end))
        return commands

    @property
    def _head(self) -> Head | None:
        return None if self._attempt is None else self._attempt.head

    # --- deadlines (T) ------------------------------------------------------------------------------------------

    def _next_due(self) -> Due:
        """The earliest of the clocks that run; of several at one instant the first in their order. While frames are
        being handed over nobody listens to the upstream: then its clocks do not run."""
        if self.phase in (Phase.JUDGING, Phase.DONE):
            return NEVER
        if self._attempt is None or self._delivery.handing_since is not None:
            return self._house_due
        if self.phase is Phase.GRACE:
            return min(self._house_due, (self._attempt.told_at + self._rules.failure_grace_seconds, Clock.T9))
        return min(self._house_due, self._attempt.due, (self._hold.deadline, Clock.T1))

    def _expire(self, at: float, clock: Clock) -> None:
        if clock is Clock.T1:
            self._deliver(self._hold.take(), at)
        elif self.phase is Phase.GRACE:
            self._judge_told(at)
        else:
            self._fail(EXPIRED[clock], at)

    # --- what the upstream sends --------------------------------------------------------------------------------

    def _attempt_started(self, terms: AttemptStarted, at: float) -> None:
        if self.phase is Phase.WAITING:
            self.phase = Phase.RUNNING
            self._attempt = Attempt(terms, started_at=at, quiet_since=at, is_whole=self._rules.is_whole)

    def _opened(self, opened: Opened, _at: float) -> None:
        if self._attempt is not None:
            self._attempt.head = opened.head

    def _batch(self, batch: Batch, at: float) -> None:
        """Output that follows output is passed on in one piece; every other event is looked at."""
        events, place, count = batch.events, 0, len(batch.events)
        while place < count:
            end = self._delivery.passing(events, place) if self.phase is Phase.RUNNING else place
            if end > place:
                self._deliver(events[place:end], at)
                place = end
            else:
                self._event(events[place], at)
                place += 1
        if self._attempt is not None:
            self._attempt.heard_at(at)
        self._hold.rest()

    def _event(self, event: Event, at: float) -> None:
        attempt = self._attempt
        if attempt is None or self.phase in (Phase.JUDGING, Phase.DONE):
            self._drop(1)
        elif not self._delivery.can_carry(event):
            attempt.read(event)
            self._drop(1)
            self._attempt_ended(AttemptEnded(INVALID_TEXT), at)
        elif self.phase is Phase.GRACE:
            self._event_in_grace(attempt, event, at)
        else:
            attempt.observe(event, at)
            _EVENT_HANDLERS[event.kind](self, attempt, event, at)

    def _hold_or_pass(self, _attempt: Attempt, event: Event, at: float) -> None:
        """Lifecycle and neutral events: held before anything was handed over (T1)."""
        if self._delivery.has_begun:
            self._deliver([event], at)
            return
        is_late = event.kind is EventClass.LIFECYCLE and self._hold.is_over(at)
        self._hold.add(event, at)
        if is_late:
            self._deliver(self._hold.take(), at)
        elif self._hold.is_too_large:
            self._fail(HOLD_OVERFLOW, at)

    def _output(self, _attempt: Attempt, event: Event, at: float) -> None:
        self._deliver([*self._hold.take(), event], at)

    def _terminal(self, attempt: Attempt, event: Event, at: float) -> None:
        if event.type == "response.failed":
            attempt.telling.append(event)
            self._judge_told(at)
        else:
            self._deliver([*self._hold.take(), event], at)
            self._ends(End(event.type.removeprefix("response."), EndedBy.TERMINAL, at))

    # --- failures told by events (E6) ---------------------------------------------------------------------------

    def _error(self, attempt: Attempt, event: Event, at: float) -> None:
        """Read on for a `response.failed`. The failure is stamped now: the hold cannot expire any more."""
        self.phase, self._aside = Phase.GRACE, Hold(math.inf, self._rules.hold_bytes_max, self._rules.hold_events_max)
        attempt.told_at = at
        attempt.telling.append(event)
        if self._delivery.tells_at_once:
            attempt.told_events = 1
            self._deliver([event], at)

    def _event_in_grace(self, attempt: Attempt, event: Event, at: float) -> None:
        """Only `response.failed` joins, with what came before it; what else ends the grace is dropped."""
        attempt.read(event)
        if event.kind in (EventClass.LIFECYCLE, EventClass.NEUTRAL):
            self._aside.add(event, at)
            if not self._aside.is_too_large:
                return
        elif event.type == "response.failed":
            attempt.telling += [*self._aside.take(), event]
        else:
            self._drop(1)
        self._judge_told(at)

    def _judge_told(self, at: float) -> None:
        """The failure is whole. What came after its last event would follow the turn's end (E9)."""
        if self._attempt is not None:
            self._drop(len(self._aside.take()))
            self._fail(self._attempt.told_failure(), at)

    # --- how an attempt ends ------------------------------------------------------------------------------------

    def _attempt_ended(self, ended: AttemptEnded, at: float) -> None:
        if self.phase is Phase.GRACE:
            self._judge_told(at)
        elif self.phase is Phase.RUNNING and self._attempt is not None:
            self._attempt.read_end(ended)
            self._fail(ended.failure, at)

    def _fail(self, failure: Failure, at: float) -> None:
        """The attempt has failed. Only about what a replay could cure the house is asked; the rest is concluded."""
        self._failure = failure, at
        self.phase = Phase.JUDGING
        if failure.kind in FINAL_KINDS:
            self._circumstances(Circumstances(), at)
        else:
            self._commands.append(Consult())

    def _circumstances(self, house: Circumstances, _at: float) -> None:
        """The verdict, on the failure at its own instant."""
        if self._failure is None:
            return
        failure, at = self._failure
        verdict = decide(self._facts(failure, house, at), without=self._rules.without)
        end = end_of(failure, verdict, at)
        if not verdict.replay or self._attempt is None:
            self._conclude(failure, end)
        elif self._left is not None and failure.kind is not FailureKind.CLIENT_LEFT:
            self._fail(client_left(self._left[0].why), self._left[1])
        else:
            self._replay(self._attempt, failure, end)

    def _facts(self, failure: Failure, house: Circumstances, at: float) -> Facts:
        attempt = self._attempt
        return Facts(
            failure=failure.kind,
            output_was_delivered=self._delivery.output_was_issued,
            lifecycle_was_delivered=self._delivery.has_begun,
            usage_was_observed=attempt is not None and attempt.usage_was_observed,
            result_was_observed=attempt is not None and attempt.result_was_observed,
            first_event_was_seen=attempt is not None and attempt.first_event_at is not None,
            stateful_reasons=self._stateful_reasons,
            replay_is_disabled=self._replay_is_disabled,
            replays_spent=self._replays_spent,
            is_draining=house.is_draining or self._is_draining,
            connection_limit_is_reached=at >= self._rules.connection_limit_at or at >= self._rules.cut_at,
            is_throttled=house.is_throttled,
            another_route_is_left=house.another_route_is_left,
        )

    def _replay(self, attempt: Attempt, failure: Failure, end: End) -> None:
        """Nothing of the failed attempt stays but that it was one."""
        self._replays_spent += 1
        self._attempt = None
        self._failure = None
        self._hold.take()
        self.phase = Phase.WAITING
        self._commands.append(Replay(attempt.report(end), failure))

    def _conclude(self, failure: Failure, end: End) -> None:
        """Held events first, then the failure, as upstream told it or in the gateway's words (X1)."""
        told = 0 if self._attempt is None else self._attempt.told_events
        self._deliver([*self._hold.take(), *self._delivery.last_words(failure, told)], end.at)
        if not self._delivery.is_told_by_events(failure) and self._left is None:
            self._commands.append(self._delivery.failure_command(failure, self._head))
        self._ends(end)

    def _ends(self, end: End) -> None:
        """The last frames are on their way: they count as handed over, unless there is no one to take them."""
        self.phase = Phase.DONE
        self._end = end
        if self._left is None:
            self._delivery.handed()

    def _finish(self, end: End) -> Finish:
        attempt, delivery = self._attempt, self._delivery
        usage, report = (None, None) if attempt is None else (attempt.usage, attempt.report(end))
        ended = Ended(end.by, delivery.output_was_handed, usage, end.failure is not None, delivery.text_bytes)
        return Finish(end.outcome, report, ended, end.failure)

    # --- the client and the house -------------------------------------------------------------------------------

    def _client_left(self, left: ClientLeft, at: float) -> None:
        """A verdict that is due is not overtaken; a client that left only keeps it from being a replay (R1)."""
        if self.phase is not Phase.JUDGING:
            self._fail(client_left(left.why), at)

    def _drain_started(self, drain: DrainStarted, _at: float) -> None:
        self._is_draining = True
        self._house_due = min((self._rules.cut_at, Clock.T5), (drain.ends_at, Clock.T7))

    def _handed(self, _handed: Handed, at: float) -> None:
        """T4: while the client was the slow side, the upstream's silence did not count."""
        since = self._delivery.handing_since
        if self._attempt is not None and since is not None:
            self._attempt.unheard(since, at)
        self._delivery.handed()

    def _deliver(self, events: Sequence[Event], at: float) -> None:
        """Hand events over: the commit point, the first time. There is nobody to take them once the client left."""
        if events and self._left is None:
            self._delivery.issue(events, at)

    def _drop(self, events: int) -> None:
        """E9: what comes after the end is not forwarded, but counted."""
        if self._attempt is not None:
            self._attempt.dropped_events += events


# --- tables -----------------------------------------------------------------------------------------------------

_HANDLERS: Final[dict[type[Input], Callable[[Turn, Any, float], None]]] = {
    AttemptStarted: Turn._attempt_started,
    Opened: Turn._opened,
    Batch: Turn._batch,
    AttemptEnded: Turn._attempt_ended,
    ClientLeft: Turn._client_left,
    DrainStarted: Turn._drain_started,
    Circumstances: Turn._circumstances,
    Handed: Turn._handed,
    GatewayFailed: lambda turn, failed, at: turn._fail(failed.failure, at),
    Tick: lambda _turn, _tick, _at: None,  # the deadlines were looked at already
}

_EVENT_HANDLERS: Final[dict[EventClass, Callable[[Turn, Attempt, Event, float], None]]] = {
    EventClass.LIFECYCLE: Turn._hold_or_pass,
    EventClass.NEUTRAL: Turn._hold_or_pass,
    EventClass.OUTPUT: Turn._output,
    EventClass.TERMINAL: Turn._terminal,
    EventClass.ERROR: Turn._error,
}
