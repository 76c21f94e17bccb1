"""A worker's end of the line between it and its supervisor (place.py): it obeys, and says how it stands."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog
import trio

from gateway.server.accepting import WayDown
from gateway.server.lines import LineReader
from gateway.server.place import CUT, DRAIN, READY, RETIRE, ROUTES, TABLE, TURNS, WORD_BYTES_MAX, Live, Place

logger = structlog.get_logger("gateway.server")

TURNS_SECONDS: Final = 1.0
"""How often the number of turns is told, at most: for people to read."""


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


async def work(place: Place, serve: Serve, running_turns: Callable[[], int], reloads: Reloads, live: Live) -> bool:
    """Serve in a supervisor's place. Whether what ran could end by itself."""
    way_down = WayDown()
    line = SupervisorLine(place.line, way_down)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.tell_tables, reloads)
        nursery.start_soon(line.tell_routes, live)

        def on_listening() -> None:
            nursery.start_soon(line.tell, running_turns)
            nursery.start_soon(line.obey)  # not before: told to drain while it starts, it first takes in who waits

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
