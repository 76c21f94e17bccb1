"""Content encodings of upstream bodies, decoded incrementally (P8). `identity` is asked for; some send others."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

PIECE_BYTES_MAX: Final = 1024 * 1024
"""How much one step inflates: a small chunk may hold a thousandfold of itself."""


class EncodingError(Exception):
    """The body is corrupt, or ended before its encoding did: the stream broke."""


class Decoder(Protocol):
    """Bytes as they came in, bytes as they were meant out."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """The decoded pieces of a chunk. Raises EncodingError."""
        ...

    def end(self) -> None:
        """The body is over. Raises EncodingError if the encoding is not."""
        ...


class Identity:
    """Not encoded."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """The chunk itself."""
        yield chunk

    def end(self) -> None:
        """Nothing can be missing."""


class Inflate:
    """gzip or zlib."""

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


WINDOW_BITS: Final[dict[str, int]] = {
    "gzip": zlib.MAX_WBITS | 16,
    "x-gzip": zlib.MAX_WBITS | 16,
    "deflate": zlib.MAX_WBITS,
}


def decoder_for(content_encoding: str) -> Decoder | None:
    """The decoder for a content-encoding header's value, or None for one that is not known."""
    name = content_encoding.strip().lower()
    if name in ("", "identity"):
        return Identity()
    bits = WINDOW_BITS.get(name)
    return None if bits is None else Inflate(bits)
