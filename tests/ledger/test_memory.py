from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.ledger.memory import HOUSE, MemoryLedger
from gateway.ports import Ledger
from ledger.books import Account, Books, Line
from ledger.contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    """The in-memory ledger keeps the contract."""

    @asynccontextmanager
    async def opened(self, balances: Mapping[str, int | None]) -> AsyncIterator[Ledger]:
        self.names = list(balances)
        yield MemoryLedger(balances)

    async def books_of(self, ledger: Ledger) -> Books:
        assert isinstance(ledger, MemoryLedger)
        return Books(
            entries=[Line(e.kind, e.account, e.turn_id, e.nanodollars, e.flags) for e in ledger.entries],
            accounts={name: Account(ledger.balance(name), ledger.open_reservations(name)) for name in self.names},
            house=HOUSE,
        )


def test_an_entry_changes_its_account_by_what_it_says() -> None:
    """B8: the sum of an account's changes is its balance."""
    ledger = MemoryLedger({"main": 100, "rich": None})

    assert [(entry.account, entry.balance_change) for entry in ledger.entries] == [("main", 100)]
    assert repr(ledger) == "<MemoryLedger 0 reservations, 0 open>"
