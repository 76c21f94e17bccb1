"""A gateway that does not end is told of by the scenario's name: the check itself ends."""

import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from gateway.lock import player
from gateway.lock.checking import check_scenario
from gateway.lock.pack import shipped
from gateway.lock.virtual import Endless, virtual_run
from lock.packs import NAMES

R9, _ = NAMES


# A run that was stopped from outside leaves coroutines behind which nobody can close.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _swept_up() -> Iterator[None]:
    """What is left is collected here, and not in whichever test comes next."""
    yield
    gc.collect()


async def spins() -> None:
    while True:
        pass


async def yields() -> None:
    while True:  # noqa: ASYNC110 - that it never ends is the point
        await trio.lowlevel.checkpoint()


async def holds_on() -> None:
    """Whatever is thrown in is kept, once."""
    try:
        await spins()
    except BaseException:  # noqa: ASYNC103 - that it is kept is the point
        await yields()  # noqa: ASYNC102 - as above


@pytest.mark.parametrize("livelock", [spins, yields, holds_on])
def test_a_livelock_ends_after_so_much_of_the_processor(livelock: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(Endless):
        virtual_run(livelock, cpu_seconds=0.1)


def test_what_ends_is_not_touched() -> None:
    async def sleeps() -> float:
        await trio.sleep(100)
        return trio.current_time()

    assert virtual_run(sleeps, cpu_seconds=5) == 100


def test_a_scenario_under_which_the_gateway_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spun(*_arguments: object) -> None:
        await spins()

    monkeypatch.setattr(player, "_perform", spun)
    monkeypatch.setattr(player, "CPU_SECONDS_MAX", 0.1)
    (finding,) = check_scenario(shipped(), R9)
    assert str(finding) == (f"{R9}.toml: the gateway did not end on http: it was still busy when it was stopped")


def test_a_deadlock_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stands(*_arguments: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(player, "_perform", stands)
    (finding,) = check_scenario(shipped(), R9)
    assert str(finding) == f"{R9}.toml: the scenario is not over on http after 1,000,000 s of virtual time"
