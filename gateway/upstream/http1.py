"""One HTTP/1.1 answer, read off a connection as it comes (RFC 9112): bytes in, a head and a body out, in linear time.

    receive(bytes)  ->  head, once it is whole; take() the body's bytes that are there; is_complete
    receive(b"")        a body without a length is complete then; any other is cut

The grammar is llhttp's, strict, through httptools; here is what a client makes of it: interim answers (1xx) are passed
over, a head and whatever stands around a body's bytes have bounds, and a byte behind the end spoils the connection: it
is no answer to a request that was not sent yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gateway.limits import UPSTREAM_HEAD_BYTES_MAX

SPLIT_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
"""What says where a body ends: a head that says so twice can be read in two ways."""
BEHIND: Final = "bytes stand behind its end"
SUCCESS_FROM: Final = 200
"""A status below is an interim answer's."""


class Malformed(Exception):
    """The peer does not speak HTTP/1.1, or says more around a body than any server would."""


class Cut(Exception):
    """The connection ended within an answer."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers, in the order in which they came; names as they were written."""

    status: int
    headers: list[tuple[bytes, bytes]] = field(repr=False)


class ResponseDecoder:
    """One answer's bytes in, its head and body out."""

    __slots__ = (
        *("_headers", "_is_delimited", "_is_interim", "_may_serve_again", "_overhead", "_parser"),
        *("__weakref__", "body", "fault", "head", "is_complete", "is_over", "on_body"),
    )

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        """What of it has come and was not taken yet."""
        self.on_body = self.body.append
        """Called by the parser."""
        self._parser = HttpResponseParser(self)
        self._overhead = 0
        self._is_delimited = False
        self._is_interim = False
        self.fault: str | None = None
        """What is wrong with it."""
        self.head: ResponseHead | None = None
        self.is_complete = False
        self.is_over = False
        """Nothing more can come: it is complete, or at fault."""
        self._may_serve_again = False

    def __repr__(self) -> str:
        return f"<ResponseDecoder {self.head}, complete={self.is_complete}>"

    @property
    def may_serve_again(self) -> bool:
        """Whether the connection can carry another request: the answer is whole, and nothing stands behind it."""
        return self.is_complete and self._may_serve_again and self.fault is None

    def receive(self, data: bytes) -> None:
        """Bytes as they came off the wire, b"" at its end. Raises Malformed, unless there are bytes of the body before
        the fault, and Cut."""
        if not data:
            self._receive_end()
            return
        body = self.body
        had = len(body)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.fault = "it upgrades to a protocol that nobody asked for"
        except HttpParserError as error:
            self.fault = BEHIND if self.is_complete else type(error).__name__
        self._overhead = 0 if len(body) > had else self._overhead + len(data)
        if self._overhead > UPSTREAM_HEAD_BYTES_MAX:
            self.fault = f"more than {UPSTREAM_HEAD_BYTES_MAX} bytes are no body"
        self.is_over = self.is_complete or self.fault is not None
        if self.fault is not None and not (body or self.is_complete):
            raise Malformed(self.fault)

    def _receive_end(self) -> None:
        """The peer has closed its side."""
        self._may_serve_again = False
        if self.is_complete:
            return
        if self.head is None or self._is_delimited:
            raise Cut
        self.is_complete = self.is_over = True

    def let_go(self) -> None:
        """Nothing is decoded any more: it and its parser refer to each other, and would wait for the collector."""
        del self._parser

    def take(self) -> bytes:
        """The body's bytes that have come since. Raises Malformed behind the last that were well formed."""
        body = self.body
        if not body:
            if self.fault is not None and not self.is_complete:
                raise Malformed(self.fault)
            return b""
        data = b"".join(body)
        body.clear()
        return data

    # --- what the parser calls ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A status line begins: this answer's, or behind an interim one. One that nobody asked for ends the reading
        (receive)."""
        if self.is_complete:
            raise Malformed(BEHIND)
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: these are dropped."""
        if self.head is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        status = self._parser.get_status_code()
        self._is_interim = status < SUCCESS_FROM
        if self._is_interim:
            return
        counts = [name.lower() for name, _ in self._headers if name.lower() in SPLIT_HEADERS]
        self._is_delimited = bool(counts)
        if len(counts) > 1:
            self.fault = "its head says twice where its body ends"
        self.head = ResponseHead(status, self._headers)
        self._may_serve_again = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """The answer is whole, unless it was an interim one."""
        if not self._is_interim:
            self.is_complete = True
