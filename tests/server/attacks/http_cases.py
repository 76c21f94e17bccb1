"""Attacks over HTTP/1.1, as data: a name, and what the peer does and expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from server.attacks.ground import AUTHORIZED, BODY_BYTES_MAX, turn_body, turn_request
from server.attacks.wire import Dribble, Flood, HalfClose, Reset, Step, ToEnd, Until, Wait, request

GET = "GET /healthz HTTP/1.1"
POST = "POST /v1/responses HTTP/1.1"
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
H2_PRIORITY = bytes((0, 0, 5, 2, 0)) + (1).to_bytes(4, "big") + bytes((0, 0, 0, 0, 16))
CLIENT_HELLO = bytes.fromhex("160301002e0100002a0303") + bytes(32) + bytes.fromhex("000002130101000000")
SOON_SECONDS = 5.0


def answered(status: int, *steps: Step) -> Sequence[Step]:
    """These bytes are answered with this status, and the connection ends."""
    return (*steps, ToEnd(rb"\AHTTP/1\.1 %d " % status, SOON_SECONDS))


def refused_head(data: bytes, status: int = 400) -> Sequence[Step]:
    """The head is answered so, in the shape of all errors."""
    return data, ToEnd(rb'\AHTTP/1\.1 %d .*"code": "[a-z_]+"' % status, SOON_SECONDS)


def chunked(*chunks: bytes) -> bytes:
    """The start of a chunked upload, authorised."""
    return request(POST, AUTHORIZED, "transfer-encoding: chunked", body=b"".join(chunks))


HEADS: Mapping[str, Sequence[Step]] = {
    "a folded header": refused_head(request(GET, "x-folded: one", " two")),
    "a folded header in two reads": (
        b"GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n",
        Wait(0.05),
        b" z\r\n\r\n",
        ToEnd(rb"\AHTTP/1\.1 400 ", SOON_SECONDS),
    ),
    "bare line feeds": refused_head(b"GET / HTTP/1.1\nhost: a\n\n"),
    "one bare line feed": refused_head(b"GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n"),
    "a bare carriage return": refused_head(b"GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n"),
    "a NUL": refused_head(request(GET, "x-nul: a\0b")),
    "length and chunks": refused_head(
        request(POST, "content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n")
    ),
    "chunks and length": refused_head(
        request(POST, "transfer-encoding: chunked", "content-length: 5", body=b"0\r\n\r\n")
    ),
    "two lengths": refused_head(request(POST, "content-length: 5", "content-length: 6", body=b"hello")),
    "a negative length": refused_head(request(POST, "content-length: -1")),
    "a length without end": refused_head(request(POST, "content-length: " + "9" * 5000)),
    "an unknown transfer-encoding": refused_head(request(POST, "transfer-encoding: x"), 501),
    "a space before the colon": refused_head(request(GET, "x-space : y")),
    "a header without a name": refused_head(request(GET, ": y")),
    "no host": refused_head(request(GET, host=False)),
    "two hosts": refused_head(request(GET, "host: b")),
    "a header section of 70 KiB": refused_head(request(GET, "x-large: " + "y" * 70_000), 431),
    "a header section of 100 KiB in two reads": (
        request(GET, "x-large: " + "y" * 100_000)[:60_000],
        Wait(0.1),
        request(GET, "x-large: " + "y" * 100_000)[60_000:],
        ToEnd(rb"\AHTTP/1\.1 431 ", SOON_SECONDS),
    ),
    "20,000 small headers": refused_head(request(GET, *(f"x{number}: y" for number in range(20_000))), 431),
    "a head without end": (
        b"GET / HTTP/1.1\r\nx-endless: ",
        Flood(b"y" * 1000, 10_000),
        ToEnd(rb"\AHTTP/1\.1 431 ", SOON_SECONDS),
    ),
    "garbage": refused_head(bytes(range(256)) * 10 + b"\r\n\r\n"),
    "TLS on a plain port": refused_head(CLIENT_HELLO),
    "HTTP/0.9": refused_head(b"GET /\r\n\r\n"),
    "HTTP/1.2": refused_head(b"GET / HTTP/1.2\r\nhost: a\r\n\r\n", 505),
    "HTTP/2.0 in words": refused_head(b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 505),
    "a clear-text HTTP/2 preface": refused_head(H2_PREFACE + H2_SETTINGS, 505),
    "a priority flood behind the preface": (
        H2_PREFACE + H2_SETTINGS + H2_PRIORITY * 1001,
        ToEnd(rb" 505 ", SOON_SECONDS),
    ),
    "an upgrade to clear-text HTTP/2": (
        request(GET, "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"),
        Until(rb"\AHTTP/1\.1 200 .*\r\n\r\n"),
    ),
    "CONNECT": refused_head(request("CONNECT gateway.test:443 HTTP/1.1")),
    "CONNECT to a path": answered(405, request("CONNECT /v1/responses HTTP/1.1", "connection: close")),
    "a method nobody knows": answered(405, request("BREW /v1/responses HTTP/1.1", "connection: close")),
    "a method of 1,000 letters": answered(405, request("X" * 1000 + " /healthz HTTP/1.1", "connection: close")),
    "a target without a path": refused_head(request("GET ?query HTTP/1.1")),
    "the target *": refused_head(request("OPTIONS * HTTP/1.1")),
    "a target that is no URL": refused_head(request("GET http://[ HTTP/1.1")),
    "a whole URL": answered(200, request("GET http://gateway.test/healthz HTTP/1.1", "connection: close")),
    "a path that is no UTF-8": answered(404, request("GET /%ff%fe%00 HTTP/1.1", "connection: close")),
    "two slashes and a bracket": answered(404, request("GET //[evil HTTP/1.1", "connection: close")),
    "a host that is no UTF-8": refused_head(request(GET, "host: \xff\xfe", host=False)),
    "a host whose label is too long": refused_head(request(GET, "host: " + "g" * 64 + ".test", host=False)),
    "an address with a port as host": answered(200, request(GET, "host: [::1]:8080", "connection: close", host=False)),
    "a connection header that is no ASCII": refused_head(request(GET, "connection: \xff, upgrade")),
    "an expectation nobody knows": answered(200, request(GET, "expect: \xff", "connection: close")),
    "blank lines before a request": answered(200, b"\r\n\r\n\r\n" + request(GET, "connection: close")),
    "a thousand blank lines": (b"\r\n" * 1000, Wait(0.1), Reset()),
}

BODIES: Mapping[str, Sequence[Step]] = {
    "a chunk size that is no number": answered(400, chunked(b"xyz\r\n")),
    "a negative chunk size": answered(400, chunked(b"-1\r\n")),
    "a chunk size of 30 digits": answered(400, chunked(b"f" * 30 + b"\r\n")),
    "a chunk longer than its size": answered(400, chunked(b"3\r\nabcdef\r\n")),
    "a chunk extension without end": answered(431, chunked(b"3;x="), Flood(b"y" * 1000, 10_000)),
    "chunks of one byte": (chunked(b"1\r\n{\r\n" * 20_000, b"0\r\n\r\n"), Until(rb"\AHTTP/1\.1 400 .*invalid_json")),
    "a trailer section": (chunked(b"0\r\nx-trailer: y\r\n\r\n"), Until(rb"\AHTTP/1\.1 400 .*invalid_json")),
    "JSON that is no UTF-8": answered(
        400, request(POST, AUTHORIZED, "content-length: 4", "connection: close", body=b'"\xff"}')
    ),
    "JSON of 100,000 brackets": answered(
        400, request(POST, AUTHORIZED, "content-length: 100000", "connection: close", body=b"[" * 100_000)
    ),
    "a length above the bound": answered(413, request(POST, AUTHORIZED, f"content-length: {BODY_BYTES_MAX + 1}")),
    "a length above the bound, and its body": answered(
        413, request(POST, AUTHORIZED, f"content-length: {20 * BODY_BYTES_MAX}"), Flood(bytes(65_536), 320)
    ),
    "chunks above the bound": answered(413, chunked(), Flood(b"10000\r\n" + bytes(65_536) + b"\r\n", 320)),
    "an early answer, then the body": answered(
        401, request(POST, "content-length: 500000"), Wait(0.1), Flood(bytes(50_000), 10)
    ),
    "a body nobody asked for": answered(
        404, request("POST /nowhere HTTP/1.1", "content-length: 500000"), bytes(500_000)
    ),
    "a body that is cut": (request(POST, AUTHORIZED, "content-length: 1000", body=b"{"), Reset()),
    "a half-close within the body": answered(
        400, request(POST, AUTHORIZED, "content-length: 1000", body=b"{"), HalfClose()
    ),
    "100-continue, and then nothing": (
        request(POST, AUTHORIZED, "content-length: 1000", "expect: 100-continue"),
        Until(rb"\AHTTP/1\.1 100 "),
        ToEnd(rb"HTTP/1\.1 408 ", SOON_SECONDS),
    ),
}

SLOW: Mapping[str, Sequence[Step]] = {
    "a head that comes byte by byte": answered(408, Dribble(request(GET, "x: " + "y" * 1000), 0.1)),
    "a head that stops": answered(408, b"GET / HTTP/1.1\r\n"),
    "a second head that stops": (
        request(GET),
        Until(rb"\AHTTP/1\.1 200 .*\r\n\r\n"),
        b"GET / HTTP/1.1\r\n",
        ToEnd(rb"HTTP/1\.1 408 ", SOON_SECONDS),
    ),
    "a body that comes byte by byte": answered(
        408, request(POST, AUTHORIZED, "content-length: 1000"), Dribble(b"{" * 1000, 0.1)
    ),
    "a body that stops": answered(408, request(POST, AUTHORIZED, "content-length: 1000", body=b"{" * 500)),
    "chunks that come byte by byte": answered(408, chunked(), Dribble(b"1\r\nx\r\n" * 200, 0.05)),
}

LEAVING: Mapping[str, Sequence[Step]] = {
    "leaving during the hold": (turn_request("silent"), Wait(0.2)),
    "a reset during the hold": (turn_request("silent"), Wait(0.2), Reset()),
    "a half-close during the hold": (turn_request("silent"), Wait(0.2), HalfClose(), ToEnd(seconds=SOON_SECONDS)),
    "a stray line end, then leaving during the hold": (turn_request("silent") + b"\r\n", Wait(0.2)),
    "pipelining, then leaving during the hold": (turn_request("silent") + request(GET), Wait(0.2)),
    "pipelining later, then leaving during the hold": (turn_request("silent"), Wait(0.2), request(GET), Wait(0.2)),
    "bytes behind a request that is its last": (
        turn_request("plain", "connection: close") + b"\r\nmore",
        ToEnd(rb"200 .*response\.completed", SOON_SECONDS),
    ),
    "a second upload behind a turn": (turn_request("silent"), Flood(bytes(65_536), 100), ToEnd(seconds=SOON_SECONDS)),
    "leaving in mid-output": (turn_request("endless"), Until(rb"output_text\.delta"), Wait(0.1)),
    "a reset in mid-output": (turn_request("endless"), Until(rb"output_text\.delta"), Reset()),
    "three requests at once": (request(GET) * 3, Until(rb"(?:HTTP/1\.1 200 .*?){3}")),
    "a stray line end between two requests": (
        turn_request("plain") + b"\r\n",
        Until(rb"response\.completed.*0\r\n\r\n"),
        request(GET, "connection: close"),
        ToEnd(rb"\AHTTP/1\.1 200 ", SOON_SECONDS),
    ),
    "HTTP/1.0 ends with its answer": (
        request("POST /v1/responses HTTP/1.0", AUTHORIZED, f"content-length: {len(turn_body('plain'))}")
        + turn_body("plain"),
        ToEnd(rb"response\.completed", SOON_SECONDS),
    ),
}

HTTP_CASES: Mapping[str, Sequence[Step]] = {**HEADS, **BODIES, **SLOW, **LEAVING}
