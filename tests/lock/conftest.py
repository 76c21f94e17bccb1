"""What all tests of the lock have in common."""

from __future__ import annotations

import math

import pytest


@pytest.fixture(autouse=True)
def _no_word_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine would put lines between those that a test reads."""
    monkeypatch.setattr("gateway.cli.lock.PROGRESS_SECONDS", math.inf)
