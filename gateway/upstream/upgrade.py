"""The handshake of a WebSocket to an upstream: what is asked, and what is answered instead (RFC 6455, 4; §5, X1)."""

from __future__ import annotations

import re
from typing import Final

import h11
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, RejectConnection, RejectData, Request
from wsproto.utilities import ProtocolError

from gateway import limits
from gateway.core.failures import Failure, UpstreamAnswer
from gateway.core.messages import Headers
from gateway.upstream.answers import WireHeaders, headers_of, never_sent, refused

HEAD_END: Final = re.compile(rb"\n\r?\n")


class Upgrade:
    """One handshake: its request, and its answer as it comes. wsproto reads the heads; what stands behind the one that
    upgrades is left as it is."""

    def __init__(self, host: str, resource: str, headers: WireHeaders) -> None:
        self._connection = WSConnection(ConnectionType.CLIENT)
        self.request = self._connection.send(Request(host=host, target=resource, extra_headers=headers))
        self.handshake: Headers | None = None
        """The headers of an answer that upgrades."""
        self.rest = b""
        """What came behind it."""
        self.answer = b""
        """All that has come, as far as it is kept."""
        self.is_over = False
        self._read_bytes = 0
        self._is_refused = False

    def __repr__(self) -> str:
        return f"<Upgrade, over={self.is_over}, accepted={self.handshake is not None}>"

    def receive(self, data: bytes) -> None:
        """Bytes as they came, b"" at the end."""
        self.answer += data
        self.is_over = not data or len(self.answer) > limits.UPGRADE_BYTES_MAX
        while not self.is_over and self._read_bytes < len(self.answer):
            end = len(self.answer)
            if not self._is_refused:
                found = HEAD_END.search(self.answer, self._read_bytes)
                if found is None:
                    return
                end = found.end()
            piece, self._read_bytes = self.answer[self._read_bytes : end], end
            self._read(piece)

    def _read(self, piece: bytes) -> None:
        try:
            self._connection.receive_data(piece)
            for event in self._connection.events():
                self._note(event)
        except (ProtocolError, UnicodeError):  # a header of bytes that are no text, too
            self.is_over = True

    def _note(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self.handshake = headers_of(event.extra_headers)
            self.rest = self.answer[self._read_bytes :]
            self.is_over = True
        elif isinstance(event, RejectConnection):
            self._is_refused = True
            self.is_over = not event.has_body
        elif isinstance(event, RejectData):
            self.is_over = event.body_finished

    def failure(self, retryable_codes: frozenset[str]) -> Failure:
        """Why there is no WebSocket."""
        return refusal(self.answer, retryable_codes)


def refusal(answer: bytes, retryable_codes: frozenset[str]) -> Failure:
    """§5: of what was answered instead of an upgrade the status decides; without one nothing was sent, and nobody knows
    why."""
    try:
        found = _read_answer(answer)
    except h11.RemoteProtocolError:
        found = None
    if found is None:
        return never_sent("the upstream did not complete the WebSocket handshake")
    told, is_whole = found
    return refused(told.status, told.headers, told.body if is_whole else None, retryable_codes)


def _read_answer(data: bytes) -> tuple[UpstreamAnswer, bool] | None:
    """The HTTP answer in these bytes, as far as it goes, and whether its body is whole."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "upstream")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    found: UpstreamAnswer | None = None
    body = bytearray()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            event = h11.NEED_DATA
        if isinstance(event, h11.Response):
            found = UpstreamAnswer(event.status_code, headers_of(list(event.headers)))
        elif isinstance(event, h11.Data):
            body += event.data
        elif not isinstance(event, h11.InformationalResponse):
            break
    is_whole = isinstance(event, h11.EndOfMessage) and len(body) <= limits.ERROR_BODY_BYTES_MAX
    return None if found is None else (UpstreamAnswer(found.status, found.headers, bytes(body)), is_whole)
