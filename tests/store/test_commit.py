"""A batch as one transaction, on both stores: what one operation runs into is its own affair."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.core.ledger import BookHouse, Operation, Reserve, Resolve
from gateway.core.money import Flag, Resolution, Result
from gateway.store.commit import CONFLICTS_MAX, Answer, Work, commit, transact
from gateway.store.database import Conflict, Session, StoreAway, StoreUnusable
from gateway.store.money import carry_out
from gateway.store.records import RecordWrite
from gateway.store.schema import AnyDatabase
from gateway.store.store import grant
from support.durable import accounts_in, entries_in

INTEGER_MAX = 2**63 - 1
OPENING = {
    "turn_id": "turn",
    "account": "main",
    "key": None,
    "model": "gpt-test",
    "door": "http",
    "reserved_nanodollars": 60,
    "opened_at": 1.5,
    "client_retry_count": None,
    "client_address": None,
}


def failed(answers: Sequence[Answer]) -> list[bool]:
    return [isinstance(answer, Exception) for answer in answers]


def test_money_and_records_of_a_batch_are_answered_in_its_order(database: AnyDatabase) -> None:
    """B1, L2."""
    grant(database, {"main": 100})
    batch: list[Work] = [
        RecordWrite("open_turn", OPENING),
        Reserve("turn", "main", 60),
        RecordWrite("open_attempt", {"turn_id": "turn", "number": 1, "route": "a"}),
        Resolve("turn", Resolution(7)),
        Resolve("turn", Resolution(7)),
    ]
    assert commit(database, batch) == [None, Result.CREATED, None, Result.SETTLED, Result.ALREADY_SETTLED]
    assert commit(database, batch) == [None, Result.EXISTS, None, Result.ALREADY_SETTLED, Result.ALREADY_SETTLED]


def test_an_empty_batch_asks_whether_the_store_is_there(database: AnyDatabase) -> None:
    """X1."""
    assert commit(database, []) == []


@pytest.mark.parametrize(
    "poison",
    [
        Reserve("poison", "rich", 2**63),
        Reserve("poison", "rich", 10**40),
        BookHouse("poison", 1, 2**70),
        BookHouse("poison", 1, -1),
        BookHouse("poison", 2**70, 1),
        Resolve("open", Resolution(2**64)),
        RecordWrite("open_turn", {**OPENING, "turn_id": None}),
        RecordWrite("open_turn", {**OPENING, "opened_at": []}),
        RecordWrite("close_turn", {"turn_id": "turn"}),
    ],
    ids=lambda work: repr(work)[:40],
)
def test_what_no_database_takes_fails_alone(database: AnyDatabase, poison: Work) -> None:
    """B5: usage beyond 64 bits, a bug, a line of a spool that somebody edited: the others are written, in their order,
    and the store is not taken for one that is away."""
    grant(database, {"main": 100, "rich": None})
    commit(database, [Reserve("open", "rich", 1)])
    batch = [Reserve("before", "main", 60), poison, Reserve("after", "main", 40), Resolve("before", Resolution(5))]
    answers = commit(database, batch)

    assert failed(answers) == [False, True, False, False]
    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (95, 40), "rich": (0, 1)}
        assert "poison" not in {entry.turn_id for entry in entries_in(session)}


def test_an_account_whose_sum_no_longer_fits_still_lets_its_turns_end(database: AnyDatabase) -> None:
    """B5: amounts that fit each on their own do not fit together: the one that is too much fails, by itself."""
    grant(database, {"rich": None})
    most = INTEGER_MAX - 1
    answers = commit(database, [Reserve("first", "rich", most), Reserve("second", "rich", 2)])

    assert failed(answers) == [False, True]
    assert commit(database, [Resolve("first", Resolution(most))]) == [Result.SETTLED]
    with database.snapshot() as session:
        assert accounts_in(session) == {"rich": (-most, 0)}


def test_flags_and_windows_come_back_as_they_were(database: AnyDatabase) -> None:
    """B3."""
    grant(database, {"main": 100})
    flags = (Flag.ESTIMATED, Flag.OVERDRAWN)
    commit(database, [Reserve("turn", "main", 60), Resolve("turn", Resolution(5, flags))])
    with database.snapshot() as session:
        assert entries_in(session)[-1].flags == flags


def test_a_transaction_that_fails_leaves_nothing(database: AnyDatabase) -> None:
    """B1: all of it or nothing."""

    def fail(session: Session) -> None:
        session.run_each("insert into spend (name, nanodollars, changed_at) values ('day', 1, 1)", [{}])
        raise LookupError("a bug")

    with pytest.raises(LookupError):
        transact(database, fail)
    with database.snapshot() as session:
        assert session.fetch("select count(*) from spend", {}) == [(0,)]


@pytest.mark.parametrize(("conflicts", "is_done"), [(CONFLICTS_MAX - 1, True), (CONFLICTS_MAX, False)])
def test_what_another_writer_was_in_the_way_of_is_done_again(
    database: AnyDatabase, conflicts: int, is_done: bool
) -> None:
    """B1: and not for ever."""
    tries: list[int] = []

    def clash(_session: Session) -> str:
        tries.append(1)
        if len(tries) <= conflicts:
            raise Conflict("a deadlock")
        return "done"

    if is_done:
        assert transact(database, clash) == "done"
    else:
        with pytest.raises(Conflict):
            transact(database, clash)
    assert len(tries) == CONFLICTS_MAX


def test_a_batch_that_clashes_with_itself_is_taken_apart(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: the one that always clashes fails alone, and blocks nobody."""
    grant(database, {"main": 100})

    def clash(session: Session, operations: Sequence[Operation], now: float) -> list[Result]:
        if Reserve("clash", "main", 1) in operations:
            raise Conflict("always")
        return carry_out(session, operations, now)

    monkeypatch.setattr("gateway.store.commit.carry_out", clash)
    answers = commit(database, [Reserve("first", "main", 1), Reserve("clash", "main", 1), Reserve("last", "main", 1)])
    assert failed(answers) == [False, True, False]


@pytest.mark.parametrize("error", [StoreAway("no server"), StoreUnusable("malformed")])
def test_a_store_that_goes_away_says_nothing_of_any(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """B1: then all may be asked again; no operation is at fault."""

    def away(*_: object) -> None:
        raise error

    monkeypatch.setattr("gateway.store.commit.carry_out", away)
    with pytest.raises(type(error)):
        commit(database, [Reserve("first", "main", 1), Reserve("second", "main", 1)])


def test_one_bad_operation_costs_a_few_transactions_and_not_one_for_each_other(
    database: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: a full batch with a bad one in it must not hold up all turns."""
    grant(database, {"main": None})
    transactions: list[int] = []

    def counted(session: Session, operations: Sequence[Operation], now: float) -> list[Result]:
        transactions.append(len(operations))
        return carry_out(session, operations, now)

    monkeypatch.setattr("gateway.store.commit.carry_out", counted)
    batch = [Reserve(f"turn-{number}", "main", 2**63 if number == 100 else 1) for number in range(256)]
    answers = commit(database, batch)

    assert [number for number, is_bad in enumerate(failed(answers)) if is_bad] == [100]
    assert len(transactions) == 1 + 2 * 8
