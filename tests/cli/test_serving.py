"""What a process sets itself up for before it serves (gateway/cli/serving.py)."""

import gc
from collections.abc import Iterator

import pytest
import trio

from gateway.cli.serving import YOUNG_OBJECTS_MAX, run_until_stopped
from gateway.server import hardened


@pytest.fixture
def own_thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int, int]]:
    """Those of this process, as they were: it goes on with other tests."""
    monkeypatch.setattr(hardened, "install", lambda: None)
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)
    gc.unfreeze()


def test_who_serves_looks_for_garbage_seldom(own_thresholds: tuple[int, int, int]) -> None:
    """Issue 7: a turn leaves none in rings (tests/turn/test_let_go.py), and each look costs and makes caches cold."""
    seen: list[int] = []

    async def serve() -> bool:
        await trio.lowlevel.checkpoint()
        seen.append(gc.get_threshold()[0])
        return True

    run_until_stopped(serve)
    assert seen == [YOUNG_OBJECTS_MAX]
    assert own_thresholds[0] < YOUNG_OBJECTS_MAX
