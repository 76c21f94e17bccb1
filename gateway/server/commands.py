"""What a running gateway can be asked over its control socket: the same table, whether it is one process or many.

    control.py --request--> COMMANDS' row --> Supervised: a supervisor (supervisor.py), or a single process (below)

A further command is a further row here and a further method of both; those of `gateway routes` have a desk of their own
(routes_desk.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from gateway.server.control import Answer, Command
from gateway.server.place import Live
from gateway.server.posts import State, as_shown, live_row
from gateway.server.reloading import ASKED, Reloading

ONLY_ONE = (
    "a single process cannot be restarted without a cut, for there is no other to serve meanwhile; "
    "start it with `gateway serve --workers 2`"
)


class Supervised(Protocol):
    """Processes that serve, seen from outside."""

    def status(self) -> Sequence[Mapping[str, Any]]:
        """Each process that lives, as `gateway status` shows it."""
        ...

    async def roll(self) -> str | None:
        """Replace them one by one. What went wrong."""
        ...


def commands_of(processes: Supervised) -> Mapping[str, Command]:
    """The table of commands, by name."""

    async def status(_request: Mapping[str, Any]) -> Answer:  # noqa: ASYNC124 - as all commands are called
        return {"ok": True, "workers": processes.status()}

    async def restart(_request: Mapping[str, Any]) -> Answer:
        problem = await processes.roll()
        return {"ok": problem is None, "error": problem, "workers": processes.status()}

    return {"status": status, "restart": restart}


class SingleProcess:
    """This process, which has no supervisor."""

    def __init__(
        self,
        number: int,
        running_turns: Callable[[], int],
        reloading: Reloading | None = None,
        live: Live = dict,
    ) -> None:
        self._live = live
        self._number = number
        self._running_turns = running_turns
        self._reloading = reloading
        self.enter(State.STARTING)

    def __repr__(self) -> str:
        return f"<SingleProcess, {self._state.value}>"

    def enter(self, state: State) -> None:
        """Its next state."""
        self._state, self._since = state, datetime.now(UTC)

    def status(self) -> Sequence[Mapping[str, Any]]:
        """One row (Supervised)."""
        row = as_shown(self._number, os.getpid(), self._state, self._since)
        table = "" if self._reloading is None else self._reloading.table
        return [{**row, "restarts": 0, "turns": self._running_turns(), "table": table}]

    async def live(self) -> Sequence[Mapping[str, Any]]:  # noqa: ASYNC124 - a supervisor asks its workers
        """How its routes stand (routes_desk.Reloadable)."""
        return [{**live_row(self._number, os.getpid(), self._state.value), **self._live()}]

    async def reload_to(self, _table: str) -> None:
        """It reads its files (routes_desk.Reloadable)."""
        if self._reloading is not None:
            await self._reloading.reload(ASKED)

    async def roll(self) -> str | None:  # noqa: ASYNC124 - a supervisor's takes its time
        """It cannot be (Supervised)."""
        return ONLY_ONE
