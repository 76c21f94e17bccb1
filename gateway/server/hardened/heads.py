"""Request heads, vetted on their bytes before they are parsed: what parsers disagree about is refused (RFC 9112).

A bare LF, a folded header and a NUL are read differently by different parsers, and so are ways to smuggle a request
past a proxy. The head is looked at once, as it comes, in linear time. Its size is counted here as well: h11 only bounds
what is still incomplete, so that with reads of 64 KiB a head of 128 KiB may pass. What h11 then makes of a head may
still be a request that others would read differently, or that no app can answer (`refusal_of`).
"""

from __future__ import annotations

import re
from typing import Final

import h11

HEAD_END: Final = b"\r\n\r\n"
AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]|\x00")
"""A bare LF, a bare CR, a folded line, a NUL."""
LOOK_BACK: Final = 4
"""How many bytes before a chunk can be a part of what the chunk completes, and one more to look back at."""
BAD_REQUEST: Final = 400
HEADER_SECTION_TOO_LARGE: Final = 431
UNSUPPORTED_VERSION: Final = 505
WEBSOCKET_VERSION: Final = b"13"
KEY: Final = re.compile(rb"[A-Za-z0-9+/]{21}[AQgw]==")
"""16 bytes in base64."""
TARGET: Final = re.compile(rb"(?:https?://[^/?#\[\]@]+)?(/.*)", re.DOTALL)
"""A path, or a whole URL (RFC 9112, 3.2.2), whose path is served. Quart fails at anything else."""
LABEL: Final = rb"[\w!$&'()*+,;=%~-]{1,63}"
HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|(?:%b\.)*%b\.?)?(?::[0-9]*)?" % (LABEL, LABEL))
"""A name or an address, with or without a port. Werkzeug fails at anything else before the app can answer."""


class HeadGuard:
    """One connection's heads. `vet` is given what comes while a head is expected."""

    __slots__ = ("_bytes", "_bytes_max", "_tail", "has_begun")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._tail = b""
        self.has_begun = False
        """Whether a part of a head has come and its end has not."""

    def vet(self, data: bytes) -> int | None:
        """The status that refuses these bytes, or None. Behind a head's end the guard is ready for the next one."""
        window = self._tail + data
        end = window.find(HEAD_END)
        head = window if end < 0 else window[: end + len(HEAD_END)]
        size = self._bytes + len(head) - len(self._tail)
        is_ambiguous = AMBIGUOUS.search(head, 1 if len(self._tail) == LOOK_BACK else 0) is not None
        self.has_begun = end < 0 and size > 0
        self._bytes = size if self.has_begun else 0
        self._tail = head[-LOOK_BACK:] if self.has_begun else b""
        if size > self._bytes_max:
            return HEADER_SECTION_TOO_LARGE
        return BAD_REQUEST if is_ambiguous else None


def refusal_of(request: h11.Request) -> int | None:
    """The status of a request that is refused for its head, or None."""
    names = [name for name, _ in request.headers]
    if request.http_version not in (b"1.0", b"1.1"):
        return UNSUPPORTED_VERSION
    is_smuggling = b"transfer-encoding" in names and b"content-length" in names
    is_nowhere = TARGET.fullmatch(request.target) is None or not all(
        HOST.fullmatch(value) for name, value in request.headers if name == b"host"
    )
    is_ambiguous = is_smuggling or (is_valid_upgrade(request) and _has_body(request))
    return BAD_REQUEST if is_ambiguous or is_nowhere or _has_foreign_handshake(request) else None


def _has_foreign_handshake(request: h11.Request) -> bool:
    """Whether wsproto would fail to decode it."""
    return any(
        not value.isascii()
        for name, value in request.headers
        if name.startswith(b"sec-websocket-") or name in (b"connection", b"upgrade")
    )


def is_valid_upgrade(request: h11.Request) -> bool:
    """RFC 6455, 4.2.1: to a WebSocket and nothing else. No more is valid here than to Hypercorn, which would answer
    in words of its own and leave the connection open."""
    if request.method != b"GET" or request.http_version != b"1.1":
        return False
    return (
        b"upgrade" in _tokens(request, b"connection")
        and [value.lower() for value in _values(request, b"upgrade")] == [b"websocket"]
        and _values(request, b"sec-websocket-version") == [WEBSOCKET_VERSION]
        and [KEY.fullmatch(value) is not None for value in _values(request, b"sec-websocket-key")] == [True]
    )


def _has_body(request: h11.Request) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in request.headers)


def _tokens(request: h11.Request, wanted: bytes) -> list[bytes]:
    return [token.strip().lower() for value in _values(request, wanted) for token in value.split(b",") if token.strip()]


def _values(request: h11.Request, wanted: bytes) -> list[bytes]:
    return [value for name, value in request.headers if name == wanted]
