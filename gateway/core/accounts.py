"""What the books hold (B): accounts, reservations, and entries that are only ever added. Pure.

Every entry moves an amount from one ledger account to another, so the sum over all of them is always zero, and what an
account holds is what its entries say (B8).

    the world --deposit--> CLIENT --reserve--> open reservations
                           CLIENT <--released, voided, expired-- open reservations
                           CLIENT --settled--> the revenue
    the house --credit---> CLIENT --debit----> the house
    the house --house----> the upstreams       the cost of an attempt that no client pays (B2)
    the house --late-----> the revenue         a settlement that came after its lease had ended (B7)

A settlement is two entries: the reservation is released whole, then the charge is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gateway.core.money import Flag, ReservationState

# --- entries ----------------------------------------------------------------------------------------------------

HOUSE: Final = "the house"
"""Bears what no client pays (B2). No client's account can have its name, or one of the next: theirs have no spaces."""
WORLD: Final = "the world"
RESERVED: Final = "open reservations"
REVENUE: Final = "the revenue"
UPSTREAMS: Final = "the upstreams"


class Kind(StrEnum):
    """What an entry says happened."""

    DEPOSIT = "deposit"
    CREDIT = "credit"
    DEBIT = "debit"
    RESERVE = "reserve"
    RELEASED = "released"
    SETTLED = "settled"
    VOIDED = "voided"
    EXPIRED = "expired"
    HOUSE = "house"
    LATE = "late"


CLIENT: Final = None
"""Stands for the entry's own account in MOVES."""

MOVES: Final[dict[Kind, tuple[str | None, str | None]]] = {
    # from where, to where
    Kind.DEPOSIT: (WORLD, CLIENT),
    Kind.CREDIT: (HOUSE, CLIENT),
    Kind.DEBIT: (CLIENT, HOUSE),
    Kind.RESERVE: (CLIENT, RESERVED),
    Kind.RELEASED: (RESERVED, CLIENT),
    Kind.VOIDED: (RESERVED, CLIENT),
    Kind.EXPIRED: (RESERVED, CLIENT),
    Kind.SETTLED: (CLIENT, REVENUE),
    Kind.HOUSE: (HOUSE, UPSTREAMS),
    Kind.LATE: (HOUSE, REVENUE),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the books. `nanodollars` is never negative. `account` is whose line it is: a client's or HOUSE;
    `actor` and `reason` say who moved money by hand, and why."""

    kind: Kind
    account: str
    turn_id: str | None
    nanodollars: int
    flags: tuple[Flag, ...] = ()
    attempt: int | None = None
    actor: str | None = None
    reason: str | None = None

    @property
    def moved(self) -> tuple[str, str]:
        """The ledger accounts that the amount left and reached."""
        source, target = MOVES[self.kind]
        return source or self.account, target or self.account


# --- rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """A client's account, in nano-dollars. `balance` is what was paid in less what was settled; what running turns
    have set aside is `open` and not taken off it."""

    name: str
    balance: int = 0
    open: int = 0
    is_unlimited: bool = False
    is_closed: bool = False

    @property
    def available(self) -> int:
        """What a new reservation may take."""
        return self.balance - self.open

    def after(self, *, charged: int = 0, set_aside: int = 0) -> Account:
        """With so much less on it, and so much more of it open."""
        return Account(self.name, self.balance - charged, self.open + set_aside, self.is_unlimited, self.is_closed)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money set aside for a turn. `windows` are the spend windows of its key that it counts in; the lease ends at a
    wall-clock time, seconds since the epoch by the store's clock (B7)."""

    turn_id: str
    account: str
    nanodollars: int
    state: ReservationState
    windows: tuple[str, ...] = ()
    lease_ends_at: float = 0.0

    def in_state(self, state: ReservationState) -> Reservation:
        """The same, in another state."""
        return Reservation(self.turn_id, self.account, self.nanodollars, state, self.windows, self.lease_ends_at)


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """At most so much in a window, e.g. a key's day: what is open counts as spent until it is resolved."""

    window: str
    nanodollars_max: int


@dataclass(slots=True)
class Book:
    """The rows that operations read, and what they have changed. A store fills it with all that `Needs` names."""

    accounts: dict[str, Account] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    house_costs: set[tuple[str, int]] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)
    changed_accounts: set[str] = field(default_factory=set)
    changed_reservations: set[str] = field(default_factory=set)
    changed_windows: set[str] = field(default_factory=set)

    def put_account(self, account: Account) -> None:
        """The account stands like this from now on."""
        self.accounts[account.name] = account
        self.changed_accounts.add(account.name)

    def put_reservation(self, reservation: Reservation) -> None:
        """The reservation stands like this from now on."""
        self.reservations[reservation.turn_id] = reservation
        self.changed_reservations.add(reservation.turn_id)

    def spend(self, windows: Iterable[str], nanodollars: int) -> None:
        """Count an amount, or take one back, in each of these windows."""
        for window in windows:
            self.spent[window] = self.spent.get(window, 0) + nanodollars
            self.changed_windows.add(window)
