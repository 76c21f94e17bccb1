"""Which worker a process is, and how many there are: a supervisor tells its workers in their environment."""

from collections.abc import Mapping
from typing import Final

from gateway.config.problems import ConfigError, Problem

WORKER: Final = "GATEWAY_WORKER"
"""The environment's name for which worker of a supervisor this is, from 0 on: each has a metrics port of its own."""
WORKERS: Final = "GATEWAY_WORKERS"
"""The environment's name for how many workers there are: each has its part of what they share (C6)."""


def worker_of(environ: Mapping[str, str]) -> int:
    """Which one this is. Raises ConfigError."""
    return _number(environ, WORKER, otherwise=0)


def workers_of(environ: Mapping[str, str]) -> int:
    """How many workers share what is there at once (C6), this one among them. Raises ConfigError."""
    return _number(environ, WORKERS, otherwise=1)


def _number(environ: Mapping[str, str], name: str, *, otherwise: int) -> int:
    """What the environment says of this worker: a number no less than the one that holds if it says nothing."""
    text = environ.get(name) or str(otherwise)
    if not (text.isascii() and text.isdecimal() and int(text) >= otherwise):
        raise ConfigError([Problem("the environment", name, "is not such a number", f"write {otherwise} or more")])
    return int(text)
