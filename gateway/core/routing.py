"""Which route serves next: by priority, then by weight, less those that may not (M1, C3, R14).

    a model's list --less tried and closed--> the lowest priority that is left --shares by weight, at `draw`--> a name

- `priority` 1 is asked first, as an SRV record's: a higher number waits until every lower one is tried or closed.
- Routes of one priority share the turns by their weights.
- Nothing is random here: `draw` is a number of [0, 1), `draws` makes one that serves every share evenly.
- A bound request whose origin is not known goes where all of its affinity go (O3, `by_affinity`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Its multiples, less their whole part, are spread over [0, 1) more evenly than those of any other number, whichever
of them are taken: a share is met within a few turns, which a random number needs hundreds for."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A route in a model's list."""

    name: str
    priority: int = 1
    weight: int = 1


def in_order(names: Iterable[str]) -> tuple[Listed, ...]:
    """Routes that are asked one after the other."""
    return tuple(Listed(name, priority) for priority, name in enumerate(names, start=1))


def next_route(
    listed: Sequence[Listed], tried: Collection[str], closed: Collection[str], draw: float = 0.0
) -> str | None:
    """The name of the route that serves, or None. `closed` are those that take nothing at the moment; ValueError for a
    `draw` outside of [0, 1)."""
    if not 0 <= draw < 1:
        raise ValueError(f"a draw is a number of [0, 1), not {draw}")
    left = [entry for entry in listed if entry.name not in tried and entry.name not in closed]
    first = min((entry.priority for entry in left), default=0)
    return _drawn([entry for entry in left if entry.priority == first], draw)


def _drawn(sharing: Sequence[Listed], draw: float) -> str | None:
    """The one whose share of the whole the draw lies in."""
    drawn = draw * sum(entry.weight for entry in sharing)
    for entry in sharing:
        drawn -= entry.weight
        if drawn < 0:
            return entry.name
    return sharing[-1].name if sharing else None


def draw_of(number: int) -> float:
    """The draw of the `number`-th choice."""
    return number * GOLDEN % 1


def by_affinity(routes: Sequence[str], account: str, affinity: str) -> list[str]:
    """O3: the routes in the order in which requests of this affinity prefer them (rendezvous hashing): when a route
    comes or goes, only those move that it wins or loses. Weights do not count."""

    def score(route: str) -> bytes:
        parts = "\0".join((account, affinity, route))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).digest()

    return sorted(routes, key=score, reverse=True)
