"""Random mutations of valid traffic over the listening socket: no crash, no hang, no leak. Each input is sent, its end
said, and the connection read to its end."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from server.attacks.ground import Ground, eventually, ground
from server.attacks.mutations import mutated

INPUTS = 2_000
INPUTS_LONG = 100_000
INPUTS_OVER_TLS = 10_000
CLIENTS = 8
HANG_SECONDS = 30.0
"""A half-close ends every request, and whatever else: far more than an answer takes on a busy machine."""
MEMORY_GROWTH_BYTES_MAX = 48 * 1024 * 1024


def try_input(place: Ground, seed: int) -> str | None:
    """Send it; what was wrong."""
    try:
        with connected(place) as peer:
            peer.sendall(mutated(seed))
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65_536):
                pass
    except TimeoutError:
        return f"the input of seed {seed} hangs"
    except ConnectionRefusedError:
        return f"nobody listens at seed {seed}"
    except OSError:
        return None  # reset: the answer's end, seen while more was sent
    return None


def connected(place: Ground) -> socket.socket:
    """A client's end."""
    peer = socket.create_connection(("127.0.0.1", place.port), HANG_SECONDS)
    return peer if place.trust is None else place.trust.wrap_socket(peer, server_hostname="127.0.0.1")


def fuzz(place: Ground, seeds: range) -> None:
    place.play_turn()
    memory = place.resident_bytes
    with ThreadPoolExecutor(CLIENTS) as clients:
        problems = list(filter(None, clients.map(lambda seed: try_input(place, seed), seeds)))
    assert problems == []
    place.play_turn()
    assert eventually(lambda: place.connections == 0), f"{place.connections} connections"
    assert eventually(lambda: place.open_calls == 0)
    assert place.resident_bytes - memory < MEMORY_GROWTH_BYTES_MAX
    assert [
        line for line in place.process.output.splitlines() if "Traceback" in line or "connection_dropped" in line
    ] == []


def test_a_slice_of_the_mutations(tmp_path: Path) -> None:
    with ground(tmp_path) as place:
        fuzz(place, range(INPUTS))


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("GATEWAY_LONG"), reason="takes minutes; set GATEWAY_LONG=1")
def test_all_mutations(tmp_path: Path) -> None:
    with ground(tmp_path) as place:
        fuzz(place, range(INPUTS, INPUTS + INPUTS_LONG))


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("GATEWAY_LONG"), reason="takes a minute; set GATEWAY_LONG=1")
def test_some_mutations_over_tls(tmp_path: Path) -> None:
    with ground(tmp_path, is_tls=True) as place:
        fuzz(place, range(INPUTS_OVER_TLS))
