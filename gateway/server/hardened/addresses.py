"""Whence a connection came, and where to: a listener's own address is one object for all that came to it."""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import Final

import trio
from hypercorn.utils import parse_socket_addr

LISTENERS_MAX: Final = 64
"""Whose addresses are kept: a process listens at a few."""

Address = tuple[str, int] | None


def addresses_of(peer: trio.socket.SocketType | socket.socket) -> tuple[Address, Address]:
    """The client's and the server's. Raises OSError if the peer is gone."""
    client: Address = parse_socket_addr(peer.family, peer.getpeername())
    return client, _shared(parse_socket_addr(peer.family, peer.getsockname()))


@lru_cache(LISTENERS_MAX)
def _shared(address: Address) -> Address:
    return address
