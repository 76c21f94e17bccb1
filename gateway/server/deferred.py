"""An app for a server's own command line (`hypercorn gateway.app:app`), made when the server starts it.

Importing the module that offers it needs no configuration, and one that cannot be used ends the server before it has
opened anything to clients. (A module's `__getattr__` would not do: Hypercorn looks the name up in the module's dict.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.config import ConfigError
from gateway.server.hardened import UnmeasuredVersion


class DeferredApp:
    """Any ASGI app, made when its lifespan begins."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._app: Any = None

    def __repr__(self) -> str:
        return f"<DeferredApp {self._app or 'not made yet'}>"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI, from a server that begins with the lifespan, as Hypercorn does."""
        problem = self._problem() if scope["type"] == "lifespan" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": f"\n{problem}\n"})

    def _problem(self) -> str | None:
        """Make the app; why there is none."""
        try:
            self._app = self._make()
        except (ConfigError, UnmeasuredVersion) as error:
            return str(error)
        return None
