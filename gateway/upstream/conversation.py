"""A WebSocket to an upstream below its line: what the two say to each other, whichever way it is spoken.

    line --run, send_text, answers_ping, leave-->  Conversation  --opened, hear, wait_for_room-->  line

`direct_conversation.py` reads frames by itself, off a socket of the gateway's own; `library_conversation.py` has
trio-websocket read them. Both write through `FrameWriter`, for what a library does not know of a connection:

- A library holds its lock for a whole message, so a pong would wait behind megabytes. Here each frame takes its own
  turn: creates are written in fragments, and control frames go between them (RFC 6455, 5.4).
- A write that was cancelled may have left half a frame: then nothing more is written, for the peer could not read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio
from wsproto.frame_protocol import CloseReason, FrameProtocol

from gateway import limits
from gateway.core.failures import RETRYABLE_CODES, Failure
from gateway.core.messages import Headers
from gateway.upstream.answers import WireHeaders, read_error, too_large

ABNORMAL: Final = 1006
"""The code of an end without a close (RFC 6455, 7.1.5)."""
BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError)


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What differs from route to route. Durations are seconds; `host` is the header's value."""

    name: str
    host: str
    resource: str
    connect_seconds: float = limits.CONNECT_SECONDS
    event_bytes_max: int = limits.EVENT_BYTES_MAX
    age_seconds_max: float = limits.UPSTREAM_SOCKET_SECONDS_MAX
    idle_seconds_max: float = limits.UPSTREAM_SOCKET_IDLE_SECONDS_MAX
    retryable_codes: frozenset[str] = field(default=RETRYABLE_CODES, repr=False)


class Hearer(Protocol):
    """Whom a conversation tells what it hears: its line."""

    def opened(self, handshake: Headers) -> None:
        """The handshake is over."""

    def hear(self, payloads: Sequence[bytes], at: float) -> bool:
        """Text messages that one read completed, and when that was; whether more may come at once: not if they have to
        be kept, and there is no room for more."""
        ...

    async def wait_for_room(self) -> None:
        """Return when there is."""


class Conversation(Protocol):
    """One connection's. `run` is one task's, for as long as it lasts; the rest may be anybody's."""

    async def run(self, hearer: Hearer) -> Failure:
        """Connect, shake hands, and tell what is heard, to the end; returns why nothing more will come."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is known to have come that was not seen to yet."""
        ...

    async def send_text(self, message: bytes) -> None:
        """Write one text message. Raises NothingWritten or CutOff; cancelled, it leaves the connection torn."""
        ...

    async def answers_ping(self) -> bool:
        """Whether the peer shows that it is there, within its time."""
        ...

    async def leave(self) -> None:
        """Say goodbye, if the peer could read it and takes it soon, and close."""
        ...


Converse = Callable[[LineSettings, WireHeaders], Conversation]
"""How a route's conversations are had; with these headers in the handshake."""


class NothingWritten(Exception):
    """The first frame of a message could not be written: whatever the peer has of it is no whole frame."""


class CutOff(Exception):
    """The connection broke behind the first frame of a message."""


def frame_too_large(bytes_max: int) -> Failure:
    """R7: one message passed its limit."""
    return too_large(f"one frame has more than {bytes_max} bytes")


def binary_frame() -> Failure:
    """Events are text (E10)."""
    return read_error("the upstream sent a binary frame")


def no_frames(code: int) -> Failure:
    """The upstream broke the protocol; a close that said so would have this code."""
    return read_error(f"the upstream's bytes are no WebSocket frames (code {code})")


class FrameWriter:
    """One connection's frames on their way up, one after the other. `write` raises one of BROKEN."""

    def __init__(self, write: Callable[[bytes | bytearray | memoryview], Awaitable[None]]) -> None:
        self._write = write
        self._writing = trio.StrictFIFOLock()
        self._is_torn = False

    def __repr__(self) -> str:
        return f"<FrameWriter torn={self._is_torn}>"

    async def send(self, frames: bytes | bytearray | memoryview) -> None:
        """Write whole frames, or the handshake. Raises one of BROKEN."""
        async with self._writing:
            if self._is_torn:
                raise trio.BrokenResourceError("half a frame was written before")
            self._is_torn = True
            await self._write(frames)
            self._is_torn = False

    async def send_text(self, message: bytes) -> None:
        """Write one text message in fragments (Conversation)."""
        frames = FrameProtocol(client=True, extensions=[])
        text = message.decode()
        pieces = range(0, len(text), limits.UPSTREAM_FRAGMENT_CHARACTERS)
        for start in pieces:
            end = start + limits.UPSTREAM_FRAGMENT_CHARACTERS
            try:
                await self.send(frames.send_data(text[start:end], fin=end >= len(text)))
            except BROKEN:
                raise (CutOff if start else NothingWritten) from None

    async def say_goodbye(self, code: int = CloseReason.NORMAL_CLOSURE) -> None:
        """Write a close frame, if the peer could read it and takes it soon."""
        if self._is_torn or self._writing.locked():
            return
        with trio.move_on_after(limits.UPSTREAM_GOODBYE_SECONDS_MAX):
            try:
                await self.send(FrameProtocol(client=True, extensions=[]).close(code))
            except BROKEN:
                return
