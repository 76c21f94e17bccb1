"""Turns, statements and the house's losses, as they are read from a store."""

import pytest

from gateway.core.accounts import Kind
from gateway.core.ledger import OpenAccount, Transfer
from gateway.store.reports import Standing, Wanted, house, standing_before, statement, turn, turns
from gateway.store.schema import AnyDatabase
from support.booked import BEGAN, book, book_history, open_turn

EVER = (-1e18, 1e18)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), ["running", "failed", "late", "plain", "replayed"]),
        (Wanted(limit=2), ["running", "failed"]),
        (Wanted(account="main"), ["running", "failed", "late", "plain", "replayed"]),
        (Wanted(account="nobody"), []),
        (Wanted(key="laptop"), ["running", "late", "plain", "replayed"]),
        (Wanted(outcome="failed"), ["failed"]),
        (Wanted(outcome="running"), ["running"]),
        (Wanted(model="gpt-test", outcome="completed"), ["late", "plain", "replayed"]),
        (Wanted(since=BEGAN), ["running", "failed", "late", "plain", "replayed"]),
        (Wanted(since=BEGAN + 1), ["running"]),
    ],
)
def test_turns_are_found_by_what_is_known_of_them(database: AnyDatabase, wanted: Wanted, expected: list[str]) -> None:
    """L1."""
    book_history(database)
    with database.snapshot() as session:
        assert [row.turn_id for row in turns(session, wanted)] == expected


def test_what_is_asked_for_is_no_part_of_the_statement(database: AnyDatabase) -> None:
    """A value is a value, whatever stands in it."""
    book_history(database)
    book(database, [open_turn("quoted", account="' or 1 = 1 --")])
    with database.snapshot() as session:
        assert [row.turn_id for row in turns(session, Wanted(account="' or 1 = 1 --"))] == ["quoted"]


def test_a_turn_is_told_with_all_its_attempts_and_all_its_money(database: AnyDatabase) -> None:
    """L1: the failed attempt of a replayed turn too."""
    book_history(database)
    with database.snapshot() as session:
        report = turn(session, "replayed")

    assert report is not None
    assert [(a.number, a.route, a.outcome, a.is_replayed) for a in report.attempts] == [
        (1, "a", "server_error", 1),
        (2, "b", "completed", 0),
    ]
    assert [(entry.kind, entry.account, entry.nanodollars) for entry in report.entries] == [
        ("reserve", "main", 1000),
        ("released", "main", 1000),
        ("settled", "main", 30),
        ("house", "the house", 17),
    ]
    assert report.reservation is not None
    assert (report.reservation.state, report.reservation.resolved_nanodollars) == ("settled", 30)


def test_of_a_turn_whose_record_is_gone_the_entries_are_told(database: AnyDatabase) -> None:
    """L1: they stay for ever."""
    book_history(database)
    with database.snapshot() as session:
        rich, nothing = turn(session, "rich-turn"), turn(session, "nothing")

    assert nothing is None
    assert rich is not None
    assert (rich.turn, [entry.kind for entry in rich.entries]) == (None, ["reserve", "released", "settled"])


# --- statements -------------------------------------------------------------------------------------------------


def test_a_statement_goes_from_what_was_to_what_is(database: AnyDatabase) -> None:
    """B8: each entry, and how the account stands after it."""
    book_history(database)
    standing = Standing()
    with database.snapshot() as session:
        lines = list(statement(session, "rich", *EVER, standing))

    assert [(line.entry.kind, line.change, line.balance, line.open) for line in lines] == [
        ("reserve", 0, 0, 1000),
        ("released", 0, 0, 0),
        ("settled", -5000, -5000, 0),
    ]
    assert standing == Standing(-5000, 0)


def test_a_statement_of_a_period_begins_where_the_one_before_ended(database: AnyDatabase) -> None:
    """B8: no entry is in both, none in neither."""
    book_history(database)
    with database.snapshot() as session:
        whole = Standing()
        entries = [line.entry for line in statement(session, "main", *EVER, whole)]
        border = entries[len(entries) // 2].at
        first = Standing()
        before = [line.entry for line in statement(session, "main", EVER[0], border, first)]
        opening = standing_before(session, "main", border)
        second = standing_before(session, "main", border)
        after = [line.entry for line in statement(session, "main", border, EVER[1], second)]

    assert (before + after, first, second) == (entries, opening, whole)
    assert whole == Standing(10_000 + 500 - 100 - 40 - 30, 1000)


def test_a_long_statement_comes_in_pages(database: AnyDatabase) -> None:
    """It may be longer than the memory; none of it is lost between two pages."""
    book(database, [OpenAccount("main")])
    for _ in range(3):
        book(database, [Transfer(Kind.DEPOSIT, "main", 1, "somebody") for _ in range(700)])
    standing = Standing()
    with database.snapshot() as session:
        ids = [line.entry.id for line in statement(session, "main", *EVER, standing)]

    assert (len(ids), len(set(ids)), standing.balance) == (2100, 2100, 2100)


# --- the house --------------------------------------------------------------------------------------------------


def test_the_house_s_losses_are_told_by_route(database: AnyDatabase) -> None:
    """B2, B7."""
    book_history(database)
    with database.snapshot() as session:
        report = house(session, *EVER)

    assert {
        route: (x.attempts, x.attempt_nanodollars, x.late, x.late_nanodollars) for route, x in report.routes.items()
    } == {
        "a": (1, 17, 0, 0),
        "b": (0, 0, 1, 70),
    }
    assert (report.credits, report.debits, report.nanodollars) == (500, 100, 17 + 70 + 500 - 100)


def test_losses_outlive_the_records_that_name_their_routes(database: AnyDatabase) -> None:
    """B2: entries stay for ever."""
    book_history(database)
    with database.transaction() as session:
        session.run_each("delete from attempt", [{}])
    with database.snapshot() as session:
        report, nothing = house(session, *EVER), house(session, EVER[0], 0.0)

    assert {name: (x.attempt_nanodollars, x.late_nanodollars) for name, x in report.routes.items()} == {
        "(no longer on record)": (17, 70)
    }
    assert (nothing.routes, nothing.nanodollars) == ({}, 0)
