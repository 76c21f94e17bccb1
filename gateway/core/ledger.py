"""The ledger's law: what each operation does to the books (B). Pure: a store loads the rows that a batch of operations
needs, applies them in order, and saves what changed, in one transaction. The memory keeps all rows; the law is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.core.accounts import HOUSE, Account, Book, Entry, Kind, Reservation, SpendLimit
from gateway.core.money import (
    Expired,
    Flag,
    ReservationState,
    Reserved,
    Resolution,
    Result,
    Settled,
    Voided,
    apply_expiry,
    apply_resolution,
)

# --- operations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """What an operation reads: an account that belongs to a turn's reservation comes with it."""

    accounts: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()
    house_costs: tuple[tuple[str, int], ...] = ()


class Operation(Protocol):
    """Something the books can be asked to do. Asking twice changes nothing the second time."""

    @property
    def needs(self) -> Needs:
        """What must be in the Book."""
        ...

    def apply(self, book: Book, now: float) -> Result:
        """Do it, at this time of the store's clock; the answer in one word."""
        ...


@dataclass(frozen=True, slots=True)
class Reserve:
    """Set money aside for a turn (B6). What costs nothing needs neither balance nor allowance, however far another turn
    went beyond them (W9)."""

    turn_id: str
    account: str
    nanodollars: int
    limits: tuple[SpendLimit, ...] = ()
    lease_seconds: float = 0.0

    @property
    def needs(self) -> Needs:
        """The account, and a reservation that may be there already."""
        return Needs((self.account,), (self.turn_id,), tuple(limit.window for limit in self.limits))

    def apply(self, book: Book, now: float) -> Result:
        """CREATED, EXISTS, EXISTS_WITH_DIFFERENT_AMOUNT, or why not."""
        known = book.reservations.get(self.turn_id)
        if known is not None:
            is_same = (known.account, known.nanodollars) == (self.account, self.nanodollars)
            return Result.EXISTS if is_same else Result.EXISTS_WITH_DIFFERENT_AMOUNT
        account = book.accounts.get(self.account)
        if account is None or account.is_closed:
            return _not_usable(account)
        if self.nanodollars and (refused := self._beyond(account, book)):
            return refused
        windows = tuple([limit.window for limit in self.limits])
        state, ends_at = Reserved(self.nanodollars), now + self.lease_seconds
        book.put_account(account.after(set_aside=self.nanodollars))
        book.put_reservation(Reservation(self.turn_id, self.account, self.nanodollars, state, windows, ends_at))
        book.spend(windows, self.nanodollars)
        book.entries.append(Entry(Kind.RESERVE, self.account, self.turn_id, self.nanodollars))
        return Result.CREATED

    def _beyond(self, account: Account, book: Book) -> Result | None:
        if not account.is_unlimited and self.nanodollars > account.available:
            return Result.INSUFFICIENT_BALANCE
        for limit in self.limits:
            if book.spent.get(limit.window, 0) + self.nanodollars > limit.nanodollars_max:
                return Result.SPEND_LIMIT_REACHED
        return None


@dataclass(frozen=True, slots=True)
class OnReservation:
    """What an operation on a turn's reservation reads."""

    turn_id: str

    @property
    def needs(self) -> Needs:
        """The reservation with its account."""
        return Needs(turn_ids=(self.turn_id,))


@dataclass(frozen=True, slots=True)
class Resolve(OnReservation):
    """Settle or void a turn's reservation, once (B1)."""

    resolution: Resolution

    def apply(self, book: Book, now: float) -> Result:
        """SETTLED, SETTLED_OVERDRAWN, VOIDED or BORNE_BY_HOUSE; any other word changes nothing."""
        known = book.reservations.get(self.turn_id)
        if known is None:
            return Result.NOT_FOUND
        account = book.accounts[known.account]
        is_open = isinstance(known.state, Reserved)
        resolution = _flag_overdraft(account, known.nanodollars, self.resolution) if is_open else self.resolution
        after, result = apply_resolution(known.state, resolution)
        if after is not known.state:
            _move(book, account, known.in_state(after), resolution.flags)
        return result


@dataclass(frozen=True, slots=True)
class Expire(OnReservation):
    """Void a reservation whose lease has ended: its process is gone (B7)."""

    def apply(self, book: Book, now: float) -> Result:
        """EXPIRED, LEASE_RUNS, or how it was resolved before."""
        known = book.reservations.get(self.turn_id)
        if known is None:
            return Result.NOT_FOUND
        if isinstance(known.state, Reserved) and now < known.lease_ends_at:
            return Result.LEASE_RUNS
        after, result = apply_expiry(known.state)
        if after is not known.state:
            _move(book, book.accounts[known.account], known.in_state(after), ())
        return result


@dataclass(frozen=True, slots=True)
class Renew(OnReservation):
    """A turn lives: its lease ends later (B7)."""

    lease_seconds: float

    def apply(self, book: Book, now: float) -> Result:
        """RENEWED; NOT_FOUND if nothing is open."""
        known = book.reservations.get(self.turn_id)
        if known is None or not isinstance(known.state, Reserved):
            return Result.NOT_FOUND
        book.put_reservation(replace(known, lease_ends_at=max(known.lease_ends_at, now + self.lease_seconds)))
        return Result.RENEWED


@dataclass(frozen=True, slots=True)
class BookHouse:
    """The house bears the cost of an attempt that its client does not pay (B2)."""

    turn_id: str
    attempt: int
    nanodollars: int

    @property
    def needs(self) -> Needs:
        """Whether it was booked before."""
        return Needs(house_costs=((self.turn_id, self.attempt),))

    def apply(self, book: Book, now: float) -> Result:
        """CREATED or EXISTS."""
        if (self.turn_id, self.attempt) in book.house_costs:
            return Result.EXISTS
        book.house_costs.add((self.turn_id, self.attempt))
        book.entries.append(Entry(Kind.HOUSE, HOUSE, self.turn_id, self.nanodollars, attempt=self.attempt))
        return Result.CREATED


# --- operations on accounts, by hand ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenAccount:
    """A client's account, empty."""

    name: str
    is_unlimited: bool = False

    @property
    def needs(self) -> Needs:
        """Whether it is there."""
        return Needs((self.name,))

    def apply(self, book: Book, now: float) -> Result:
        """CREATED; EXISTS, EXISTS_WITH_DIFFERENT_AMOUNT (the other of limited and unlimited) or ACCOUNT_CLOSED."""
        known = book.accounts.get(self.name)
        if known is None:
            book.put_account(Account(self.name, is_unlimited=self.is_unlimited))
            return Result.CREATED
        if known.is_closed:
            return Result.ACCOUNT_CLOSED
        is_same = known.is_unlimited is self.is_unlimited
        return Result.EXISTS if is_same else Result.EXISTS_WITH_DIFFERENT_AMOUNT


@dataclass(frozen=True, slots=True)
class Transfer:
    """Money moved by hand: a DEPOSIT, a CREDIT or a DEBIT, by whom and why."""

    kind: Kind
    account: str
    nanodollars: int
    actor: str
    reason: str | None = None

    @property
    def needs(self) -> Needs:
        """The account."""
        return Needs((self.account,))

    def apply(self, book: Book, now: float) -> Result:
        """CREATED; INSUFFICIENT_BALANCE if a debit would take more than is available; or why not."""
        account = book.accounts.get(self.account)
        if account is None or account.is_closed:
            return _not_usable(account)
        change = -self.nanodollars if self.kind is Kind.DEBIT else self.nanodollars
        if change < 0 and not account.is_unlimited and -change > account.available:
            return Result.INSUFFICIENT_BALANCE
        book.put_account(replace(account, balance=account.balance + change))
        book.entries.append(
            Entry(self.kind, self.account, None, self.nanodollars, actor=self.actor, reason=self.reason)
        )
        return Result.CREATED


@dataclass(frozen=True, slots=True)
class SetUnlimited:
    """Whether the account's balance bounds its reservations (B6)."""

    name: str
    is_unlimited: bool

    @property
    def needs(self) -> Needs:
        """The account."""
        return Needs((self.name,))

    def apply(self, book: Book, now: float) -> Result:
        """CREATED, EXISTS if it was so, ACCOUNT_NOT_FOUND or ACCOUNT_CLOSED."""
        account = book.accounts.get(self.name)
        if account is None or account.is_closed:
            return _not_usable(account)
        if account.is_unlimited is self.is_unlimited:
            return Result.EXISTS
        book.put_account(replace(account, is_unlimited=self.is_unlimited))
        return Result.CREATED


@dataclass(frozen=True, slots=True)
class CloseAccount:
    """No turn starts on it any more; those that run end as they would, and what is left on it stays in the books. By
    whom and why stands there as a debit of nothing."""

    name: str
    actor: str | None = None
    reason: str | None = None

    @property
    def needs(self) -> Needs:
        """The account."""
        return Needs((self.name,))

    def apply(self, book: Book, now: float) -> Result:
        """CLOSED, ACCOUNT_CLOSED if it was, ACCOUNT_NOT_FOUND."""
        account = book.accounts.get(self.name)
        if account is None or account.is_closed:
            return _not_usable(account)
        book.put_account(replace(account, is_closed=True))
        if self.actor is not None:
            reason = f"closed: {self.reason}"
            book.entries.append(Entry(Kind.DEBIT, self.name, None, 0, actor=self.actor, reason=reason))
        return Result.CLOSED


def _not_usable(account: Account | None) -> Result:
    """Why an account takes neither a turn nor money."""
    return Result.ACCOUNT_NOT_FOUND if account is None else Result.ACCOUNT_CLOSED


# --- moving money -----------------------------------------------------------------------------------------------


def _move(book: Book, account: Account, after: Reservation, flags: Sequence[Flag]) -> None:
    """Carry out what a reservation has become: its entries, its account, its spend windows."""
    state, reserved, flags = after.state, after.nanodollars, tuple(flags)
    book.put_reservation(after)
    if isinstance(state, Expired) and state.late_nanodollars is not None:
        book.entries.append(Entry(Kind.LATE, HOUSE, after.turn_id, state.late_nanodollars, flags))
        return
    charge = state.nanodollars if isinstance(state, Settled) else 0
    for kind, nanodollars, own_flags in _resolving_entries(state, reserved, flags):
        book.entries.append(Entry(kind, after.account, after.turn_id, nanodollars, own_flags))
    book.put_account(account.after(charged=charge, set_aside=-reserved))
    book.spend(after.windows, charge - reserved)


def _resolving_entries(
    state: ReservationState, reserved: int, flags: tuple[Flag, ...]
) -> tuple[tuple[Kind, int, tuple[Flag, ...]], ...]:
    if isinstance(state, Settled):
        return (Kind.RELEASED, reserved, ()), (Kind.SETTLED, state.nanodollars, flags)
    return ((Kind.VOIDED if isinstance(state, Voided) else Kind.EXPIRED, reserved, flags),)


def _flag_overdraft(account: Account, reserved: int, resolution: Resolution) -> Resolution:
    """B6: a settlement above its reservation may take the balance below zero, by that excess only, and says so."""
    charge = resolution.nanodollars
    if charge is None or charge <= reserved or account.is_unlimited:
        return resolution
    is_overdrawn = charge > account.available + reserved
    return replace(resolution, flags=(*resolution.flags, Flag.OVERDRAWN)) if is_overdrawn else resolution
