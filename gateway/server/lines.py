"""Lines over a stream, bounded in length: what the supervisor, its workers and its control socket speak."""

from __future__ import annotations

from typing import Final

import trio

READ_BYTES: Final = 65_536


class LineTooLong(Exception):
    """A peer sent more than a line may hold."""


class LineReader:
    """Reads a stream line by line; one of these for a stream, since it keeps what came behind a line."""

    def __init__(self, stream: trio.abc.ReceiveStream, line_bytes_max: int) -> None:
        self._stream = stream
        self._line_bytes_max = line_bytes_max
        self._pending = b""

    def __repr__(self) -> str:
        return f"<LineReader, {len(self._pending)} bytes wait>"

    async def next(self) -> str | None:
        """The next line without its end; None if the stream ended before one. Raises LineTooLong."""
        while b"\n" not in self._pending:
            if len(self._pending) > self._line_bytes_max:
                raise LineTooLong(f"a line is longer than {self._line_bytes_max} bytes")
            try:
                chunk = await self._stream.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                return None
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")
