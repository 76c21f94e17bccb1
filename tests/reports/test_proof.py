"""`prove`: the books balance, whatever happened (B8); and whatever is planted in them is found by its name."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.accounts import Kind
from gateway.core.ledger import Expire, Operation, Reserve, Resolve, Transfer
from gateway.core.money import Resolution
from gateway.store.proof import FOUND_MAX, Discrepancy, Proof, prove
from gateway.store.schema import AnyDatabase
from support.booked import DAY, MONTH, book, book_history


def proof_of(database: AnyDatabase) -> Proof:
    with database.snapshot() as session:
        return prove(session)


def plant(database: AnyDatabase, *statements: str) -> None:
    """What no gateway writes: the triggers and constraints that would refuse it are taken away first."""
    with database.transaction() as session:
        for guard in GUARDS[database.dialect]:
            session.run_each(guard, [{}])
    if database.dialect == "sqlite":
        database.connect().execute("pragma ignore_check_constraints = on")  # type: ignore[union-attr]  # it is SQLite's
        database.connect().execute("pragma foreign_keys = off")  # type: ignore[union-attr]  # as above
    with database.transaction() as session:
        for statement in statements:
            session.run_each(statement, [{}])


GUARDS: dict[str, Sequence[str]] = {
    "sqlite": (
        "drop trigger if exists entry_no_update",
        "drop trigger if exists entry_no_delete",
        "drop index house_once",
    ),
    "postgres": (
        "drop trigger if exists entry_append_only on entry",
        "alter table entry drop constraint never_negative",
        "drop index house_once",
        "alter table reservation drop constraint reservation_account_fkey",
    ),
}


def test_books_of_turns_that_went_every_way_balance(database: AnyDatabase) -> None:
    """B8."""
    book_history(database)
    proof = proof_of(database)

    assert proof.discrepancies == []
    assert (proof.entries, proof.accounts) == (21, 2)
    assert proof.totals == {
        "the world": -10_000,
        "the clients": 10_000 + 500 - 100 - 40 - 30 - 5000 - 1000,
        "open reservations": 1000,
        "the revenue": 40 + 30 + 5000 + 70,
        "the house": -500 + 100 - 17 - 70,
        "the upstreams": 17,
    }


def test_empty_books_balance(database: AnyDatabase) -> None:
    """B8."""
    assert proof_of(database).holds


RAW_ENTRY = "insert into entry (at, kind, account, turn_id, attempt, nanodollars, flags) values "

CORRUPTIONS = [
    # (what is planted, the names of the checks that find it, about what)
    ("update account set balance = balance + 1 where name = 'main'", {"balances", "total"}, "main"),
    ("update account set open = open - 1 where name = 'main'", {"open", "open_reservations", "total"}, "main"),
    ("delete from entry where kind = 'credit'", {"balances", "total"}, "main"),
    (f"{RAW_ENTRY} (1, 'deposit', 'main', null, null, -5, '')", {"amounts", "balances", "total"}, "main"),
    (f"{RAW_ENTRY} (1, 'present', 'main', null, null, 5, '')", {"kinds"}, None),
    (f"{RAW_ENTRY} (1, 'deposit', 'nobody', null, null, 5, '')", {"kinds", "total"}, None),
    (f"{RAW_ENTRY} (1, 'deposit', 'the house', null, null, 5, '')", {"kinds"}, None),
    (f"{RAW_ENTRY} (1, 'house', 'main', 'plain', 1, 5, '')", {"kinds"}, None),
    (
        f"{RAW_ENTRY} (1, 'settled', 'main', 'plain', null, 40, '')",
        {"resolved_once", "released", "balances", "reservations", "total"},
        "plain",
    ),
    (
        f"{RAW_ENTRY} (1, 'voided', 'main', 'plain', null, 1000, '')",
        {"resolved_once", "charged_or_refunded", "whole", "open", "total"},
        "plain",
    ),
    (
        f"{RAW_ENTRY} (1, 'settled', 'main', 'failed', null, 5, '')",
        {"charged_or_refunded", "released", "balances", "reservations", "total"},
        "failed",
    ),
    (
        "delete from entry where kind = 'released' and turn_id = 'plain'",
        {"released", "open", "total"},
        "plain",
    ),
    (
        "update entry set nanodollars = 999 where kind = 'released' and turn_id = 'plain'",
        {"whole", "open", "total"},
        "plain",
    ),
    (
        f"{RAW_ENTRY} (1, 'reserve', 'main', 'plain', null, 1000, '')",
        {"resolved_once", "whole", "reservations", "open", "total"},
        "plain",
    ),
    (
        "update entry set account = 'rich' where kind = 'settled' and turn_id = 'plain'",
        {"resolved_once", "balances"},
        "plain",
    ),
    ("delete from reservation where turn_id = 'running'", {"rows", "open_reservations", "windows"}, "running"),
    ("update reservation set state = 'voided' where turn_id = 'plain'", {"reservations", "windows"}, "plain"),
    ("update reservation set state = 'settled' where turn_id = 'expired'", {"reservations"}, "expired"),
    ("update reservation set resolved_nanodollars = 41 where turn_id = 'plain'", {"reservations", "windows"}, "plain"),
    ("update reservation set nanodollars = 999 where turn_id = 'failed'", {"reservations"}, "failed"),
    (
        "update reservation set nanodollars = 999 where turn_id = 'running'",
        {"reservations", "open_reservations", "windows"},
        "running",
    ),
    ("update reservation set account = 'rich' where turn_id = 'failed'", {"reservations"}, "failed"),
    ("update reservation set resolved_nanodollars = 71 where turn_id = 'late'", {"reservations"}, "late"),
    ("update reservation set resolved_nanodollars = null where turn_id = 'late'", {"reservations"}, "late"),
    (
        "insert into reservation (turn_id, account, nanodollars, state, flags, windows, lease_ends_at, reserved_at)"
        " values ('ghost', 'main', 5, 'voided', '', '', 1, 1)",
        {"reserved"},
        "ghost",
    ),
    (f"{RAW_ENTRY} (1, 'late', 'the house', 'plain', null, 5, '')", {"late"}, "plain"),
    (f"{RAW_ENTRY} (1, 'late', 'the house', 'late', null, 70, '')", {"late", "reservations"}, "late"),
    (f"{RAW_ENTRY} (1, 'house', 'the house', 'replayed', 1, 17, '')", {"attempts"}, "replayed"),
    (
        "update spend set nanodollars = nanodollars + 1 where name = (select min(name) from spend)",
        {"windows"},
        DAY.window,
    ),
    ("delete from spend where name = (select max(name) from spend)", {"windows"}, MONTH.window),
]


@pytest.mark.parametrize(("statement", "checks", "about"), CORRUPTIONS, ids=[c[0][:60] for c in CORRUPTIONS])
def test_a_planted_corruption_is_found_by_name(
    database: AnyDatabase, statement: str, checks: set[str], about: str | None
) -> None:
    """B8."""
    book_history(database)
    plant(database, statement)
    proof = proof_of(database)

    assert {discrepancy.check for discrepancy in proof.discrepancies} == checks
    assert about is None or about in {discrepancy.about for discrepancy in proof.discrepancies}
    assert not proof.holds


def test_every_check_has_been_seen_to_fail() -> None:
    """A check that cannot fail proves nothing."""
    from gateway.store.proof import says

    assert set(says()) == {name for _, checks, _ in CORRUPTIONS for name in checks}


def test_a_discrepancy_says_what_stands_there(database: AnyDatabase) -> None:
    """B8."""
    book_history(database)
    plant(database, "update account set balance = balance + 1 where name = 'rich'")

    assert list(proof_of(database).discrepancies) == [
        Discrepancy("balances", "rich", "the balance is -4999, its entries say -5000"),
        Discrepancy("total", "all ledger accounts", "together they hold 1, not 0"),
    ]


def test_of_very_many_contradictions_some_are_told(database: AnyDatabase) -> None:
    """Whoever broke the books wholesale needs no list of millions."""
    book_history(database)
    book(database, [Reserve(f"turn-{number}", "main", 0) for number in range(FOUND_MAX + 5)])
    plant(database, "delete from reservation where nanodollars = 0")

    found = [discrepancy.check for discrepancy in proof_of(database).discrepancies]
    assert found == ["rows"] * FOUND_MAX


def test_sums_beyond_64_bits_are_told_exactly(database: AnyDatabase) -> None:
    """B1: unlimited accounts may hold what together no column holds."""
    book_history(database)
    with database.transaction() as session:
        session.run_each("update account set is_unlimited = 1", [{}])
    book(database, [Transfer(Kind.DEPOSIT, name, 9 * 10**18, "somebody") for name in ("main", "rich")])
    proof = proof_of(database)

    assert proof.holds
    assert proof.totals["the world"] == -18 * 10**18 - 10_000


TURN_IDS = st.sampled_from(["t1", "t2", "t3"])
OPERATIONS = st.one_of(
    st.builds(
        Reserve,
        TURN_IDS,
        st.sampled_from(["main", "rich"]),
        st.integers(0, 900),
        limits=st.sampled_from([(), (DAY,), (DAY, MONTH)]),
        lease_seconds=st.sampled_from([-1.0, 60.0]),
    ),
    st.builds(Resolve, TURN_IDS, st.builds(Resolution, st.none() | st.integers(0, 2000))),
    st.builds(Expire, TURN_IDS),
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATIONS, max_size=12))
def test_whatever_the_ledger_does_the_books_balance(database: AnyDatabase, operations: list[Operation]) -> None:
    """B8: the examples go on in one store, each with its own turns."""
    with database.snapshot() as session:
        ((number,),) = session.fetch("select count(*) from entry", {})
    if not number:
        book_history(database)
    book(database, [_of_example(operation, number) for operation in operations])

    assert proof_of(database).discrepancies == []


def _of_example(operation: Operation, number: int) -> Operation:
    from support.booked import renamed

    return renamed(operation, f"{operation.needs.turn_ids[0]}-{number}")  # type: ignore[return-value]  # as it came
