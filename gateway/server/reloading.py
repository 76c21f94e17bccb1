"""Reloading a process's configuration while it serves (C2): when its files are read again, and what comes of it.

    SIGHUP, `gateway routes apply` --ask--+
                                          +--> read, validate --+--> as it was       nothing happens
    a file changed, and is steady again --+    (beside the loop)+--> another table   swap: turns begin on it from now on
                                                                +--> cannot be used  nothing changes; the log says why

- A file that still changes is half written: it is not read, and not complained of, until it was left alone for
  `ROUTES_STEADY_SECONDS`. Who asks is answered at once.
- Both files are read again, and must be right together: what is reloaded would also start. Those are watched that
  gateway.toml names as it is now, also while something in them is wrong.
- What needs a restart to change is compared with what the process was started with, and named in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Final

import structlog
import trio

from gateway import limits
from gateway.config import Config, ConfigError, Problem
from gateway.config.files import Stamp, stamp

logger = structlog.get_logger("gateway.routes")

COLD: Final = ("server", "limits", "estimate", "ledger", "accounts", "keys")
"""What is read at the start only."""

ASKED: Final = "asked"
FILE_CHANGED: Final = "file_changed"
"""Why files are read again."""

Stamps = Sequence[Stamp]
Read = Callable[[], Config]
RunRead = Callable[[Read], Awaitable[Config]]


class Result(StrEnum):
    """What came of a reload."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reload, the table that serves now, and what is wrong with the files."""

    result: Result
    table: str
    problems: Sequence[Problem] = ()


async def in_a_thread(read: Read) -> Config:
    """Reading and validating takes some milliseconds for each kilobyte: beside the loop."""
    return await trio.to_thread.run_sync(read)


async def reading(read: Read, run_read: RunRead = in_a_thread) -> Config | ConfigError:
    """What comes of a reading. A file that brings a bug to light ends nobody who reads it while others are served."""
    try:
        return await run_read(read)
    except ConfigError as error:
        return error
    except Exception as error:
        return _unforeseen(error)


def stamps(files: Sequence[Path]) -> Stamps:
    """How the files stand now."""
    return tuple(stamp(path) for path in files)


class Steadiness:
    """When changed files are to be read: `now` is an argument, and what was seen of them."""

    def __init__(self, known: Stamps, now: float) -> None:
        self._known = known
        self._seen = known
        self._since = now

    def __repr__(self) -> str:
        return f"<Steadiness, changed={self._seen != self._known}>"

    def is_due(self, found: Stamps, now: float) -> bool:
        """Whether the files are other than those that were read, and were left alone for long enough."""
        if found != self._seen:
            self._seen, self._since = found, now
        return found != self._known and now - self._since >= limits.ROUTES_STEADY_SECONDS

    def was_read(self, found: Stamps) -> None:
        """What is read is known, whatever came of it."""
        self._known = found


def _unforeseen(error: Exception) -> ConfigError:
    """A bug that a file has brought to light is told like a mistake in the file, and with its traceback."""
    logger.error("routes_unusable", exc_info=error)
    return ConfigError([Problem("the routes", "", f"cannot be used ({type(error).__name__})", "see the log")])


class Reloading:
    """One process's configuration as its files have it. `read` reads and validates them, `swap` has a table serve."""

    def __init__(
        self,
        started: Config,
        read: Read,
        swap: Callable[[Config], None],
        count: Callable[[str], None] = lambda result: None,
        run_read: RunRead = in_a_thread,
    ) -> None:
        self._started = started
        self._config = started
        self._table = started.table_hash
        self._read = read
        self._swap = swap
        self._count = count
        self._run_read = run_read
        self._asked = trio.Event()
        self._reloaded = trio.Event()
        self._one_at_a_time = trio.Lock()
        self._files = started.files
        self._steadiness = Steadiness(started.stamps, 0.0)
        self._told_cold: list[str] = []
        self.is_refused = False
        """The files cannot be used as they are: what was read before serves."""

    def __repr__(self) -> str:
        return f"<Reloading, {self.table[: limits.TABLE_DIGITS]} serves>"

    @property
    def config(self) -> Config:
        """What was read last and could be used: its models and routes serve."""
        return self._config

    @property
    def table(self) -> str:
        """The hash of the table that serves."""
        return self._table

    def ask(self) -> None:
        """Have the files read now; returns at once."""
        self._asked.set()

    async def wait_reloaded(self) -> str:
        """Return when the files have been read the next time, with the table that serves then."""
        await self._reloaded.wait()
        return self.table

    async def watch(self) -> None:
        """Reload whenever somebody asks, or the files have changed and are steady, until cancelled."""
        while True:
            with trio.move_on_after(limits.ROUTES_LOOK_SECONDS if self._files else inf):
                await self._asked.wait()
            if self._asked.is_set():
                self._asked = trio.Event()
                await self.reload(ASKED)
            elif self._steadiness.is_due(stamps(self._files), trio.current_time()):
                await self.reload(FILE_CHANGED)

    async def reload(self, why: str) -> Outcome:
        """Read the files, and have their table serve if it can be used and is another one."""
        async with self._one_at_a_time:
            before = stamps(self._files)
            found = await reading(self._read, self._run_read)
            if why == FILE_CHANGED and stamps(self._files) != before:
                return Outcome(Result.UNCHANGED, self.table)  # it was written to meanwhile: look at it again
            outcome = self._refused(found.problems, why) if isinstance(found, ConfigError) else self._tried(found, why)
            self._watch(found, before)
            self.is_refused = outcome.result is Result.REFUSED
            self._count(outcome.result.value)
            self._reloaded.set()
            self._reloaded = trio.Event()
            return outcome

    def _watch(self, found: Config | ConfigError, before: Stamps) -> None:
        """Look at the files that were read, from now on; at those before if it is not known which they are."""
        if isinstance(found, Config):
            self._files, before = found.files, found.stamps
        elif found.stamps:
            self._files, before = tuple(found.stamps), tuple(found.stamps.values())
        self._steadiness.was_read(before)

    def _tried(self, config: Config, why: str) -> Outcome:
        """A table that cannot be swapped in changes nothing: what serves, serves on (C2)."""
        before = self._config, self._table
        try:
            return self._accepted(config, why)
        except Exception as error:
            self._config, self._table = before
            return self._refused(_unforeseen(error).problems, why)

    def _refused(self, problems: Sequence[Problem], why: str) -> Outcome:
        told = [str(problem) for problem in problems]
        logger.error("routes_refused", why=why, table=self.table[: limits.TABLE_DIGITS], problems=told)
        return Outcome(Result.REFUSED, self.table, problems)

    def _accepted(self, config: Config, why: str) -> Outcome:
        was_read, before = self._config, self._table
        self._config, self._table = config, config.table_hash
        self._tell_cold(config)
        shown = self.table[: limits.TABLE_DIGITS]
        if self.table == before and config.routes == was_read.routes:
            if why == ASKED:
                logger.info("routes_unchanged", table=shown)
            return Outcome(Result.UNCHANGED, self.table)
        self._swap(config)
        was = before[: limits.TABLE_DIGITS]
        logger.info(
            "routes_applied", why=why, table=shown, was=was, models=len(config.models), routes=len(config.routes)
        )
        return Outcome(Result.APPLIED, self.table)

    def _tell_cold(self, config: Config) -> None:
        """Once for each change."""
        changed = [name for name in COLD if getattr(config, name) != getattr(self._started, name)]
        if changed and changed != self._told_cold:
            logger.warning("restart_needed", tables=changed)
        self._told_cold = changed
