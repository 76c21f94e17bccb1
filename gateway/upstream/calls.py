"""One HTTP call to an upstream, whichever way it goes: what a caller offers, and what it raises.

    call(method, path, headers, body) --> an answer: status, headers, and its body's bytes as they come, b"" at its end

`direct.py` speaks over connections of its own, `httpx_calls.py` through httpx2. Neither resends, follows a redirect or
keeps a cookie; neither has a deadline but the connect's: the clocks are the turn's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from gateway.upstream.answers import WireHeaders

CONNECT_ERROR: Final = "ConnectError"
CONNECT_TIMEOUT: Final = "ConnectTimeout"
READ_ERROR: Final = "ReadError"
PROTOCOL_ERROR: Final = "RemoteProtocolError"
"""What went wrong, in the same words whoever called."""


Take = Callable[[bytes, float], bool]
"""Given bytes and when they were seen, without a wait; returns whether it can take more in this way."""


class Connected(Protocol):
    """What any way needs of a connection (sockets.py)."""

    async def receive(self) -> bytes:
        """What has come; b"" at the peer's end. Raises OSError."""
        ...

    def pass_on(self, take: Take) -> Awaitable[None]:
        """Hand over what comes until `take` returns False. To be awaited at once. Raises OSError, and what `take`
        raises."""
        ...

    def close(self) -> None:
        """Drop it."""
        ...


class NeverSent(Exception):
    """No byte of the request was written (F2): no address, no connection, no TLS. The text is for clients: a kind,
    never a name."""


class Broken(Exception):
    """The connection broke, or the peer does not speak HTTP, once a byte was written. The text as above."""


class Answer(Protocol):
    """An answer, its head read."""

    @property
    def status(self) -> int:
        """Of the final answer: interim ones are passed over."""
        ...

    @property
    def headers(self) -> WireHeaders:
        """In their order; names as they were written."""
        ...

    def forget_headers(self) -> None:
        """They were read, and need not be kept while the body comes."""
        ...

    async def read(self) -> bytes:
        """Bytes of the body as they came off the wire, its framing taken off; b"" at its end. Raises Broken."""
        ...

    def pass_on(self, take: Take) -> Awaitable[None]:
        """Hand over what `read` would return, as it comes, b"" at the end too, until `take` returns False; or until
        what was here is handed over, or a wait for more would be for nothing. To be awaited at once. Raises Broken, or
        the OSError that broke it."""
        ...

    async def aclose(self) -> None:
        """Done with it, read to its end or not: a connection that can serve again is kept for the next call."""
        ...


class Caller(Protocol):
    """One route's way to call."""

    async def call(self, method: str, path: str, headers: WireHeaders, body: bytes) -> Answer:
        """Send the request to an endpoint below the base URL; returns with the answer's head. Raises NeverSent or
        Broken."""
        ...

    async def aclose(self) -> None:
        """Close what idles."""
        ...
