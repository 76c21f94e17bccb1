"""One gateway process for each stage and kind of client, started when its first cell is played."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from clients.stage import Stage, staged
from clients.table import CLIENTS
from support.slices import leave_to_the_long_tier

ONE_IN = 6
"""Of the cells so many are in the fast suite; `deploy/test --clients` plays them all."""


@pytest.hookimpl(tryfirst=True)  # before the tiers are chosen by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Programs of other languages, and twenty turns of each, take long."""
    for item in items:
        if isinstance(item, pytest.Function) and ("stages" in item.fixturenames or item.get_closest_marker("npm")):
            leave_to_the_long_tier(item, ONE_IN)


class Stages:
    """The stages that run."""

    def __init__(self, held: ExitStack, factory: pytest.TempPathFactory) -> None:
        self._held = held
        self._factory = factory
        self._running: dict[tuple[str, bool], Stage] = {}

    def of(self, name: str, *, is_npm: bool) -> Stage:
        """The stage of that name."""
        if (name, is_npm) not in self._running:
            clients = [client for client, row in CLIENTS.items() if row.is_npm is is_npm]
            stage = staged(name, clients, self._factory.mktemp(name))
            self._running[name, is_npm] = self._held.enter_context(stage)
        return self._running[name, is_npm]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with ExitStack() as held:
        yield Stages(held, tmp_path_factory)
