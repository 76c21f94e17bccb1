"""What a turn is called (H5), as `new_request_id` makes it."""

import re
import time

import pytest

from gateway.app import new_request_id


def test_later_ids_sort_behind_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store's indexes grow at their end: what a group of turns writes lies on the same pages."""
    now = 1_796_000_000_000_000_000
    ids = []
    for milliseconds in (0, 1, 2, 1_000, 86_400_000):
        monkeypatch.setattr(time, "time_ns", lambda at=now + milliseconds * 1_000_000: at)
        ids.append(new_request_id())
    assert ids == sorted(ids)


def test_nobody_can_guess_one() -> None:
    """80 random bits behind the time: of many of one moment no two are alike, nor is any of their digits always so."""
    ids = [new_request_id() for _ in range(2_000)]
    assert all(re.fullmatch("req_[0-9a-f]{32}", name) for name in ids)
    assert len(set(ids)) == len(ids)
    assert all(len({name[place] for name in ids}) == 16 for place in range(len("req_") + 12, len("req_") + 32))
