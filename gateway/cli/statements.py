"""An account's statement as text, CSV or JSON, line by line: it may be longer than the memory."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from gateway.cli.books import told_moment
from gateway.config.amounts import dollars, dollars_in_column
from gateway.store.database import Session
from gateway.store.reports import Standing, StatementLine, standing_before, statement

COLUMNS: Final = (
    "id", "at", "kind", "amount", "change", "balance", "set_aside", "turn_id", "flags", "actor", "reason",
)  # fmt: skip
BEGINNING: Final = "the beginning"
NOW: Final = "now"

Period = tuple[float, float]


def write_statement(session: Session, account: str, since: float, until: float, form: str) -> Iterator[str]:
    """The statement's lines, without line ends."""
    standing = standing_before(session, account, _finite(since))
    opening = replace(standing)
    lines = statement(session, account, _finite(since), _finite(until), standing)
    yield from WRITERS[form](account, (since, until), opening, lines, standing)


def _finite(at: float) -> float:
    """As a database takes it: some have no infinite times."""
    return max(-1e18, min(at, 1e18))


def _as_text(
    account: str, period: Period, opening: Standing, lines: Iterator[StatementLine], closing: Standing
) -> Iterator[str]:
    since, until = (_told(at, name) for at, name in zip(period, (BEGINNING, NOW), strict=True))
    yield f"account {account}, from {since} to {until}, in dollars"
    yield ""
    yield f"{'':30}  {'amount':>20}  {'balance':>20}  {'set aside':>20}"
    yield _standing_line(since, "opening", opening)
    for line in lines:
        entry = line.entry
        by = entry.actor and f"by {entry.actor}"
        remarks = " ".join(filter(None, (entry.turn_id, entry.flags, by, entry.reason)))
        amounts = "  ".join(map(dollars_in_column, (entry.nanodollars, line.balance, line.open)))
        yield f"{told_moment(entry.at)}  {entry.kind:<9}  {amounts}  {remarks}".rstrip()
    yield _standing_line(until, "closing", closing)


def _standing_line(at: str, name: str, standing: Standing) -> str:
    amounts = "  ".join(map(dollars_in_column, (standing.balance, standing.open)))
    return f"{at:<19}  {name:<9}  {'':20}  {amounts}".rstrip()


def _told(at: float, name: str) -> str:
    return told_moment(at) if math.isfinite(at) else name


def _as_csv(
    account: str, period: Period, opening: Standing, lines: Iterator[StatementLine], closing: Standing
) -> Iterator[str]:
    since, until = (told_moment(at) if math.isfinite(at) else "" for at in period)
    yield _csv_row(COLUMNS)
    yield _csv_row(("", since, "opening", "", "", dollars(opening.balance), dollars(opening.open), *([""] * 4)))
    for line in lines:
        entry = line.entry
        amounts = (dollars(n) for n in (entry.nanodollars, line.change, line.balance, line.open))
        about = (entry.turn_id, entry.flags, entry.actor, entry.reason)
        yield _csv_row((entry.id, told_moment(entry.at), entry.kind, *amounts, *map(_harmless, about)))
    yield _csv_row(("", until, "closing", "", "", dollars(closing.balance), dollars(closing.open), *([""] * 4)))


def _harmless(text: str | None) -> str:
    """A spreadsheet takes what begins like this for a formula."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text or ""


def _csv_row(values: Any) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _as_json(
    account: str, period: Period, opening: Standing, lines: Iterator[StatementLine], closing: Standing
) -> Iterator[str]:
    """One object, an entry a line."""
    since, until = (at if math.isfinite(at) else None for at in period)
    yield f'{{"account": {json.dumps(account)}, "from": {json.dumps(since)}, "to": {json.dumps(until)},'
    yield f'"opening": {json.dumps(_standing_object(opening))},'
    yield '"entries": ['
    separator = ""
    for line in lines:
        written = {**asdict(line.entry), "flags": line.entry.flags.split()}
        stands = {"change_nanodollars": line.change, **_standing_object(Standing(line.balance, line.open))}
        yield separator + json.dumps({**written, **stands})
        separator = ","
    yield "],"
    yield f'"closing": {json.dumps(_standing_object(closing))}}}'


def _standing_object(standing: Standing) -> dict[str, int]:
    return {"balance_nanodollars": standing.balance, "set_aside_nanodollars": standing.open}


WRITERS: Final[dict[str, Callable[..., Iterator[str]]]] = {"text": _as_text, "csv": _as_csv, "json": _as_json}
FORMATS: Final = tuple(WRITERS)
