"""A client's WebSocket frames, read and sorted: what asks for a turn, and what is refused and why (W2, W3, W5, W8).

Everything a client sends waits in one line and is answered in its order; so no answer can come between the frames of a
running turn. The line is bounded: creates in number and bytes, refusals in number.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway import limits
from gateway.core.failures import Refusal
from gateway.core.request import RequestBody
from gateway.downstream.bodies import read_body, refuse_background

STREAM_ID: Final = re.compile(f"[A-Za-z0-9_.-]{{1,{limits.STREAM_ID_CHARACTERS_MAX}}}")
ECHOED: Final = ("event_id", "stream_id")


@dataclass(frozen=True, slots=True)
class Create:
    """A `response.create`: asks for a turn."""

    body: RequestBody = field(repr=False)
    stream_id: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame that becomes no turn, and what its answer echoes."""

    refusal: Refusal
    echo: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steer:
    """A `response.steer`: not supported, and answered with its input, which must not be lost."""

    body: RequestBody = field(repr=False)
    size_bytes: int


Frame = Create | Refused | Steer


def read_frame(message: str | bytes, size_max: int) -> Frame:
    """Sort one message."""
    size_bytes = bytes_of(message)
    if size_bytes > size_max:
        return Refused(Refusal("payload_too_large", f"a frame may have {size_max} bytes, this one has more"))
    if isinstance(message, bytes):
        return Refused(Refusal("invalid_request", "frames must be text"))
    try:
        body = read_body(message.encode("utf-8", "surrogatepass"))
    except Refusal as refusal:
        return Refused(refusal)
    try:
        return _sorted(body, size_bytes)
    except Refusal as refusal:
        return Refused(refusal, echo(body))


def bytes_of(message: str | bytes) -> int:
    """What a message takes on the wire."""
    return len(message) if isinstance(message, bytes) or message.isascii() else len(message.encode())


def _sorted(body: RequestBody, size_bytes: int) -> Frame:
    kind = body.get("type")
    if not isinstance(kind, str) or not kind:
        raise Refusal("invalid_request", "the frame has no 'type'", param="type")
    stream_id = _stream_id(body)
    if kind == "response.steer":
        return Steer(body, size_bytes)
    if kind != "response.create":
        raise Refusal("unsupported_event", f"{kind[:100]!r} is not supported here", param="type")
    refuse_background(body)
    return Create(body, stream_id, size_bytes)


def _stream_id(body: RequestBody) -> str | None:
    """W8."""
    value = body.get("stream_id")
    if value is None:
        return None
    if not isinstance(value, str) or STREAM_ID.fullmatch(value) is None:
        raise Refusal("invalid_stream_id", "'stream_id' must be 1 to 256 of A-Za-z0-9_.-", param="stream_id")
    return value


def echo(body: RequestBody) -> Mapping[str, str]:
    """What the answer to a frame repeats of it, so that its sender can tell."""
    return {name: value for name in ECHOED if isinstance(value := body.get(name), str)}


class Line:
    """The frames that wait for their turn, in the order in which they came."""

    def __init__(self, creates_max: int, bytes_max: int) -> None:
        self._creates_max = creates_max
        self._bytes_max = bytes_max
        self._frames: deque[Frame] = deque()
        self._creates = 0
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<Line {self._creates} creates, {len(self._frames) - self._creates} others>"

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def unanswered(self) -> int:
        """Frames that wait for an answer and not for a turn."""
        return len(self._frames) - self._creates

    def join(self, frame: Frame, *, turn_runs: bool) -> Frame:
        """W3: a create that finds the line full gets its refusal in its place. While no turn runs, the first in line
        does not wait. Returns what has joined."""
        if isinstance(frame, Create) and self._is_full_for(frame, self._creates_max + (not turn_runs)):
            refusal = Refusal("response_queue_full", "too many creates wait on this connection")
            frame = Refused(refusal, echo(frame.body))
        if isinstance(frame, Create):
            self._creates += 1
            self._bytes += frame.size_bytes
        self._frames.append(frame)
        return frame

    def _is_full_for(self, frame: Create, creates_max: int) -> bool:
        return self._creates >= creates_max or (self._creates > 0 and self._bytes + frame.size_bytes > self._bytes_max)

    def next(self) -> Frame:
        """Take the first. IndexError if there is none."""
        frame = self._frames.popleft()
        if isinstance(frame, Create):
            self._creates -= 1
            self._bytes -= frame.size_bytes
        return frame
