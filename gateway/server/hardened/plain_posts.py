"""A plain POST's head and its answer's, read and written in one go: what h11 makes of them, byte for byte, or nothing.

Plain is what clients send to a door: HTTP/1.1, one length in digits, each header once, and nothing that asks for more
than an answer. Of any other head nothing is said here: the guard vets it (heads.py), and h11 reads it. What is read
here would pass the guard; tests/server/hardened/test_plain_posts.py holds all three against each other. Each pattern
looks at a byte once, so time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from h11 import LocalProtocolError

from gateway.server.hardened.direct import BODILESS
from gateway.server.hardened.heads import HEAD_END, HOST

TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
NO_TEXT: Final = rb"\x00\n\v\f\r"
"""All else may stand in a value: h11 is lenient about control characters."""
LINE: Final = re.compile(rb"POST (/[!-~]*+) HTTP/1\.1\r\n")
FIELD: Final = re.compile(rb"(%b):[ \t]*+([^%b]*+)\r\n" % (TOKEN, NO_TEXT))
SECTION: Final = re.compile(rb"(?:%b:[^%b]*+\r\n)*+" % (TOKEN, NO_TEXT))
"""Headers, and nothing between them."""
SIZE: Final = re.compile(rb"[0-9]{1,15}")
BLANKS: Final = b" \t"
KEEP_ALIVE: Final = b"keep-alive"
MORE_THAN_AN_ANSWER: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
HANDSHAKE: Final = b"sec-websocket-"
"""Headers whose names begin like this are vetted where handshakes are."""

NAMES: Final = re.compile(rb"(?:%b\n)*+" % TOKEN)
LINES: Final = re.compile(rb"(?:[^%b]*+\r\n)*+" % NO_TEXT)
BLANK_EDGE: Final = re.compile(rb": \s|\s\r\n")
"""Of a value: blanks there are none of it."""
FRAMING: Final = frozenset({b"connection", b"content-length", b"transfer-encoding"})
"""Headers that say how an answer ends: one without any goes in chunks, and is not the last."""

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Post:
    """A request for `path`; its head takes `head_bytes`, and its body begins behind that."""

    path: bytes
    headers: list[tuple[bytes, bytes]]
    head_bytes: int
    body_bytes: int


def read_post(data: bytes, paths: Container[bytes], head_bytes_max: int) -> Post | None:
    """What begins here, if it is a plain POST for one of these paths, and its head is whole."""
    line = LINE.match(data)
    if line is None or line[1] not in paths:
        return None
    end = data.find(HEAD_END, 0, head_bytes_max) + len(HEAD_END)
    if end < line.end():
        return None  # it is not whole, or too large
    if SECTION.fullmatch(data, line.end(), end - 2) is None:
        return None  # something between them is no header
    headers = [(name.lower(), value.rstrip(BLANKS)) for name, value in FIELD.findall(data, line.end(), end - 2)]
    known = dict(headers)
    size = known.get(b"content-length", b"")
    is_plain = (
        len(known) == len(headers)
        and MORE_THAN_AN_ANSWER.isdisjoint(known)
        and known.get(b"connection", KEEP_ALIVE).lower() == KEEP_ALIVE
        and b"host" in known
        and HOST.fullmatch(known[b"host"]) is not None
        and SIZE.fullmatch(size) is not None
        and HANDSHAKE not in data[:end].lower()
    )
    return Post(line[1], headers, end, int(size)) if is_plain else None


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """An answer's beginning, and how its body is framed: by its length, or in chunks (None)."""

    data: bytes
    body_bytes: int | None
    is_last: bool
    """Whether the connection ends with this answer."""


def answer_head(status: int, headers: Headers) -> AnswerHead:
    """To a plain POST. Raises LocalProtocolError for what cannot be said in a head: a value with a line's end in it, a
    framing that is not the server's, or a length that is none."""
    names, fields = _written(headers)
    if NAMES.fullmatch(names) is None or BLANK_EDGE.search(fields) is not None:
        headers = [(name.strip(), value.strip()) for name, value in headers]
        names, fields = _written(headers)
    known = names.split(b"\n")[:-1]
    is_sendable = NAMES.fullmatch(names) is not None and LINES.fullmatch(fields) is not None
    if not is_sendable or len(known) != len(headers) or fields.count(b"\n") != len(headers):
        raise LocalProtocolError("a header's name or value cannot be sent")
    if status >= 200 and status not in BODILESS and FRAMING.isdisjoint(known):
        return AnswerHead(b"HTTP/1.1 %d \r\n%bTransfer-Encoding: chunked\r\n\r\n" % (status, fields), None, False)
    return _framed_head(status, fields, known, [value for _, value in headers])


def _written(headers: Headers) -> tuple[bytes, bytes]:
    """Their names, one in each line, and the headers as they are sent."""
    names = b"".join([name + b"\n" for name, _ in headers]).lower()
    return names, b"".join([b"%b: %b\r\n" % header for header in headers])


def _framed_head(status: int, fields: bytes, known: Sequence[bytes], values: Sequence[bytes]) -> AnswerHead:
    """Of an answer that says, or must not say, how it ends."""
    if status < 200 or b"transfer-encoding" in known or known.count(b"content-length") > 1:
        raise LocalProtocolError("the framing is the server's")
    size = values[known.index(b"content-length")] if b"content-length" in known else None
    if size is not None and SIZE.fullmatch(size) is None:
        raise LocalProtocolError("a content-length that is none")
    size = b"0" if status in BODILESS else size
    framing = b"Transfer-Encoding: chunked\r\n" if size is None else b""
    data = b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, fields, framing)
    connection = b",".join([value for name, value in zip(known, values, strict=True) if name == b"connection"])
    is_last = b"close" in [token.strip() for token in connection.lower().split(b",")]
    return AnswerHead(data, None if size is None else int(size), is_last)
