"""Books and records of turns that went in each of the ways a turn can go, written as a gateway writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core.accounts import Kind, SpendLimit
from gateway.core.ledger import BookHouse, Expire, OpenAccount, Operation, Reserve, Resolve, Transfer
from gateway.core.money import Flag, Resolution
from gateway.store.commit import Work, commit
from gateway.store.database import Database
from gateway.store.records import RecordWrite

BEGAN = 1_790_000_000.0
DAY = SpendLimit("main/laptop:day:2026-09-21@UTC", 10**12)
MONTH = SpendLimit("main/laptop:month:2026-09@UTC", 10**13)

OPENING: Mapping[str, Any] = {
    "account": "main",
    "key": "laptop",
    "model": "gpt-test",
    "door": "http",
    "reserved_nanodollars": 1000,
    "opened_at": BEGAN,
    "client_retry_count": "1",
    "client_address": "192.0.2.7",
}
CLOSED_ATTEMPT: Mapping[str, Any] = {
    "outcome": "completed",
    "reason": None,
    "is_replayed": 0,
    "seconds": 2.5,
    "first_event_seconds": 0.5,
    "first_output_seconds": 1.0,
    "response_id": "resp_1",
    "input_tokens": 10,
    "cached_tokens": 2,
    "output_tokens": 5,
    "reasoning_tokens": 1,
    "dropped_events": 0,
    "upstream_request_id": "req_up",
    "house_nanodollars": 0,
}
REPLAYED: Mapping[str, Any] = {
    **CLOSED_ATTEMPT,
    "outcome": "server_error",
    "reason": "replay",
    "is_replayed": 1,
    "first_output_seconds": None,
    "seconds": 0.75,
    "house_nanodollars": 17,
}
CLOSING: Mapping[str, Any] = {
    "outcome": "completed",
    "seconds": 3.25,
    "nanodollars": 40,
    "flags": "",
    "routes": "a",
    "failure_code": None,
    "failure_kind": None,
    "response_id": "resp_1",
}


def open_turn(turn_id: str, **fields: Any) -> RecordWrite:
    """Its record begins."""
    return RecordWrite("open_turn", {**OPENING, "turn_id": turn_id, **fields})


def open_attempt(turn_id: str, number: int = 1, route: str = "a") -> RecordWrite:
    """So does an attempt's."""
    return RecordWrite("open_attempt", {"turn_id": turn_id, "number": number, "route": route})


def close_attempt(turn_id: str, number: int = 1, **fields: Any) -> RecordWrite:
    """It is over."""
    return RecordWrite("close_attempt", {**CLOSED_ATTEMPT, "turn_id": turn_id, "number": number, **fields})


def close_turn(turn_id: str, **fields: Any) -> RecordWrite:
    """It is over."""
    return RecordWrite("close_turn", {**CLOSING, "turn_id": turn_id, **fields})


def reserve(turn_id: str, account: str = "main", *limits: SpendLimit, lease_seconds: float = 60.0) -> Reserve:
    """1,000 nano-dollars."""
    return Reserve(turn_id, account, 1000, limits, lease_seconds)


RECORDS_OF: Mapping[str, Sequence[Work]] = {
    "plain": [open_turn("plain"), open_attempt("plain"), close_attempt("plain"), close_turn("plain")],
    "replayed": [
        open_turn("replayed"),
        open_attempt("replayed"),
        open_attempt("replayed", 2, "b"),
        close_attempt("replayed", 1, **REPLAYED),
        close_attempt("replayed", 2),
        close_turn("replayed", routes="a b"),
    ],
    "failed": [
        open_turn("failed", door="websocket", key=None),
        open_attempt("failed"),
        close_attempt("failed", outcome="server_error", reason="no_route_left", input_tokens=None),
        close_turn(
            "failed", outcome="failed", nanodollars=None, failure_code="server_error", failure_kind="upstream_error"
        ),
    ],
    "running": [open_turn("running", opened_at=BEGAN + 60), open_attempt("running")],
    "late": [open_turn("late"), open_attempt("late", 1, "b"), close_attempt("late"), close_turn("late", routes="b")],
}


def history() -> Sequence[Sequence[Work]]:
    """Two accounts; turns settled, overdrawn, voided, expired, expired and settled late, and one that runs."""
    accounts: list[Operation] = [
        OpenAccount("main"),
        OpenAccount("rich", is_unlimited=True),
        Transfer(Kind.DEPOSIT, "main", 10_000, "somebody"),
        Transfer(Kind.CREDIT, "main", 500, "somebody", "a gift"),
        Transfer(Kind.DEBIT, "main", 100, "somebody", "=a mistake"),
    ]
    money: list[Operation] = [
        *(reserve(name, "main", DAY, MONTH) for name in ("plain", "replayed", "failed", "running")),
        reserve("rich-turn", "rich"),
        reserve("expired", lease_seconds=-1.0),
        reserve("late", lease_seconds=-1.0),
        Resolve("plain", Resolution(40)),
        Resolve("replayed", Resolution(30, (Flag.ESTIMATED,))),
        BookHouse("replayed", 1, 17),
        Resolve("failed", Resolution(None)),
        Resolve("rich-turn", Resolution(5000)),
        Expire("expired"),
        Expire("late"),
        Resolve("late", Resolution(70)),
    ]
    return [accounts, money, *RECORDS_OF.values()]


def book(database: Database, works: Sequence[Work]) -> None:
    """Write them, one transaction for all."""
    assert [answer for answer in commit(database, works) if isinstance(answer, Exception)] == []


def book_history(database: Database) -> None:
    """All of `history`."""
    for works in history():
        book(database, works)


def aged(database: Database, days: float) -> None:
    """All that is there happened so many days earlier than it did; the entries' own times stay."""
    for table, columns in AGED_COLUMNS.items():
        changes = ", ".join(f"{column} = {column} - :seconds" for column in columns)
        with database.transaction() as session:
            session.run_each(f"update {table} set {changes}", [{"seconds": days * 86_400}])


AGED_COLUMNS = {
    "turn": ("opened_at",),
    "reservation": ("reserved_at", "lease_ends_at"),
    "spend": ("changed_at",),
    "origin": ("learned_at",),
    "origin_mark": ("learned_at",),
}
"""When things happened."""


def renamed(work: Work, turn_id: str) -> Work:
    """The same of another turn."""
    if isinstance(work, RecordWrite):
        return RecordWrite(work.name, {**work.params, "turn_id": turn_id})
    return replace(work, turn_id=turn_id)  # type: ignore[type-var]  # each operation of a turn has one
