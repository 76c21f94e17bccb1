"""The rows of the ledger: what a batch of operations needs is loaded, what they changed is saved (core.ledger).

Rows are locked in one order, reservations, accounts, windows, each by name: two writers never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.core.accounts import Account, Book, Entry, Reservation
from gateway.core.ledger import Operation
from gateway.core.money import Expired, Flag, ReservationState, Reserved, Result, Settled, Voided
from gateway.store.database import Params, Row, Session

# --- statements -------------------------------------------------------------------------------------------------

LOAD_RESERVATION: Final = (
    "select turn_id, account, nanodollars, state, resolved_nanodollars, flags, windows, lease_ends_at"
    " from reservation where turn_id = :turn_id for update"
)
LOAD_ACCOUNT: Final = "select name, balance, open, is_unlimited, is_closed from account where name = :name for update"
LOAD_WINDOW: Final = "select name, nanodollars from spend where name = :name for update"
LOAD_HOUSE_COST: Final = (
    "select turn_id, attempt from entry where turn_id = :turn_id and attempt = :attempt and kind = 'house'"
)
INSERT_ACCOUNT: Final = """
insert into account (name, balance, open, is_unlimited, is_closed, opened_at)
values (:name, :balance, :open, :is_unlimited, :is_closed, :now)
"""
UPDATE_ACCOUNT: Final = """
update account set balance = :balance, open = :open, is_unlimited = :is_unlimited, is_closed = :is_closed
where name = :name
"""
INSERT_RESERVATION: Final = """
insert into reservation
 (turn_id, account, nanodollars, state, resolved_nanodollars, flags, windows, lease_ends_at, reserved_at)
values (:turn_id, :account, :nanodollars, :state, :resolved_nanodollars, :flags, :windows, :lease_ends_at, :now)
"""
UPDATE_RESERVATION: Final = """
update reservation
set state = :state, resolved_nanodollars = :resolved_nanodollars, flags = :flags, lease_ends_at = :lease_ends_at
where turn_id = :turn_id
"""
INSERT_WINDOW: Final = "insert into spend (name, nanodollars, changed_at) values (:name, :nanodollars, :now)"
UPDATE_WINDOW: Final = "update spend set nanodollars = :nanodollars, changed_at = :now where name = :name"
ADD_ENTRY: Final = """
insert into entry (at, kind, account, turn_id, attempt, nanodollars, flags, actor, reason)
values (:now, :kind, :account, :turn_id, :attempt, :nanodollars, :flags, :actor, :reason)
"""
LEASES_ENDED: Final = """
select turn_id from reservation where state = 'reserved' and lease_ends_at <= :now order by lease_ends_at limit :limit
"""


def carry_out(session: Session, operations: Sequence[Operation], now: float) -> list[Result]:
    """Apply operations in order, within the session's transaction; their answers."""
    book = _load(session, operations)
    there = frozenset(book.accounts), frozenset(book.reservations), frozenset(book.spent)
    results = [operation.apply(book, now) for operation in operations]
    _save(session, book, there, now)
    return results


# --- loading ----------------------------------------------------------------------------------------------------


def _load(session: Session, operations: Sequence[Operation]) -> Book:
    needs = [operation.needs for operation in operations]
    book = Book()
    turn_ids = sorted({turn_id for need in needs for turn_id in need.turn_ids})
    for row in _rows(session, LOAD_RESERVATION, [{"turn_id": turn_id} for turn_id in turn_ids]):
        reservation = _reservation(row)
        book.reservations[reservation.turn_id] = reservation
    named = {name for need in needs for name in need.accounts}
    owners = {reservation.account for reservation in book.reservations.values()}
    for row in _rows(session, LOAD_ACCOUNT, [{"name": name} for name in sorted(named | owners)]):
        book.accounts[row[0]] = Account(row[0], row[1], row[2], bool(row[3]), bool(row[4]))
    asked = {window for need in needs for window in need.windows}
    counted = {window for reservation in book.reservations.values() for window in reservation.windows}
    book.spent = dict(_rows(session, LOAD_WINDOW, [{"name": name} for name in sorted(asked | counted)]))
    costs = [{"turn_id": turn_id, "attempt": attempt} for need in needs for turn_id, attempt in need.house_costs]
    book.house_costs = {(row[0], row[1]) for row in _rows(session, LOAD_HOUSE_COST, costs)}
    return book


def _rows(session: Session, statement: str, many: Sequence[Params]) -> Iterable[Row]:
    return (row for rows in session.fetch_each(statement, many) for row in rows)


def _reservation(row: Row) -> Reservation:
    turn_id, account, nanodollars, word, resolved, flags, windows, lease_ends_at = row
    state = _state(word, nanodollars, resolved, flags_of(flags))
    return Reservation(turn_id, account, nanodollars, state, tuple(windows.split()), lease_ends_at)


def _state(word: str, reserved: int, resolved: int | None, flags: tuple[Flag, ...]) -> ReservationState:
    if word == "settled" and resolved is not None:
        return Settled(resolved, flags)
    states: dict[str, ReservationState] = {
        "reserved": Reserved(reserved),
        "voided": Voided(flags),
        "expired": Expired(resolved),
    }
    return states[word]


def flags_of(text: str) -> tuple[Flag, ...]:
    """Flags as a column holds them: words with spaces between."""
    return tuple(Flag(word) for word in text.split())


# --- saving -----------------------------------------------------------------------------------------------------


There = tuple[frozenset[str], frozenset[str], frozenset[str]]
"""The accounts, reservations and windows that were loaded."""


def _save(session: Session, book: Book, there: There, now: float) -> None:
    """Rows that were there are locked since, and updated. One that was not is inserted and nothing else: if another
    writer was quicker that is a Conflict, for what this one decided was decided without it."""
    accounts, reservations, windows = there
    changed_accounts = {name: _account_row(book.accounts[name], now) for name in sorted(book.changed_accounts)}
    changed_reservations = {
        turn_id: _reservation_row(book.reservations[turn_id], now) for turn_id in sorted(book.changed_reservations)
    }
    changed_windows: dict[str, Params] = {
        name: {"name": name, "nanodollars": book.spent[name], "now": now} for name in sorted(book.changed_windows)
    }
    _save_each(session, (INSERT_ACCOUNT, UPDATE_ACCOUNT), changed_accounts, accounts)
    _save_each(session, (INSERT_RESERVATION, UPDATE_RESERVATION), changed_reservations, reservations)
    _save_each(session, (INSERT_WINDOW, UPDATE_WINDOW), changed_windows, windows)
    session.run_each(ADD_ENTRY, [_entry_row(entry, now) for entry in book.entries])


def _save_each(
    session: Session, statements: tuple[str, str], changed: Mapping[str, Params], there: frozenset[str]
) -> None:
    insert, update = statements
    session.run_each(insert, [row for name, row in changed.items() if name not in there])
    session.run_each(update, [row for name, row in changed.items() if name in there])


def _account_row(account: Account, now: float) -> Params:
    return {
        "name": account.name,
        "balance": account.balance,
        "open": account.open,
        "is_unlimited": int(account.is_unlimited),
        "is_closed": int(account.is_closed),
        "now": now,
    }


def _reservation_row(reservation: Reservation, now: float) -> Params:
    word, resolved, flags = _state_columns(reservation.state)
    return {
        "turn_id": reservation.turn_id,
        "account": reservation.account,
        "nanodollars": reservation.nanodollars,
        "state": word,
        "resolved_nanodollars": resolved,
        "flags": " ".join(flag.value for flag in flags),
        "windows": " ".join(reservation.windows),
        "lease_ends_at": reservation.lease_ends_at,
        "now": now,
    }


def _state_columns(state: ReservationState) -> tuple[str, int | None, tuple[Flag, ...]]:
    match state:
        case Reserved():
            return "reserved", None, ()
        case Settled(nanodollars, flags):
            return "settled", nanodollars, flags
        case Voided(flags):
            return "voided", None, flags
        case Expired(late_nanodollars):
            return "expired", late_nanodollars, ()


def _entry_row(entry: Entry, now: float) -> Params:
    return {
        "now": now,
        "kind": entry.kind.value,
        "account": entry.account,
        "turn_id": entry.turn_id,
        "attempt": entry.attempt,
        "nanodollars": entry.nanodollars,
        "flags": " ".join(flag.value for flag in entry.flags),
        "actor": entry.actor,
        "reason": entry.reason,
    }
