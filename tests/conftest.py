"""What every test runs under: no test reaches beyond this machine."""

import ipaddress
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Whatever profile was in force, as CI's or that of mutation testing: no example fails because a machine is busy.
settings.register_profile("house", settings(), deadline=None)
settings.load_profile("house")

# Assertions that stand outside test files show what they compared; asked for before any folder imports them.
pytest.register_assert_rewrite(
    "support.gateways",
    "records.contract",
    "ledger.contract",
    "ledger.by_hand",
    "ledger.leases",
    "ledger.books",
    "keys.contract",
    "crash.worlds",
    "crash.proof",
    "crash.fleets",
    "properties.invariants",
)

pytest_plugins = ["support.postgres"]  # fixtures that several folders ask for


@pytest.hookimpl(optionalhook=True)  # a run may be without xdist
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for `-n auto`: the tests of real processes spend half of their time waiting."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """A connection to anything but the loopback is a bug of the test: it fails before a packet leaves."""
    connect = socket.socket.connect

    def connect_to_loopback(sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            raise AssertionError(f"a test connects to {address!r}, which is not this machine")
        connect(sock, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_to_loopback)
        yield


def _is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback
