"""The process's logging, put back after a test that configures it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

LOGGERS = ("", "gateway", "hypercorn.error")


@contextmanager
def kept_logging_state() -> Iterator[None]:
    """Handlers and levels of the loggers that the server touches, and structlog's configuration."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    configuration = structlog.get_config()
    try:
        yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagate
        structlog.configure(**configuration)
