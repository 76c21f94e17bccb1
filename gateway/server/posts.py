"""What the supervisor keeps: posts, which stay, and the workers that hold them, each a process from start to end."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import trio

from gateway.server import place as words
from gateway.server.place import Place

BACKOFF_SECONDS_MIN: Final = 0.1
"""How long a post is empty after its holder died; ever longer if that happens again and again."""

LIVE_SECONDS_MAX: Final = 2.0
"""In which a worker says how its routes stand: one that is well does so at once, and a person waits for it."""


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


def live_row(number: int, pid: int | None, state: str, error: str | None = None) -> dict[str, Any]:
    """How the routes of a process stand, before it is known: its beginning, and `error` for why it is not."""
    return {"number": number, "pid": pid, "state": state, "error": error, "table": "", "routes": {}}


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
    said_live: Mapping[str, Any] = field(default_factory=dict)
    """How its routes stood when it was asked."""
    told_live: trio.Event = field(default_factory=trio.Event)
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

    def note_live(self, said: str) -> None:
        """It has said how its routes stand; what is no JSON it has not said."""
        with suppress(ValueError):
            self.said_live = json.loads(said)
            self.told_live.set()
            self.told_live = trio.Event()

    def note_end(self) -> None:
        """It has ended: nobody waits for it any more."""
        for event in (self.ended, self.told_table, self.told_live, self.settled):
            event.set()

    async def settles_within(self, seconds: float) -> bool:
        """Whether it is ready, or has ended, before that is over."""
        with trio.move_on_after(seconds):
            await self.settled.wait()
        return self.settled.is_set()

    async def live(self) -> dict[str, Any]:
        """How its routes stand; or why it does not say so."""
        told, error = self.told_live, None
        if self.ready_at is None:
            error = "has not started yet"
        else:
            self.tell(words.ROUTES)
            with trio.move_on_after(LIVE_SECONDS_MAX):
                await told.wait()
            error = None if told.is_set() else f"has not answered within {LIVE_SECONDS_MAX:g} s"
            error = "has ended" if self.ended.is_set() else error
        row = live_row(self.number, self.process.pid, self.state.value, error)
        return {**row, "table": self.table} if error else {**row, **self.said_live}

    def tell(self, word: str) -> None:
        """Say a word to it. Nothing is lost on one that is gone: its end is noticed."""
        try:
            self.line.send(f"{word}\n".encode())
        except OSError:
            return

    def cut(self) -> None:
        """End it at once, as after a second signal. While it starts it reads no word, and nothing runs in it."""
        if self.ready_at is None:
            self.process.terminate()
        else:
            self.tell(words.CUT)

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

    def live(self) -> list[dict[str, Any]]:
        """A row for its holder, if there is none."""
        away = live_row(self.number, None, "away", "has ended, and is started again")
        return [away] if self.holder is None else []

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
