"""One gateway process for all scenarios that only look at what a client gets."""

from collections.abc import Iterator

import pytest

from e2e.scenarios import SCENARIOS, Stage, staged


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The gateway, its upstreams, their scripts."""
    with staged(SCENARIOS, tmp_path_factory.mktemp("gateway")) as found:
        yield found
