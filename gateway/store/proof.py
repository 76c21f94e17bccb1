"""The proof that the books balance (B8): from the entries alone, in one reading of one moment, beside whatever runs.

Each check is one statement that finds what contradicts it, so that nothing but contradictions is ever loaded. The
entries are what is true: they are only ever added. What else the store holds (balances, reservations, spend windows)
must be what the entries say; reservations that retention has taken away are not missed, their entries stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.core.accounts import HOUSE, MOVES, RESERVED, REVENUE, UPSTREAMS, WORLD, Kind
from gateway.store.database import Row, Session

FOUND_MAX: Final = 50
"""Contradictions that one statement tells; there may be more of the same."""
PAGE_ROWS: Final = 1000
PART: Final = 1_000_000_000
"""Sums over all accounts are taken in two parts: whole dollars, and what is below them. Either fits 64 bits."""

CLIENTS: Final = "the clients"
HOUSE_KINDS: Final = frozenset(kind for kind, accounts in MOVES.items() if None not in accounts)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One contradiction: of which check, about what (an account, a turn, an entry), and what stands there."""

    check: str
    about: str
    why: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What was checked, over how much, and all that contradicts it."""

    checks: Mapping[str, str]
    entries: int
    accounts: int
    totals: Mapping[str, int]
    """Nano-dollars on each ledger account, clients in one sum."""
    discrepancies: Sequence[Discrepancy]

    @property
    def holds(self) -> bool:
        """B8."""
        return not self.discrepancies


@dataclass(frozen=True, slots=True)
class Check:
    """`says` what must hold; `statement` finds rows (about, words and figures …) that `why` puts in words."""

    name: str
    says: str
    statement: str
    why: str


def _words(kinds: Sequence[Kind] | frozenset[Kind]) -> str:
    return ", ".join(f"'{kind.value}'" for kind in sorted(kinds))


RESOLVING: Final = _words([Kind.RELEASED, Kind.VOIDED, Kind.EXPIRED])
"""Each takes a reservation back, whole."""

BALANCE: Final = """
sum(case when kind in ('deposit', 'credit') then nanodollars when kind in ('debit', 'settled') then -nanodollars
    else 0 end)
"""
OPEN: Final = (
    f"sum(case when kind = 'reserve' then nanodollars when kind in ({RESOLVING}) then -nanodollars else 0 end)"
)

OF_TURN: Final = f"""
select turn_id, min(account) as account, min(account) <> max(account) as is_mixed,
 sum(case when kind = 'reserve' then 1 else 0 end) as reserves,
 sum(case when kind = 'reserve' then nanodollars else 0 end) as reserved,
 sum(case when kind in ({RESOLVING}) then 1 else 0 end) as resolutions,
 sum(case when kind in ({RESOLVING}) then nanodollars else 0 end) as resolved,
 sum(case when kind = 'released' then 1 else 0 end) as releases,
 sum(case when kind = 'settled' then 1 else 0 end) as settlements,
 sum(case when kind = 'settled' then nanodollars else 0 end) as settled,
 sum(case when kind = 'voided' then 1 else 0 end) as voids,
 sum(case when kind = 'expired' then 1 else 0 end) as expiries
from entry where turn_id is not null and account <> '{HOUSE}' group by turn_id
"""
"""A client's turn in one line."""

UNLIKE_ITS_ENTRIES: Final = """
reserved <> nanodollars or told.account <> reservation.account
or state <> case when settlements > 0 then 'settled' when voids > 0 then 'voided' when expiries > 0 then 'expired'
 else 'reserved' end
or (state = 'settled' and coalesce(resolved_nanodollars, -1) <> settled)
or (state in ('reserved', 'voided') and resolved_nanodollars is not null)
or (state = 'expired' and coalesce(resolved_nanodollars, -1) <> coalesce((select sum(late.nanodollars)
 from entry as late where late.turn_id = reservation.turn_id and late.kind = 'late'), -1))
"""
EXPIRED_BEFORE: Final = """
case when exists (select 1 from entry as ended where ended.turn_id = entry.turn_id and ended.kind = 'expired')
 then 1 else 0 end"""
CHECKS: Final = (
    Check(
        "kinds",
        "every entry is of a known kind, and on the account of the house or of a client as its kind is",
        f"""
        select id, kind, entry.account from entry left join account on account.name = entry.account
        where kind not in ({_words(list(Kind))})
         or (kind in ({_words(HOUSE_KINDS)})) <> (entry.account = '{HOUSE}')
         or (account.name is null and entry.account <> '{HOUSE}')
        order by id limit :limit""",
        "entry {0} is {1} on {2}",
    ),
    Check(
        "amounts",
        "no entry is negative",
        "select id, nanodollars from entry where nanodollars < 0 order by id limit :limit",
        "entry {0} moves {1}",
    ),
    Check(
        "balances",
        "each account's balance is its deposits and credits less its debits and settlements",
        f"""
        select name, balance, coalesce(said, 0) from account
        left join (select account, {BALANCE} as said from entry group by account) as told on told.account = name
        where balance <> coalesce(said, 0) order by name limit :limit""",
        "the balance is {1}, its entries say {2}",
    ),
    Check(
        "open",
        "what each account has set aside is what was reserved and not taken back",
        f"""
        select name, open, coalesce(said, 0) from account
        left join (select account, {OPEN} as said from entry group by account) as told on told.account = name
        where open <> coalesce(said, 0) order by name limit :limit""",
        "{1} is set aside, its entries say {2}",
    ),
    Check(
        "open_reservations",
        "what each account has set aside is the sum of its open reservations",
        """
        select name, open, coalesce(said, 0) from account
        left join (select account, sum(nanodollars) as said from reservation where state = 'reserved' group by account)
         as told on told.account = name
        where open <> coalesce(said, 0) order by name limit :limit""",
        "{1} is set aside, its open reservations sum up to {2}",
    ),
    Check(
        "late",
        "the house bears a late settlement once, of a turn whose lease had ended",
        f"""
        select turn_id, count(*), sum({EXPIRED_BEFORE}) from entry where kind = 'late' group by turn_id
        having count(*) <> 1 or count(*) <> sum({EXPIRED_BEFORE}) order by turn_id limit :limit""",
        "{1} late settlements, {2} of them of a lease that had ended",
    ),
    Check(
        "attempts",
        "the house bears an attempt once",
        """
        select turn_id, attempt, count(*) from entry where kind = 'house' group by turn_id, attempt having count(*) > 1
        order by turn_id limit :limit""",
        "attempt {1} is booked {2} times",
    ),
    Check(
        "reserved",
        "every reservation has its entry",
        """
        select turn_id, state from reservation
        where not exists (select 1 from entry where entry.turn_id = reservation.turn_id and kind = 'reserve')
        order by turn_id limit :limit""",
        "it is {1}, and no entry says so",
    ),
)

TURN_CHECKS: Final = (
    # (name, what holds, what contradicts it, in a turn's line)
    ("resolved_once", "every turn is reserved once, on one account, and resolved at most once",
     "reserves <> 1 or resolutions > 1 or settlements > 1 or is_mixed"),
    ("charged_or_refunded", "no turn is both charged and refunded", "settlements > 0 and voids + expiries > 0"),
    ("released", "every settlement has released its reservation", "releases <> settlements"),
    ("whole", "what was reserved is taken back whole", "resolutions > 0 and reserved <> resolved"),
    ("reservations", "every reservation is what its entries say", f"state is not null and ({UNLIKE_ITS_ENTRIES})"),
    ("rows", "everything that is set aside has its reservation", "state is null and reserves > resolutions"),
)  # fmt: skip
TURNS: Final = f"""
select told.turn_id, {", ".join(f"case when {wrong} then 1 else 0 end" for _, _, wrong in TURN_CHECKS)},
 told.account, reserves, reserved, resolutions, resolved, releases, settlements, settled, voids, expiries, state
from ({OF_TURN}) as told left join reservation on reservation.turn_id = told.turn_id
where {" or ".join(f"({wrong})" for _, _, wrong in TURN_CHECKS)} order by told.turn_id limit :limit
"""
TURN_WHY: Final = (
    "on {0}: {1} × reserve, in all {2}; {3} × taken back, in all {4}, {5} × of it released; {6} × settled, in all {7};"
    " {8} × voided, {9} × expired; its reservation: {10}"
)

# --- what one statement cannot say ------------------------------------------------------------------------------

TOTALS: Final = f"""
select kind, account = '{HOUSE}', count(*), sum(nanodollars / {PART}), sum(nanodollars - nanodollars / {PART} * {PART})
from entry group by kind, account = '{HOUSE}'
"""
HELD: Final = f"""
select count(*), coalesce(sum((balance - open) / {PART}), 0),
 coalesce(sum(balance - open - (balance - open) / {PART} * {PART}), 0) from account
"""
WINDOWS: Final = "select name, nanodollars from spend where name > :after order by name limit :limit"
COUNTED: Final = """
select turn_id, windows, state, case state when 'reserved' then nanodollars when 'settled' then resolved_nanodollars
 else 0 end from reservation where windows <> '' and turn_id > :after order by turn_id limit :limit
"""
WINDOWS_SAY: Final = "each spend window holds what its reservations have spent and set aside"
TOTAL_SAYS: Final = "double entry: all ledger accounts together hold nothing"


def prove(session: Session) -> Proof:
    """Check everything in the session's snapshot."""
    found = [discrepancy for check in CHECKS for discrepancy in _contradictions(session, check)]
    found += [discrepancy for row in session.fetch(TURNS, {"limit": FOUND_MAX}) for discrepancy in _of_turn(row)]
    found += _wrong_windows(session)
    totals, entries, accounts = _totals(session)
    if sum(totals.values()):
        found.append(Discrepancy("total", "all ledger accounts", f"together they hold {sum(totals.values())}, not 0"))
    return Proof(says(), entries, accounts, totals, found)


def says() -> Mapping[str, str]:
    """What each check proves, by its name."""
    own = {check.name: check.says for check in CHECKS} | {name: text for name, text, _ in TURN_CHECKS}
    return own | {"windows": WINDOWS_SAY, "total": TOTAL_SAYS}


def _contradictions(session: Session, check: Check) -> Sequence[Discrepancy]:
    rows = session.fetch(check.statement, {"limit": FOUND_MAX})
    return [Discrepancy(check.name, str(row[0]), check.why.format(*row)) for row in rows]


def _of_turn(row: Row) -> Sequence[Discrepancy]:
    turn_id, *marks = row[: 1 + len(TURN_CHECKS)]
    why = TURN_WHY.format(*row[1 + len(TURN_CHECKS) :])
    wrong = (name for (name, _, _), is_wrong in zip(TURN_CHECKS, marks, strict=True) if is_wrong)
    return [Discrepancy(name, turn_id, why) for name in wrong]


def _wrong_windows(session: Session) -> Sequence[Discrepancy]:
    """A window that retention has taken away is missed only by a reservation that is open."""
    held: dict[str, int] = dict(pages(session, WINDOWS))
    counted = dict.fromkeys(held, 0)
    missed: dict[str, int] = {}
    for _, windows, state, nanodollars in pages(session, COUNTED):
        for window in windows.split():
            if window in counted:
                counted[window] += int(nanodollars)
            elif state == "reserved":
                missed[window] = missed.get(window, 0) + int(nanodollars)
    wrong = {name: (held[name], said) for name, said in counted.items() if held[name] != said}
    wrong |= {name: (0, said) for name, said in missed.items()}
    return [
        Discrepancy("windows", name, f"it holds {holds}, its reservations say {said}")
        for name, (holds, said) in sorted(wrong.items())[:FOUND_MAX]
    ]


def pages(session: Session, statement: str) -> Iterator[Row]:
    """All rows of a statement that is ordered by its first column, a page at a time."""
    after = ""
    while rows := session.fetch(statement, {"after": after, "limit": PAGE_ROWS}):
        yield from rows
        after = rows[-1][0]


def _totals(session: Session) -> tuple[Mapping[str, int], int, int]:
    """What each ledger account holds: the clients as the store has them, all others by the entries."""
    totals = dict.fromkeys((WORLD, CLIENTS, RESERVED, REVENUE, HOUSE, UPSTREAMS), 0)
    entries = 0
    for kind, is_house, count, high, low in session.fetch(TOTALS, {}):
        entries += count
        amount = int(high) * PART + int(low)
        for sign, account in zip((-1, 1), MOVES.get(kind, ()), strict=False):
            totals[account or (HOUSE if is_house else CLIENTS)] += sign * amount
    ((accounts, high, low),) = session.fetch(HELD, {})
    return {**totals, CLIENTS: int(high) * PART + int(low)}, entries, accounts
