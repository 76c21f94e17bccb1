"""Which route serves next: the model's routes in their order, less those tried, less those cooling down (M1, R14).

A bound request whose origin is not known goes where all of its affinity go (O3, `by_affinity`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence


def next_route(routes: Sequence[str], tried: Collection[str], cooling: Collection[str]) -> str | None:
    """The name of the first route that may serve, or None."""
    return next((name for name in routes if name not in tried and name not in cooling), None)


def by_affinity(routes: Sequence[str], account: str, affinity: str) -> list[str]:
    """O3: the routes in the order in which requests of this affinity prefer them (rendezvous hashing): when a route
    comes or goes, only those move that it wins or loses. Weights do not count."""

    def score(route: str) -> bytes:
        parts = "\0".join((account, affinity, route))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).digest()

    return sorted(routes, key=score, reverse=True)
