"""A worker's own end of what ties it to its supervisor: the place it was given, and a line of words both ways.

    worker --> supervisor    ready        it serves
                             table HASH   the table of models and routes that it serves (C2), after each reload too
                             turns N      how many turns run, when that has changed, at most once a second
                             routes JSON  how its routes stand, whenever it is asked
    supervisor --> worker    routes       asks for that
                             retire       accept no more connections: a successor does, from the same sockets
                             drain        end gently, as after SIGTERM; said twice it is the same
                             cut          as after a second SIGTERM
                             end of file  the supervisor is gone: drain

The end of a worker is told by words, not by signals, so that a service manager which signals every process of its
service does not make the first signal two.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import structlog
import trio

from gateway.config.files import Kept
from gateway.server.accepting import WayDown
from gateway.server.lines import LineReader

logger = structlog.get_logger("gateway.server")

WORD_BYTES_MAX: Final = 128
"""A hash takes 64 of them."""
ANSWER_BYTES_MAX: Final = 16 * 1_048_576
"""What a worker may say on one line: a routes file of the largest size has some twenty thousand routes."""
TURNS_SECONDS: Final = 1.0
"""How often the number of turns is told, at most: for people to read."""

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


class Serve(Protocol):
    """Serves at the listeners until a signal, says when it does; whether what ran could end by itself."""

    async def __call__(
        self, listeners: Sequence[trio.SocketListener], way_down: WayDown, on_listening: Callable[[], None]
    ) -> bool:
        """Serve."""
        ...


class Reloads(Protocol):
    """Which table of models and routes serves, and when the files have been read anew (reloading.py)."""

    @property
    def table(self) -> str:
        """Its hash."""
        ...

    async def wait_reloaded(self) -> str:
        """Return at the next reload, with the table that serves then."""
        ...


Live = Callable[[], Mapping[str, Any]]
"""How a process's routes stand now, as plain data."""


async def work(place: Place, serve: Serve, running_turns: Callable[[], int], reloads: Reloads, live: Live) -> bool:
    """Serve in a supervisor's place. Whether what ran could end by itself."""
    way_down = WayDown()
    line = SupervisorLine(place.line, way_down)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.obey)
        nursery.start_soon(line.tell_tables, reloads)
        nursery.start_soon(line.tell_routes, live)
        on_listening = partial(nursery.start_soon, line.tell, running_turns)
        ended_by_itself = await serve(place.open_listeners(), way_down, on_listening)
        nursery.cancel_scope.cancel()
    return ended_by_itself


class SupervisorLine:
    """The worker's end of its line."""

    def __init__(self, descriptor: int, way_down: WayDown) -> None:
        sock = trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor))
        self._stream = trio.SocketStream(sock)
        self._way_down = way_down
        self._speaking = trio.Lock()
        self._is_asked = trio.Event()

    def __repr__(self) -> str:
        return f"<SupervisorLine {self._stream.socket}>"

    async def tell(self, running_turns: Callable[[], int]) -> None:
        """Say that the worker is ready, and from then on how many turns run."""
        told = 0
        await self._say(READY)
        while True:
            await trio.sleep(TURNS_SECONDS)
            if running_turns() != told:
                told = running_turns()
                await self._say(f"{TURNS} {told}")

    async def tell_tables(self, reloads: Reloads) -> None:
        """Say which table serves, now and after each reload."""
        await self._say(f"{TABLE} {reloads.table}")
        while True:
            await self._say(f"{TABLE} {await reloads.wait_reloaded()}")

    async def tell_routes(self, live: Live) -> None:
        """Say how the routes stand, whenever that is asked."""
        while True:
            await self._is_asked.wait()
            self._is_asked = trio.Event()
            await self._say(f"{ROUTES} {json.dumps(live())}")

    async def obey(self) -> None:
        """Do what the supervisor says, until it is gone."""
        reader = LineReader(self._stream, WORD_BYTES_MAX)
        while (word := await reader.next()) is not None:
            if word == RETIRE:
                logger.info("retiring")
                self._way_down.close()
            elif word == ROUTES:
                self._is_asked.set()
            elif word == CUT or (word == DRAIN and not self._way_down.ending.is_set()):
                signal.raise_signal(signal.SIGTERM)
        if not self._way_down.ending.is_set():
            logger.warning("supervisor_gone")
            signal.raise_signal(signal.SIGTERM)

    async def _say(self, words: str) -> None:
        """A supervisor that is gone is noticed by `obey`."""
        try:
            async with self._speaking:
                await self._stream.send_all(f"{words}\n".encode())
        except trio.BrokenResourceError:
            return
