"""A ledger's books as the contract reads them, the calls of its port as data, and the rules as a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import trio
from hypothesis import strategies as st

from gateway.core.accounts import RESERVED, REVENUE, Entry, Kind
from gateway.core.money import Flag, Resolution, Result
from gateway.ports import Ledger


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the books: the kind of what happened, whose account it is, the turn, how much, and the remarks."""

    kind: str
    account: str
    turn_id: str | None
    nanodollars: int
    flags: tuple[Flag, ...] = ()
    actor: str | None = field(default=None, compare=False)
    reason: str | None = field(default=None, compare=False)


def lines_of(entries: Iterable[Entry]) -> list[Line]:
    """Entries as the contract reads them."""
    return [
        Line(each.kind.value, each.account, each.turn_id, each.nanodollars, each.flags, each.actor, each.reason)
        for each in entries
    ]


@dataclass(frozen=True, slots=True)
class Account:
    """How one account stands, in nano-dollars. `open_reservations` are not taken off `balance`."""

    balance: int
    open_reservations: int


@dataclass(frozen=True, slots=True)
class Books:
    """A ledger's books at one moment. `house` is the account that no client can have."""

    entries: Sequence[Line]
    accounts: Mapping[str, Account]
    house: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the port."""

    name: str
    turn_id: str
    account: str = "main"
    nanodollars: int | None = None
    attempt: int = 1

    async def run(self, ledger: Ledger) -> Result:
        """Make the call."""
        if self.name == "reserve":
            return await ledger.reserve(self.turn_id, self.account, self.nanodollars or 0)
        if self.name == "resolve":
            return await ledger.resolve(self.turn_id, Resolution(self.nanodollars))
        return await ledger.book_house(self.turn_id, self.attempt, self.nanodollars or 0)


TURN_IDS = st.sampled_from(["turn-1", "turn-2", "turn-3", "turn-4", "turn-5"])
AMOUNTS = st.integers(min_value=0, max_value=60)
OPERATIONS = st.one_of(
    st.builds(Operation, st.just("reserve"), TURN_IDS, st.sampled_from(["main", "rich", "poor"]), AMOUNTS),
    st.builds(Operation, st.just("resolve"), TURN_IDS, nanodollars=st.one_of(st.none(), AMOUNTS)),
    st.builds(Operation, st.just("house"), TURN_IDS, nanodollars=AMOUNTS, attempt=st.integers(1, 2)),
)
BALANCES: Mapping[str, int | None] = {"main": 100, "rich": None, "poor": 0}


@dataclass
class Model:
    """The ledger as the rules say it, in a few lines: what each call must answer and where the money then is."""

    balances: dict[str, int] = field(default_factory=lambda: {name: balance or 0 for name, balance in BALANCES.items()})
    reserved: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: dict[str, Result] = field(default_factory=dict)
    house: dict[tuple[str, int], int] = field(default_factory=dict)
    excess: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BALANCES, 0))
    """By how much settlements passed their reservations, for each account."""

    def open_of(self, account: str) -> int:
        """What is set aside on an account."""
        return sum(n for turn, (owner, n) in self.reserved.items() if owner == account and turn not in self.ended)

    def apply(self, operation: Operation) -> Result:
        """Do as the rules say."""
        if operation.name == "reserve":
            return self._reserve(operation)
        return self._resolve(operation) if operation.name == "resolve" else self._book(operation)

    def _reserve(self, asked: Operation) -> Result:
        wanted = (asked.account, asked.nanodollars or 0)
        if asked.turn_id in self.reserved:
            is_same = self.reserved[asked.turn_id] == wanted
            return Result.EXISTS if is_same else Result.EXISTS_WITH_DIFFERENT_AMOUNT
        available = self.balances[asked.account] - self.open_of(asked.account)
        if BALANCES[asked.account] is not None and wanted[1] > max(0, available):
            return Result.INSUFFICIENT_BALANCE
        self.reserved[asked.turn_id] = wanted
        return Result.CREATED

    def _resolve(self, asked: Operation) -> Result:
        if asked.turn_id not in self.reserved:
            return Result.NOT_FOUND
        if asked.turn_id in self.ended:
            is_voided = self.ended[asked.turn_id] is Result.VOIDED
            return Result.ALREADY_VOIDED if is_voided else Result.ALREADY_SETTLED
        account, amount = self.reserved[asked.turn_id]
        available = self.balances[account] - self.open_of(account) + amount
        is_overdrawn = BALANCES[account] is not None and (asked.nanodollars or 0) > max(amount, available)
        settled = Result.SETTLED_OVERDRAWN if is_overdrawn else Result.SETTLED
        self.ended[asked.turn_id] = Result.VOIDED if asked.nanodollars is None else settled
        self.balances[account] -= asked.nanodollars or 0
        self.excess[account] += max(0, (asked.nanodollars or 0) - amount)
        return self.ended[asked.turn_id]

    def _book(self, asked: Operation) -> Result:
        if (asked.turn_id, asked.attempt) in self.house:
            return Result.EXISTS
        self.house[asked.turn_id, asked.attempt] = asked.nanodollars or 0
        return Result.CREATED


async def at_once(ledger: Ledger, operations: Sequence[Operation]) -> list[Result]:
    """Each call in a task of its own; their answers in the order of `operations`."""
    results: dict[int, Result] = {}

    async def run(number: int, operation: Operation) -> None:
        results[number] = await operation.run(ledger)

    async with trio.open_nursery() as nursery:
        for number, operation in enumerate(operations):
            nursery.start_soon(run, number, operation)
    return [results[number] for number in range(len(operations))]


def assert_balanced(books: Books, model: Model) -> None:
    for name, limit in BALANCES.items():
        stands = books.accounts[name]
        assert stands == Account(model.balances[name], model.open_of(name))
        assert stands == account_in(books, name)
        assert limit is None or stands.open_reservations <= stands.balance + model.excess[name]
    assert_double_entry(books)
    house = [line.nanodollars for line in books.entries if line.account == books.house]
    assert house == list(model.house.values())


def assert_double_entry(books: Books) -> None:
    """B8: over all ledger accounts the entries sum to zero, and alone say what each client has and has set aside."""
    holds: Counter[str] = Counter()
    for line in books.entries:
        source, target = Entry(Kind(line.kind), line.account, line.turn_id, line.nanodollars).moved
        holds[source] -= line.nanodollars
        holds[target] += line.nanodollars
    assert sum(holds.values()) == 0
    for name, stands in books.accounts.items():
        assert holds[name] == stands.balance - stands.open_reservations
    assert holds[RESERVED] == sum(stands.open_reservations for stands in books.accounts.values())
    charged = sum(line.nanodollars for line in books.entries if line.kind in ("settled", "late"))
    assert holds[REVENUE] == charged


def account_in(books: Books, account: str) -> Account:
    """The account as its entries alone tell it."""
    own = [line for line in books.entries if line.account == account]
    ended = {line.turn_id for line in own if line.kind in ("settled", "voided")}
    deposits = sum(line.nanodollars for line in own if line.kind == "deposit")
    settled = sum(line.nanodollars for line in own if line.kind == "settled")
    still_open = sum(line.nanodollars for line in own if line.kind == "reserve" and line.turn_id not in ended)
    return Account(deposits - settled, still_open)
