"""The guard of tests/conftest.py: no test reaches beyond this machine."""

import socket

import pytest


def test_a_connection_beyond_this_machine_is_refused() -> None:
    # A datagram socket's connect sends nothing, should the guard ever be gone; the address is RFC 5737's example.
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        pytest.raises(AssertionError, match="not this machine"),
    ):
        sock.connect(("192.0.2.1", 9))


def test_a_connection_to_this_machine_goes_through() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()
