"""Logs, configured once for the process: one line per event on stderr, as JSON or for the eye.

    structlog (the gateway) --rendered--------------------+
                                                          +--> stderr
    logging (the libraries) --handler of the root logger--+

The gateway's own lines have the configured level; libraries are heard from WARNING up. Both are rendered alike; the
gateway's go past logging's records, which cost more than the line itself. Only structlog's synchronous methods are
used: `ainfo` and its like need asyncio. A traceback is text without the frames' variables, for these are prompts and
keys.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from functools import cache, partial
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEADING: Final = ("timestamp", "level", "event")
"""What a reader looks for first stands first in a JSON line."""

TIMES: Final = {
    "json": structlog.processors.TimeStamper(fmt="iso", utc=True),
    "console": structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
}

JSON: Final = json.JSONEncoder(default=repr)
"""Made once, where structlog's renderer makes one for each line."""

LEVELS: Final = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()} | {
    "exception": logging.ERROR
}
"""By structlog's names of its methods."""


def configure_logs(log_format: str, level: str, worker: int | None = None) -> None:
    """Send all log lines to stderr. `log_format` is "json" or "console"; `level` names one of logging's. Lines of one
    worker of several carry its number: all write to the supervisor's stderr."""
    every_line: tuple[Processor, ...] = (
        *(() if worker is None else (_naming(worker),)),
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        TIMES[log_format],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=every_line,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(log_format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("gateway").setLevel(level.upper())
    structlog.configure(
        processors=[_only_heard, *every_line, *_renderers(log_format)],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=cache(partial(_OwnLogger, sys.stderr)),
    )


class _OwnLogger:
    """Writes what structlog has rendered. Its name and its level are logging's. That nobody reads it any more breaks no
    turn."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self.name = name
        self.hears = logging.getLogger(name).isEnabledFor
        self.debug = self.info = self.warning = self.error = self.exception = self.critical = self._write

    def __repr__(self) -> str:
        return f"<_OwnLogger {self.name}>"

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


def _only_heard(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """By the level as it is now: it can be changed while the process serves."""
    if not logger.hears(LEVELS[method]):
        raise structlog.DropEvent
    return event


def _naming(worker: int) -> Processor:
    def name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"worker": worker, **event}

    return name


def _renderers(log_format: str) -> tuple[Processor, ...]:
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        return (structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain),)
    return structlog.processors.format_exc_info, _leading_first, _as_json


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return JSON.encode(event)


def _leading_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**{name: event[name] for name in LEADING if name in event}, **event}
