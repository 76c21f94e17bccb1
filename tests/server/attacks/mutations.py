"""Random mutations of valid traffic. A seed is a bug report: it gives the same bytes everywhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from server.attacks.ground import AUTHORIZED, turn_body, turn_request
from server.attacks.http_cases import GET, POST
from server.attacks.websocket_cases import create, upgrade
from server.attacks.wire import frame, request, text

VALID: Final = (
    request(GET),
    turn_request("plain"),
    request(GET) * 2 + turn_request("plain", "connection: close"),
    request(POST, AUTHORIZED, "transfer-encoding: chunked")
    + b"".join(b"%x\r\n%s\r\n" % (10, turn_body("plain")[at : at + 10]) for at in range(0, 50, 10))
    + b"0\r\nx-trailer: y\r\n\r\n",
    request(POST, AUTHORIZED, "expect: 100-continue", "content-length: 2", body=b"{}"),
    upgrade() + create("plain"),
    upgrade("sec-websocket-protocol: a, b", "sec-websocket-extensions: permessage-deflate"),
    upgrade() + frame(9, b"ping") + text("{}") + frame(2, b"\0") + frame(8, b"\x03\xe8bye"),
    upgrade() + frame(1, b"{", final=False) + frame(9) + frame(0, b"}", final=False) + frame(0, b" ") + frame(10),
)
TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b";", b",", b"\xff", b"\r\n\r\n", b"0\r\n\r\n", b"-1"),
    *(b"HTTP/1.0", b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"upgrade: h2c\r\n", b"connection: close\r\n"),
    *(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n", b"host: b\r\n", b"ffffffffffffffff"),
    *(b"99999999999", b"\x80" * 14, b"A" * 70_000),
)

Mutation = Callable[[random.Random, bytearray], None]


def mutated(seed: int) -> bytes:
    """The input of that seed."""
    chance = random.Random(seed)
    data = bytearray(chance.choice(VALID))
    for _ in range(chance.randint(1, 4)):
        chance.choice(MUTATIONS)(chance, data)
    return bytes(data)


def _place(chance: random.Random, data: bytearray) -> slice:
    begin = chance.randint(0, len(data))
    return slice(begin, begin + chance.randint(0, 20))


def _flip_bits(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.randint(1, 8)):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[_place(chance, data)]


def _end_early(chance: random.Random, data: bytearray) -> None:
    del data[chance.randint(0, len(data)) :]


def _repeat(chance: random.Random, data: bytearray) -> None:
    place = _place(chance, data)
    data[place] = data[place] * chance.randint(2, 50)


def _insert_token(chance: random.Random, data: bytearray) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(TOKENS)


def _insert_noise(chance: random.Random, data: bytearray) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.randbytes(chance.randint(1, 200))


def _graft(chance: random.Random, data: bytearray) -> None:
    other = chance.choice(VALID)
    data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]


MUTATIONS: Final[tuple[Mutation, ...]] = (
    _flip_bits, _cut, _end_early, _repeat, _insert_token, _insert_noise, _graft,
)  # fmt: skip
