"""The planes on which connections are served."""

from collections.abc import Iterator

import pytest

from server.hardened.stage import PLANE


@pytest.fixture(params=["plain", "fast"])
def plane(request: pytest.FixtureRequest) -> Iterator[str]:
    PLANE.is_fast = request.param == "fast"
    yield request.param
    PLANE.is_fast = False
