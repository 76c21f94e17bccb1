"""Assertions in what the tests share show what they compared; the log is caught and not printed."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from support.gateways import DOORS


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """`http`, then `websocket`."""
    return str(request.param)


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log's entries, in order."""
    with capture_logs() as entries:
        yield entries
