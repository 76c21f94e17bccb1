"""What the supervisor keeps: posts, which stay, and the workers that hold them, each a process from start to end."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import trio

from gateway.server.worker import Place

BACKOFF_SECONDS_MIN: Final = 0.1
"""How long a post is empty after its holder died; ever longer if that happens again and again."""


class Launch(NamedTuple):
    """How a worker's process is started."""

    command: Sequence[str]
    environ: Mapping[str, str]


class State(StrEnum):
    """A worker's way."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


def as_shown(number: int, pid: int, state: State, since: datetime) -> dict[str, Any]:
    """The beginning of a process's row in `gateway status`."""
    return {"number": number, "pid": pid, "state": state.value, "since": since.isoformat(timespec="milliseconds")}


@dataclass(eq=False)
class Worker:
    """One process, from its start to its end."""

    number: int
    process: trio.Process
    line: socket.socket
    restarts: int
    state: State = State.STARTING
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    turns: int = 0
    table: str = ""
    """The hash of the one it serves (C2)."""
    told_table: trio.Event = field(default_factory=trio.Event)
    """It has said so once more."""
    ready_at: float | None = None
    owes_reload: bool = False
    settled: trio.Event = field(default_factory=trio.Event)
    """It is ready, or has ended before it was."""
    ended: trio.Event = field(default_factory=trio.Event)

    def enter(self, state: State) -> None:
        """Its next state, as `gateway status` shows it."""
        self.state, self.since = state, datetime.now(UTC)

    def note_table(self, table: str) -> None:
        """It has said which table it serves."""
        self.table = table
        self.told_table.set()
        self.told_table = trio.Event()

    async def wait_for_table(self, table: str) -> None:
        """Return when it serves that table, or has ended, or says that it serves another all the same."""
        if self.table != table and not self.ended.is_set():
            await self.told_table.wait()

    def tell(self, word: str) -> None:
        """Say a word to it. Nothing is lost on one that is gone: its end is noticed."""
        try:
            self.line.send(f"{word}\n".encode())
        except OSError:
            return

    def status(self) -> dict[str, Any]:
        """What `gateway status` shows."""
        row = as_shown(self.number, self.process.pid, self.state, self.since)
        return {**row, "restarts": self.restarts, "turns": self.turns, "table": self.table}


@dataclass(eq=False)
class Post:
    """A worker's place, which outlives it: its sockets, who holds it, and how often it had to be filled again."""

    number: int
    sockets: Sequence[socket.socket] = ()
    holder: Worker | None = None
    restarts: int = 0
    failed_starts: int = 0
    """In a row."""
    backoff_seconds: float = BACKOFF_SECONDS_MIN
    is_being_filled: bool = False

    def close(self) -> None:
        """Let the kernel send connections elsewhere, or nowhere."""
        for sock in self.sockets:
            sock.close()
        self.sockets = ()


async def open_process(launch: Launch, place: Place) -> trio.Process:
    """Start a worker's process. Raises OSError."""
    return await trio.lowlevel.open_process(
        launch.command,
        env=launch.environ,
        stdin=subprocess.DEVNULL,
        pass_fds=place.descriptors,
        process_group=0,  # Ctrl-C is for the supervisor: to a worker it would be a second signal
    )
