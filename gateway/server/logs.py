"""Logs, configured once for the process: one line per event on stderr, as JSON or for the eye.

    structlog (the gateway) ---+
                               +--> one handler of the root logger --> stderr
    logging (the libraries) ---+

The gateway's own lines have the configured level; libraries are heard from WARNING up. Only structlog's synchronous
methods are used: `ainfo` and its like need asyncio. A traceback is text without the frames' variables, for these are
prompts and keys.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEADING: Final = ("timestamp", "level", "event")
"""What a reader looks for first stands first in a JSON line."""

TIMES: Final = {
    "json": structlog.processors.TimeStamper(fmt="iso", utc=True),
    "console": structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
}


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
        processors=[
            structlog.stdlib.filter_by_level,
            *every_line,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _naming(worker: int) -> Processor:
    def name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"worker": worker, **event}

    return name


def _renderers(log_format: str) -> tuple[Processor, ...]:
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        return (structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain),)
    return structlog.processors.format_exc_info, _leading_first, structlog.processors.JSONRenderer()


def _leading_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**{name: event[name] for name in LEADING if name in event}, **event}
