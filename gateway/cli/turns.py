"""`gateway turns`: what became of a turn, attempt by attempt, and what it cost. No prompts, outputs or keys (L1)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.accounts import table
from gateway.cli.books import MOMENT, reading, snapshot, stored, told_moment
from gateway.cli.live_store import NOT_DONE, config_option, json_option
from gateway.cli.turn_report import report_lines
from gateway.config.amounts import dollars
from gateway.store.reports import RUNNING, TurnReport, TurnRow, Wanted, turn
from gateway.store.reports import turns as found_turns
from gateway.store.retention import PAUSE_SECONDS, Keep, due, purge

COLUMNS: Final = ("opened (UTC)", "turn", "account", "key", "model", "door", "routes", "outcome", "seconds", "charged")
LIMIT_MAX: Final = 10_000


@click.group()
def turns() -> None:
    """Show turns that ran, and those that still run.

    Amounts are dollars, and nano-dollars in JSON; times are UTC, and seconds since the epoch in JSON.
    """


@turns.command("list")
@click.option("--account", help="Of this account.")
@click.option("--key", help="Of the key of this name.")
@click.option("--outcome", help=f'With this outcome, for example "completed"; "{RUNNING}" is one too.')
@click.option("--model", help="Of this model, by the client's name.")
@click.option("--since", type=MOMENT, help='That began then or later: "2027-01-31", "2027-01-31T12:00", or "24h" ago.')
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=20, show_default=True, help="The newest so many.")
@config_option
@json_option
def list_turns(
    account: str | None,
    key: str | None,
    outcome: str | None,
    model: str | None,
    since: float | None,
    limit: int,
    file: Path,
    as_json: bool,
) -> None:
    """List turns, the newest first."""
    with reading(file) as session:
        found = found_turns(session, Wanted(account, key, outcome, model, since, limit))
    if as_json:
        click.echo(json.dumps({"turns": [turn_object(row) for row in found]}))
    else:
        click.echo("\n".join(table(COLUMNS, [_line(row) for row in found])) if found else "no turn matches")


@turns.command("show")
@click.argument("turn_id", metavar="ID")
@config_option
@json_option
def show_turn(turn_id: str, file: Path, as_json: bool) -> None:
    """Show a turn: each attempt with its times, its outcome and why it was replayed or not, and all of its money."""
    with reading(file) as session:
        report = turn(session, turn_id)
    if report is None:
        click.echo(f"there is no turn {turn_id}; `gateway turns list` shows the newest", err=True)
        raise click.exceptions.Exit(NOT_DONE)
    click.echo(json.dumps(report_object(report)) if as_json else "\n".join(report_lines(report)))


@turns.command("purge")
@click.option("--dry-run", is_flag=True, help="Only count what is due.")
@config_option
@json_option
def purge_turns(dry_run: bool, file: Path, as_json: bool) -> None:
    """Take away what is older than ledger.record_days and ledger.origin_days, as a gateway does every hour.

    The books' entries stay for ever.
    """
    with stored(file) as (settings, database):
        keep = Keep(settings.record_days, settings.origin_days)
        if dry_run:
            with snapshot(database) as session:
                counts = dict(due(session, keep))
        else:
            counts = {}
            for name, taken in purge(database, keep):
                counts[name] = counts.get(name, 0) + taken
                time.sleep(PAUSE_SECONDS)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, "purged": counts}))
        return
    done = "due" if dry_run else "taken away"
    click.echo("\n".join(f"{count:>8} {name} {done}" for name, count in counts.items()))


def _line(row: TurnRow) -> Mapping[str, Any]:
    return {
        "opened (UTC)": told_moment(row.opened_at),
        "turn": row.turn_id,
        "account": row.account,
        "key": row.key,
        "model": row.model,
        "door": row.door,
        "routes": None if not row.routes else " > ".join(row.routes.split()),
        "outcome": row.outcome or RUNNING,
        "seconds": None if row.seconds is None else f"{row.seconds:.3f}",
        "charged": None
        if row.nanodollars is None
        else " ".join([dollars(row.nanodollars), *(row.flags or "").split()]),
    }


# --- JSON -------------------------------------------------------------------------------------------------------


def turn_object(row: TurnRow) -> dict[str, Any]:
    """A turn for programs."""
    return {
        **asdict(row),
        "outcome": row.outcome or RUNNING,
        "flags": (row.flags or "").split(),
        "routes": (row.routes or "").split(),
    }


def report_object(report: TurnReport) -> dict[str, Any]:
    """All that is known of a turn for programs."""
    attempts: Sequence[dict[str, Any]] = [asdict(attempt) for attempt in report.attempts]
    return {
        "turn_id": report.turn_id,
        "turn": None if report.turn is None else turn_object(report.turn),
        "attempts": [
            {**attempt, "is_replayed": bool(attempt["is_replayed"]), "outcome": attempt["outcome"] or RUNNING}
            for attempt in attempts
        ],
        "reservation": None if report.reservation is None else _listed(asdict(report.reservation), "flags", "windows"),
        "entries": [_listed(asdict(entry), "flags") for entry in report.entries],
    }


def _listed(values: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {**values, **{column: values[column].split() for column in columns}}
