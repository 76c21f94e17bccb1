"""The log, caught and not printed; and assertions in what the tests share show what they compared."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log's entries, in order."""
    with capture_logs() as entries:
        yield entries
