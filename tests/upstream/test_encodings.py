"""Content encodings, decoded as they come (P8, H3)."""

from __future__ import annotations

import gzip
import zlib
from contextlib import nullcontext, suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.encodings import PIECE_BYTES_MAX, Deflate, EncodingError, Identity, Inflate, Zstandard, decoder_for, zstd

GZIP = zlib.MAX_WBITS | 16


def decoded(encoding: str, chunks: list[bytes]) -> bytes:
    """The whole of a body that came in these chunks."""
    decoder = decoder_for(encoding)
    assert decoder is not None
    pieces = [piece for chunk in chunks for piece in decoder.decode(chunk)]
    decoder.end()
    return b"".join(pieces)


def raw_deflate(data: bytes, level: int = 6) -> bytes:
    """Without zlib's header and checksum."""
    stream = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces, cut at these places."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("name", ["", "identity", " Identity "])
def test_a_body_that_is_not_encoded_passes_as_it_is(name: str) -> None:
    """P8: what was asked for."""
    assert isinstance(decoder_for(name), Identity)
    assert decoded(name, [b"a", b"", b"bc"]) == b"abc"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gzip", Inflate), ("x-gzip", Inflate), ("GZIP", Inflate), (" deflate", Deflate), ("Zstd", Zstandard)],
)
def test_names_are_read_in_any_case(name: str, kind: type) -> None:
    """RFC 9110: content codings are case-insensitive."""
    assert isinstance(decoder_for(name), kind)


@pytest.mark.parametrize("name", ["br", "compress", "gzip, gzip", "gzip;q=1", "utf-8"])
def test_other_names_are_not_known(name: str) -> None:
    """P8: `identity` was asked for: what cannot be read is refused by its name."""
    assert decoder_for(name) is None


@given(data=st.binary(max_size=3000), places=st.lists(st.integers(0, 4000), max_size=12), level=st.integers(0, 9))
def test_a_compressed_body_is_the_same_however_it_is_cut(data: bytes, places: list[int], level: int) -> None:
    """P2, P8."""
    assert decoded("gzip", cut(gzip.compress(data, level), places)) == data
    assert decoded("deflate", cut(zlib.compress(data, level), places)) == data
    assert decoded("deflate", cut(raw_deflate(data, level), places)) == data
    assert decoded("zstd", cut(zstd.compress(data, level), places)) == data


@given(pieces=st.lists(st.binary(max_size=300), max_size=8))
def test_what_was_flushed_is_there_at_once(pieces: list[bytes]) -> None:
    """P8: an event is told when it came, not when the next one does."""
    compressor = zlib.compressobj(wbits=GZIP)
    decoder = Inflate(GZIP)
    for piece in pieces:
        chunk = compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(decoder.decode(chunk)) == piece


@pytest.mark.parametrize("size", [PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 5 * PIECE_BYTES_MAX + 7])
def test_a_small_chunk_that_holds_a_thousandfold_comes_out_in_bounded_pieces(size: int) -> None:
    """P7: memory is bounded by the event's limit, not by what a chunk inflates to; and nothing stays behind."""
    compressor = zlib.compressobj(wbits=GZIP)
    chunk = compressor.compress(b"x" * size) + compressor.flush(zlib.Z_SYNC_FLUSH)
    for decoder, compressed in ((Inflate(GZIP), chunk), (Zstandard(), zstd.compress(b"x" * size))):
        sizes = [len(piece) for piece in decoder.decode(compressed)]

        assert max(sizes) <= PIECE_BYTES_MAX
        assert sum(sizes) == size


def test_a_frame_may_ask_for_eight_mebibytes_of_window_and_no_more() -> None:
    """RFC 9659: what a decoder sets aside is not the peer's to choose."""
    for log, is_taken in ((23, True), (24, False), (27, False)):
        options: dict[int, int] = {zstd.CompressionParameter.window_log: log}
        stream = zstd.ZstdCompressor(options=options)
        body = stream.compress(b"x" * 100) + stream.flush()
        with nullcontext() if is_taken else pytest.raises(EncodingError):
            assert decoded("zstd", [body]) == b"x" * 100


@given(data=st.binary(min_size=1, max_size=300), missing=st.integers(1, 400))
def test_a_truncated_body_is_an_error(data: bytes, missing: int) -> None:
    """P8: never a short body."""
    for encoding, body in (
        ("gzip", gzip.compress(data)),
        ("deflate", zlib.compress(data)),
        ("deflate", raw_deflate(data)),
        ("zstd", zstd.compress(data)),
    ):
        with pytest.raises(EncodingError):
            decoded(encoding, [body[: max(0, len(body) - missing)]])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("body", [b"data: {}\n\n", b"\x00", b"\x1f\x8b\x08 nonsense", b"\x78\x9c nonsense"])
def test_a_corrupt_body_is_an_error(encoding: str, body: bytes) -> None:
    """P8."""
    with pytest.raises(EncodingError):
        decoded(encoding, [body])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_wrong_checksum_is_an_error(encoding: str) -> None:
    """P8."""
    body = gzip.compress(b"hello") if encoding == "gzip" else zlib.compress(b"hello")
    end = -8 if encoding == "gzip" else -4
    with pytest.raises(EncodingError):
        decoded(encoding, [body[:end] + bytes(byte ^ 1 for byte in body[end:])])


@given(junk=st.binary(max_size=200), name=st.sampled_from(["gzip", "deflate", "zstd", "identity"]))
def test_no_bytes_raise_anything_but_an_encoding_error(junk: bytes, name: str) -> None:
    """E8: nothing an upstream sends may raise an exception in the gateway."""
    with suppress(EncodingError):
        decoded(name, [junk[:5], junk[5:]])


def test_what_follows_the_end_of_a_compressed_body_is_ignored() -> None:
    """E9's sense for a body: its end has been told."""
    assert decoded("gzip", [gzip.compress(b"hello"), b"more"]) == b"hello"
    assert decoded("zstd", [zstd.compress(b"hello") + b"more", b"and more"]) == b"hello"
