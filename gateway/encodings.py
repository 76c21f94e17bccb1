"""Content encodings, decoded incrementally: of requests (H3), and of answers that come encoded all the same (P8).

    gzip, deflate (zlib, and raw as some send it), zstd

A decoder's memory is bounded, whatever a body says it needs; how much comes out is its caller's to bound.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

PIECE_BYTES_MAX: Final = 1024 * 1024
"""How much one step inflates: a small chunk may hold a thousandfold of itself, and with zstd a hundred thousandfold."""
ZSTD_WINDOW_LOG_MAX: Final = 23
"""8 MiB, the window that a content coding may ask for (RFC 9659): it is set aside before a byte comes out."""


class EncodingError(Exception):
    """The body is corrupt, or ended before its encoding did: the stream broke."""


class Decoder(Protocol):
    """Bytes as they came in, bytes as they were meant out."""

    def decode(self, chunk: bytes) -> Iterable[bytes]:
        """The decoded pieces of a chunk. Raises EncodingError."""
        ...

    def end(self) -> None:
        """The body is over. Raises EncodingError if the encoding is not."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the encoding has ended; what follows is no part of it."""
        ...

    @property
    def unused(self) -> bytes:
        """What stood behind its end in the chunk that ended it."""
        ...


class Identity:
    """Not encoded."""

    __slots__ = ()
    is_over = False
    unused = b""

    def decode(self, chunk: bytes) -> Iterable[bytes]:
        """The chunk itself."""
        return (chunk,)

    def end(self) -> None:
        """Nothing can be missing."""


IDENTITY: Final = Identity()
"""It knows nothing of the body that it is for."""


class Inflate:
    """gzip, zlib or raw deflate, by its window bits."""

    def __init__(self, window_bits: int) -> None:
        self._inflate = zlib.decompressobj(window_bits)

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Inflated pieces, each of bounded size."""
        pending = chunk
        while pending and not self._inflate.eof:
            try:
                piece = self._inflate.decompress(pending, PIECE_BYTES_MAX)
            except zlib.error as error:
                raise EncodingError(str(error)) from None
            pending = self._inflate.unconsumed_tail
            if piece:
                yield piece

    def end(self) -> None:
        """A truncated body is a broken stream, not a short one."""
        if not self._inflate.eof:
            raise EncodingError("the compressed body is truncated")

    @property
    def is_over(self) -> bool:
        """Its end was read."""
        return self._inflate.eof

    @property
    def unused(self) -> bytes:
        """What stood behind it."""
        return self._inflate.unused_data


class Deflate:
    """`deflate` is zlib's format (RFC 9110, 8.4.1.2), and without its header what some send by that name: the first two
    bytes tell."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate: Inflate | None = None

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Inflated pieces, once the first two bytes are there."""
        if self._inflate is None:
            self._head += chunk
            if len(self._head) < ZLIB_HEAD_BYTES:
                return
            self._inflate = Inflate(zlib.MAX_WBITS if _is_zlib(self._head) else -zlib.MAX_WBITS)
            chunk, self._head = self._head, b""
        yield from self._inflate.decode(chunk)

    def end(self) -> None:
        """As that of the format that it is."""
        if self._inflate is None:
            raise EncodingError("the compressed body is truncated")
        self._inflate.end()

    @property
    def is_over(self) -> bool:
        """Its end was read."""
        return self._inflate is not None and self._inflate.is_over

    @property
    def unused(self) -> bytes:
        """What stood behind it."""
        return b"" if self._inflate is None else self._inflate.unused


ZLIB_HEAD_BYTES: Final = 2
DEFLATED: Final = 8


def _is_zlib(head: bytes) -> bool:
    """RFC 1950, 2.2: the method is deflate, and the two bytes are a multiple of 31."""
    return head[0] & 0x0F == DEFLATED and int.from_bytes(head[:ZLIB_HEAD_BYTES]) % 31 == 0


class Zstandard:
    """One zstd frame."""

    def __init__(self) -> None:
        options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG_MAX}
        self._frame = zstd.ZstdDecompressor(options=options)

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Decompressed pieces, each of bounded size."""
        pending = chunk
        while (pending or not self._frame.needs_input) and not self._frame.eof:
            try:
                piece = self._frame.decompress(pending, PIECE_BYTES_MAX)
            except zstd.ZstdError as error:
                raise EncodingError(str(error)) from None
            pending = b""
            if piece:
                yield piece

    def end(self) -> None:
        """A truncated body is a broken stream, not a short one."""
        if not self._frame.eof:
            raise EncodingError("the compressed body is truncated")

    @property
    def is_over(self) -> bool:
        """Its end was read."""
        return self._frame.eof

    @property
    def unused(self) -> bytes:
        """What stood behind it."""
        return self._frame.unused_data


def decoder_for(content_encoding: str) -> Decoder | None:
    """The decoder for a content-encoding header's value, or None for one that is not known."""
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return IDENTITY
    if name in ("gzip", "x-gzip"):
        return Inflate(zlib.MAX_WBITS | 16)
    if name == "deflate":
        return Deflate()
    return Zstandard() if name == "zstd" else None
