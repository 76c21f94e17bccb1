"""Hypercorn on Trio, hardened: what one peer sends or leaves undone never harms another.

Hypercorn 0.18 is pleasant and not safe to expose. Every private name of its that is replaced is replaced in this
package: by subclasses, and by the two assignments in `install`. The versions it was measured on are asserted there;
tests/server/hardened shows each fault on the stock classes, so that a release that mends one is noticed.

| stock | here | where |
|---|---|---|
| an exception in a protocol layer ends the process | ends that connection | connection.py |
| a write to a peer that does not read never ends | has a deadline, also at the drain's end | connection.py |
| closing a connection may wait for its peer for ever | is bounded | connection.py |
| a refused peer that still sends sees a reset | is read for a moment, and sees the answer | connection.py |
| at the end a connection accepted just before is closed unheard | has a moment to say what it wants | connection.py |
| a write is a lock, a scope and three waits | tries the socket first (fast plane) | connection.py |
| each piece of a body or message passes four layers | may be framed and written at once (fast plane) | direct.py |
| a plain POST passes all the layers, both ways | its app has it straight (fast plane) | plain_posts.py, exchange.py |
| the idle timer is a task for each request | is the deadline of the connection's read | connection.py |
| each connection waits for the process's end | is told of it | context.py |
| a slow app's full queue keeps the disconnect from it | it never waits; bytes are counted | inbox.py |
| a head has an idle connection's time, a body any | each has a bound or a pace of its own | patience.py |
| obs-fold, bare LF and CR are accepted; a head has no exact bound | 400; 431 | heads.py |
| clear-text HTTP/2 is always on | is answered 505, an upgrade to it ignored | http1.py |
| CL+TE is accepted | is refused with 400 | http1.py |
| bytes behind a body blind it to the peer's leaving | wait where they stop no one | http1.py |
| a request may be begun behind its peer's end | is not: nobody would tell its app of the end | http1.py |
| an invalid upgrade is a bare 400 | is an ordinary request for the app to answer | http1.py |
| non-ASCII in a handshake ends the process | is refused with 400 | http1.py |
| a body is asked for (100) before the app can refuse it | is asked for a moment later | http1.py |
| sends to a peer that has left neither raise nor yield | they yield | http1.py, websockets.py |
| frames before the accept end the process | wait for it, for a time | websockets.py |
| a handshake refused for its server name leaves the connection open | closes it | websockets.py |
| permessage-deflate is always on, unbounded when inflated | is never negotiated | websockets.py |
| 1002 and 1007 are not sent | are | websockets.py |
| a message too large leaves the app and the socket waiting | is the app's to refuse, else 1009 | messages.py |
| a message's bound counts characters | counts bytes | messages.py |
| an unfinished message may wait for ever | must keep a body's pace | websockets.py |
| what all bodies and messages hold has no bound | 503; close with 1013 | inbound.py |
| pings are sent, pongs never missed | a peer silent for three pings is dropped | websockets.py |
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import hypercorn.config
import hypercorn.trio.run

from gateway.server.hardened.connection import HardenedServer

MEASURED_ON: Final = {"hypercorn": "0.18.0", "quart": "0.22.0", "quart-trio": "0.12.0"}


class UnmeasuredVersion(Exception):
    """A library has another version than the one whose private names are replaced."""


def install() -> None:
    """Put the hardened server into Hypercorn. Raises UnmeasuredVersion, naming what to install."""
    for library, measured in MEASURED_ON.items():
        installed = version(library)
        if installed != measured:
            raise UnmeasuredVersion(
                f"{library} {installed} is installed, but the gateway's hardening was measured on {measured}; "
                f"install {library}=={measured}"
            )
    hypercorn.trio.run.TCPServer = HardenedServer  # type: ignore[attr-defined, assignment]  # by what it makes connections
    hypercorn.config.Config.alpn_protocols = ["http/1.1"]
