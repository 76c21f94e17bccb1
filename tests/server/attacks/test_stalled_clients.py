"""Clients that stop reading, and clients that send one byte a second, beside honest ones (bug cases 24, O3)."""

import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from server.attacks.ground import Ground, eventually, ground, turn_request
from server.attacks.websocket_cases import create, upgrade
from server.attacks.wire import ToEnd, request

DRAIN_SECONDS = 2
SETTLE_SECONDS = 60.0
"""Until all who stop reading have been sent what their kernels take."""
SAMPLES_MAX = 5
"""Whoever else uses the machine slows some of them down; whoever stops reading would slow all."""
SETTINGS = (f"drain_timeout = {DRAIN_SECONDS}", "write_timeout = 60")
MEMORY_BYTES_PER_CLIENT_MAX = 600_000
"""A turn that waits for its client: a batch on its way, one behind it, its connection and its upstream's."""


@contextmanager
def stalled(place: Ground, clients: int) -> Iterator[None]:
    """Half on each door; each has asked for 300 MB and reads nothing."""
    with ExitStack() as sockets:
        for number in range(clients):
            peer = sockets.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", place.port))
            peer.sendall(upgrade() + create("endless") if number % 2 else turn_request("endless"))
        yield


@contextmanager
def dribbling(place: Ground, clients: int) -> Iterator[None]:
    """Each sends a byte of its request every second; those that are cut come again."""
    is_over = threading.Event()

    def dribble() -> None:
        while not is_over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", place.port)) as peer:
                    for byte in request("POST /v1/responses HTTP/1.1", "x: y"):
                        peer.sendall(bytes([byte]))
                        if is_over.wait(1):
                            return
            except ConnectionRefusedError:
                return
            except ConnectionError:
                continue

    threads = [threading.Thread(target=dribble, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def honest_seconds(place: Ground, clients: int) -> float:
    """The median time that a turn takes, with so many at once."""

    def play(_number: int) -> float:
        begun = time.monotonic()
        place.peer().play([turn_request("ticking", "connection: close"), ToEnd(rb"response\.completed")])
        return time.monotonic() - begun

    with ThreadPoolExecutor(clients) as pool:
        return statistics.median(pool.map(play, range(clients)))


def assert_honest_ones_notice_nothing(place: Ground, clients: int, slow: int, honest: int) -> None:
    alone = honest_seconds(place, honest)
    memory = place.resident_bytes
    with stalled(place, clients):
        assert eventually(place.has_settled, SETTLE_SECONDS)
        with dribbling(place, slow):
            is_as_without = any(honest_seconds(place, honest) < 1.5 * alone + 1 for _ in range(SAMPLES_MAX))
            assert place.resident_bytes - memory < clients * MEMORY_BYTES_PER_CLIENT_MAX
            assert is_as_without
            place.process.signal(signal.SIGTERM)
            assert place.process.wait(DRAIN_SECONDS + 5) == 0
    lines = place.process.output.splitlines()
    ended = [line for line in lines if '"model": "endless"' in line and '"event": "turn"' in line]
    assert len(ended) == clients, "each turn has its record"


@pytest.mark.parametrize("plane", ["fast", pytest.param("plain", marks=pytest.mark.long)])
def test_100_clients_that_stop_reading_harm_nobody_and_do_not_hold_the_process(plane: str, tmp_path: Path) -> None:
    with ground(tmp_path, *SETTINGS, f'data_plane = "{plane}"', is_impatient=False) as place:
        assert_honest_ones_notice_nothing(place, clients=100, slow=0, honest=20)


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("GATEWAY_LONG"), reason="takes a minute; set GATEWAY_LONG=1")
def test_500_that_stop_reading_and_500_that_dribble_harm_nobody(tmp_path: Path) -> None:
    with ground(tmp_path, *SETTINGS, is_impatient=False) as place:
        assert_honest_ones_notice_nothing(place, clients=500, slow=500, honest=50)
