"""A peer on a raw socket, its script as data: what it sends, waits for, and how it leaves."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

PATIENCE_SECONDS = 30.0
READ_BYTES = 65_536
GONE = (ConnectionError, ssl.SSLError)
"""The other end has left. (A TimeoutError of TLS's is none of these.)"""


@dataclass(frozen=True)
class Wait:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True)
class Until:
    """Read until what came matches. `PeerError` if it ends or stays silent instead."""

    pattern: bytes


@dataclass(frozen=True)
class ToEnd:
    """Read until the end, which must come within this time; what came since the last step must match."""

    pattern: bytes = b""
    seconds: float = PATIENCE_SECONDS


@dataclass(frozen=True)
class Dribble:
    """One byte at a time, until all are sent or an answer comes."""

    data: bytes
    pause_seconds: float


@dataclass(frozen=True)
class Flood:
    """The same bytes again and again. That the peer stops reading, or closes, is no failure."""

    data: bytes
    times: int
    seconds: float = 3.0


class HalfClose:
    """No more to send; still there to read."""


class Reset:
    """Leave with a reset."""


Step = bytes | Wait | Until | ToEnd | Dribble | Flood | HalfClose | Reset


class PeerError(AssertionError):
    """The server did something else."""


class Peer:
    """One connection, over TLS if it is given what to trust."""

    def __init__(self, port: int, trust: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        if trust is not None:
            self._socket = trust.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self.received = b""

    def play(self, steps: Sequence[Step]) -> bytes:
        """The whole script, then leave; what was received."""
        try:
            for step in steps:
                self._play(step)
        finally:
            self._socket.close()
        return self.received

    def _play(self, step: Step) -> None:
        if isinstance(step, bytes):
            self._send(step)
        elif isinstance(step, Wait):
            time.sleep(step.seconds)
        elif isinstance(step, Until):
            self._read_until(step.pattern)
        elif isinstance(step, ToEnd):
            self._read_to_end(step)
        elif isinstance(step, Dribble):
            self._dribble(step)
        elif isinstance(step, Flood):
            self._flood(step)
        elif isinstance(step, HalfClose):
            self._socket.shutdown(socket.SHUT_WR)
        else:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.close()

    def _send(self, data: bytes) -> None:
        """A server that has answered and closed meanwhile is no failure of the peer's."""
        self._socket.settimeout(PATIENCE_SECONDS)
        with suppress(*GONE, TimeoutError):
            self._socket.sendall(data)

    def _read_until(self, pattern: bytes) -> None:
        self._socket.settimeout(PATIENCE_SECONDS)
        while (found := re.search(pattern, self.received, re.DOTALL)) is None:
            data = self._read()
            if data == b"":
                raise PeerError(f"no {pattern!r}, but the end, after {self.received[-500:]!r}")
            self.received += data
        self.received = self.received[found.end() :]

    def _read_to_end(self, step: ToEnd) -> None:
        deadline = time.monotonic() + step.seconds
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            data = self._read()
            if data == b"":
                break
            self.received += data
        else:
            raise PeerError(f"no end within {step.seconds} s, after {self.received[-500:]!r}")
        if re.search(step.pattern, self.received, re.DOTALL) is None:
            raise PeerError(f"the end without {step.pattern!r}, after {self.received[-500:]!r}")

    def _read(self) -> bytes:
        try:
            return self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise PeerError(f"silence, after {self.received[-500:]!r}") from None
        except GONE:
            return b""

    def _dribble(self, step: Dribble) -> None:
        for number in range(len(step.data)):
            self._send(step.data[number : number + 1])
            self._socket.settimeout(step.pause_seconds)
            with suppress(TimeoutError):  # what is readable over TLS need not be an answer
                with suppress(*GONE):
                    self.received += self._socket.recv(READ_BYTES)
                return

    def _flood(self, step: Flood) -> None:
        deadline = time.monotonic() + step.seconds
        for _ in range(step.times):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._socket.settimeout(left)
            try:
                self._socket.sendall(step.data)
            except (*GONE, TimeoutError):
                return


# --- bytes ------------------------------------------------------------------------------------------------------

MASK = b"\x01\x02\x03\x04"


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    """One WebSocket frame of a client."""
    first = (0x80 if final else 0) | reserved << 4 | opcode
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head = bytes((first, bit | len(payload)))
    elif len(payload) < 65_536:
        head = bytes((first, bit | 126)) + len(payload).to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + len(payload).to_bytes(8, "big")
    return head + (MASK + _masked(payload) if masked else payload)


def _masked(payload: bytes) -> bytes:
    pad = int.from_bytes((MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    return (int.from_bytes(payload, "big") ^ pad).to_bytes(len(payload), "big")


def text(payload: str | bytes) -> bytes:
    """One text message."""
    return frame(1, payload.encode() if isinstance(payload, str) else payload)


def request(line: str, *headers: str, body: bytes = b"", host: bool = True) -> bytes:
    """An HTTP/1.1 request, its headers as they are written here."""
    lines = [line, *(["host: gateway.test"] if host else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
