"""As many descriptors as the limits may need, or limits that fit what there is."""

from __future__ import annotations

import errno
import resource

import pytest
import trio
from structlog.testing import capture_logs

from gateway.lock.virtual import virtual_run
from gateway.server.accepting import KeptOpen
from gateway.server.descriptors import LINE_SECONDS, RESERVED_MAX, fit_sockets

UNLIMITED = resource.RLIM_INFINITY


class Limit:
    """The process's limit, as the kernel would keep it."""

    def __init__(self, soft: int, hard: int) -> None:
        self.held = (soft, hard)

    def get(self, _which: int) -> tuple[int, int]:
        return self.held

    def set(self, _which: int, limit: tuple[int, int]) -> None:
        assert limit[1] == self.held[1]
        self.held = limit


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "sockets"),
    [
        pytest.param(1024, UNLIMITED, 24_576 + RESERVED_MAX, 16_384, id="raised to what is needed"),
        pytest.param(1024, 1_048_576, 24_576 + RESERVED_MAX, 16_384, id="and no further"),
        pytest.param(65_536, 65_536, 65_536, 16_384, id="enough"),
        pytest.param(UNLIMITED, UNLIMITED, UNLIMITED, 16_384, id="no limit"),
        pytest.param(1024, 20_000, 20_000, 11_296, id="most of what is needed"),
        pytest.param(1024, 1024, 1024, 384, id="half for clients, half for upstreams"),
        pytest.param(80, 80, 80, 30, id="hardly any"),
    ],
)
def test_the_limit_is_raised_or_the_sockets_fit_it(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int, sockets: int
) -> None:
    """A turn needs two, an idle client one."""
    limit = Limit(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limit.get)
    monkeypatch.setattr(resource, "setrlimit", limit.set)
    with capture_logs() as logged:
        assert fit_sockets(sockets_max=16_384, turns_max=8192) == sockets

    assert limit.held == (raised, hard)
    assert [entry["event"] for entry in logged] == ["descriptors_few"] * (sockets < 16_384)
    assert all("25088" in entry["fix"] and entry["sockets_max"] == sockets for entry in logged)


class Exhausted:
    """A listener whose process has no descriptor left for a minute."""

    socket = None

    async def accept(self) -> str:
        await trio.lowlevel.checkpoint()
        if trio.current_time() < 60:
            raise OSError(errno.EMFILE, "Too many open files")
        return "stream"


@pytest.mark.trio(run=virtual_run)
async def test_a_shortage_is_told_now_and_then_and_ends_by_itself() -> None:
    """Trio would write a traceback ten times a second."""
    with capture_logs() as logged:
        assert await KeptOpen(Exhausted()).accept() == "stream"  # type: ignore[arg-type, comparison-overlap]  # a stand-in

    assert [entry["event"] for entry in logged] == ["cannot_accept"] * round(60 / LINE_SECONDS)
    assert trio.current_time() == pytest.approx(60, abs=1)
