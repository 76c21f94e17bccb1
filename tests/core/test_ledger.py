"""The ledger's law, operation by operation, on a book in memory (B)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gateway.core.accounts import (
    HOUSE,
    MOVES,
    RESERVED,
    REVENUE,
    UPSTREAMS,
    WORLD,
    Account,
    Book,
    Entry,
    Kind,
    SpendLimit,
)
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
from gateway.core.money import Expired, Flag, Reserved, Resolution, Result, Settled, Voided

VOID = Resolution(None)
LEASE_SECONDS = 60.0


def book(deposit: int = 100, **account: Any) -> Book:
    """One account, `main`, with so much on it."""
    made = Book()
    OpenAccount("main", **account).apply(made, now=0.0)
    if deposit:
        Transfer(Kind.DEPOSIT, "main", deposit, actor="a test").apply(made, now=0.0)
    return made


def reserve(nanodollars: int = 60, turn_id: str = "turn", *limits: SpendLimit) -> Reserve:
    return Reserve(turn_id, "main", nanodollars, limits, LEASE_SECONDS)


def do(made: Book, *operations: Operation, now: float = 0.0) -> list[Result]:
    return [operation.apply(made, now) for operation in operations]


def holdings(made: Book) -> dict[str, int]:
    """What every ledger account holds, by the entries alone."""
    held: Counter[str] = Counter()
    for entry in made.entries:
        source, target = entry.moved
        held[source] -= entry.nanodollars
        held[target] += entry.nanodollars
    return {name: amount for name, amount in held.items() if amount}


# --- double entry (B8) ------------------------------------------------------------------------------------------


def test_every_kind_of_entry_says_where_its_money_comes_from_and_goes_to() -> None:
    """B8: the table is total."""
    assert set(MOVES) == set(Kind)


def test_a_settled_turn_leaves_its_charge_with_the_revenue_and_the_rest_with_the_client() -> None:
    """B8."""
    made = book()

    assert do(made, reserve(60), Resolve("turn", Resolution(25))) == [Result.CREATED, Result.SETTLED]
    assert holdings(made) == {WORLD: -100, "main": 75, REVENUE: 25}
    assert made.entries[-2:] == [
        Entry(Kind.RELEASED, "main", "turn", 60),
        Entry(Kind.SETTLED, "main", "turn", 25),
    ]


def test_an_open_reservation_is_held_apart() -> None:
    """B6, B8."""
    made = book()
    do(made, reserve(60))

    assert holdings(made) == {WORLD: -100, "main": 40, RESERVED: 60}
    assert made.accounts["main"].available == 40


def test_what_the_house_bears_leaves_it_for_the_upstreams() -> None:
    """B2."""
    made = book()

    assert do(made, BookHouse("turn", 1, 7), BookHouse("turn", 1, 7)) == [Result.CREATED, Result.EXISTS]
    assert holdings(made) == {WORLD: -100, "main": 100, HOUSE: -7, UPSTREAMS: 7}


def test_every_entry_says_whose_it_is_and_of_which_turn() -> None:
    """B8: and by whom and why money was moved by hand."""
    made = Book()
    do(made, OpenAccount("main", is_unlimited=True))
    do(
        made,
        Transfer(Kind.CREDIT, "main", 100, actor="me", reason="a present"),
        reserve(60, "charged"),
        Resolve("charged", Resolution(25, (Flag.ESTIMATED,))),
        reserve(60, "refunded"),
        Resolve("refunded", Resolution(None, (Flag.UNMETERED,))),
        reserve(60, "late"),
        BookHouse("charged", 2, 7),
    )
    do(made, Expire("late"), Resolve("late", Resolution(9, (Flag.ESTIMATED,))), now=60.0)
    assert made.entries == [
        Entry(Kind.CREDIT, "main", None, 100, actor="me", reason="a present"),
        Entry(Kind.RESERVE, "main", "charged", 60),
        Entry(Kind.RELEASED, "main", "charged", 60),
        Entry(Kind.SETTLED, "main", "charged", 25, (Flag.ESTIMATED,)),
        Entry(Kind.RESERVE, "main", "refunded", 60),
        Entry(Kind.VOIDED, "main", "refunded", 60, (Flag.UNMETERED,)),
        Entry(Kind.RESERVE, "main", "late", 60),
        Entry(Kind.HOUSE, HOUSE, "charged", 7, attempt=2),
        Entry(Kind.EXPIRED, "main", "late", 60),
        Entry(Kind.LATE, HOUSE, "late", 9, (Flag.ESTIMATED,)),
    ]
    assert made.accounts["main"] == Account("main", balance=75, open=0, is_unlimited=True)


@pytest.mark.parametrize(("charge", "is_overdrawn"), [(60, False), (61, False), (99, False), (100, False), (101, True)])
def test_only_what_the_balance_does_not_cover_is_overdrawn(charge: int, is_overdrawn: bool) -> None:
    """B6: what the turn has set aside is its own to spend."""
    made = book(100)
    do(made, reserve(60))
    flags = (Flag.ESTIMATED, Flag.OVERDRAWN) if is_overdrawn else (Flag.ESTIMATED,)
    result = Result.SETTLED_OVERDRAWN if is_overdrawn else Result.SETTLED
    assert do(made, Resolve("turn", Resolution(charge, (Flag.ESTIMATED,)))) == [result]
    assert (made.entries[-1].flags, made.accounts["main"].balance) == (flags, 100 - charge)
    assert made.reservations["turn"].state == Settled(charge, flags)


@pytest.mark.parametrize(("asked", "result"), [(99, Result.CREATED), (100, Result.CREATED)])
def test_a_reservation_may_take_all_that_is_there(asked: int, result: Result) -> None:
    """B6: and not a nano-dollar more; asked twice it is made once."""
    made = book(100)
    assert do(made, reserve(101), reserve(asked), reserve(asked), reserve(asked - 1)) == [
        Result.INSUFFICIENT_BALANCE,
        result,
        Result.EXISTS,
        Result.EXISTS_WITH_DIFFERENT_AMOUNT,
    ]


def test_the_first_spend_of_a_window_may_fill_it() -> None:
    """§9."""
    made = book(1000)
    day = SpendLimit("day", 60)
    assert do(made, reserve(61, "first", day), reserve(60, "second", day)) == [
        Result.SPEND_LIMIT_REACHED,
        Result.CREATED,
    ]


# --- leases (B7) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "result"), [(59.999, Result.LEASE_RUNS), (60.0, Result.EXPIRED), (61.0, Result.EXPIRED)]
)
def test_a_reservation_expires_when_its_lease_has_ended_and_not_before(now: float, result: Result) -> None:
    """B7."""
    made = book()
    do(made, reserve())

    assert do(made, Expire("turn"), now=now) == [result]
    assert made.accounts["main"].open == (60 if result is Result.LEASE_RUNS else 0)


def test_a_renewed_lease_counts_from_the_renewal() -> None:
    """B7."""
    made = book()
    do(made, reserve())

    assert do(made, Renew("turn", LEASE_SECONDS), now=20.0) == [Result.RENEWED]
    assert do(made, Expire("turn"), now=79.0) == [Result.LEASE_RUNS]
    assert do(made, Expire("turn"), now=80.0) == [Result.EXPIRED]


def test_a_renewal_never_shortens_a_lease() -> None:
    """B7: the store's clock may step back."""
    made = book()
    do(made, reserve(), now=100.0)

    do(made, Renew("turn", LEASE_SECONDS), now=50.0)
    assert made.reservations["turn"].lease_ends_at == 160.0


@pytest.mark.parametrize("ended", [Resolve("turn", Resolution(5)), Resolve("turn", VOID)])
def test_what_is_resolved_neither_expires_nor_is_renewed(ended: Resolve) -> None:
    """B1, B7."""
    made = book()
    do(made, reserve(), ended)
    before = list(made.entries)

    words = do(made, Expire("turn"), Renew("turn", LEASE_SECONDS), now=1000.0)
    assert words[0] in (Result.ALREADY_SETTLED, Result.ALREADY_VOIDED)
    assert words[1] is Result.NOT_FOUND
    assert made.entries == before


def test_a_settlement_after_the_lease_is_borne_by_the_house_once() -> None:
    """B7: the client keeps its refund."""
    made = book()
    do(made, reserve())
    do(made, Expire("turn"), now=60.0)

    late = Resolve("turn", Resolution(25))
    assert do(made, late, late) == [Result.BORNE_BY_HOUSE, Result.ALREADY_EXPIRED]
    assert made.accounts["main"] == Account("main", balance=100, open=0)
    assert holdings(made) == {WORLD: -100, "main": 100, HOUSE: -25, REVENUE: 25}
    assert made.reservations["turn"].state == Expired(25)


def test_a_settlement_after_the_lease_overdraws_nobody() -> None:
    """B6, B7: it is not the client's."""
    made = book()
    do(made, reserve())
    do(made, Expire("turn"), Resolve("turn", Resolution(1000)), now=60.0)

    assert made.entries[-1] == Entry(Kind.LATE, HOUSE, "turn", 1000)


def test_a_refund_after_the_lease_changes_nothing() -> None:
    """B7."""
    made = book()
    do(made, reserve())
    do(made, Expire("turn"), now=60.0)

    assert do(made, Resolve("turn", VOID)) == [Result.ALREADY_EXPIRED]


# --- spend windows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nanodollars", "result"), [(39, Result.CREATED), (40, Result.CREATED), (41, Result.SPEND_LIMIT_REACHED)]
)
def test_what_is_open_counts_as_spent_in_its_window(nanodollars: int, result: Result) -> None:
    """§9: `spend_limit_reached`."""
    made = book(1000)
    day = SpendLimit("key:day", 100)
    do(made, reserve(60, "first", day))

    assert do(made, reserve(nanodollars, "second", day)) == [result]


@pytest.mark.parametrize(("nanodollars", "results"), [(0, [Result.CREATED]), (1, [Result.SPEND_LIMIT_REACHED])])
def test_what_costs_nothing_needs_no_allowance(nanodollars: int, results: list[Result]) -> None:
    """W9: also where another turn was charged more than its key might spend."""
    made = book(1000)
    day = SpendLimit("key:day", 100)
    do(made, reserve(100, "first", day), Resolve("first", Resolution(150)))
    assert made.spent["key:day"] == 150

    assert do(made, reserve(nanodollars, "second", day)) == results


@pytest.mark.parametrize(("nanodollars", "results"), [(0, [Result.CREATED]), (1, [Result.INSUFFICIENT_BALANCE])])
def test_what_costs_nothing_needs_no_balance(nanodollars: int, results: list[Result]) -> None:
    """B6, W9: also where another turn was charged more than the account had."""
    made = book(100)
    do(made, reserve(100, "first"), Resolve("first", Resolution(101)))
    assert made.accounts["main"].available == -1

    assert do(made, reserve(nanodollars, "second")) == results


def test_the_tightest_of_several_windows_decides_and_a_refusal_counts_in_none() -> None:
    """§9."""
    made = book(1000)

    assert do(made, reserve(60, "turn", SpendLimit("day", 50), SpendLimit("month", 500))) == [
        Result.SPEND_LIMIT_REACHED
    ]
    assert made.spent == {}


@pytest.mark.parametrize(("resolution", "spent"), [(Resolution(25), 25), (Resolution(75), 75), (VOID, 0)])
def test_a_window_counts_what_was_charged_in_the_end(resolution: Resolution, spent: int) -> None:
    """B2: by the delivered attempt, not by what was set aside."""
    made = book(1000)
    do(made, reserve(60, "turn", SpendLimit("day", 100)), Resolve("turn", resolution))

    assert made.spent == {"day": spent}


# --- accounts, by hand ------------------------------------------------------------------------------------------


def test_an_account_is_opened_once() -> None:
    made = book()

    assert do(made, OpenAccount("main"), OpenAccount("main", is_unlimited=True)) == [
        Result.EXISTS,
        Result.EXISTS_WITH_DIFFERENT_AMOUNT,
    ]


@pytest.mark.parametrize(("nanodollars", "result"), [(40, Result.CREATED), (41, Result.INSUFFICIENT_BALANCE)])
def test_a_debit_takes_no_money_that_a_running_turn_has_set_aside(nanodollars: int, result: Result) -> None:
    """B6: open reservations never exceed the balance."""
    made = book()
    do(made, reserve(60))

    assert do(made, Transfer(Kind.DEBIT, "main", nanodollars, "me", "a mistake")) == [result]


def test_an_account_that_is_closed_takes_nothing_new_and_lets_its_turns_end() -> None:
    made = book()
    do(made, reserve())
    assert do(
        made,
        CloseAccount("main"),
        CloseAccount("main"),
        reserve(1, "next"),
        Transfer(Kind.DEPOSIT, "main", 1, "me"),
        OpenAccount("main"),
        SetUnlimited("main", is_unlimited=True),
    ) == [Result.CLOSED, *[Result.ACCOUNT_CLOSED] * 5]
    assert do(made, Resolve("turn", Resolution(25))) == [Result.SETTLED]
    assert made.accounts["main"].balance == 75


def test_who_closed_an_account_and_why_stands_in_the_books_and_moves_nothing() -> None:
    """B8: as a debit of nothing; where nobody is named there is nothing to say."""
    made = book()
    do(made, OpenAccount("other"), CloseAccount("other"))
    before = holdings(made)
    assert do(made, CloseAccount("main", actor="me", reason="moved away")) == [Result.CLOSED]
    assert made.entries[-1] == Entry(Kind.DEBIT, "main", None, 0, actor="me", reason="closed: moved away")
    assert ([entry.account for entry in made.entries], holdings(made)) == (["main", "main"], before)


def test_an_account_that_is_not_there_is_named_as_such() -> None:
    made = Book()
    asked = (
        reserve(),
        Transfer(Kind.DEPOSIT, "main", 1, "me"),
        CloseAccount("main"),
        SetUnlimited("main", is_unlimited=True),
    )

    assert do(made, *asked) == [Result.ACCOUNT_NOT_FOUND] * 4
    assert made.entries == []


def test_an_account_can_become_unlimited_and_limited_again() -> None:
    """B6."""
    made = book(0)

    assert do(made, SetUnlimited("main", is_unlimited=True), reserve(60)) == [Result.CREATED, Result.CREATED]
    assert do(made, SetUnlimited("main", is_unlimited=False), reserve(1, "next")) == [
        Result.CREATED,
        Result.INSUFFICIENT_BALANCE,
    ]


# --- what a store must load and save ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        reserve(60, "turn", SpendLimit("day", 100)),
        Resolve("turn", Resolution(25)),
        Expire("turn"),
        Renew("turn", 10.0),
        BookHouse("turn", 1, 7),
        OpenAccount("main"),
        Transfer(Kind.DEPOSIT, "main", 5, "me"),
        SetUnlimited("main", is_unlimited=True),
        CloseAccount("main"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_an_operation_reads_and_changes_only_what_it_names(operation: Operation) -> None:
    """A store loads what `needs` says and nothing else: the answer and the changes are the same as on a whole book."""
    whole = book()
    if not isinstance(operation, Reserve | CloseAccount):
        do(whole, reserve(60, "turn", SpendLimit("day", 100)))
    do(whole, OpenAccount("other"), reserve(1, "another"), Resolve("another", VOID))
    needs = operation.needs
    part = Book(
        reservations={t: r for t, r in whole.reservations.items() if t in needs.turn_ids},
        spent={"day": 60} if "turn" in needs.turn_ids and "turn" in whole.reservations else {},
    )
    owners = {reservation.account for reservation in part.reservations.values()}
    part.accounts = {name: a for name, a in whole.accounts.items() if name in needs.accounts or name in owners}
    already = len(whole.entries)

    assert operation.apply(part, now=100.0) is operation.apply(whole, now=100.0)
    assert part.entries == whole.entries[already:]
    assert all(part.accounts[name] == whole.accounts[name] for name in part.changed_accounts)
    assert all(part.reservations[turn_id] == whole.reservations[turn_id] for turn_id in part.changed_reservations)
    assert all(part.spent[window] == whole.spent[window] for window in part.changed_windows)


def test_states_say_what_became_of_a_reservation() -> None:
    made = book()
    do(made, reserve(10, "open"), reserve(10, "charged"), reserve(10, "refunded"))
    do(
        made,
        Resolve("charged", Resolution(12, (Flag.ESTIMATED,))),
        Resolve("refunded", Resolution(None, (Flag.UNMETERED,))),
    )

    assert {turn_id: reservation.state for turn_id, reservation in made.reservations.items()} == {
        "open": Reserved(10),
        "charged": Settled(12, (Flag.ESTIMATED,)),
        "refunded": Voided((Flag.UNMETERED,)),
    }


def test_what_another_turn_has_overdrawn_is_not_flagged_on_a_turn_that_keeps_to_its_own() -> None:
    """B6: what it set aside was there."""
    made = book(100)
    do(made, reserve(60, "mine"), reserve(40, "other"))
    assert do(made, Resolve("other", Resolution(70)), Resolve("mine", Resolution(60))) == [
        Result.SETTLED_OVERDRAWN,
        Result.SETTLED,
    ]


def test_of_an_account_that_is_overdrawn_nothing_can_be_taken() -> None:
    """B6: it can be given something."""
    made = book(10)
    do(made, reserve(10), Resolve("turn", Resolution(25)))
    assert do(
        made,
        Transfer(Kind.DEBIT, "main", 1, "me"),
        Transfer(Kind.DEBIT, "main", 0, "me"),
        Transfer(Kind.CREDIT, "main", 5, "me"),
    ) == [Result.INSUFFICIENT_BALANCE, Result.CREATED, Result.CREATED]
    assert made.accounts["main"].balance == -10
