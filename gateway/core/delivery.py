"""What a turn's client was given: enough to bill it, and to end it in its own terms (R2, R3, B4, E6, E10, X3).

*Issued* is what was ordered to be handed over: the replay decision reads it, for it errs on the safe side. *Handed* is
what the writer took: money reads it, for it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core.events import (
    Event,
    EventClass,
    JsonObject,
    delivered_text_bytes,
    event_sequence_number,
    has_output_items,
    member,
    response_id,
    sequence_number,
)
from gateway.core.failures import Failure
from gateway.core.messages import DeliverFailure, Door, Head
from gateway.core.whole import output_text_bytes

NUMBERED: Final = b'"sequence_number"'
"""Inside a JSON string its quotes would be escaped: an event without it carries no number."""


class Delivery:
    """The account of one turn's frames. Output events are counted by their bytes and never parsed on their way."""

    __slots__ = (
        *("_is_framed", "_is_whole", "_last_number", "_last_output", "_outlives_stream", "_response"),
        *("_text_bytes_issued", "handing_since", "has_begun", "outgoing", "output_was_handed"),
        *("output_was_issued", "text_bytes"),
    )

    def __init__(self, door: Door, *, is_whole: bool = False, outlives_stream: bool = False) -> None:
        self.has_begun = False
        self.output_was_issued = False
        self.output_was_handed = False
        self.text_bytes = 0
        self.handing_since: float | None = None
        """Since when the client is the slow side; None while it has taken everything."""
        self.outgoing: list[Event] = []
        """What was issued since it was last taken."""
        self._is_framed = door is Door.WEBSOCKET
        self._is_whole = is_whole
        self._outlives_stream = outlives_stream
        self._text_bytes_issued = 0
        self._last_output: Event | None = None
        self._last_number: int | None = None
        self._response: JsonObject | None = None

    def __repr__(self) -> str:
        return f"<Delivery begun={self.has_begun} output={self.output_was_issued} text={self.text_bytes}>"

    # --- what this client can be given --------------------------------------------------------------------------

    def can_carry(self, event: Event) -> bool:
        """E10: a WebSocket frame is text; elsewhere bytes are bytes."""
        return not self._is_framed or is_utf8(event.data)

    @property
    def tells_at_once(self) -> bool:
        """E6: an HTTP client gets an `error` at once after the commit point. On a WebSocket it waits, for a turn has
        one terminal frame there."""
        return self.has_begun and not self._is_framed

    def is_told_by_events(self, failure: Failure) -> bool:
        """X1, X5: in the upstream's own events, but for a first frame that an HTTP client gets as its status."""
        return bool(failure.events) and (self._is_framed or failure.answer is None)

    def last_words(self, failure: Failure, told: int) -> Sequence[Event]:
        """E6: of a failure's events those still to be handed over, when `told` of them were. On a WebSocket only the
        last one ends the turn; what came between keeps its place."""
        telling = failure.events if self.is_told_by_events(failure) else ()
        if self._is_framed:
            return [event for event in telling if event is telling[-1] or event.kind not in TELLERS]
        return telling[told:]

    def failure_command(self, failure: Failure, head: Head | None) -> DeliverFailure:
        """The failure as this client must see it: with the response it knows and the number that comes next. A response
        in the background has not failed with its stream (B9), and the next number is its next event's: a client that
        resumes behind the last number it has seen must not miss it."""
        if self._outlives_stream:
            return DeliverFailure(failure, head)
        return DeliverFailure(failure, head, self._response, self._next_number())

    # --- what it was given --------------------------------------------------------------------------------------

    def issue(self, events: Sequence[Event], at: float) -> None:
        """These events are about to be handed to the writer; for a client that gets one body, the one that holds it."""
        if self._is_whole:
            self._issue_whole([event for event in events if event.kind is EventClass.TERMINAL], at)
            return
        self.has_begun = True
        self.handing_since = at if self.handing_since is None else self.handing_since
        self.outgoing += events
        output = [event for event in events if event.kind is OUTPUT]
        if output:
            self.output_was_issued = True
            self._note_output(output)
        if len(output) < len(events):
            self._note_parsed([event for event in events if event.kind is not OUTPUT])

    def passing(self, events: Sequence[Event], start: int = 0) -> int:
        """Up to where events, from `start` on, leave nothing to decide: output behind output."""
        if not self.output_was_issued:
            return start
        end = len(events)
        for place in range(start, end):
            event = events[place]
            if event.kind is not OUTPUT or (self._is_framed and not is_utf8(event.data)):
                return place
        return end

    def passed(self, events: Sequence[Event]) -> None:
        """The writer took these at once, behind everything issued before: all of them pass."""
        self._note_output(events)
        self.text_bytes = self._text_bytes_issued

    def _note_output(self, events: Sequence[Event]) -> None:
        self._text_bytes_issued += delivered_text_bytes(*events)
        for event in reversed(events):
            if event.data.find(NUMBERED) >= 0:
                self._last_output = event
                break

    def _issue_whole(self, events: Sequence[Event], at: float) -> None:
        """H1."""
        for event in events:
            self.has_begun = True
            self.handing_since = at
            self.outgoing.append(event)
            self.output_was_issued = has_output_items(event.body)
            self._text_bytes_issued = output_text_bytes(event)

    def take_outgoing(self) -> list[Event]:
        """What was issued since it was last taken."""
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    def handed(self) -> None:
        """The writer took everything issued so far."""
        self.handing_since = None
        self.output_was_handed = self.output_was_issued
        self.text_bytes = self._text_bytes_issued

    def _note_parsed(self, events: Sequence[Event]) -> None:
        for event in events:
            number = sequence_number(event.body)
            if number is not None:
                self._last_number = number
            if event.kind is EventClass.LIFECYCLE and response_id(event.body) is not None:
                self._response = member(event.body, "response")

    def _next_number(self) -> int | None:
        """X3: an output event is parsed for its number only here, when a failure is made."""
        last_output_number = None if self._last_output is None else event_sequence_number(self._last_output)
        numbers = [number for number in (self._last_number, last_output_number) if number is not None]
        return max(numbers) + 1 if numbers else None


OUTPUT: Final = EventClass.OUTPUT
TELLERS: Final = (EventClass.TERMINAL, EventClass.ERROR)


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are text."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
