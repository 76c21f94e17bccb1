"""Passive health: what a route's own turns say of it (C3, F2). One circuit for each route, an immutable state machine.

    SERVING --5 faults in a row--> COOLING --time is over, a turn begins--> PROBING --first delivery--> TRIAL
       ^                            ^  ^ ^                                    | |                       |  |
       |                            |  | +------ ended without a verdict -----+ |                       |  |
       |                            |  +----- a fault: twice as long -----------+                       |  |
       |                            +-------- a fault: twice as long -----------------------------------+  |
       +--------------------------------------- a turn that ended soundly ---------------------------------+

- An attempt is judged once, by its end: by the failure that the replay decision judged, or as sound if there was none.
- While PROBING one turn is out and no other is taken. As soon as something of it is delivered others are (TRIAL), for a
  turn may last for minutes; but the first fault of any of them opens the circuit again.
- An answer of 429 or 503 with `retry-after` cools the route at once and for that long, whatever the state was.
- Only attempts that began since the circuit last opened are heard: what an outage left behind is no news.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import mktime_tz, parsedate_tz
from enum import Enum
from typing import Final

from gateway import limits
from gateway.core.failures import Failure, FailureKind, UpstreamAnswer, clean_retry_after


class Sign(Enum):
    """What an attempt's end says of its route."""

    __hash__ = object.__hash__  # by identity, in C: each attempt's end is looked up by it

    FAULT = "fault"
    SOUND = "sound"
    NOTHING = "nothing"


SIGN_OF: Final[dict[FailureKind, Sign]] = {
    FailureKind.ROUTE_FAULT: Sign.FAULT,
    FailureKind.NEVER_SENT: Sign.FAULT,
    FailureKind.READ_ERROR: Sign.FAULT,
    FailureKind.RETRYABLE: Sign.FAULT,
    FailureKind.UPSTREAM_TIMEOUT: Sign.FAULT,
    FailureKind.FIRST_EVENT_TIMEOUT: Sign.FAULT,
    FailureKind.IDLE_TIMEOUT: Sign.FAULT,  # as the timeouts of R5, whose reason R6 shares: the turn was lost to it
    FailureKind.BUFFER_OVERFLOW: Sign.NOTHING,  # R7: another route would send as much
    FailureKind.DETERMINISTIC: Sign.NOTHING,
    FailureKind.NOT_RETRYABLE: Sign.NOTHING,
    FailureKind.CLIENT_LEFT: Sign.NOTHING,
    FailureKind.CONNECTION_LIMIT: Sign.NOTHING,
    FailureKind.DRAINING: Sign.NOTHING,
    FailureKind.ROUTE_SELECTION: Sign.NOTHING,
    FailureKind.INTERNAL: Sign.NOTHING,
}
"""Total. A request's own fault says nothing of the route, not even that it is sound: a proxy may have answered."""

WAITING_STATUSES: Final = frozenset({429, 503})
"""The answers whose `retry-after` is about the route."""


def sign_of(failure: Failure | None) -> Sign:
    """The sign of an attempt that ended with this failure, or with none."""
    return Sign.SOUND if failure is None else SIGN_OF[failure.kind]


def wait_asked_seconds(failure: Failure | None, wall_now: float) -> float | None:
    """For how long the upstream asks to be left alone, at most `limits.ROUTE_WAIT_SECONDS_MAX`; None if it does not,
    or not with a fault. `wall_now` is what the gateway's own clock shows, in seconds since the epoch."""
    answer = None if failure is None else failure.answer
    if answer is None or answer.status not in WAITING_STATUSES or sign_of(failure) is not Sign.FAULT:
        return None
    seconds = _retry_after_seconds(answer, wall_now)
    return None if seconds is None or seconds <= 0 else min(seconds, limits.ROUTE_WAIT_SECONDS_MAX)


SECONDS_DIGITS_MAX: Final = 9
"""Of a wait: the bound is far below what they say."""


def _retry_after_seconds(answer: UpstreamAnswer, wall_now: float) -> float | None:
    """A date is told by the upstream's clock, which its own `date` shows; where it shows none, by ours. More than a day
    is not passed on to a client (F5), and is a wait all the same."""
    text = (answer.header("retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:SECONDS_DIGITS_MAX])
    until, now = _seconds_since_epoch(text), _seconds_since_epoch(answer.header("date"))
    return None if until is None else until - (wall_now if now is None else now)


def _seconds_since_epoch(written: str | None) -> float | None:
    """Of an HTTP date, which is in GMT also where its form does not say so (RFC 9110, 5.6.7); None of what is none."""
    read = parsedate_tz(clean_retry_after(written) or "")
    try:
        return None if read is None else float(mktime_tz((*read[:9], 0)))
    except (ValueError, OverflowError):
        return None


# --- the circuit ------------------------------------------------------------------------------------------------


class State(Enum):
    """Where a circuit stands."""

    __hash__ = object.__hash__  # as above

    SERVING = "serving"
    COOLING = "cooling"
    PROBING = "probing"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Circuit:
    """A route's circuit. `openings` in a row without a sound turn make the backoff; `generation` counts all of
    them, and tells apart the attempts that began in it. Times are seconds of the monotonic clock."""

    state: State = State.SERVING
    faults: int = 0
    openings: int = 0
    cools_until: float = -math.inf
    generation: int = 0

    def takes_turns(self, now: float) -> bool:
        """Whether a turn may begin: at the end of the cooling one may."""
        return self.state in (State.SERVING, State.TRIAL) or (self.state is State.COOLING and now >= self.cools_until)

    def begun(self, now: float) -> Circuit:
        """An attempt begins; remember the generation of what is returned."""
        is_probe = self.state is State.COOLING and now >= self.cools_until
        return replace(self, state=State.PROBING) if is_probe else self

    def delivered(self, generation: int) -> Circuit:
        """Something of an attempt was delivered: the probe's turn may last, others need not wait for its end."""
        is_probe = self.state is State.PROBING and generation == self.generation
        return replace(self, state=State.TRIAL, faults=0) if is_probe else self

    def ended(self, generation: int, failure: Failure | None, now: float, wall_now: float) -> Circuit:
        """An attempt of that generation has ended."""
        seconds = wait_asked_seconds(failure, wall_now)
        if seconds is not None:
            return self._opened(max(self.cools_until, now + seconds))
        if generation != self.generation:
            return self
        return _AFTER[self.state, sign_of(failure)](self, now)

    def left(self, generation: int, now: float) -> Circuit:
        """An attempt of that generation is over, or never began, and nothing was seen of the route."""
        return _AFTER[self.state, Sign.NOTHING](self, now) if generation == self.generation else self

    # --- what becomes of it -------------------------------------------------------------------------------------

    def _opened(self, until: float) -> Circuit:
        return replace(
            self, state=State.COOLING, faults=self.faults + 1, cools_until=until, generation=self.generation + 1
        )

    def _backed_off(self, now: float) -> Circuit:
        seconds = min(
            limits.ROUTE_COOLING_SECONDS_MIN * 2.0 ** min(self.openings, DOUBLINGS_MAX),
            limits.ROUTE_COOLING_SECONDS_MAX,
        )
        return replace(self._opened(now + seconds), openings=self.openings + 1)

    def _counted(self, now: float) -> Circuit:
        is_one_too_many = self.faults + 1 >= limits.ROUTE_FAULTS_MAX
        return self._backed_off(now) if is_one_too_many else replace(self, faults=self.faults + 1)

    def _sound(self, _now: float) -> Circuit:
        return Circuit(cools_until=self.cools_until, generation=self.generation)

    def _given_back(self, _now: float) -> Circuit:
        return replace(self, state=State.COOLING)

    def _unmoved(self, _now: float) -> Circuit:
        return self


DOUBLINGS_MAX: Final = 16
"""Beyond any cooling: the power stays a small number."""

_AFTER: Final[dict[tuple[State, Sign], Callable[[Circuit, float], Circuit]]] = {
    (State.SERVING, Sign.FAULT): Circuit._counted,
    (State.SERVING, Sign.SOUND): Circuit._sound,
    (State.SERVING, Sign.NOTHING): Circuit._unmoved,
    (State.COOLING, Sign.FAULT): Circuit._unmoved,
    (State.COOLING, Sign.SOUND): Circuit._unmoved,
    (State.COOLING, Sign.NOTHING): Circuit._unmoved,
    (State.PROBING, Sign.FAULT): Circuit._backed_off,
    (State.PROBING, Sign.SOUND): Circuit._sound,
    (State.PROBING, Sign.NOTHING): Circuit._given_back,
    (State.TRIAL, Sign.FAULT): Circuit._backed_off,
    (State.TRIAL, Sign.SOUND): Circuit._sound,
    (State.TRIAL, Sign.NOTHING): Circuit._unmoved,
}
