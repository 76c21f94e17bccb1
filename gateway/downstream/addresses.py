"""Where a client comes from: its peer's address, or what the trusted proxies in front say of it.

    x-forwarded-for: forged, 203.0.113.9, 10.0.0.7       trusted_hops = 2
                             ^ written by the outer proxy: the client        ^ the peer: the inner proxy

Each proxy appends the address it was called from, so the N-th entry from the right is the work of the N-th proxy, and
whatever stands left of it is the client's own invention. A header that is shorter was not written by these proxies:
then nothing in it is believed.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final

WITH_PORT: Final = re.compile(r"\[(?P<six>[^\]]*)\](?::[0-9]+)?|(?P<four>[0-9.]+):[0-9]+")


def client_address(scope: Any, trusted_hops: int) -> str | None:
    """The client's address, from an ASGI scope; None where the peer has none (a Unix socket)."""
    peer = scope.get("client")
    address = None if peer is None else str(peer[0])
    if trusted_hops == 0:
        return address
    forwarded_for = b",".join([value for name, value in scope["headers"] if name.lower() == b"x-forwarded-for"])
    return forwarded_address(forwarded_for.decode("latin-1"), trusted_hops) or address


def forwarded_address(forwarded_for: str, trusted_hops: int) -> str | None:
    """The entry that the outermost trusted proxy wrote; None if there is none or it is no address. (The zone of an IPv6
    address, which may be any text, means nothing on another machine.)"""
    entries = [entry.strip() for entry in forwarded_for.split(",")]
    if len(entries) < trusted_hops:
        return None
    entry = entries[-trusted_hops]
    with_port = WITH_PORT.fullmatch(entry)
    try:
        address = ipaddress.ip_address(entry if with_port is None else with_port["six"] or with_port["four"])
    except ValueError:
        return None
    return None if "%" in str(address) else str(address)
