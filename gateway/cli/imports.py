"""Imports that a command makes when it knows that it needs them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """What is imported in this block stays as long as the process does: no collection of garbage looks through it, not
    while it comes, which is an eighth of a start, and not later, when it would hold up whoever is served."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
