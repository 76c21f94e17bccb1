from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.core.accounts import HOUSE
from gateway.core.ledger import Operation
from gateway.core.money import Result
from gateway.ledger.memory import MemoryLedger
from gateway.ports import Ledger
from ledger.books import Account, Books, lines_of
from ledger.contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    """The in-memory ledger keeps the contract."""

    @asynccontextmanager
    async def opened(self, balances: Mapping[str, int | None]) -> AsyncIterator[Ledger]:
        self.now = 0.0
        yield MemoryLedger(balances)

    async def books_of(self, ledger: Ledger) -> Books:
        assert isinstance(ledger, MemoryLedger)
        return Books(
            entries=lines_of(ledger.entries),
            accounts={name: Account(ledger.balance(name), ledger.open_reservations(name)) for name in ledger.accounts},
            house=HOUSE,
        )

    async def carry_out(self, ledger: Ledger, operation: Operation) -> Result:
        assert isinstance(ledger, MemoryLedger)
        return ledger.carry_out(operation, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


def test_an_entry_moves_money_from_one_ledger_account_to_another() -> None:
    """B8: what is paid in comes from outside, and the sum over all ledger accounts is zero."""
    ledger = MemoryLedger({"main": 100, "rich": None})

    assert [(entry.account, entry.moved) for entry in ledger.entries] == [("main", ("the world", "main"))]
    assert repr(ledger) == "<MemoryLedger 0 reservations, 0 open>"
