"""How the house stands: the facts that the replay decision and the choice of a route read (R12–R14).

Draining is real; the replay budget (C4) and cooling routes (C3) are facts set from outside until their own machinery
stands.
"""

from __future__ import annotations

import trio


class StandingHouse:
    """Facts that hold until they are changed (ports.House, ports.Draining)."""

    def __init__(self) -> None:
        self._draining = trio.Event()
        self.throttled = False
        self.cooling: set[str] = set()

    def __repr__(self) -> str:
        return f"<StandingHouse draining={self.is_draining()} throttled={self.throttled} cooling={self.cooling}>"

    def begin_drain(self) -> None:
        """T7: no new turn and no replay from now on."""
        self._draining.set()

    def is_draining(self) -> bool:
        """R12."""
        return self._draining.is_set()

    async def wait(self) -> None:
        """Return when draining begins."""
        await self._draining.wait()

    def is_throttled(self) -> bool:
        """R13."""
        return self.throttled

    def is_cooling(self, route: str) -> bool:
        """R14."""
        return route in self.cooling
