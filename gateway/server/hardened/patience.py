"""How long a peer may take to send what it has begun: a bound for a head, a pace for a body or a message.

A peer that sends one byte a second is neither idle nor silent, and holds a connection, a task and a buffer all the
same. A body's whole time has the app's own bound, which answers in the app's words.

The connection's reader waits in `scope()`. What is due may change while it waits (a response ends, and what came
behind its request turns out to be the start of a head), so the scope follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import trio

from gateway import limits


@dataclass(frozen=True, slots=True)
class Pace:
    """The bounds: for a head, from its first byte to its end; for a body, the pace it must keep, and how far it may
    fall behind."""

    head_seconds: float = limits.HEAD_SECONDS_MAX
    body_pause_seconds: float = limits.BODY_PAUSE_SECONDS_MAX
    body_bytes_per_second: float = limits.BODY_BYTES_PER_SECOND_MIN
    message_seconds: float = limits.BODY_SECONDS_MAX
    """For a whole WebSocket message; the app bounds a body."""


class Patience:
    """One connection's. Times are Trio's clock's."""

    __slots__ = ("_expects_head", "_pace", "_scope", "_whole_by", "deadline", "idle_until", "is_ending")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._expects_head = False
        self._whole_by = inf
        self._scope: trio.CancelScope | None = None
        self.deadline = inf
        """When the peer must have gone on; `inf` while nothing is due."""
        self.idle_until = inf
        """When the connection has idled for too long; `inf` while a request is served."""
        self.is_ending = False

    def scope(self) -> trio.CancelScope:
        """For the next read."""
        self._scope = trio.CancelScope(deadline=min(self.deadline, self.idle_until))
        return self._scope

    def was_read(self) -> None:
        """Nobody waits in it any more."""
        self._scope = None

    def idle(self, until: float) -> None:
        """The connection idles until then; `inf`: it does not."""
        self.idle_until = until
        self._follow()

    def expect_head(self, now: float) -> None:
        """A head has begun and not ended; its first byte counts."""
        if not self._expects_head:
            self._await(now + self._pace.head_seconds, expects_head=True)

    def expect_body(self, now: float) -> None:
        """A head has ended, and a body may follow."""
        self._await(now + self._pace.body_pause_seconds)

    def expect_message(self, now: float) -> None:
        """A WebSocket message has begun and not ended."""
        self._whole_by = now + self._pace.message_seconds
        self._await(now + self._pace.body_pause_seconds)

    def advance(self, body_bytes: int, now: float, waited_seconds: float = 0.0) -> None:
        """A piece of the body or message has come, and was not read for so long. No advance is hoarded: a burst buys
        no more than one pause."""
        earned = body_bytes / self._pace.body_bytes_per_second
        self._whole_by += waited_seconds
        due = min(self.deadline + earned + waited_seconds, now + self._pace.body_pause_seconds)
        self._await(min(due, self._whole_by))

    def excuse(self, waited_seconds: float) -> None:
        """What had come was not read for so long: that is none of the peer's doing."""
        if waited_seconds and self.deadline < inf:
            self._await(self.deadline + waited_seconds)

    def rest(self) -> None:
        """Nothing is due from the peer."""
        self._whole_by = inf
        self._await(inf)

    def end(self, deadline: float) -> None:
        """Whatever comes, it comes by then."""
        self._await(deadline)
        self.is_ending = True

    def _await(self, deadline: float, *, expects_head: bool = False) -> None:
        self._expects_head = expects_head
        if not self.is_ending:
            self.deadline = deadline
            self._follow()

    def _follow(self) -> None:
        if self._scope is not None:
            self._scope.deadline = min(self.deadline, self.idle_until)
