"""`gateway routes` at the gateway's end of the control socket (C2): what serves, and another table in its place.

    routes_show                     which table serves in which process, what stands in it, and how its routes stand
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
from gateway.config.files import read_routes_text
from gateway.server.control import Answer, Command
from gateway.server.reloading import reading
from gateway.server.routes_file import Kept, RoutesFile
from gateway.server.routes_shown import Live, summed, table_as_shown

logger = structlog.get_logger("gateway.routes")

T = TypeVar("T")
Read = Callable[[Candidate | None], Config]
"""Reads and validates the configuration, with a candidate in the place of its routes file."""

UNUSABLE: Final = "unusable"
"""Marks an answer whose error is the asker's to put right."""


class _NoneKept(Exception):
    """There is no table to go back to: says why."""


class Reloadable(Protocol):
    """Processes that serve and can read their files anew."""

    def status(self) -> Sequence[Mapping[str, Any]]:
        """Each process that lives; its `table` is the hash of the one it serves."""
        ...

    async def live(self) -> Live:
        """How the routes of each stand now (posts.live_row): also of one that does not say so, and why."""
        ...

    async def reload_to(self, table: str) -> None:
        """Have all of them read their files, and return when each serves that table, or does not in time."""
        ...


class RoutesDesk:
    """Answers for these processes. `last_good` tells the configuration that could be used last."""

    def __init__(self, processes: Reloadable, read: Read, last_good: Callable[[], Config]) -> None:
        self._processes = processes
        self._read = read
        self._last_good = last_good
        self._one_at_a_time = trio.Lock()

    def __repr__(self) -> str:
        return f"<RoutesDesk of {self._processes!r}>"

    @property
    def commands(self) -> Mapping[str, Command]:
        """By name (commands.py)."""
        return {"routes_show": self.show, "routes_apply": self.apply, "routes_rollback": self.rollback}

    async def show(self, _request: Mapping[str, Any]) -> Answer:
        """What serves."""
        found = await self._found(None)
        problems = str(found).splitlines() if isinstance(found, ConfigError) else []
        config = self._last_good() if isinstance(found, ConfigError) else found
        kept = [] if config.routes_file is None else await _aside(RoutesFile(config.routes_file).kept)
        live = await self._processes.live()
        return {
            "ok": True,
            **table_as_shown(config),
            "problems": problems,
            "workers": self._processes.status(),
            "live": live,
            "summed": summed(live),
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
            standing = await self._found(None)
            last = self._last_good() if isinstance(standing, ConfigError) else standing
            path = last.routes_file
            if path is None:
                return _unusable(f"{last.file} holds its routes itself: no table before this one is kept")
            try:
                if named is None:
                    candidate = await self._one_before(RoutesFile(path), _table_of(standing))
                else:
                    candidate = await self._kept(RoutesFile(path), named)
            except _NoneKept as why:
                return _unusable(str(why))
            return await self._put(candidate)

    async def _one_before(self, file: RoutesFile, current: str | None) -> Candidate:
        """The table that was put there last and is not the current one: as both read now, for a secret may have been
        rotated since. Raises _NoneKept."""
        kept = await _aside(file.kept)
        for one in kept:
            candidate = await _read_kept(one)
            found = await self._found(candidate)
            if isinstance(found, ConfigError) or found.table_hash != current:
                return candidate
        every = ": every one that is reads as this one now" if kept else ""
        fix = "apply a file first, or look at `gateway routes show`"
        raise _NoneKept(f"no table before this one is kept{every}; {fix}")

    async def _kept(self, file: RoutesFile, named: str) -> Candidate:
        """The one of that name. Raises _NoneKept."""
        found = await _aside(partial(file.find, named))
        if isinstance(found, str):
            raise _NoneKept(found)
        return await _read_kept(found)

    async def _put(self, candidate: Candidate) -> Answer:
        config = await self._found(candidate)
        if isinstance(config, ConfigError):
            return _unusable(str(config))
        path, table = config.routes_file, config.table_hash
        if path is None:  # only a named file has a candidate
            return _unusable("there is no routes file")
        before = _table_of(await self._found(None))
        try:
            await _aside(partial(RoutesFile(path).replace, candidate.text, table, before))
        except OSError as error:
            return _unusable(_not_writable(path, error))
        logger.info("routes_written", file=str(path), table=table[: limits.TABLE_DIGITS], origin=candidate.name)
        await self._processes.reload_to(table)
        return self._report(table)

    async def _found(self, candidate: Candidate | None) -> Config | ConfigError:
        """The files as they are, with a candidate or without."""
        return await reading(partial(self._read, candidate))

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


def _table_of(found: Config | ConfigError) -> str | None:
    """Its hash; None if it cannot be used."""
    return None if isinstance(found, ConfigError) else found.table_hash


def _is_astray(worker: Mapping[str, Any], table: str) -> bool:
    """One that starts reads the file as it does; one that drains takes no turns."""
    return bool(worker["state"] == "ready" and worker["table"] != table)


async def _read_kept(kept: Kept) -> Candidate:
    """Raises _NoneKept if it is gone or was made unreadable."""
    try:
        return Candidate(await _aside(partial(read_routes_text, kept.path)), str(kept.path))
    except ConfigError as error:
        cause = str(error)
    raise _NoneKept(cause)


async def _aside(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


def _unusable(error: str) -> Answer:
    return {"ok": False, UNUSABLE: True, "error": error}


def _not_writable(path: Path, error: OSError) -> str:
    fix = "let the gateway's user write in its folder, or name a routes file elsewhere, as in /var/lib/gateway"
    return f"{path}: cannot be replaced ({error.strerror}); {fix}"
