"""An app for a server's own command line (`hypercorn gateway.app:app`), made when the server starts it.

Importing the module that offers it needs no configuration, and one that cannot be used ends the server before it has
opened anything to clients. (A module's `__getattr__` would not do: Hypercorn looks the name up in the module's dict.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

import trio

from gateway.config import ConfigError
from gateway.server.hardened import UnmeasuredVersion

UNUSABLE: Final = 2
"""The exit code. (Hypercorn's own command ends with 0 all the same: it loses its workers' codes, unless it is told
`-w 0`, which serves in the process itself, or `-c file:deploy/hypercorn.py`, which checks before it starts any.)"""
NEEDS_TRIO: Final = (
    "the gateway needs Hypercorn's Trio worker: start it with `hypercorn -k trio`, or use `gateway serve`"
)


class DeferredApp:
    """Any ASGI app, made when its lifespan begins. Without one the process ends, by `leave`, where it is: a failed
    lifespan would be told in a traceback of a page."""

    def __init__(self, make: Callable[[], Any], leave: Callable[[int], object] = os._exit) -> None:
        self._make = make
        self._leave = leave
        self._app: Any = None

    def __repr__(self) -> str:
        return f"<DeferredApp {self._app or 'not made yet'}>"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI, from a server that begins with the lifespan, as Hypercorn does."""
        problem = self._problem() if scope["type"] == "lifespan" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            sys.stderr.write(f"{problem}\n")
            sys.stderr.flush()
            self._leave(UNUSABLE)

    def _problem(self) -> str | None:
        """Make the app; why there is none."""
        if not trio.lowlevel.in_trio_run():
            return NEEDS_TRIO
        try:
            self._app = self._make()
        except (ConfigError, UnmeasuredVersion) as error:
            return str(error)
        return None
