"""What the contract asks of an adapter beside its port: how it is opened, how its books are read, how time passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import pytest

from gateway.core.ledger import Operation
from gateway.core.money import Result
from gateway.lock.virtual import virtual_run
from gateway.ports import Ledger
from ledger.books import Books


class LedgerAdapter(ABC):
    """Inherit, say how, and all of the contract runs."""

    pytestmark = pytest.mark.trio(run=virtual_run)

    @abstractmethod
    def opened(self, balances: Mapping[str, int | None]) -> AbstractAsyncContextManager[Ledger]:
        """An empty ledger with these accounts; None is an unlimited balance."""

    @abstractmethod
    async def books_of(self, ledger: Ledger) -> Books:
        """What stands in its books."""

    @abstractmethod
    async def carry_out(self, ledger: Ledger, operation: Operation) -> Result:
        """What no turn asks: accounts by hand, leases."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """The store's clock goes on."""
