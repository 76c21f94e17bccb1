"""The place that a worker is given, and the line of words, both ways, that ties it to its supervisor.

    worker --> supervisor    ready        it serves
                             table HASH   the table of models and routes that it serves (C2), after each reload too
                             turns N      how many turns run, when that has changed, at most once a second
                             routes JSON  how its routes stand, whenever it is asked
    supervisor --> worker    routes       asks for that
                             retire       accept no more connections: a successor does, from the same sockets
                             drain        end gently, as after SIGTERM; said twice it is the same
                             cut          as after a second SIGTERM
                             end of file  the supervisor is gone: drain

A worker reads its words from when it serves on: told to drain while it starts, it first takes in who has connected to
its sockets meanwhile, and answers them (T7).

The end of a worker is told by words, not by signals, so that a service manager which signals every process of its
service does not make the first signal two.

Apart from worker.py, for the supervisor speaks them too and serves nobody: it imports no server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from gateway.config.files import Kept

WORD_BYTES_MAX: Final = 128
"""A hash takes 64 of them."""
ANSWER_BYTES_MAX: Final = 16 * 1_048_576
"""What a worker may say on one line: a routes file of the largest size has some twenty thousand routes."""
DRAIN_MARGIN_SECONDS: Final = 1.5
"""After the drain's end cut turns still write their last frames; their books are shielded and close all the same. With
what a last write and a TLS goodbye may take, the process has ended 5 s after the drain's end."""

READY: Final = "ready"
TURNS: Final = "turns"
TABLE: Final = "table"
ROUTES: Final = "routes"
LAST_GOOD: Final = "+"
"""Stands before its descriptor; a supervisor that was started before an upgrade writes places without it."""
RETIRE: Final = "retire"
DRAIN: Final = "drain"
CUT: Final = "cut"


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker is given: its number from 0 on, and inherited descriptors of its line, its listening sockets and,
    if it may begin with that, of the last good configuration (last_good.py)."""

    number: int
    line: int
    listeners: Sequence[int]
    last_good: int | None = None

    def __str__(self) -> str:
        """As a command line carries it."""
        last_good = "" if self.last_good is None else f"{LAST_GOOD}{self.last_good}"
        return ",".join(map(str, (self.number, self.line, *self.listeners))) + last_good

    @classmethod
    def read(cls, text: str) -> Place:
        """From a command line. Raises ValueError."""
        place, _, last_good = text.partition(LAST_GOOD)
        number, line, *listeners = map(int, place.split(","))
        return cls(number, line, listeners, int(last_good) if last_good else None)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All that a process in this place inherits."""
        return (self.line, *self.listeners, *(() if self.last_good is None else (self.last_good,)))

    def take_last_good(self) -> Kept | None:
        """What the last good configuration was read from; once, for the descriptor is closed."""
        if self.last_good is None:
            return None
        os.lseek(self.last_good, 0, os.SEEK_SET)
        with os.fdopen(self.last_good, "rb") as file:
            return Kept.from_bytes(file.read())

    def open_listeners(self) -> Sequence[trio.SocketListener]:
        """The listening sockets, which listen already."""
        sockets = [socket.socket(fileno=descriptor) for descriptor in self.listeners]
        for sock in sockets:
            sock.setblocking(False)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]


Live = Callable[[], Mapping[str, Any]]
"""How a process's routes stand now, as plain data."""
