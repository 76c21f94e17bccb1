"""The stream below trio-websocket: what the library does not tell of a connection is seen here.

    library: handshake, pongs, pings  --send_all-->  +------+  -->  TCP, TLS
    a create, in fragments            --send_text->  | Wire |
    library's reader                  <-receive_some-+------+  <--

- All frames of one read carry the time of that read.
- What answers the handshake is kept, bounded, until it is over: a refusal's body has no bound in the library, and an
  end in its middle is told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from gateway import limits
from gateway.upstream.conversation import FrameWriter

CLOSE_FRAME: Final = 0x88
"""The first byte of a close frame: FIN and the opcode 8."""


class Wire(trio.abc.Stream):
    """One connection's bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.received_at = trio.current_time()
        self.has_answered_close = False
        self._stream = stream
        self._writer = FrameWriter(stream.send_all)
        self._upgrade: bytearray | None = bytearray()
        self._upgrade_ended: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Wire {self._writer}, upgraded={self._upgrade is None}>"

    # --- writing ------------------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write one or more whole frames (or the handshake). Raises BrokenResourceError."""
        if len(data) and data[0] == CLOSE_FRAME:
            self.has_answered_close = True
        await self._writer.send(data)

    async def send_text(self, message: bytes) -> None:
        """Write one text message. Raises NothingWritten or CutOff; cancelled, it leaves the wire torn."""
        await self._writer.send_text(message)

    async def say_goodbye(self) -> None:
        """A close frame, if the peer could read it and takes it soon."""
        if self._upgrade is None and not self.has_answered_close:
            await self._writer.say_goodbye()

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

    @property
    def answer(self) -> bytes:
        """What has come of the handshake's answer."""
        return bytes(self._upgrade or b"")

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
