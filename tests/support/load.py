"""Threads that do the same over and over while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.processes import PATIENCE_SECONDS


@contextmanager
def under_load(play: Callable[[int], object], clients: int) -> Iterator[None]:
    """So many threads, each of which plays again and again, with a number that goes up, until the block has ended."""
    is_over = threading.Event()

    def client(number: int) -> None:
        while not is_over.is_set():
            play(number)
            number += 1

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
