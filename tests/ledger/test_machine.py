"""The ledger against a plain model of it: any operations, one by one or many in one transaction, with restarts between,
in memory and on both databases (Hypothesis)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gateway.core.accounts import HOUSE, Entry, Kind, SpendLimit
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
from gateway.core.money import Resolution, Result
from gateway.ledger.memory import MemoryLedger
from gateway.store.commit import commit
from gateway.store.database import Database
from ledger.books import Account, Books, assert_double_entry, lines_of
from ledger.model import PlainLedger
from support.durable import ClockedDatabase, PostgresTables, SQLiteFiles, StoreClock, accounts_in, entries_in

LEASE_SECONDS = 60.0
NAMES = st.sampled_from(["main", "rich", "poor"])
TURNS = st.sampled_from([f"turn-{number}" for number in range(6)])
AMOUNTS = st.integers(0, 60)
LIMITS = st.lists(st.sampled_from([SpendLimit("day", 70), SpendLimit("month", 100)]), unique=True).map(tuple)

RESERVES = st.builds(Reserve, TURNS, NAMES, AMOUNTS, LIMITS, st.just(LEASE_SECONDS))
RESOLVES = st.builds(Resolve, TURNS, st.builds(Resolution, st.none() | AMOUNTS))
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    RESERVES,
    RESOLVES,
    st.builds(Expire, TURNS),
    st.builds(Renew, TURNS, st.just(LEASE_SECONDS)),
    st.builds(BookHouse, TURNS, st.integers(1, 2), AMOUNTS),
    st.builds(OpenAccount, NAMES, st.booleans()),
    st.builds(SetUnlimited, NAMES, st.booleans()),
    st.builds(Transfer, st.sampled_from([Kind.DEPOSIT, Kind.CREDIT, Kind.DEBIT]), NAMES, AMOUNTS, st.just("ada")),
    st.builds(CloseAccount, NAMES),
)  # fmt: skip


class Kept(Protocol):
    """A ledger somewhere."""

    def apply(self, batch: Sequence[Operation], now: float) -> list[str]:
        """Carry them out, in one transaction if there are such; the answers."""
        ...

    def entries(self) -> Sequence[Entry]:
        """The books."""
        ...

    def accounts(self) -> dict[str, Account]:
        """How the accounts stand."""
        ...

    def restart(self) -> None:
        """Go on as another process would."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class KeptInMemory:
    """A MemoryLedger (Kept); a restart would forget it."""

    def __init__(self) -> None:
        self._ledger = MemoryLedger({})

    def apply(self, batch: Sequence[Operation], now: float) -> list[str]:
        """One by one (Kept)."""
        return [self._ledger.carry_out(operation, now).value for operation in batch]

    def entries(self) -> Sequence[Entry]:
        """The books (Kept)."""
        return list(self._ledger.entries)

    def accounts(self) -> dict[str, Account]:
        """How they stand (Kept)."""
        ledger = self._ledger
        return {name: Account(ledger.balance(name), ledger.open_reservations(name)) for name in ledger.accounts}

    def restart(self) -> None:
        """Nothing (Kept)."""

    def close(self) -> None:
        """Nothing (Kept)."""


class KeptInDatabase:
    """A database (Kept)."""

    def __init__(self, database: Database) -> None:
        self._clock = StoreClock()
        self._database = ClockedDatabase(database, self._clock)

    def apply(self, batch: Sequence[Operation], now: float) -> list[str]:
        """In one transaction (Kept)."""
        self._clock.now = now
        answers = commit(self._database, batch)
        assert all(isinstance(answer, Result) for answer in answers), answers
        return [answer.value for answer in answers if isinstance(answer, Result)]

    def entries(self) -> Sequence[Entry]:
        """The books (Kept)."""
        with self._database.snapshot() as session:
            return entries_in(session)

    def accounts(self) -> dict[str, Account]:
        """How they stand (Kept)."""
        with self._database.snapshot() as session:
            return {name: Account(*stands) for name, stands in accounts_in(session).items()}

    def restart(self) -> None:
        """Another connection (Kept)."""
        self._database.close()
        self._database = self._database.another()

    def close(self) -> None:
        """Let go of the connection (Kept)."""
        self._database.close()


class LedgerMachine(RuleBasedStateMachine):
    """B1, B6, B7, B8: every answer and every balance is the model's, whatever is asked in whatever order."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.kept = kept
        self.model = PlainLedger()
        self.entries_before: list[Entry] = []
        self.ask([OpenAccount("main"), Transfer(Kind.DEPOSIT, "main", 100, "ada"), OpenAccount("rich", True)])

    def ask(self, batch: Sequence[Operation]) -> None:
        assert self.kept.apply(batch, self.model.now) == [self.model.apply(operation) for operation in batch]

    @rule(reserve=RESERVES)
    def reserve(self, reserve: Reserve) -> None:
        self.ask([reserve])

    @precondition(lambda self: self.model.stakes)
    @rule(data=st.data(), nanodollars=st.none() | AMOUNTS)
    def resolve_one_that_is_there(self, data: st.DataObject, nanodollars: int | None) -> None:
        turn_id = data.draw(st.sampled_from(sorted(self.model.stakes)))
        self.ask([Resolve(turn_id, Resolution(nanodollars))])

    @rule(batch=st.lists(OPERATIONS, min_size=1, max_size=12))
    def many_at_once(self, batch: list[Operation]) -> None:
        self.ask(batch)

    @rule(batch=st.lists(OPERATIONS, min_size=1, max_size=6))
    def the_same_twice(self, batch: list[Operation]) -> None:
        """An answer that was lost is asked for again."""
        self.ask(batch)
        self.ask(batch)

    @rule(seconds=st.sampled_from([1.0, 30.0, LEASE_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds

    @rule()
    def the_process_is_another(self) -> None:
        self.kept.restart()

    @invariant()
    def accounts_stand_as_in_the_model(self) -> None:
        assert self.kept.accounts() == {
            name: Account(purse.balance, self.model.open_on(name)) for name, purse in self.model.purses.items()
        }

    @invariant()
    def books_balance_and_only_grow(self) -> None:
        entries = list(self.kept.entries())
        assert entries[: len(self.entries_before)] == self.entries_before
        self.entries_before = entries
        assert_double_entry(Books(lines_of(entries), self.kept.accounts(), HOUSE))
        assert self._booked(entries, "house") == sorted(self.model.house.values())
        assert self._booked(entries, "late") == sorted(self.model.late.values())

    def _booked(self, entries: Sequence[Entry], kind: str) -> list[int]:
        return sorted(entry.nanodollars for entry in entries if entry.kind.value == kind)

    def teardown(self) -> None:
        self.kept.close()


def play(kept: Callable[[], Kept], examples: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )

    class Played(LedgerMachine):
        def __init__(self) -> None:
            super().__init__(kept())

    run_state_machine_as_test(Played, settings=chosen)


def test_the_ledger_in_memory_is_the_model() -> None:
    """B1, B6, B7, B8."""
    play(KeptInMemory, 100)


def test_the_ledger_in_sqlite_is_the_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    """B1, B6, B7, B8."""
    files = SQLiteFiles(tmp_path_factory.mktemp("machine"))
    play(lambda: KeptInDatabase(files.fresh()), 20)


def test_the_ledger_in_postgres_is_the_model(fresh_dsn: str) -> None:
    """B1, B6, B7, B8."""
    tables = PostgresTables(fresh_dsn)
    play(lambda: KeptInDatabase(tables.fresh()), 20)


@pytest.mark.long
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_the_lasting_ledger_is_the_model_for_long(
    place: str, tmp_path_factory: pytest.TempPathFactory, fresh_dsn: str
) -> None:
    """B1, B6, B7, B8."""
    files = SQLiteFiles(tmp_path_factory.mktemp("machine")) if place == "sqlite" else PostgresTables(fresh_dsn)
    play(lambda: KeptInDatabase(files.fresh()), 1000)
