"""Opening the port, and what to say where that cannot be done.

Apart from serve.py, for the supervisor opens ports and serves nobody: it imports no server.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Final

import trio

CONNECTIONS_WAITING_MAX: Final = 1024
"""Connections that the kernel holds until they are accepted: a burst of clients that reconnect after a restart."""
PORT_MAX: Final = 65535

FIXES: Final = {
    errno.EADDRINUSE: "stop what listens there, or choose another port (0 takes any free one)",
    errno.EACCES: "choose a port above 1023, or give the process the right to take it",
    errno.EADDRNOTAVAIL: "choose an address of this machine: 127.0.0.1 for itself only, 0.0.0.0 for all",
}
FIX: Final = "choose another host or port"
RESOLVING: Final = "choose a host name that resolves, or an address"


class CannotListen(Exception):
    """The port cannot be opened: says which, why, and what to do."""

    def __init__(self, host: str, port: int, error: OSError | ValueError) -> None:
        if isinstance(error, ValueError):
            why, fix = "that is no host name", RESOLVING
        else:
            why = error.strerror or str(error)
            fix = RESOLVING if isinstance(error, socket.gaierror) else FIXES.get(error.errno or 0, FIX)
        super().__init__(f"cannot listen on {host}, port {port}: {why}; {fix}")


async def listen(host: str, port: int) -> Sequence[trio.SocketListener]:
    """Open the port on every address that `host` stands for. Raises CannotListen."""
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=CONNECTIONS_WAITING_MAX)
    except (OSError, ValueError) as error:  # a part of a name may be empty or too long (UnicodeError)
        cause = error
    raise CannotListen(host, port, cause)


def url_of(listener: trio.SocketListener, scheme: str = "http") -> str:
    """Where a client on this machine finds an open port."""
    host, port = listener.socket.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
