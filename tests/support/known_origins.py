"""Who made what before: for turns that go on from something (O2, O3)."""

from __future__ import annotations

from gateway.ports import Origin
from gateway.records.memory import MemoryRecords

TO_A = "to a"
"""A cache key whose requests route `a` takes where their origin is not known (O3)."""


def a_made_resp_1() -> MemoryRecords:
    """Records that know where the response that is continued was made."""
    records = MemoryRecords()
    records.origins["main", "resp_1"] = Origin("main", "resp_1", "a")
    return records
