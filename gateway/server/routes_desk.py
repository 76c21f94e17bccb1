"""`gateway routes` at the gateway's end of the control socket (C2): what serves, and another table in its place.

    routes_show                     which table serves in which process, and what stands in it
    routes_apply     {text, name}   validate --> replace the routes file --> every process reads it --> each one's table
    routes_rollback  {table?}       the same, with a table that was applied before

What cannot be used changes nothing, and says all that is wrong with it. One of these at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog
import trio

from gateway import limits
from gateway.config import Candidate, Config, ConfigError
from gateway.server.control import Answer, Command
from gateway.server.routes_file import RoutesFile

logger = structlog.get_logger("gateway.routes")

T = TypeVar("T")
Read = Callable[[Candidate | None], Config]
"""Reads and validates the configuration, with a candidate in the place of its routes file."""

UNUSABLE: Final = "unusable"
"""Marks an answer whose error is the asker's to put right."""


class Reloadable(Protocol):
    """Processes that serve and can read their files anew."""

    def status(self) -> Sequence[Mapping[str, Any]]:
        """Each process that lives; its `table` is the hash of the one it serves."""
        ...

    async def reload_to(self, table: str) -> None:
        """Have all of them read their files, and return when each serves that table, or does not in time."""
        ...


class RoutesDesk:
    """Answers for these processes. `started` is the configuration that they began with."""

    def __init__(self, processes: Reloadable, read: Read, started: Config) -> None:
        self._processes = processes
        self._read = read
        self._last = started
        self._one_at_a_time = trio.Lock()

    def __repr__(self) -> str:
        return f"<RoutesDesk of {self._processes!r}>"

    @property
    def commands(self) -> Mapping[str, Command]:
        """By name (commands.py)."""
        return {"routes_show": self.show, "routes_apply": self.apply, "routes_rollback": self.rollback}

    async def show(self, _request: Mapping[str, Any]) -> Answer:
        """What serves."""
        problems: list[str] = []
        try:
            self._last = await _aside(partial(self._read, None))
        except ConfigError as error:
            problems = str(error).splitlines()
        config = self._last
        kept = [] if config.routes_file is None else await _aside(RoutesFile(config.routes_file).kept)
        return {
            "ok": True,
            "table": config.table_hash,
            "file": str(config.routes_file or config.file),
            "problems": problems,
            "models": [
                {"name": name, "routes": list(model.routes), "max_output_tokens": model.max_output_tokens}
                for name, model in config.models.items()
            ],
            "routes": [
                {"name": name, "transport": route.transport, "base_url": route.base_url, "model": route.upstream_model}
                for name, route in config.routes.items()
            ],
            "workers": self._processes.status(),
            "kept": [{"table": one.hash, "at": one.at.isoformat(timespec="seconds")} for one in kept],
        }

    async def apply(self, request: Mapping[str, Any]) -> Answer:
        """Have the text in the request serve, if it can."""
        text, name = request.get("text"), request.get("name")
        if not isinstance(text, str) or not isinstance(name, str):
            return _unusable("say the routes file's text and its name")
        async with self._one_at_a_time:
            return await self._put(Candidate(text, name))

    async def rollback(self, request: Mapping[str, Any]) -> Answer:
        """Have a table serve that was applied before."""
        named = request.get("table")
        if named is not None and not isinstance(named, str):
            return _unusable("name a table by its hash")
        async with self._one_at_a_time:
            path = self._last.routes_file
            if path is None:
                return _unusable(f"{self._last.file} holds its routes itself: no table before this one is kept")
            found = await _aside(partial(RoutesFile(path).find, named, await self._standing()))
            if isinstance(found, str):
                return _unusable(found)
            text = await _aside(partial(found.path.read_text, "utf-8-sig"))
            return await self._put(Candidate(text, str(found.path)))

    async def _put(self, candidate: Candidate) -> Answer:
        try:
            config = await _aside(partial(self._read, candidate))
        except ConfigError as error:
            return _unusable(str(error))
        path, table = config.routes_file, config.table_hash
        if path is None:  # only a named file has a candidate
            return _unusable("there is no routes file")
        before = await self._standing()
        try:
            await _aside(partial(RoutesFile(path).replace, candidate.text, table, before))
        except OSError as error:
            return _unusable(_not_writable(path, error))
        self._last = config
        logger.info("routes_written", file=str(path), table=table[: limits.TABLE_DIGITS], origin=candidate.name)
        await self._processes.reload_to(table)
        return self._report(table)

    async def _standing(self) -> str | None:
        """The hash of the table in the file as it is; None if it cannot be used."""
        try:
            return (await _aside(partial(self._read, None))).table_hash
        except ConfigError:
            return None

    def _report(self, table: str) -> Answer:
        workers = self._processes.status()
        astray = [str(worker["number"]) for worker in workers if _is_astray(worker, table)]
        error = None
        if not workers:
            error = "no process serves: see the log"
        elif astray:
            shown = table[: limits.TABLE_DIGITS]
            error = f"the file holds the table {shown}, but not all serve it: see the log of worker {', '.join(astray)}"
        return {"ok": error is None, "error": error, "table": table, "workers": workers}


def _is_astray(worker: Mapping[str, Any], table: str) -> bool:
    """One that starts reads the file as it does; one that drains takes no turns."""
    return bool(worker["state"] == "ready" and worker["table"] != table)


async def _aside(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


def _unusable(error: str) -> Answer:
    return {"ok": False, UNUSABLE: True, "error": error}


def _not_writable(path: Path, error: OSError) -> str:
    fix = "let the gateway's user write in its folder, or name a routes file elsewhere, as in /var/lib/gateway"
    return f"{path}: cannot be replaced ({error.strerror}); {fix}"
