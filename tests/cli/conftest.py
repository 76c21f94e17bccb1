"""Commands configure the process's logs: they are put back after each test."""

from collections.abc import Iterator

import pytest

from support.logging_state import kept_logging_state


@pytest.fixture(autouse=True)
def _logging_state() -> Iterator[None]:
    with kept_logging_state():
        yield
