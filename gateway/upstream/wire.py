"""The stream below trio-websocket: what the library does not tell of a connection is seen here.

    library: handshake, pongs, pings  --send_all-->  +------+  -->  TCP, TLS
    a create, in fragments            --send_text->  | Wire |
    library's reader                  <-receive_some-+------+  <--

- The library holds its lock for a whole message, so a pong would wait behind megabytes. Here each frame takes its own
  turn: creates are written in fragments, and control frames go between them (RFC 6455, 5.4).
- A write that was cancelled may have left half a frame: then nothing more is written, for the peer could not read it.
- All frames of one read carry the time of that read.
- What answers the handshake is kept, bounded, until it is over: a refusal's body has no bound in the library, and an
  end in its middle is told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import h11
import trio
from wsproto.frame_protocol import CloseReason, FrameProtocol

from gateway import limits
from gateway.core.failures import UpstreamAnswer
from gateway.upstream.answers import headers_of

CLOSE_FRAME: Final = 0x88
"""The first byte of a close frame: FIN and the opcode 8."""


class NothingWritten(Exception):
    """The first frame of a message could not be written: whatever the peer has of it is no whole frame."""


class CutOff(Exception):
    """The connection broke behind the first frame of a message."""


class Wire(trio.abc.Stream):
    """One connection's bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.received_at = trio.current_time()
        self.has_answered_close = False
        self._stream = stream
        self._writing = trio.StrictFIFOLock()
        self._is_torn = False
        self._upgrade: bytearray | None = bytearray()
        self._upgrade_ended: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Wire torn={self._is_torn}, upgraded={self._upgrade is None}>"

    # --- writing ------------------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write one or more whole frames (or the handshake). Raises BrokenResourceError."""
        if len(data) and data[0] == CLOSE_FRAME:
            self.has_answered_close = True
        await self._write(data)

    async def send_text(self, message: bytes) -> None:
        """Write one text message. Raises NothingWritten or CutOff; cancelled, it leaves the wire torn."""
        frames = FrameProtocol(client=True, extensions=[])
        text = message.decode()
        pieces = range(0, len(text), limits.UPSTREAM_FRAGMENT_CHARACTERS)
        for start in pieces:
            end = start + limits.UPSTREAM_FRAGMENT_CHARACTERS
            try:
                await self._write(frames.send_data(text[start:end], fin=end >= len(text)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise (CutOff if start else NothingWritten) from None

    async def say_goodbye(self) -> None:
        """A close frame, if the peer could read it and takes it soon."""
        if self._is_torn or self._writing.locked() or self._upgrade is not None or self.has_answered_close:
            return
        with trio.move_on_after(limits.UPSTREAM_GOODBYE_SECONDS_MAX):
            try:
                await self._write(FrameProtocol(client=True, extensions=[]).close(CloseReason.NORMAL_CLOSURE))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def _write(self, data: bytes | bytearray | memoryview) -> None:
        async with self._writing:
            if self._is_torn:
                raise trio.BrokenResourceError("half a frame was written before")
            self._is_torn = True
            await self._stream.send_all(data)
            self._is_torn = False

    async def wait_send_all_might_not_block(self) -> None:
        """Of no use to the library, part of the interface."""
        await self._stream.wait_send_all_might_not_block()

    # --- reading ------------------------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes as they came, b"" at the end. Raises BrokenResourceError."""
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except trio.BrokenResourceError:
            self._note_upgrade(b"")
            raise
        self.received_at = trio.current_time()
        return self._note_upgrade(data)

    def _note_upgrade(self, data: bytes) -> bytes:
        if self._upgrade is None:
            return data
        self._upgrade += data
        if data and len(self._upgrade) <= limits.UPGRADE_BYTES_MAX:
            return data
        if self._upgrade_ended is not None:
            self._upgrade_ended()
        return b""

    # --- the handshake ------------------------------------------------------------------------------------------

    def upgrades(self, ended: Callable[[], None]) -> None:
        """The handshake begins; `ended` is called if the peer's bytes end before it does."""
        self._upgrade_ended = ended

    def is_upgraded(self) -> None:
        """The handshake is over, and nothing of it is kept."""
        self._upgrade = None

    def refusal(self) -> tuple[UpstreamAnswer, bool] | None:
        """What was answered instead of an upgrade, and whether its body is whole; None without a status."""
        try:
            return _read_answer(bytes(self._upgrade or b""))
        except h11.RemoteProtocolError:
            return None

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def _read_answer(data: bytes) -> tuple[UpstreamAnswer, bool] | None:
    """The HTTP answer in these bytes, as far as it goes."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "upstream")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    found: UpstreamAnswer | None = None
    body = bytearray()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            event = h11.NEED_DATA
        if isinstance(event, h11.Response):
            found = UpstreamAnswer(event.status_code, headers_of(list(event.headers)))
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            break
    is_whole = isinstance(event, h11.EndOfMessage) and len(body) <= limits.ERROR_BODY_BYTES_MAX
    return None if found is None else (UpstreamAnswer(found.status, found.headers, bytes(body)), is_whole)
