"""A complete ledger in memory: for tests, the demo, and a single process that may forget (ports.Ledger).

Entries are append-only; balances are what the entries say, so the books can always be proven (B8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import trio

from gateway.core.money import Flag, Reserved, Resolution, Result, Settled, Voided, apply_resolution

HOUSE = "the house"
"""The account that bears what no client pays (B2). No configured account can have its name: theirs have no spaces."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the books: what happened to whose money, in nano-dollars. `balance_change` is the account's own."""

    kind: str
    account: str
    turn_id: str | None
    nanodollars: int
    balance_change: int
    flags: tuple[Flag, ...] = ()


class MemoryLedger:
    """Accounts with a balance in nano-dollars; None is an unlimited one."""

    def __init__(self, balances: Mapping[str, int | None]) -> None:
        self._unlimited = frozenset(name for name, balance in balances.items() if balance is None)
        self._balances = {name: balance or 0 for name, balance in balances.items()}
        self._open: dict[str, int] = dict.fromkeys(balances, 0)
        self._reservations: dict[str, tuple[str, int, Reserved | Settled | Voided]] = {}
        self._house: dict[tuple[str, int], int] = {}
        self.entries: list[Entry] = [
            Entry("deposit", name, None, balance, balance) for name, balance in balances.items() if balance
        ]

    def __repr__(self) -> str:
        return f"<MemoryLedger {len(self._reservations)} reservations, {sum(self._open.values())} open>"

    def balance(self, account: str) -> int:
        """Deposits less settlements, in nano-dollars; open reservations are not taken off. KeyError if unknown."""
        return self._balances[account]

    def open_reservations(self, account: str) -> int:
        """What running turns of the account have set aside."""
        return self._open[account]

    async def reserve(self, turn_id: str, account: str, nanodollars: int) -> Result:
        """Set money aside (ports.Ledger)."""
        await trio.lowlevel.checkpoint()
        known = self._reservations.get(turn_id)
        if known is not None:
            is_same = (account, nanodollars) == known[:2]
            return Result.EXISTS if is_same else Result.EXISTS_WITH_DIFFERENT_AMOUNT
        available = self._balances[account] - self._open[account]
        if account not in self._unlimited and nanodollars > available:
            return Result.INSUFFICIENT_BALANCE
        self._reservations[turn_id] = (account, nanodollars, Reserved(nanodollars))
        self._open[account] += nanodollars
        self.entries.append(Entry("reserve", account, turn_id, nanodollars, 0))
        return Result.CREATED

    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Settle or void, once (ports.Ledger)."""
        await trio.lowlevel.checkpoint()
        known = self._reservations.get(turn_id)
        if known is None:
            return Result.NOT_FOUND
        account, reserved, state = known
        resolution = self._flag_overdraft(account, reserved, resolution)
        after, result = apply_resolution(state, resolution)
        if after is state:
            return result
        self._reservations[turn_id] = (account, reserved, after)
        self._open[account] -= reserved
        charge = after.nanodollars if isinstance(after, Settled) else 0
        self._balances[account] -= charge
        self.entries.append(
            Entry(
                "settled" if isinstance(after, Settled) else "voided",
                account,
                turn_id,
                charge,
                -charge,
                resolution.flags,
            )
        )
        return result

    async def book_house(self, turn_id: str, attempt: int, nanodollars: int) -> Result:
        """The house pays (ports.Ledger)."""
        await trio.lowlevel.checkpoint()
        if (turn_id, attempt) in self._house:
            return Result.EXISTS
        self._house[turn_id, attempt] = nanodollars
        self.entries.append(Entry("house", HOUSE, turn_id, nanodollars, -nanodollars))
        return Result.CREATED

    def state(self, turn_id: str) -> Reserved | Settled | Voided:
        """Where a turn's reservation stands. KeyError if there is none."""
        return self._reservations[turn_id][2]

    def _flag_overdraft(self, account: str, reserved: int, resolution: Resolution) -> Resolution:
        """B6: a settlement above its reservation may take the balance below zero, by that excess only, and says so."""
        charge = resolution.nanodollars
        if charge is None or charge <= reserved or account in self._unlimited:
            return resolution
        available = self._balances[account] - self._open[account] + reserved
        is_overdrawn = charge > available
        return replace(resolution, flags=(*resolution.flags, Flag.OVERDRAWN)) if is_overdrawn else resolution
