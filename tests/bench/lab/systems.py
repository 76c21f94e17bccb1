"""A system under measurement: a gateway of any make, running, and how its clients reach it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.lab.placing import Tree
from bench.lab.programs import CannotMeasure

START_SECONDS_MAX: Final = 90.0
"""The slowest peer imports for half a minute on one shared core."""


MODELS: Final = ("m-50-200", "m-0-200", "m-0-1", "stepped-200", "held-15", "held-240", "open-240")
"""The scripts (wire.h), which a system that routes by models must know."""


@dataclass(frozen=True, slots=True)
class Running:
    """A started system."""

    tree: Tree
    port: int
    upstream_port: int
    key: str = "bench-key"
    path: str = "/v1/responses"
    headers: str = ""
    """Further header lines of each request, each ended by CRLF."""


@dataclass(frozen=True, slots=True)
class System:
    """A way to start one: in a folder of its own, in front of the upstream at that port, on that core."""

    name: str
    start: Callable[[Path, int, int], Running]
    version: str = ""


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_until_listening(tree: Tree, port: int) -> None:
    """Raises CannotMeasure, with the end of its log, if it ends or takes too long instead."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if tree.has_ended or time.monotonic() > deadline:
            tree.end()
            raise CannotMeasure(f"it does not start:\n{tree.log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
