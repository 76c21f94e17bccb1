"""B8 from the entries alone, by a check of its own: it shares no code with the ledger, so no mistake either."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from gateway.store.schema import AnyDatabase

Fetch = Callable[[str], list[tuple[Any, ...]]]

ENDS = ("released", "voided", "expired")


def rows_of(database: AnyDatabase) -> Fetch:
    """A reader of this database: every statement sees what is committed."""

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        with database.snapshot() as session:
            return session.fetch(statement, {})

    return fetch


def assert_books_balance(fetch: Fetch) -> None:
    """Every turn is reserved once, ended once at most and charged once at most; every account holds what its entries
    say; the reservations' rows say what the entries say."""
    entries = fetch("select kind, account, turn_id, nanodollars, attempt from entry order by id")
    _assert_each_turn_once(entries)
    _assert_accounts(entries, fetch("select name, balance, open from account"))
    _assert_rows(entries, fetch("select turn_id, state, nanodollars, resolved_nanodollars from reservation"))


def _assert_each_turn_once(entries: list[tuple[Any, ...]]) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, _, turn_id, _, _ in entries:
        if turn_id is not None:
            counts[turn_id][kind] += 1
    for turn_id, kinds in counts.items():
        ends = sum(kinds[kind] for kind in ENDS)
        assert (kinds["reserve"], ends <= 1) == (1, True), (turn_id, kinds)
        assert kinds["settled"] == kinds["released"], (turn_id, kinds)
        assert kinds["late"] <= kinds["expired"], (turn_id, kinds)
    house = Counter((turn_id, attempt) for kind, _, turn_id, _, attempt in entries if kind == "house")
    assert all(count == 1 for count in house.values()), house


def _assert_accounts(entries: list[tuple[Any, ...]], accounts: list[tuple[Any, ...]]) -> None:
    signs = {"deposit": 1, "credit": 1, "debit": -1, "settled": -1}
    opens = {"reserve": 1, **dict.fromkeys(ENDS, -1)}
    for name, balance, still_open in accounts:
        own = [(kind, nanodollars) for kind, account, _, nanodollars, _ in entries if account == name]
        assert balance == sum(signs.get(kind, 0) * nanodollars for kind, nanodollars in own), name
        assert still_open == sum(opens.get(kind, 0) * nanodollars for kind, nanodollars in own), name


def _assert_rows(entries: list[tuple[Any, ...]], reservations: list[tuple[Any, ...]]) -> None:
    by_turn: dict[str, dict[str, int]] = defaultdict(dict)
    for kind, _, turn_id, nanodollars, _ in entries:
        if turn_id is not None:
            by_turn[turn_id][kind] = nanodollars
    assert {turn_id for turn_id, *_ in reservations} == by_turn.keys()
    for turn_id, state, reserved, resolved in reservations:
        own = by_turn[turn_id]
        ended = next((kind for kind in ("settled", "voided", "expired") if kind in own), "reserved")
        amount = own.get("settled", own.get("late"))
        assert (state, reserved, resolved) == (ended, own["reserve"], amount), turn_id
