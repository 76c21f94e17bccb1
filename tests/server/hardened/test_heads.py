"""Heads, in every chunking: the verdict does not depend on how the bytes came."""

import itertools
from collections.abc import Iterator

import pytest

from gateway.server.hardened.heads import HeadGuard

CLEAR = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
HEADS: dict[bytes, int | None] = {
    CLEAR: None,
    b"GET / HTTP/1.1\r\nx: y \t z\r\n\r\n": None,
    b"GET / HTTP/1.1\nhost: a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\n\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\n\n": 400,
    b"GET / HTTP/1.1\r\nx: a\rb\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nx: a\r\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nx: a\r\n b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nx: a\r\n\tb\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nx: a\0b\r\n\r\n": 400,
}
BYTES_MAX = 64


def chunkings(data: bytes) -> Iterator[list[bytes]]:
    """Whole, in every two and three parts, and byte by byte."""
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        yield [data[:first], data[first:second], data[second:]]
    yield [data[at : at + 1] for at in range(len(data))]


def verdict(chunks: list[bytes]) -> int | None:
    guard = HeadGuard(BYTES_MAX)
    return next((status for status in map(guard.vet, chunks) if status is not None), None)


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_judged_alike_in_every_chunking(head: bytes) -> None:
    assert {verdict(chunks) for chunks in chunkings(head)} == {HEADS[head]}


@pytest.mark.parametrize(("size", "status"), [(BYTES_MAX, None), (BYTES_MAX + 1, 431)])
def test_the_bound_is_exact_in_every_chunking(size: int, status: int | None) -> None:
    head = b"GET / HTTP/1.1\r\nx: ".ljust(size - 4, b"y") + b"\r\n\r\n"
    assert {verdict(chunks) for chunks in chunkings(head)} == {status}


def test_what_follows_a_head_is_not_judged() -> None:
    guard = HeadGuard(BYTES_MAX)
    assert guard.vet(CLEAR + b"\n\0 a body\n") is None
    assert not guard.has_begun


def test_the_next_head_is_judged_anew() -> None:
    guard = HeadGuard(BYTES_MAX)
    assert [guard.vet(CLEAR), guard.vet(CLEAR[:10]), guard.has_begun, guard.vet(CLEAR[10:])] == [None, None, True, None]
    assert guard.vet(b"GET /\n") == 400
