"""What people ask of books and records: turns, an account's statement, what the house has lost. Read only.

All of it is read in the session's snapshot; long lists come a page at a time. Amounts are nano-dollars, times seconds
since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gateway.core.accounts import Kind
from gateway.store.database import Row, Session

PAGE_ROWS: Final = 1000
RUNNING: Final = "running"
"""The outcome, for whoever asks, of a turn that has not ended."""

# --- turns and attempts (L1) ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as it is on record."""

    turn_id: str
    account: str
    key: str | None
    model: str
    door: str
    reserved_nanodollars: int
    opened_at: float
    client_retry_count: str | None
    client_address: str | None
    outcome: str | None
    ended_at: float | None
    seconds: float | None
    nanodollars: int | None
    flags: str | None
    routes: str | None
    failure_code: str | None
    failure_kind: str | None
    response_id: str | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt of a turn. Its times but `opened_at` are seconds since its start."""

    number: int
    route: str
    opened_at: float
    outcome: str | None
    reason: str | None
    is_replayed: int | None
    seconds: float | None
    first_event_seconds: float | None
    first_output_seconds: float | None
    response_id: str | None
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    dropped_events: int | None
    upstream_request_id: str | None
    house_nanodollars: int | None


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One line of the books."""

    id: int
    at: float
    kind: str
    account: str
    turn_id: str | None
    attempt: int | None
    nanodollars: int
    flags: str
    actor: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Where a turn's money stands."""

    nanodollars: int
    state: str
    resolved_nanodollars: int | None
    flags: str
    windows: str
    lease_ends_at: float
    reserved_at: float


@dataclass(frozen=True, slots=True)
class TurnReport:
    """A turn with its attempts and its money. Any of the rows may be gone: the entries stay."""

    turn_id: str
    turn: TurnRow | None
    attempts: tuple[AttemptRow, ...]
    reservation: ReservationRow | None
    entries: tuple[EntryRow, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which turns: what is None does not matter. `since` is a time; the newest `limit` of them are shown."""

    account: str | None = None
    key: str | None = None
    outcome: str | None = None
    model: str | None = None
    since: float | None = None
    limit: int = 20


def _columns(row: type) -> str:
    return ", ".join(column.name for column in fields(row))


CONDITIONS: Final[Mapping[str, str]] = {
    "account": "account = :account",
    "key": "key = :key",
    "outcome": f"coalesce(outcome, '{RUNNING}') = :outcome",
    "model": "model = :model",
    "since": "opened_at >= :since",
}
TURN: Final = f"select {_columns(TurnRow)} from turn where turn_id = :turn_id"
ATTEMPTS: Final = f"select {_columns(AttemptRow)} from attempt where turn_id = :turn_id order by number"
RESERVATION: Final = f"select {_columns(ReservationRow)} from reservation where turn_id = :turn_id"
ENTRIES: Final = f"select {_columns(EntryRow)} from entry where turn_id = :turn_id order by id"


def turns(session: Session, wanted: Wanted) -> list[TurnRow]:
    """The newest first."""
    given = {name: getattr(wanted, name) for name in CONDITIONS if getattr(wanted, name) is not None}
    where = " and ".join(["1 = 1", *(CONDITIONS[name] for name in given)])
    statement = f"select {_columns(TurnRow)} from turn where {where} order by opened_at desc, turn_id limit :limit"
    return [TurnRow(*row) for row in session.fetch(statement, {**given, "limit": wanted.limit})]


def turn(session: Session, turn_id: str) -> TurnReport | None:
    """All that is known of a turn; None if that is nothing."""
    asked = {"turn_id": turn_id}
    found = [TurnRow(*row) for row in session.fetch(TURN, asked)]
    attempts = tuple(AttemptRow(*row) for row in session.fetch(ATTEMPTS, asked))
    reservations = [ReservationRow(*row) for row in session.fetch(RESERVATION, asked)]
    entries = tuple(EntryRow(*row) for row in session.fetch(ENTRIES, asked))
    if not (found or entries):
        return None
    return TurnReport(turn_id, next(iter(found), None), attempts, next(iter(reservations), None), entries)


# --- an account's statement -------------------------------------------------------------------------------------

BALANCE_SIGNS: Final[Mapping[str, int]] = {Kind.DEPOSIT: 1, Kind.CREDIT: 1, Kind.DEBIT: -1, Kind.SETTLED: -1}
OPEN_SIGNS: Final[Mapping[str, int]] = {Kind.RESERVE: 1, Kind.RELEASED: -1, Kind.VOIDED: -1, Kind.EXPIRED: -1}
"""What an entry does to its account's balance, and to what is set aside on it."""

ACCOUNTS: Final = "select name from account order by name"
BEFORE: Final = """
select kind, sum(nanodollars) from entry where account = :account and at < :since group by kind
"""
BETWEEN: Final = f"""
select {_columns(EntryRow)} from entry where account = :account and id > :after and at >= :since and at < :until
order by id limit :limit
"""


@dataclass(slots=True)
class Standing:
    """How an account stands at a moment."""

    balance: int = 0
    open: int = 0

    def take(self, kind: str, nanodollars: int) -> None:
        """An entry, or many of a kind."""
        self.balance += BALANCE_SIGNS.get(kind, 0) * nanodollars
        self.open += OPEN_SIGNS.get(kind, 0) * nanodollars


@dataclass(frozen=True, slots=True)
class StatementLine:
    """An entry, and how the account stands after it."""

    entry: EntryRow
    change: int
    balance: int
    open: int


def account_names(session: Session) -> list[str]:
    """All there are."""
    return [name for (name,) in session.fetch(ACCOUNTS, {})]


def standing_before(session: Session, account: str, since: float) -> Standing:
    """How an account stood when a time began."""
    standing = Standing()
    for kind, nanodollars in session.fetch(BEFORE, {"account": account, "since": since}):
        standing.take(kind, int(nanodollars))
    return standing


def statement(
    session: Session, account: str, since: float, until: float, standing: Standing
) -> Iterator[StatementLine]:
    """An account's entries from `since` to before `until`, in order; `standing` is carried along and stands at the
    end as the account does."""
    asked = {"account": account, "since": since, "until": until, "limit": PAGE_ROWS}
    after = 0
    while rows := session.fetch(BETWEEN, {**asked, "after": after}):
        for entry in (EntryRow(*row) for row in rows):
            standing.take(entry.kind, entry.nanodollars)
            change = BALANCE_SIGNS.get(entry.kind, 0) * entry.nanodollars
            yield StatementLine(entry, change, standing.balance, standing.open)
        after = rows[-1][0]


# --- what the house has lost ------------------------------------------------------------------------------------

UNKNOWN_ROUTE: Final = "(no longer on record)"


def _losses(kind: str, which: str) -> str:
    """By the route of the attempt, on record or left behind by its record (retention.py)."""
    routes = ", ".join(
        f"(select route from {table} where turn_id = entry.turn_id {which} order by number desc limit 1)"
        for table in ("attempt", "loss_route")
    )
    return f"""
select coalesce(route, '{UNKNOWN_ROUTE}'), count(*), sum(nanodollars)
from (select coalesce({routes}) as route, nanodollars from entry
      where kind = '{kind}' and at >= :since and at < :until) as lost
group by coalesce(route, '{UNKNOWN_ROUTE}')
"""


HOUSE_COSTS: Final = _losses("house", "and number = entry.attempt")
LATE: Final = _losses("late", "")
"""A settlement is of the turn's last attempt."""
MOVED_BY_HAND: Final = """
select kind, count(*), sum(nanodollars) from entry
where kind in ('credit', 'debit') and at >= :since and at < :until group by kind
"""


@dataclass(slots=True)
class RouteLoss:
    """What the house has borne for a route: attempts that no client paid (B2), settlements that came late (B7)."""

    attempts: int = 0
    attempt_nanodollars: int = 0
    late: int = 0
    late_nanodollars: int = 0


@dataclass(frozen=True, slots=True)
class HouseReport:
    """The house's losses by route, and what it gave to clients and took from them by hand."""

    routes: dict[str, RouteLoss] = field(default_factory=dict)
    credits: int = 0
    debits: int = 0

    @property
    def nanodollars(self) -> int:
        """All in all."""
        borne = sum(loss.attempt_nanodollars + loss.late_nanodollars for loss in self.routes.values())
        return borne + self.credits - self.debits


def house(session: Session, since: float, until: float) -> HouseReport:
    """From `since` to before `until`."""
    asked: dict[str, Any] = {"since": since, "until": until}
    routes: dict[str, RouteLoss] = {}
    for route, count, nanodollars in session.fetch(HOUSE_COSTS, asked):
        routes[route] = RouteLoss(attempts=count, attempt_nanodollars=int(nanodollars))
    for route, count, nanodollars in session.fetch(LATE, asked):
        loss = routes.setdefault(route, RouteLoss())
        loss.late, loss.late_nanodollars = count, int(nanodollars)
    by_hand: dict[str, Row] = {row[0]: row for row in session.fetch(MOVED_BY_HAND, asked)}
    moved = {kind: int(by_hand[kind][2]) if kind in by_hand else 0 for kind in (Kind.CREDIT, Kind.DEBIT)}
    return HouseReport(dict(sorted(routes.items())), moved[Kind.CREDIT], moved[Kind.DEBIT])
