"""Attacks over WebSocket, as data: a name, and what the peer does and expects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from server.attacks.ground import AUTHORIZED, BODY_BYTES_MAX
from server.attacks.wire import Flood, HalfClose, Reset, Step, ToEnd, Until, Wait, frame, request, text

SOON_SECONDS = 5.0
PATH = "GET /v1/responses HTTP/1.1"
KEY = "sec-websocket-key: AQIDBAUGBwgJCgsMDQ4PEA=="
HANDSHAKE = ("connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", KEY)
PING = rb"(?:\x89\x00)*"


def upgrade(*headers: str) -> bytes:
    """A valid handshake, authorised."""
    return request(PATH, AUTHORIZED, *HANDSHAKE, *headers)


def create(model: str, **fields: object) -> bytes:
    """The frame that asks for a turn."""
    return text(json.dumps({"type": "response.create", "model": model, "input": "hello", **fields}))


OPENED = Until(rb"\AHTTP/1\.1 101 .*?\r\n\r\n")


def closed(code: int, *steps: Step) -> Sequence[Step]:
    """On an open WebSocket this is answered with a close of this code, and the connection ends."""
    return upgrade(), OPENED, *steps, ToEnd(rb"\x88." + code.to_bytes(2, "big").replace(b"\\", b"\\\\"), SOON_SECONDS)


def not_upgraded(line: str, *headers: str) -> Sequence[Step]:
    """Bug case 41: what is no valid upgrade is answered at once, so that agents fall back to HTTP."""
    answer = rb'\AHTTP/1\.1 426 .*upgrade: websocket.*"code":"invalid_request"'
    return request(line, AUTHORIZED, *headers), Until(answer)


UPGRADES: Mapping[str, Sequence[Step]] = {
    "a plain GET": not_upgraded(PATH),
    "an upgrade that closes": not_upgraded(PATH, "connection: close", *HANDSHAKE[1:]),
    "an upgrade whose connection header was stripped": not_upgraded(PATH, *HANDSHAKE[1:]),
    "an upgrade of version 8": not_upgraded(PATH, *HANDSHAKE[:2], "sec-websocket-version: 8", KEY),
    "an upgrade without a version": not_upgraded(PATH, *HANDSHAKE[:2], KEY),
    "an upgrade without a key": not_upgraded(PATH, *HANDSHAKE[:3]),
    "an upgrade with two keys": not_upgraded(PATH, *HANDSHAKE, KEY),
    "an upgrade over HTTP/1.0": not_upgraded("GET /v1/responses HTTP/1.0", *HANDSHAKE),
    "an upgrade to something else": not_upgraded(PATH, "connection: upgrade", "upgrade: irc", *HANDSHAKE[2:]),
    "an upgrade to one of two": not_upgraded(PATH, "connection: upgrade", "upgrade: h2c, websocket", *HANDSHAKE[2:]),
    "an upgrade to two": not_upgraded(PATH, *HANDSHAKE, "upgrade: h2c"),
    "an upgrade of version 13 and none": not_upgraded(PATH, *HANDSHAKE[:2], "sec-websocket-version: 13,", KEY),
    "an upgrade of version 13 twice": not_upgraded(PATH, *HANDSHAKE, "sec-websocket-version: 13"),
    "an upgrade with a key of 15 bytes": not_upgraded(PATH, *HANDSHAKE[:3], "sec-websocket-key: AQIDBAUGBwgJCgsMDQ4P"),
    "an upgrade with a key that is no base64": not_upgraded(PATH, *HANDSHAKE[:3], "sec-websocket-key: " + "?" * 24),
    "frames behind no upgrade": (
        request(PATH, *HANDSHAKE[:2], "sec-websocket-version: 13,", KEY),
        Flood(frame(1, bytes(1000)), 200),
        ToEnd(seconds=SOON_SECONDS),  # before the answer or behind it: that much is no next request
    ),
    "an upgrade with a body": (
        request(PATH, AUTHORIZED, *HANDSHAKE, "content-length: 5") + b"hello",
        ToEnd(rb"\AHTTP/1\.1 400 .*invalid_request", SOON_SECONDS),
    ),
    "an upgrade with a body in chunks": (
        request(PATH, AUTHORIZED, *HANDSHAKE, "transfer-encoding: chunked") + b"0\r\n\r\n",
        ToEnd(rb"\AHTTP/1\.1 400 .*invalid_request", SOON_SECONDS),
    ),
    "an upgrade of a POST": (
        request("POST /nowhere HTTP/1.1", *HANDSHAKE, "content-length: 0"),
        Until(rb"\AHTTP/1\.1 404 "),
    ),
    "an upgrade in capitals among other tokens": (
        request(PATH, AUTHORIZED, "connection: keep-alive, Upgrade", "upgrade: WebSocket", *HANDSHAKE[2:]),
        OPENED,
    ),
    "an upgrade on two lines": (
        request(PATH, AUTHORIZED, "connection: upgrade", "connection: keep-alive", *HANDSHAKE[1:]),
        OPENED,
    ),
    "a subprotocol that is no ASCII": (upgrade("sec-websocket-protocol: \xff"), ToEnd(rb" 400 ", SOON_SECONDS)),
    "an extension that is no ASCII": (upgrade("sec-websocket-extensions: \xff"), ToEnd(rb" 400 ", SOON_SECONDS)),
    "an empty subprotocol": (upgrade("sec-websocket-protocol: ,"), OPENED),
    "an upgrade with a bad key": (
        request(PATH, *HANDSHAKE) + create("plain") * 10,
        ToEnd(rb"\AHTTP/1\.1 401 ", SOON_SECONDS),
    ),
    "an upgrade elsewhere": (
        request("GET /nowhere HTTP/1.1", AUTHORIZED, *HANDSHAKE) + create("plain"),
        ToEnd(rb"\AHTTP/1\.1 404 ", SOON_SECONDS),
    ),
}

FRAMES: Mapping[str, Sequence[Step]] = {
    "frames before the accept": (upgrade() + create("plain") + frame(9, b"x"), Until(rb"response\.completed")),
    "60 frames before the accept": (
        upgrade() + text("{}") * 59 + text('{"type": "the.last"}'),
        Until(rb"the\.last"),
        create("plain"),
        Until(rb"completed"),
    ),
    "a frame that is not masked": closed(1002, frame(1, b"{}", masked=False)),
    "reserved bits": closed(1002, frame(1, b"{}", reserved=2)),
    "a reserved opcode": closed(1002, frame(3, b"{}")),
    "a reserved control opcode": closed(1002, frame(11)),
    "a continuation of nothing": closed(1002, frame(0, b"{}")),
    "a message within a message": closed(1002, frame(1, b"{", final=False), frame(1, b"}")),
    "a second reserved bit": closed(1002, frame(1, b"{}", reserved=1)),
    "a ping with a reserved bit": closed(1002, frame(9, b"x", reserved=4)),
    **{f"the reserved opcode {opcode}": closed(1002, frame(opcode)) for opcode in (4, 5, 6, 7, 12, 13, 14, 15)},
    "a ping that is not masked": closed(1002, frame(9, b"x", masked=False)),
    "a close that is not masked": closed(1002, frame(8, (1000).to_bytes(2, "big"), masked=False)),
    "a part that is not masked": closed(1002, frame(1, b"{", final=False), frame(0, b"}", masked=False)),
    "a pong of 126 bytes": closed(1002, frame(10, bytes(126))),
    "a close of 126 bytes": closed(1002, frame(8, (1000).to_bytes(2, "big") + bytes(124))),
    "a close in parts": closed(1002, frame(8, (1000).to_bytes(2, "big"), final=False)),
    "a reserved bit on a part": closed(1002, frame(1, b"{", final=False), frame(0, b"}", reserved=4)),
    "a binary part behind one of text": closed(1002, frame(1, b"{", final=False), frame(2, b"}")),
    "a close between parts": closed(1000, frame(1, b"{", final=False), frame(8, (1000).to_bytes(2, "big"))),
    "a ping between parts, and a character over two of them": (
        upgrade(),
        OPENED,
        frame(1, b'{"type": "\xe2\x82', final=False),
        frame(9, b"still here"),
        Until(rb"\x8a\x0astill here"),
        frame(10, b"nobody asked"),
        frame(0, b'\xac"}'),
        Until(rb"unsupported_event.*\xe2\x82\xac|unsupported_event.*u20ac"),
        create("plain"),
        Until(rb"completed"),
    ),
    "a character that its second part does not go on with": closed(
        1007, frame(1, b'{"\xe2\x82', final=False), frame(9), frame(0, b'"}')
    ),
    "a surrogate over two parts": closed(1007, frame(1, b'{"\xed', final=False), frame(0, b'\xa0\x80"}')),
    "an overlong character": closed(1007, text(b'{"\xc0\xaf"}')),
    "a ping of 126 bytes": closed(1002, frame(9, bytes(126))),
    "a ping in parts": closed(1002, frame(9, b"x", final=False)),
    "a length with its top bit set": closed(1002, bytes((0x81, 0xFF)) + b"\xff" * 8 + bytes(4)),
    "a length of a terabyte": (
        upgrade(),
        OPENED,
        bytes((0x81, 0xFF)) + (2**40).to_bytes(8, "big") + bytes(104),
        Wait(0.1),
    ),
    "text that is no UTF-8": closed(1007, text(b"\xff\xfe")),
    "text that ends within a character": closed(1007, text(b"{\xe2\x82")),
    "text that is no UTF-8 in its second part": closed(1007, frame(1, b"{", final=False), frame(0, b"\xff")),
    "a close of one byte": closed(1002, frame(8, b"\x03")),
    "a close with a code that is never sent": closed(1002, frame(8, (1005).to_bytes(2, "big"))),
    "a close whose reason is no UTF-8": closed(1007, frame(8, (1000).to_bytes(2, "big") + b"\xff")),
    "a compressed frame nobody agreed to": (
        upgrade("sec-websocket-extensions: permessage-deflate; client_max_window_bits"),
        Until(rb"\AHTTP/1\.1 101 (?:(?!permessage).)*?\r\n\r\n"),
        frame(1, b"\xaa\x56\x0a", reserved=4),
        ToEnd(rb"\x88.\x03\xea", SOON_SECONDS),
    ),
    "a message above the bound": closed(1009, text(b"x" * (BODY_BYTES_MAX + 1))),
    "a message above the bound in parts": closed(
        1009, frame(1, b"x", final=False), *([frame(0, b"x" * 200_000, final=False), frame(9)] * 6), frame(0, b"x")
    ),
    "a message above what is kept of one": (
        upgrade(),
        OPENED,
        text(b"x" * (5 * BODY_BYTES_MAX // 2)),
        ToEnd(rb'"payload_too_large".*\x88.\x03\xf1', SOON_SECONDS),
    ),
    "a message far above the bound": closed(1009, text(b"x" * (8 * BODY_BYTES_MAX))),
    "a message far above the bound in characters of four bytes": closed(1009, text("\U0001f600" * BODY_BYTES_MAX)),
    "parts without end": closed(1009, frame(1, b"x", final=False), Flood(frame(0, bytes(50_000), final=False), 200)),
    "30,000 empty parts": (
        upgrade(),
        OPENED,
        frame(1, b"{", final=False),
        Flood(frame(0, final=False) * 1000, 30),
        frame(0, b"}"),
        Until(rb"invalid_request"),
    ),
    "30,000 parts of one byte": (
        upgrade(),
        OPENED,
        frame(1, b"{", final=False),
        Flood(frame(0, b" ", final=False) * 1000, 30),
        frame(0, b"}"),
        Until(rb"invalid_request"),
    ),
    "an empty binary message": (
        upgrade(),
        OPENED,
        frame(2),
        Until(rb"invalid_request"),
        create("plain"),
        Until(rb"completed"),
    ),
}

FLOODS: Mapping[str, Sequence[Step]] = {
    "frames that are no requests, while a turn runs": closed(
        1008, create("silent"), Wait(0.2), Flood(text("no") * 100, 1000)
    ),
    "frames behind the close": closed(1008, create("silent"), Wait(0.2), Flood(text("no"), 20_000, 2.0)),
    "frames that are no requests, then a reset": (
        upgrade(),
        OPENED,
        create("silent"),
        Wait(0.2),
        Flood(text("no"), 40),
        Reset(),
    ),
    "frames during output, then a reset": (
        upgrade(),
        OPENED,
        create("endless"),
        Until(rb"delta"),
        Flood(text("no"), 40),
        Wait(0.2),
        Reset(),
    ),
    "pings whose pongs nobody reads": (upgrade(), OPENED, Flood(frame(9, bytes(125)) * 500, 1000, 2.0), Reset()),
    "creates without end": (upgrade(), OPENED, Flood(create("silent"), 1000, 1.0), Reset()),
    "a dozen messages of a megabyte": (
        upgrade(),
        OPENED,
        Flood(create("silent", pad="x" * 900_000), 12, 3.0),
        Wait(0.2),
        Reset(),
    ),
    "a half-close during a turn": (
        upgrade(),
        OPENED,
        create("silent"),
        Wait(0.2),
        HalfClose(),
        ToEnd(seconds=SOON_SECONDS),
    ),
    "leaving within a frame": (upgrade(), OPENED, text("x" * 1000)[:500], Wait(0.1)),
    "a reset within a frame": (upgrade(), OPENED, text("x" * 1000)[:500], Reset()),
    "leaving during the hold, on a WebSocket": (upgrade(), OPENED, create("silent"), Wait(0.2)),
}

WEBSOCKET_CASES: Mapping[str, Sequence[Step]] = {**UPGRADES, **FRAMES, **FLOODS}
