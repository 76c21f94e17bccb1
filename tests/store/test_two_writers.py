"""Several gateways on one database: what one decides, the other knows before it decides (B1, B6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.core.accounts import HOUSE, Kind, SpendLimit
from gateway.core.ledger import BookHouse, OpenAccount, Operation, Reserve, Resolve, Transfer
from gateway.core.money import Resolution, Result
from gateway.store.commit import commit
from gateway.store.money import carry_out
from gateway.store.schema import AnyDatabase
from gateway.store.store import grant
from ledger.books import Account, Books, assert_double_entry, lines_of
from support.durable import accounts_in, entries_in
from support.postgres import PostgresDatabases
from support.processes import PATIENCE_SECONDS

WRITERS = 4


def books_in(database: AnyDatabase) -> Books:
    with database.snapshot() as session:
        accounts = {name: Account(*stands) for name, stands in accounts_in(session).items()}
        return Books(lines_of(entries_in(session)), accounts, HOUSE)


def beside_each_other(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returns, all begun at the same moment, each in a thread of its own."""
    begin = threading.Barrier(len(calls))
    returned: dict[int, Any] = {}

    def run(number: int) -> None:
        begin.wait(PATIENCE_SECONDS)
        returned[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return [returned[number] for number in range(len(calls))]


def asker(database: AnyDatabase, batches: Sequence[Sequence[Operation]]) -> Callable[[], list[Any]]:
    """A gateway of its own that asks for these, batch by batch."""

    def ask() -> list[Any]:
        own = database.another()
        answers = [answer for batch in batches for answer in commit(own, batch)]
        own.close()
        return answers

    return ask


def test_gateways_at_once_never_reserve_more_than_the_balance(database: AnyDatabase) -> None:
    """B6: and no less: each refusal is one that the balance asks for."""
    grant(database, {"main": 1000})
    asked = [
        [[Reserve(f"{writer}-{batch}-{number}", "main", 7) for number in range(8)] for batch in range(8)]
        for writer in range(WRITERS)
    ]
    answers = beside_each_other([asker(database, batches) for batches in asked])

    words = [word for each in answers for word in each]
    assert (words.count(Result.CREATED), words.count(Result.INSUFFICIENT_BALANCE)) == (142, 256 - 142)
    books = books_in(database)
    assert books.accounts == {"main": Account(1000, 994)}
    assert_double_entry(books)


def test_gateways_at_once_never_pass_a_spend_limit(database: AnyDatabase) -> None:
    """B6: a window that neither has seen before is one window."""
    grant(database, {"main": None})
    day = (SpendLimit("day", 100),)
    asked = [[[Reserve(f"{writer}-{number}", "main", 30, day)] for number in range(5)] for writer in range(WRITERS)]
    answers = beside_each_other([asker(database, batches) for batches in asked])

    assert [word for each in answers for word in each].count(Result.CREATED) == 3


def test_turns_that_run_on_several_gateways_leave_balanced_books(database: AnyDatabase) -> None:
    """B8."""
    grant(database, {"main": 10_000, "other": 10_000})
    asked: list[list[list[Operation]]] = [
        [
            [
                Reserve(f"{writer}-{number}", account, 100),
                Resolve(f"{writer}-{number}", Resolution(3)),
                BookHouse(f"{writer}-{number}", 1, 2),
            ]
            for number, account in enumerate(["main", "other"] * 8)
        ]
        for writer in range(WRITERS)
    ]
    beside_each_other([asker(database, batches) for batches in asked])

    books = books_in(database)
    assert books.accounts == {name: Account(10_000 - WRITERS * 8 * 3, 0) for name in ("main", "other")}
    assert_double_entry(books)


def test_of_gateways_that_resolve_the_same_turn_one_does(database: AnyDatabase) -> None:
    """B7: two gateways never resolve one twice."""
    grant(database, {"main": 1000})
    commit(database, [Reserve(f"turn-{number}", "main", 10) for number in range(20)])
    asked = [[[Resolve(f"turn-{number}", Resolution(writer))] for number in range(20)] for writer in range(WRITERS)]
    answers = beside_each_other([asker(database, batches) for batches in asked])

    words = [word for each in answers for word in each]
    assert words.count(Result.SETTLED) == 20
    assert words.count(Result.ALREADY_SETTLED) == 20 * (WRITERS - 1)
    assert_double_entry(books_in(database))


def test_gateways_that_start_at_once_grant_an_account_once(database: AnyDatabase) -> None:
    """B6: what the configuration grants is what the account has, however many processes read it."""
    balances = {f"account-{number}": 100 + number for number in range(5)}

    def start() -> None:
        own = database.another()
        grant(own, balances)
        own.close()

    beside_each_other([start] * WRITERS)
    books = books_in(database)
    assert books.accounts == {name: Account(balance, 0) for name, balance in balances.items()}
    assert_double_entry(books)


# --- in between -------------------------------------------------------------------------------------------------


@contextmanager
def meanwhile(database: AnyDatabase, postgres: PostgresDatabases, batch: Sequence[Operation]) -> Iterator[list[Any]]:
    """Another gateway's batch that comes while the block's transaction is under way, and waits for its end."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.extend(asker(database, [batch])()), daemon=True)
    with database.transaction() as session:
        yield answers
        carry_out(session, FIRST, session.now())
        thread.start()
        if database.dialect == "postgres":
            wait_until_one_waits(postgres, database.name.split("/")[-1])
    thread.join(PATIENCE_SECONDS)


FIRST: list[Operation] = [OpenAccount("main"), Transfer(Kind.DEPOSIT, "main", 100, "ada"), Reserve("turn", "main", 60)]


def wait_until_one_waits(postgres: PostgresDatabases, name: str) -> None:
    waits = f"select count(*) from pg_stat_activity where datname = '{name}' and wait_event_type = 'Lock'"
    while postgres.run(waits) != [(1,)]:
        pass


@pytest.mark.parametrize(
    ("operation", "word", "account"),
    [
        (OpenAccount("main"), Result.EXISTS, Account(100, 60)),
        (Reserve("turn", "main", 60), Result.EXISTS, Account(100, 60)),
        (Reserve("turn", "main", 61), Result.EXISTS_WITH_DIFFERENT_AMOUNT, Account(100, 60)),
        (Reserve("other", "main", 40), Result.CREATED, Account(100, 100)),
        (Reserve("other", "main", 41), Result.INSUFFICIENT_BALANCE, Account(100, 60)),
    ],
)
def test_what_another_gateway_is_about_to_insert_is_not_written_over(
    database: AnyDatabase, postgres: PostgresDatabases, operation: Operation, word: Result, account: Account
) -> None:
    """B1, B6: a row that was not there when it was looked for is somebody's by now."""
    both: list[Operation] = [OpenAccount("main"), operation]
    with meanwhile(database, postgres, both) as answers:
        assert answers == []

    assert answers == [Result.EXISTS, word]
    books = books_in(database)
    assert books.accounts == {"main": account}
    assert_double_entry(books)
