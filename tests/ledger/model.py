"""The ledger's law once more, in the plainest way: for each operation what it must answer, and where the money then is.

Knows nothing of entries, of batches or of how things are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.accounts import Kind
from gateway.core.ledger import (
    BookHouse,
    CloseAccount,
    Expire,
    OpenAccount,
    Operation,
    Renew,
    Reserve,
    Resolve,
    SetUnlimited,
    Transfer,
)


@dataclass
class Purse:
    """One account."""

    balance: int = 0
    is_unlimited: bool = False
    is_closed: bool = False


@dataclass
class Stake:
    """One turn's money."""

    asked: Reserve
    lease_ends_at: float
    end: str = ""
    charged: int = 0


@dataclass
class PlainLedger:
    """All of it, in dictionaries."""

    now: float = 0.0
    purses: dict[str, Purse] = field(default_factory=dict)
    stakes: dict[str, Stake] = field(default_factory=dict)
    house: dict[tuple[str, int], int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)

    def open_on(self, account: str) -> int:
        """What is set aside on an account."""
        return sum(s.asked.nanodollars for s in self.stakes.values() if s.asked.account == account and not s.end)

    def used_in(self, window: str) -> int:
        """What is set aside and spent in a window."""
        counted = [s for s in self.stakes.values() if window in [limit.window for limit in s.asked.limits]]
        return sum(stake.charged if stake.end else stake.asked.nanodollars for stake in counted)

    def apply(self, operation: Operation) -> str:
        """The word that must be answered."""
        match operation:
            case Reserve():
                return self._reserve(operation)
            case Resolve(turn_id, resolution):
                return self._resolve(turn_id, resolution.nanodollars)
            case Expire(turn_id):
                return self._expire(turn_id)
            case Renew(turn_id, seconds):
                return self._renew(turn_id, seconds)
            case BookHouse(turn_id, attempt, nanodollars):
                is_known = (turn_id, attempt) in self.house
                self.house.setdefault((turn_id, attempt), nanodollars)
                return "exists" if is_known else "created"
            case OpenAccount(name, is_unlimited):
                return self._open(name, is_unlimited)
        return self._by_hand(operation)

    def _reserve(self, asked: Reserve) -> str:
        known = self.stakes.get(asked.turn_id)
        if known is not None:
            is_same = (known.asked.account, known.asked.nanodollars) == (asked.account, asked.nanodollars)
            return "exists" if is_same else "exists_with_different_amount"
        purse = self.purses.get(asked.account)
        if purse is None:
            return "account_not_found"
        if purse.is_closed:
            return "account_closed"
        available = purse.balance - self.open_on(asked.account)
        if not purse.is_unlimited and asked.nanodollars > max(0, available):
            return "insufficient_balance"
        left = (limit.nanodollars_max - self.used_in(limit.window) for limit in asked.limits)
        if any(asked.nanodollars > max(0, allowed) for allowed in left):
            return "spend_limit_reached"
        self.stakes[asked.turn_id] = Stake(asked, self.now + asked.lease_seconds)
        return "created"

    def _resolve(self, turn_id: str, nanodollars: int | None) -> str:
        stake = self.stakes.get(turn_id)
        if stake is None:
            return "not_found"
        if stake.end == "expired" and nanodollars is not None and turn_id not in self.late:
            self.late[turn_id] = nanodollars
            return "borne_by_house"
        if stake.end:
            return f"already_{stake.end}"
        return self._end(stake, nanodollars)

    def _end(self, stake: Stake, nanodollars: int | None) -> str:
        account, reserved = stake.asked.account, stake.asked.nanodollars
        purse = self.purses[account]
        stake.end = "voided" if nanodollars is None else "settled"
        stake.charged = nanodollars or 0
        is_covered = purse.is_unlimited or stake.charged <= max(reserved, purse.balance - self.open_on(account))
        purse.balance -= stake.charged
        return stake.end if is_covered else "settled_overdrawn"

    def _expire(self, turn_id: str) -> str:
        stake = self.stakes.get(turn_id)
        if stake is None:
            return "not_found"
        if stake.end:
            return f"already_{stake.end}"
        if self.now < stake.lease_ends_at:
            return "lease_runs"
        stake.end = "expired"
        return "expired"

    def _renew(self, turn_id: str, seconds: float) -> str:
        stake = self.stakes.get(turn_id)
        if stake is None or stake.end:
            return "not_found"
        stake.lease_ends_at = max(stake.lease_ends_at, self.now + seconds)
        return "renewed"

    def _open(self, name: str, is_unlimited: bool) -> str:
        known = self.purses.get(name)
        if known is None:
            self.purses[name] = Purse(is_unlimited=is_unlimited)
            return "created"
        if known.is_closed:
            return "account_closed"
        return "exists" if known.is_unlimited is is_unlimited else "exists_with_different_amount"

    def _by_hand(self, operation: Operation) -> str:
        name = operation.needs.accounts[0]
        purse = self.purses.get(name)
        if purse is None:
            return "account_not_found"
        if purse.is_closed:
            return "account_closed"
        match operation:
            case Transfer():
                return self._move(purse, self.open_on(name), operation)
            case SetUnlimited(_, is_unlimited):
                was, purse.is_unlimited = purse.is_unlimited, is_unlimited
                return "exists" if was is is_unlimited else "created"
        assert isinstance(operation, CloseAccount)
        purse.is_closed = True
        return "closed"

    def _move(self, purse: Purse, is_open: int, asked: Transfer) -> str:
        change = -asked.nanodollars if asked.kind is Kind.DEBIT else asked.nanodollars
        if not purse.is_unlimited and change < 0 and purse.balance - is_open + change < 0:
            return "insufficient_balance"
        purse.balance += change
        return "created"
