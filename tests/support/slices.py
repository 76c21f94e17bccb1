"""Which tests of a large set the fast suite has: the same ones each time, whoever asks. The long tier has them all."""

from __future__ import annotations

import zlib

import pytest


def leave_to_the_long_tier(item: pytest.Item, one_in: int) -> None:
    """Mark it `long`, unless it is among the one in so many that are played always. Call it before marks are chosen
    by, and in each worker alike."""
    if not is_in_the_slice(item.nodeid, one_in):
        item.add_marker(pytest.mark.long)


def is_in_the_slice(name: str, one_in: int) -> bool:
    """Of what has names but is no test."""
    return zlib.crc32(name.encode()) % one_in == 0
