"""What an upstream says over a WebSocket, read as it comes (RFC 6455, 5): bytes in, text messages out, in linear time.

    receive(bytes)  ->  the text messages that are whole now; `pings` and `pongs` among them; an `end`, if there is one

- A server's frames are unmasked, and no extension was negotiated. A frame that is anything else, a text that is not
  UTF-8, or a close that says nothing a peer may say, ends the reading with a fault, behind the messages before it.
- A message has a bound: what announces more of it is at fault at once, before the bytes have come.
- Behind a close or a fault nothing is read.

wsproto reads the same grammar; the tests hold both against each other, and it still reads the one close there is.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Final, NamedTuple

from wsproto.frame_protocol import CloseReason, FrameProtocol, ParseFailed

FINAL: Final = 0x80
CONTINUATION, TEXT, BINARY = 0x0, 0x1, 0x2
CLOSE, PING, PONG = (FINAL | opcode for opcode in (0x8, 0x9, 0xA))
"""First bytes of control frames: each is whole."""
WHOLE_TEXT: Final = FINAL | TEXT
"""The first byte of a message in one frame: nearly all that comes."""
FIRST_BYTES: Final = frozenset(
    {CONTINUATION, TEXT, BINARY, FINAL | CONTINUATION, WHOLE_TEXT, FINAL | BINARY, CLOSE, PING, PONG}
)
"""With a reserved bit or an opcode that means nothing, there is no frame."""
CONTROLS: Final = frozenset({CLOSE, PING, PONG})
OPCODE: Final = 0x0F
MASKED: Final = 0x80
HEAD_BYTES: Final = 2
LONG_HEAD_BYTES: Final = 4
LONGER: Final = {126: 2, 127: 8}
"""What stands in a head's second byte where the length takes so many bytes more."""
TINY_MAX: Final = 125
IN_TWO_BYTES: Final = 126
LEAST: Final = {126: 126, 127: 65_536}
"""A length takes no more bytes than it needs."""
SIZE_MAX: Final = (1 << 63) - 1


class End(NamedTuple):
    """Why nothing more is read: the peer's close, by its code (1005 where it gave none), or a fault, by the code of a
    close that says so."""

    code: int
    is_fault: bool = True


class FrameDecoder:
    """One connection's. A message may have `message_bytes_max`."""

    __slots__ = ("_decode", "_message_bytes_max", "_missing", "_parts", "_pending", "end", "pings", "pongs")

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._pending = bytearray()
        """The beginning of a frame."""
        self._missing = 0
        """How much of it is to come before it is worth another look."""
        self._parts: bytearray | None = None
        """A message in several frames, as far as it has come."""
        self._decode = _decoder()
        """Of its text: what is none is at fault as soon as it comes."""
        self.pings: list[bytes] = []
        """What those said that have come: whoever answers them takes it away."""
        self.pongs: list[bytes] = []
        self.end: End | None = None

    def __repr__(self) -> str:
        return f"<FrameDecoder {len(self._pending)} bytes pending, {self.end}>"

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes as they came off the wire, cut anywhere; the text messages that are whole with them."""
        if self._pending:
            self._pending += data
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        texts: list[bytes] = []
        at, end = 0, len(data)
        while at < end and self.end is None:
            if self._parts is None:
                at = self._take_plain(data, at, texts)
                if at == end:
                    break
            head = self._head(data, at)
            if head is None:
                if self.end is None:
                    self._pending += memoryview(data)[at:]
                break
            first, start, stop = head
            self._take(first, data[start:stop], texts)
            at = stop
        return texts

    def _take_plain(self, data: bytes, at: int, texts: list[bytes]) -> int:
        """Of the frames from there on those that are how an event stands: whole, a text, of less than 64 KiB; where
        they end. What is odd is left to be looked at closely."""
        end, bytes_max = len(data), self._message_bytes_max
        while at + LONG_HEAD_BYTES <= end and data[at] == WHOLE_TEXT:
            size, start = data[at + 1], at + HEAD_BYTES
            if size > TINY_MAX:
                if size != IN_TWO_BYTES:
                    break
                size, start = data[start] << 8 | data[start + 1], at + LONG_HEAD_BYTES
                if size <= TINY_MAX:
                    break
            stop = start + size
            if stop > end or size > bytes_max:
                break
            payload = data[start:stop]
            if not (payload.isascii() or _is_text(payload)):
                break
            texts.append(payload)
            at = stop
        return at

    def _head(self, data: bytes, at: int) -> tuple[int, int, int] | None:
        """The first byte of the frame that begins there, and where its payload stands; None if it is not whole, or
        could not be here."""
        end = len(data)
        start = at + HEAD_BYTES
        if start > end:
            self._missing = start - end
            return None
        first, size = data[at], data[at + 1]
        is_plain = first == WHOLE_TEXT and self._parts is None
        if not is_plain or size > TINY_MAX:
            self.end = self._fault_of_kind(first, size)
            more = LONGER.get(size, 0)
            start += more
            if self.end is not None or start > end:
                self._missing = start - end
                return None
            if more:
                least, size = LEAST[size], int.from_bytes(data[start - more : start], "big")
                if not least <= size <= SIZE_MAX:
                    self.end = End(CloseReason.PROTOCOL_ERROR)
                    return None
        if size + len(self._parts or b"") > self._message_bytes_max and first not in CONTROLS:
            self.end = End(CloseReason.MESSAGE_TOO_BIG)
            return None
        self._missing = start + size - end
        return (first, start, start + size) if self._missing <= 0 else None

    def _fault_of_kind(self, first: int, length: int) -> End | None:
        """What is wrong with a frame, by its first two bytes."""
        if first not in FIRST_BYTES or length & MASKED:
            return End(CloseReason.PROTOCOL_ERROR)
        if first in CONTROLS:
            return End(CloseReason.PROTOCOL_ERROR) if length > TINY_MAX else None
        continues = first & OPCODE == CONTINUATION
        if continues is (self._parts is None):
            return End(CloseReason.PROTOCOL_ERROR)
        return End(CloseReason.UNSUPPORTED_DATA) if first & OPCODE == BINARY else None

    def _take(self, first: int, payload: bytes, texts: list[bytes]) -> None:
        if first == WHOLE_TEXT:
            self._take_text(payload, texts)
        elif first == PING:
            self.pings.append(payload)
        elif first == PONG:
            self.pongs.append(payload)
        elif first == CLOSE:
            self.end = _close(payload)
        else:
            self._take_part(payload, texts, is_last=first >= FINAL)

    def _take_part(self, payload: bytes, texts: list[bytes], *, is_last: bool) -> None:
        if self._parts is None:
            self._parts, self._decode = bytearray(), _decoder()
        self._parts += payload
        try:
            self._decode(payload, is_last)
        except UnicodeDecodeError:
            self.end = End(CloseReason.INVALID_FRAME_PAYLOAD_DATA)
            return
        if is_last:
            texts.append(bytes(self._parts))
            self._parts = None

    def _take_text(self, payload: bytes, texts: list[bytes]) -> None:
        if _is_text(payload):
            texts.append(payload)
        else:
            self.end = End(CloseReason.INVALID_FRAME_PAYLOAD_DATA)


def _decoder() -> Callable[[bytes, bool], str]:
    return getincrementaldecoder("utf-8")().decode


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _close(payload: bytes) -> End:
    """A close comes once, and what it may say is the library's to know."""
    protocol = FrameProtocol(client=True, extensions=[])
    protocol.receive_bytes(bytes((CLOSE, len(payload))) + payload)
    try:
        (frame,) = protocol.received_frames()
    except ParseFailed as error:
        return End(error.code)
    return End(int(frame.payload[0]), is_fault=False)
