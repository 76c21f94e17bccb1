"""Frames that are read here and by wsproto: the same messages, pings, pongs and ends, whatever comes in what pieces."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Message, Ping, Pong

from gateway.upstream.frames import End, FrameDecoder

BOUND = 1 << 20
OPCODES = (0x0, 0x1, 0x2, 0x3, 0x8, 0x9, 0xA, 0xB)
SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 65_535, 65_536])
PAYLOADS = st.one_of(
    st.text(max_size=40).map(str.encode),
    st.binary(max_size=40),
    SIZES.map(lambda size: b"x" * size),
    st.integers(0, 6000).map(lambda code: struct.pack("!H", code) + b"why"),
)
FIRST = st.builds(lambda opcode, final: opcode | final, st.sampled_from(OPCODES), st.sampled_from([0, 0x80, 0x80]))
WAYS = st.sampled_from(["shortest"] * 8 + ["two bytes", "eight bytes", "masked", "reserved"])
CUTS = st.lists(st.integers(0, 70_000), max_size=12)


def frame(first: int, payload: bytes, way: str = "shortest") -> bytes:
    """A frame, in the shortest way or one that must not be."""
    size = len(payload)
    first |= 0x40 if way == "reserved" else 0
    if way == "masked":
        return bytes((first, 0x80 | min(size, 125))) + b"\0\0\0\0" + payload[:125]
    if way == "eight bytes" or size > 65_535:
        return bytes((first, 127)) + struct.pack("!Q", size) + payload
    if way == "two bytes" or size > 125:
        return bytes((first, 126)) + struct.pack("!H", size) + payload
    return bytes((first, size)) + payload


FRAMES = st.lists(st.builds(frame, FIRST, PAYLOADS, WAYS), max_size=8).map(b"".join)
TEXTS = st.lists(st.text(max_size=200).map(lambda text: frame(0x81, text.encode())), max_size=8).map(b"".join)
FRAGMENTS = st.lists(st.text(max_size=30).map(str.encode), min_size=1, max_size=5).map(
    lambda parts: b"".join(
        frame((0x1 if place == 0 else 0x0) | (0x80 if place == len(parts) - 1 else 0), part) + frame(0x89, b"p")
        for place, part in enumerate(parts)
    )
)
STREAMS = st.lists(st.one_of(TEXTS, FRAGMENTS, FRAMES), max_size=4).map(b"".join)
Told = tuple[list[bytes], list[bytes], list[bytes], End | None]


def in_parts(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(at)]


def read_here(parts: list[bytes], bound: int = BOUND) -> Told:
    decoder = FrameDecoder(bound)
    texts = [text for part in parts for text in decoder.receive(part)]
    return texts, decoder.pings, decoder.pongs, decoder.end


def read_by_wsproto(data: bytes) -> Told:
    """Until its end; a binary message, which it takes, is at fault (E10)."""
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    texts: list[bytes] = []
    pings: list[bytes] = []
    pongs: list[bytes] = []
    message = b""
    for event in client.events():
        if isinstance(event, Ping):
            pings.append(bytes(event.payload))
        elif isinstance(event, Pong):
            pongs.append(bytes(event.payload))
        elif isinstance(event, CloseConnection):
            is_fault = client.state.name != "REMOTE_CLOSING"
            return texts, pings, pongs, End(int(event.code), is_fault)
        elif isinstance(event, Message):
            if not isinstance(event.data, str):
                return texts, pings, pongs, End(1003)
            message += event.data.encode()
            if event.message_finished:
                texts.append(message)
                message = b""
    return texts, pings, pongs, None


def assert_alike(parts: list[bytes]) -> None:
    """A binary frame is at fault by its first byte here, so whatever else is wrong with its head; and a text that is
    no text as soon as it is whole, which wsproto may know before."""
    data = b"".join(parts)
    decoder = FrameDecoder(BOUND)
    texts = [text for part in parts for text in decoder.receive(part)]
    *said, end = read_by_wsproto(data)
    assert [texts, decoder.pings, decoder.pongs] == said
    if decoder.end == End(1003):
        assert end in {End(1002), End(1003)}
    elif end == End(1007) and decoder.end is None:
        decoder.receive(b"\x00" * decoder._missing)
        assert decoder.end == End(1007)
    else:
        assert decoder.end == end


@given(STREAMS, CUTS)
def test_what_comes_out_is_what_wsproto_reads(data: bytes, cuts: list[int]) -> None:
    """Sound frames and broken ones."""
    assert_alike(in_parts(data, cuts))


def lengths() -> Iterator[bytes]:
    """Each way to write a length, at its boundaries, and a payload of it."""
    for size in (0, 1, 2, 125):
        yield bytes((size,)) + b"x" * size
        yield bytes((0x80 | size,)) + b"mask" + b"x" * size
    for size in (0, 1, 125, 126, 127, 300, 65_535):
        yield b"\x7e" + struct.pack("!H", size) + b"x" * size
    for size in (0, 125, 126, 65_535, 65_536):
        yield b"\x7f" + struct.pack("!Q", size) + b"x" * size
    yield b"\xfe\x01\x00" + b"mask" + b"x" * 256


@pytest.mark.parametrize("before", [b"", frame(0x01, b"begun")], ids=["between messages", "within one"])
def test_every_kind_of_frame_is_read_as_wsproto_reads_it(before: bytes) -> None:
    """Each first byte with each way to write a length, and a sound message behind it."""
    for first in range(256):
        for written in lengths():
            assert_alike([before + bytes((first,)) + written + frame(0x81, b"{}")])


@given(STREAMS, CUTS)
def test_pieces_change_nothing(data: bytes, cuts: list[int]) -> None:
    assert read_here(in_parts(data, cuts)) == read_here([data] if data else [])


@given(STREAMS)
def test_bytes_that_come_one_by_one_change_nothing(data: bytes) -> None:
    data = data[:3000]
    assert read_here([data[at : at + 1] for at in range(len(data))]) == read_here([data] if data else [])


@pytest.mark.parametrize("size", [0, 1, 125, 126, 300, 65_535, 65_536, BOUND])
@pytest.mark.parametrize("piece_bytes", [100, 2 * BOUND])
def test_a_message_may_have_its_bound_exactly(size: int, piece_bytes: int) -> None:
    """R7."""

    def pieces(data: bytes) -> list[bytes]:
        return [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]

    assert read_here(pieces(frame(0x81, b"x" * size)), size)[0] == [b"x" * size]
    texts, _, _, end = read_here(pieces(frame(0x81, b"x" * (size + 1))), size)
    assert (texts, end) == ([], End(1009))


@pytest.mark.parametrize("size", [(1 << 63) - 1, 1 << 63], ids=["the longest", "a bit that must be zero"])
def test_a_length_of_eight_bytes_has_63_bits(size: int) -> None:
    """RFC 6455, 5.2: the longest there can be is too large, a longer one is no frame."""
    expected = End(1009) if size < 1 << 63 else End(1002)
    assert read_here([b"\x81\x7f" + struct.pack("!Q", size)])[3] == expected


@pytest.mark.parametrize("head", [frame(0x81, b"x" * (BOUND + 1))[:10], b"\x81\x7f" + b"\x7f" * 8])
def test_more_than_the_bound_is_at_fault_before_it_has_come(head: bytes) -> None:
    """R7: nobody reads a gigabyte to learn that it is too large."""
    assert read_here([head])[3] == End(1009)


def test_fragments_share_one_bound_and_pings_between_them_do_not_count() -> None:
    """R7."""
    half = b"x" * (BOUND // 2)
    sound = [frame(0x01, half), frame(0x89, b"p" * 125), frame(0x80, half)]
    assert read_here(sound)[0] == [half + half]
    assert read_here([*sound[:2], frame(0x80, half + b"x")])[3] == End(1009)
    assert read_here([frame(0x01, half + half), frame(0x89, b"p"), frame(0x80, b"")])[0] == [half + half]
    assert read_here([*sound, *sound])[0] == [half + half] * 2, "each message has its own"


def test_a_part_that_is_no_text_is_at_fault_before_the_last_has_come() -> None:
    """A stalled upstream has broken the protocol all the same; half a character may go on in the next part."""
    assert read_here([frame(0x01, b"\xff")])[3] == End(1007)
    assert read_here([frame(0x01, b"\xc3") + frame(0x80, b"\xa9")])[0] == ["\xe9".encode()]
    assert read_here([frame(0x01, b"\xc3") + frame(0x80, b"")])[3] == End(1007)


def test_parts_of_any_number_take_as_much_as_their_bytes() -> None:
    """Those without a byte count for no bound, and may come without end."""
    decoder = FrameDecoder(BOUND)
    assert decoder.receive(frame(0x01, b"") + (frame(0x00, b"") + frame(0x00, b"x")) * 10_000) == []
    assert bytes(decoder._parts or b"") == b"x" * 10_000
    assert decoder.receive(frame(0x80, b"")) == [b"x" * 10_000]


@pytest.mark.parametrize(
    "bad",
    [
        frame(0x81, b"\xff"),
        frame(0x88, b"\x03"),
        frame(0x88, struct.pack("!H", 1005)),
        frame(0x88, struct.pack("!H", 1000) + b"\xff"),
        frame(0x09, b"p"),
        b"\x89\x7e",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["no text", "half a code", "a code for nobody", "no reason", "a ping in parts", "a long ping", "no frames"],
)
def test_nothing_is_read_behind_a_fault(bad: bytes) -> None:
    """What was whole before it comes out."""
    texts, pings, _, end = read_here([frame(0x81, b"{}") + bad + frame(0x81, b"[]") + frame(0x89, b"late")])
    assert (texts, pings) == ([b"{}"], [])
    assert end is not None
    assert end.is_fault


@pytest.mark.parametrize("piece_bytes", [100, 1000])
def test_a_long_message_in_small_pieces_takes_linear_time(piece_bytes: int) -> None:
    """Four times as long takes some four times as long, not sixteen times."""

    def seconds(size: int) -> float:
        data = frame(0x81, b"x" * size)
        parts = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
        decoder = FrameDecoder(BOUND)
        began = time.thread_time()
        for part in parts:
            decoder.receive(part)
        return time.thread_time() - began

    small, large = (min(seconds(size * piece_bytes) for _ in range(5)) for size in (2000, 8000))
    assert large < 9 * small
