"""What Hypercorn's configuration has no names for. Under Hypercorn's own command line these defaults hold."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from time import time

from hypercorn.config import Config

from gateway import limits
from gateway.server.hardened.inbound import InboundBytes
from gateway.server.hardened.patience import Pace


class Cut(StrEnum):
    """Why the server ended a connection that its peer would have gone on with: the metric's label."""

    NO_SOCKET = "sockets_max"
    BAD_REQUEST = "bad_request"
    """it was no HTTP/1.1, or larger than is accepted"""
    BAD_FRAME = "bad_frame"
    """a WebSocket broke its protocol: closed with 1002, 1007 or 1009"""
    SLOW = "slow"
    """a head, a body or a message came too slowly"""
    STALLED = "stalled"
    """it took nothing for `write_timeout`"""
    NO_MEMORY = "inbound_bytes_max"
    """its request or message found no room (a 503, a close with 1013)"""
    SILENT = "silent"
    """it answered no ping"""
    FAULT = "fault"
    """an exception in the server's own layers"""


def _count_nothing(_why: str) -> None:
    """Under Hypercorn's own command line nobody asks."""


class HardenedConfig(Config):
    """Hypercorn's, and more. Durations are seconds."""

    write_seconds: float = limits.WRITE_SECONDS_MAX
    """T6: for one write."""
    is_fast: bool = False
    """Whether writes try the socket first, and doors have their short way (direct.py)."""
    pace: Pace = Pace()
    """What a request may take to arrive."""
    inbound: InboundBytes = InboundBytes()
    """What requests may hold at once."""
    on_cut: Callable[[Cut], None] = staticmethod(_count_nothing)
    """Called once for each connection that the server cuts."""
    on_refused: Callable[[str], None] = staticmethod(_count_nothing)
    """Called with the public code of each answer that is the server's own (X2)."""
    _own_headers: tuple[str, int, list[tuple[bytes, bytes]]] | None = None

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """The server's own: the date among them has seconds."""
        second = int(time())
        if self._own_headers is None or self._own_headers[:2] != (protocol, second):
            self._own_headers = protocol, second, super().response_headers(protocol)
        return self._own_headers[2]


def settings_of(config: Config) -> HardenedConfig | type[HardenedConfig]:
    """A configuration's, or the defaults."""
    return config if isinstance(config, HardenedConfig) else HardenedConfig
