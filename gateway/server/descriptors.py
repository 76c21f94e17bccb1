"""Descriptors: as many as the limits may need, or limits that fit what there is.

Shells and service managers grant 1,024 unless told otherwise, and let a process take more by itself up to a hard limit.
Beyond it nothing can be accepted and no upstream called, so fewer sockets are promised, and that is told.
"""

from __future__ import annotations

import errno
import resource
from math import inf
from typing import Final

import structlog
import trio

logger = structlog.get_logger("gateway.server")

RESERVED_MAX: Final = 512
"""Descriptors that are no client's and no turn's: listeners, stores, pooled upstreams, peers being turned away. A
quarter of what there is, if that is less."""
SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What accepting fails with when something has run out."""
SHORT_SECONDS: Final = 0.1
"""Until it is tried again: a connection's end gives descriptors back."""
LINE_SECONDS: Final = 5.0
"""Between two log lines of that."""


def fit_sockets(sockets_max: int, turns_max: int) -> int:
    """Raise the process's limit to what sockets and turns may need; how many sockets it is good for."""
    granted = _raise_to(sockets_max + turns_max + RESERVED_MAX)
    fitting = min(sockets_max, _sockets_for(granted, turns_max))
    if fitting < sockets_max:
        needed = sockets_max + turns_max + RESERVED_MAX
        fix = f"raise `ulimit -n` or LimitNOFILE to {needed}, or lower limits.sockets_max and limits.turns_max"
        logger.warning("descriptors_few", granted=granted, needed=needed, sockets_max=fitting, fix=fix)
    return fitting


def _raise_to(needed: int) -> int:
    """The limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    granted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if granted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return max(granted, soft)


def _sockets_for(granted: int, turns_max: int) -> int:
    """A turn takes a client's socket and an upstream's; sockets beyond the turns take one."""
    free = granted - min(RESERVED_MAX, granted // 4)
    return max(1, free // 2, free - turns_max)


class Shortage:
    """Accepting while something has run out: told now and then, not with a traceback ten times a second."""

    def __init__(self) -> None:
        self._last_line_at = -inf

    async def wait(self, error: OSError) -> None:
        """Until it may be tried again. Raises what is no shortage."""
        if error.errno not in SHORT:
            raise error
        now = trio.current_time()
        if now - self._last_line_at >= LINE_SECONDS:
            self._last_line_at = now
            logger.error("cannot_accept", why=error.strerror, fix="raise `ulimit -n` or LimitNOFILE; see `ss -tn`")
        await trio.sleep(SHORT_SECONDS)
