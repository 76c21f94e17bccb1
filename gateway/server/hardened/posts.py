"""A plain POST's head and its answer's, read and written in one go: what h11 makes of them, byte for byte, or nothing.

Plain is what clients send to a door: HTTP/1.1, one length in digits, each header once, and nothing that asks for more
than an answer. Of any other head nothing is said here: h11 reads it. tests/server/hardened/test_posts.py holds the two
against each other. No part of a pattern is tried twice (RFC 9110 has no two readings of a field), so time is linear.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from h11 import LocalProtocolError

from gateway.server.hardened.direct import BODILESS
from gateway.server.hardened.heads import HOST

TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]++"
VALUE: Final = rb"(?:[^\x00\s]++(?:[ \t]++[^\x00\s]++)*+)?+"
"""As lenient as h11 about control characters."""
FIELD: Final = re.compile(rb"(%b):[ \t]*+(%b)[ \t]*+\r\n" % (TOKEN, VALUE))
HEAD: Final = re.compile(rb"POST (/[!-~]*+) HTTP/1\.1\r\n((?:%b:[ \t]*+%b[ \t]*+\r\n)++)\r\n" % (TOKEN, VALUE))
SIZE: Final = re.compile(rb"[0-9]{1,15}")
KEEP_ALIVE: Final = b"keep-alive"
MORE_THAN_AN_ANSWER: Final = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
HANDSHAKE: Final = b"sec-websocket-"
"""Headers whose names begin like this are vetted where handshakes are."""

FIELDS: Final = re.compile(rb"(?:%b\n%b\n)*+" % (TOKEN, VALUE))
"""Names and values of an answer's headers, each behind its own line's end."""

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Post:
    """A request for `path`; its head takes `head_bytes`, and its body begins behind that."""

    path: bytes
    headers: list[tuple[bytes, bytes]]
    head_bytes: int
    body_bytes: int


def read_post(data: bytes, paths: Container[bytes]) -> Post | None:
    """What begins here, if it is a plain POST for one of these paths, and its head is whole."""
    found = HEAD.match(data)
    if found is None or found[1] not in paths or HANDSHAKE in found[2].lower():
        return None
    headers = [(name.lower(), value) for name, value in FIELD.findall(found[2])]
    known = dict(headers)
    size = known.get(b"content-length", b"")
    is_plain = (
        len(known) == len(headers)
        and MORE_THAN_AN_ANSWER.isdisjoint(known)
        and known.get(b"connection", KEEP_ALIVE) == KEEP_ALIVE
        and b"host" in known
        and HOST.fullmatch(known[b"host"]) is not None
        and SIZE.fullmatch(size) is not None
    )
    return Post(found[1], headers, found.end(), int(size)) if is_plain else None


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
    told = b"".join([b"%b\n%b\n" % field for field in headers])
    if FIELDS.fullmatch(told) is None or told.count(b"\n") != 2 * len(headers):
        raise LocalProtocolError("a header's name or value cannot be sent")
    names = [name.lower() for name, _ in headers]
    if status < 200 or b"transfer-encoding" in names or names.count(b"content-length") > 1:
        raise LocalProtocolError("the framing is the server's")
    known = dict(zip(names, [value for _, value in headers], strict=True))
    size = known.get(b"content-length")
    if size is not None and SIZE.fullmatch(size) is None:
        raise LocalProtocolError("a content-length that is none")
    size = b"0" if status in BODILESS else size
    framing = b"Transfer-Encoding: chunked\r\n" if size is None else b""
    fields = b"".join([b"%b: %b\r\n" % field for field in headers])
    data = b"HTTP/1.1 %d \r\n%b%b\r\n" % (status, fields, framing)
    is_last = b"connection" in known and any(
        name == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]
        for name, (_, value) in zip(names, headers, strict=True)
    )
    return AnswerHead(data, None if size is None else int(size), is_last)
