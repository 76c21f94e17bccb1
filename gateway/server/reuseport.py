"""Listening sockets for several processes at one address: each process has its own (SO_REUSEPORT), and the kernel
spreads connections over them, so that no process waits for another's.

They are opened by the supervisor, which keeps them open: while a worker is replaced, connections wait in the queue of
its socket until the successor takes them. A worker that opened its own would have the kernel reset what waits in its
queue when it closes (Linux without `net.ipv4.tcp_migrate_req`, which is off by default).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

import trio

from gateway.server.listening import CONNECTIONS_WAITING_MAX, CannotListen

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class SharedAddress:
    """One host and port, found free; sockets for it may be opened at any time."""

    def __init__(self, host: str, port: int, addresses: Sequence[Address]) -> None:
        self._host = host
        self._port = port
        self._addresses = addresses

    def __repr__(self) -> str:
        return f"<SharedAddress {self._host} port {self._port}>"

    @property
    def port(self) -> int:
        """The port, also if any was asked for."""
        return self._port

    def url(self, scheme: str) -> str:
        """Where a client on this machine finds it."""
        address = str(self._addresses[0][1][0])
        return f"{scheme}://[{address}]:{self._port}" if ":" in address else f"{scheme}://{address}:{self._port}"

    @classmethod
    async def find(cls, host: str, port: int) -> SharedAddress:
        """Look the host up and see that nobody else listens there. Raises CannotListen."""
        try:
            addresses = await _addresses(host, port)
            for number, (family, address) in enumerate(addresses):
                # Without SO_REUSEPORT: two gateways of one user could otherwise share the port without a word.
                with _bound(family, address, is_shared=False) as probe:
                    port = probe.getsockname()[1]
                addresses = [*addresses[: number + 1], *_at(port, addresses[number + 1 :])]
        except (OSError, ValueError) as error:  # a part of a name may be empty or too long (UnicodeError)
            cause = error
        else:
            return cls(host, port, _at(port, addresses))
        raise CannotListen(host, port, cause)

    def open(self) -> Sequence[socket.socket]:
        """A listening socket for each of the host's addresses. Raises CannotListen."""
        opened: list[socket.socket] = []
        try:
            for family, address in self._addresses:
                opened.append(_bound(family, address, is_shared=True))
                opened[-1].listen(CONNECTIONS_WAITING_MAX)
        except OSError as error:
            for sock in opened:
                sock.close()
            cause = error
        else:
            return opened
        raise CannotListen(self._host, self._port, cause)


async def _addresses(host: str, port: int) -> list[Address]:
    """What the host stands for, but for families that this machine does not have."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    usable: list[Address] = [(family, address) for family, _, _, _, address in found if _exists(family)]
    if not usable:
        raise OSError(errno.EAFNOSUPPORT, "no address of that host can be used on this machine")
    return usable


def _exists(family: socket.AddressFamily) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _at(port: int, addresses: Sequence[Address]) -> list[Address]:
    return [(family, (address[0], port, *address[2:])) for family, address in addresses]


def _bound(family: socket.AddressFamily, address: tuple[Any, ...], *, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
