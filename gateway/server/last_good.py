"""The configuration that a worker begins with when its files cannot be used: the last one that could be (C1, C2).

    a worker says which table it serves  -->  the files are read once more, beside the loop  -->  kept, if they can be
    a worker has died                    -->  its successor is given what is kept, and reads the files first

It is kept in the supervisor's memory, with the contents of all files that it was read from, those of secrets too, and
handed over in a file that has no name. Whoever starts the gateway or restarts it gets none of it: they want what is in
the files, and are told what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import trio

from gateway.config import Config, ConfigError
from gateway.server.reloading import reading


class LastGood:
    """What is kept. `read` reads and validates the files; `started` is what they were at the start."""

    def __init__(self, started: Config, read: Callable[[], Config]) -> None:
        self._config = started
        self._read = read
        self._asked = trio.Event()

    def __repr__(self) -> str:
        return f"<LastGood of {list(map(str, self._config.files))}>"

    @property
    def config(self) -> Config:
        """The last one that could be used."""
        return self._config

    def look(self) -> None:
        """Have the files read soon: a process has just done so."""
        self._asked.set()

    async def run(self) -> None:
        """Read them whenever somebody asks, until cancelled; those who ask meanwhile have asked once."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            await self.problems()

    async def problems(self) -> Sequence[str]:
        """Read the files now: all that is wrong with them; without that they are kept."""
        found = await reading(self._read)
        if isinstance(found, ConfigError):
            return [str(problem) for problem in found.problems]
        self._config = found
        return []

    def open(self) -> int:
        """A descriptor of what is kept, for a process that is about to start. Raises OSError."""
        descriptor = os.memfd_create("gateway-last-good")
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(self._config.kept.to_bytes())
        return descriptor
