"""An answer that is text frames of a line, on its way to its turn (E, E10).

    messages --read_framed--> batch --take--> past the turn's tasks to its client, now          (ports.Inputs)
                                |
                                +-----send---> the turn                      where that takes a wait

As streaming.py's over SSE: what comes is handed over as it comes, in the line's task, for as long as it can be. The
attempt's own task goes on where something has to wait, or takes long, and at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from gateway import limits
from gateway.aside import Aside
from gateway.core.events import Event, EventClass, member, response_id
from gateway.core.failures import Failure
from gateway.core.messages import AttemptEnded, Batch
from gateway.core.sse import read_framed
from gateway.ports import Inputs, UpstreamCall
from gateway.upstream.answers import bad_response
from gateway.upstream.line import Line

logger = structlog.get_logger("gateway.upstream")


class FrameStream:
    """One answer's. What is megabytes long is read by `aside`."""

    __slots__ = (
        *("_aside", "_at", "_behind", "_call", "_events", "_inputs", "_is_over", "_line", "_not_events"),
        *("_retryable_codes", "_takes_any", "_unread"),
    )

    def __init__(
        self, line: Line, call: UpstreamCall, inputs: Inputs, aside: Aside, retryable_codes: frozenset[str]
    ) -> None:
        self._line = line
        self._call = call
        self._inputs = inputs
        self._aside = aside
        self._retryable_codes = retryable_codes
        self._takes_any = call.generates and call.streams
        """Whether whatever comes answers the call."""
        self._unread: Sequence[bytes] = ()
        """Messages that were read ahead, or are too many or too long to be read in another's task."""
        self._events: list[Event] = []
        """What was read and could not be handed over without a wait."""
        self._at = 0.0
        """When that came."""
        self._is_over = False
        """Whether the terminal event was read."""
        self._behind = 0
        self._not_events = 0

    def __repr__(self) -> str:
        return f"<FrameStream of {self._line!r}, over={self._is_over}>"

    async def run(self) -> Failure | None:
        """To its end: None after a terminal event, or one that was told as a failure; else why it ended without."""
        try:
            while True:  # noqa: ASYNC913 - it goes round only behind a wait for the line
                ahead = await self._line.pass_on(self._take)
                if ahead is not None:
                    self._unread, self._at = ahead
                if not (self._unread or self._events):
                    return self._line.failure
                if await self._send_left():
                    return None
        finally:
            self._log()

    def _take(self, payloads: Sequence[bytes], at: float) -> bool:
        """What one read brought, handed over now; False if there is something to wait for, or nothing more comes."""
        self._at = at
        if len(payloads) > limits.BATCH_EVENTS_MAX or sum(map(len, payloads)) > limits.INLINE_BODY_BYTES_MAX:
            self._unread = payloads
            return False
        events = self.events_of(payloads)
        may_pass = self._takes_any or not events or self._bad_end(events) is None
        if not events or (may_pass and self._inputs.take(Batch(events), at)):
            return True
        self._events = events
        return False

    async def _send_left(self) -> bool:
        """Send what came; whether that was the last."""
        events, unread = self._events, self._unread
        self._events, self._unread = [], ()
        if events:
            return await self._send(events)
        for start in range(0, len(unread), limits.BATCH_EVENTS_MAX):
            end = start + limits.BATCH_EVENTS_MAX
            piece = unread[start:end]
            events = await self._aside.run(sum(map(len, piece)), partial(self.events_of, piece))
            self._behind += len(unread[end:]) if self._is_over else 0
            if events and await self._send(events):
                return True
        return False

    async def _send(self, events: list[Event]) -> bool:
        """Hand a batch to the turn; whether it was the last."""
        bad = self._bad_end(events)
        if bad is not None:
            await self._tell_bad(events[: bad[0]], bad[1], events[bad[0]].data)
            return True
        if self._is_over and not self._behind:
            self._line.finish(response_id(events[-1].body), self._call.may_go_on)
        await self._inputs.send((Batch(events), self._at))
        return self._is_over

    async def _tell_bad(self, sound: list[Event], why: str, data: bytes) -> None:
        """P9: behind what was sound; a result was made that nobody asked for in this way (R4)."""
        if sound:
            await self._inputs.send((Batch(sound), self._at))
        failure = bad_response(why, self._retryable_codes, data)
        await self._inputs.send((AttemptEnded(failure, result_was_begun=True), self._at))

    def events_of(self, payloads: Sequence[bytes]) -> list[Event]:
        """Messages as events, none behind a terminal one (E7, E9)."""
        events: list[Event] = []
        for payload in payloads:
            event = None if self._is_over else read_framed(payload)
            if event is not None:
                events.append(event)
                self._is_over = event.kind is EventClass.TERMINAL
            elif self._is_over:
                self._behind += 1
            else:
                self._not_events += 1
        return events

    def _bad_end(self, events: Sequence[Event]) -> tuple[int, str] | None:
        """Of events, at least one: the first that is no answer to the call, by its place, and why; None if all are."""
        if not self._call.generates:
            for place, event in enumerate(events):
                if event.kind is EventClass.OUTPUT:
                    return place, "it generates for a warm-up"
        if not self._call.streams and _lacks_response(events[-1]):
            return len(events) - 1, "its last event has no response"
        return None

    def _log(self) -> None:
        """What was not forwarded, in numbers (E7, E9)."""
        if self._not_events or self._behind:
            counts = {"blocks_without_event": self._not_events, "events_behind_the_end": self._behind}
            logger.info("not_forwarded", turn_id=self._call.turn_id, **counts)


def _lacks_response(event: Event) -> bool:
    """Of a failed response the client is told why (crossing.as_answer)."""
    is_result = event.kind is EventClass.TERMINAL and event.type != "response.failed"
    return is_result and not isinstance(member(event.body, "response"), Mapping)
