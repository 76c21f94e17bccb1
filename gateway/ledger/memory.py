"""A complete ledger in memory: for tests, the demo, and a single process that may forget (ports.Ledger)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.accounts import Book, Entry, Kind, SpendLimit
from gateway.core.ledger import BookHouse, OpenAccount, Operation, Reserve, Resolve, Transfer
from gateway.core.money import ReservationState, Reserved, Resolution, Result
from gateway.pending import Done, Pending


class MemoryLedger:
    """Accounts with a balance in nano-dollars; None is an unlimited one."""

    def __init__(self, balances: Mapping[str, int | None]) -> None:
        self._book = Book()
        for name, balance in balances.items():
            self.carry_out(OpenAccount(name, is_unlimited=balance is None))
            if balance:
                self.carry_out(Transfer(Kind.DEPOSIT, name, balance, actor="the configuration"))

    def __repr__(self) -> str:
        states = [reservation.state for reservation in self._book.reservations.values()]
        return f"<MemoryLedger {len(states)} reservations, {sum(isinstance(state, Reserved) for state in states)} open>"

    @property
    def entries(self) -> Sequence[Entry]:
        """The books, oldest entry first."""
        return self._book.entries

    @property
    def accounts(self) -> Sequence[str]:
        """The names of all accounts."""
        return list(self._book.accounts)

    def balance(self, account: str) -> int:
        """Deposits less settlements, in nano-dollars; open reservations are not taken off. KeyError if unknown."""
        return self._book.accounts[account].balance

    def open_reservations(self, account: str) -> int:
        """What running turns of the account have set aside, in nano-dollars."""
        return self._book.accounts[account].open

    def state(self, turn_id: str) -> ReservationState:
        """Where a turn's reservation stands. KeyError if there is none."""
        return self._book.reservations[turn_id].state

    def reserve(
        self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()
    ) -> Pending[Result]:
        """Set money aside (ports.Ledger)."""
        return Done(self.carry_out(Reserve(turn_id, account, nanodollars, tuple(limits))))

    def resolve(self, turn_id: str, resolution: Resolution) -> Pending[Result]:
        """Settle or void, once (ports.Ledger)."""
        return Done(self.carry_out(Resolve(turn_id, resolution)))

    def book_house(self, turn_id: str, attempt: int, nanodollars: int) -> Pending[Result]:
        """The house pays (ports.Ledger)."""
        return Done(self.carry_out(BookHouse(turn_id, attempt, nanodollars)))

    def carry_out(self, operation: Operation, now: float = 0.0) -> Result:
        """Any operation of the ledger's law, at this time of the store's clock: leases are not kept here, for what a
        process has forgotten it need not give back."""
        return operation.apply(self._book, now)
