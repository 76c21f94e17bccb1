"""What a process sets itself up for before it serves (gateway/cli/serving.py)."""

import gc
from collections.abc import Iterator

import pytest
import trio

from gateway.cli.serving import YOUNG_OBJECTS_MAX, run_until_stopped
from gateway.server import hardened

INTERPRETERS_OWN = 700


@pytest.fixture
def _own_thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Behind the test they are as they were: this process goes on with other tests."""
    monkeypatch.setattr(hardened, "install", lambda: None)
    before = gc.get_threshold()
    gc.set_threshold(INTERPRETERS_OWN, *before[1:])
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_own_thresholds")
def test_who_serves_looks_for_garbage_seldom() -> None:
    """Issue 7: a turn leaves none in rings (tests/turn/test_let_go.py), and each look costs and makes caches cold."""
    seen: list[int] = []

    async def serve() -> bool:
        await trio.lowlevel.checkpoint()
        seen.append(gc.get_threshold()[0])
        return True

    run_until_stopped(serve)
    assert seen == [YOUNG_OBJECTS_MAX]
    assert INTERPRETERS_OWN < YOUNG_OBJECTS_MAX
