"""Which route serves next: the model's routes in their order, less those tried, less those cooling down (M1, R14)."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def next_route(routes: Sequence[str], tried: Collection[str], cooling: Collection[str]) -> str | None:
    """The name of the first route that may serve, or None."""
    return next((name for name in routes if name not in tried and name not in cooling), None)
