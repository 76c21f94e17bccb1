"""What is known of one attempt while it runs, and the report it leaves (L1, R4, E6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gateway.core.crossing import as_answer, failure_from_first_frame
from gateway.core.events import Event, EventClass, has_output_items, parse_object, response_id, usages
from gateway.core.failures import Failure, failure_from_events
from gateway.core.messages import AttemptEnded, AttemptReport, AttemptStarted, Head
from gateway.core.money import EndedBy, Usage, read_usage, usage_was_observed
from gateway.core.replay import Verdict
from gateway.core.rules import OWN_KINDS, Clock, Due

ENDINGS: Final = (EventClass.TERMINAL, EventClass.ERROR)


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt, and with it perhaps its turn, ended."""

    outcome: str
    by: EndedBy
    at: float
    failure: Failure | None = None
    verdict: Verdict | None = None


def end_of(failure: Failure, verdict: Verdict, at: float) -> End:
    """The end that a failure makes; B3 asks whose fault it was."""
    by = EndedBy.GATEWAY if failure.kind in OWN_KINDS else EndedBy.UPSTREAM_OR_CLIENT
    return End(failure.code, by, at, failure, verdict)


@dataclass(slots=True)
class Attempt:
    """One execution on one route. Times are seconds of the monotonic clock."""

    terms: AttemptStarted
    started_at: float
    quiet_since: float
    """T4: when the upstream was last heard; the time in which we were the slow side does not count."""
    is_whole: bool = False
    """H1: its client gets one body."""
    head: Head | None = None
    first_event_at: float | None = None
    first_output_at: float | None = None
    response_id: str | None = None
    usage: Usage | None = None
    usage_was_observed: bool = False
    result_was_observed: bool = False
    telling: list[Event] = field(default_factory=list)
    """E6: the events of its failure, in order, with what came between them."""
    told_at: float = 0.0
    """E6: when its `error` was seen."""
    is_refused: bool = False
    """X5: whether its `error` was its first event of all."""
    told_events: int = 0
    """E6: how many of them the client has already."""
    dropped_events: int = 0
    _has_spoken: bool = False

    def heard_at(self, at: float) -> None:
        """The upstream spoke."""
        self.quiet_since = max(self.quiet_since, at)

    def unheard(self, since: float, until: float) -> None:
        """T4: for this while the client was the slow side, and nobody listened to the upstream."""
        self.quiet_since += max(0.0, until - max(since, self.quiet_since))

    @property
    def due(self) -> Due:
        """T2 until its first event, from then on T4; for what is to come whole H1 alone."""
        if self.is_whole:
            return self.started_at + self.terms.response_seconds, Clock.H1
        if self.first_event_at is None:
            return self.started_at + self.terms.first_event_seconds, Clock.T2
        return self.quiet_since + self.terms.idle_seconds, Clock.T4

    def observe(self, event: Event, at: float) -> None:
        """T2, R9, R4: an event to pass on. Output is not parsed: once it is out nothing else matters; what is kept for
        a body (H1) is a result that was seen."""
        self.is_refused = event.kind is EventClass.ERROR and not self._has_spoken
        self._has_spoken = True
        if event.kind is not EventClass.NEUTRAL and self.first_event_at is None:
            self.first_event_at = at
        if event.kind is EventClass.OUTPUT and self.first_output_at is None:
            self.first_output_at = at
        if event.kind is not EventClass.OUTPUT:
            self.read(event)
        elif self.is_whole:
            self.result_was_observed = True

    def read(self, event: Event) -> None:
        """R4: any event of the attempt may tell that it was metered, also one that is dropped, whatever its class."""
        body = parse_object(event.data) if event.body is None else event.body
        for found in usages(body):
            self._read_usage(found, event.kind in ENDINGS)
        self.response_id = response_id(body) or self.response_id
        if event.kind in ENDINGS:
            self.result_was_observed |= event.type != "response.failed" and event.kind is EventClass.TERMINAL
            self.result_was_observed |= has_output_items(body)

    def read_end(self, ended: AttemptEnded) -> None:
        """R4: what came in the place of events, a status' body, tells of the attempt as its last event would."""
        told = ended.failure.told
        for found in usages(told):
            self._read_usage(found, is_final=True)
        has_output = has_output_items(told) or has_output_items({"response": told})
        self.result_was_observed |= ended.result_was_begun or has_output

    def _read_usage(self, found: object, is_final: bool) -> None:
        """B5: zeros count at the end only, where nothing else was read: vendors put them into `response.created`."""
        was_observed = usage_was_observed(found)
        self.usage_was_observed |= was_observed
        if was_observed or (is_final and self.usage is None):
            self.usage = read_usage(found) or self.usage

    def told_failure(self) -> Failure:
        """The failure that its own events tell; told by its first frame alone, as a status (X5)."""
        if self.head is not None and self.head.is_framed and self.is_refused and len(self.telling) == 1:
            failure = failure_from_first_frame(self.telling[0], self.terms.retryable_codes)
            if failure is not None:
                return failure
        failure = failure_from_events(tuple(self.telling), self.terms.retryable_codes)
        return as_answer(failure) if self.is_whole else failure

    def report(self, end: End) -> AttemptReport:
        """What became of it."""
        return AttemptReport(
            outcome=end.outcome,
            started_at=self.started_at,
            ended_at=end.at,
            verdict=end.verdict,
            first_event_at=self.first_event_at,
            first_output_at=self.first_output_at,
            response_id=self.response_id,
            usage=self.usage,
            dropped_events=self.dropped_events,
        )
