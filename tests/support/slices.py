"""Which tests of a large set the fast suite has: the same ones each time, whoever asks. The long tier has them all."""

from __future__ import annotations

import zlib

import pytest


def leave_to_the_long_tier(item: pytest.Item, one_in: int) -> None:
    """Mark it `long`, unless it is among the one in so many that are played always. Call it before marks are chosen
    by, and in each worker alike."""
    if zlib.crc32(item.nodeid.encode()) % one_in:
        item.add_marker(pytest.mark.long)
