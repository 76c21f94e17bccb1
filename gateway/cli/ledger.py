"""`gateway ledger`: the proof that the books balance, what they say, and backups of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.accounts import table
from gateway.cli.books import MOMENT, ledger_settings, named_errors, reading
from gateway.cli.live_store import NOT_DONE, config_option, json_option
from gateway.cli.statements import FORMATS, write_statement
from gateway.cli.unusable import Unusable
from gateway.config.amounts import dollars, dollars_in_column
from gateway.config.problems import suggestion
from gateway.store.backup import CannotBackUp, back_up
from gateway.store.backup import restore as restore_store
from gateway.store.proof import Proof, prove
from gateway.store.reports import HouseReport, account_names, house

LOSSES: Final = ("route", "attempts", "their cost", "late", "their charge", "loss")

from_option = click.option(
    "--from", "since", type=MOMENT, default=-math.inf, show_default="the beginning", help="From."
)
to_option = click.option(
    "--to", "until", type=MOMENT, default=math.inf, show_default="now", help="Up to that time, itself not included."
)


@click.group()
def ledger() -> None:
    """Prove, print and back up the books. All of it works beside running gateways, but for `restore`.

    Amounts are dollars, and nano-dollars in JSON; times are UTC, and seconds since the epoch in JSON.
    """


@ledger.command("verify")
@config_option
@json_option
def verify_books(file: Path, as_json: bool) -> None:
    """Prove from the entries alone that the books balance. Exit code 1: they do not, and what contradicts them."""
    with reading(file) as session:
        proof = prove(session)
    click.echo(json.dumps(proof_object(proof)) if as_json else "\n".join(proof_lines(proof)))
    if not proof.holds:
        raise click.exceptions.Exit(NOT_DONE)


@ledger.command("statement")
@click.argument("account")
@from_option
@to_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@config_option
def print_statement(account: str, since: float, until: float, form: str, file: Path) -> None:
    """Print an account's opening balance, its entries and its closing balance."""
    _require_order(since, until)
    with reading(file) as session:
        known = account_names(session)
        if account not in known:
            raise Unusable(f"there is no account {account}; {suggestion(account, known)}")
        for line in write_statement(session, account, since, until, form):
            click.echo(line)


@ledger.command("house")
@from_option
@to_option
@config_option
@json_option
def print_house(since: float, until: float, file: Path, as_json: bool) -> None:
    """Print what the house has lost, by route: attempts that no client pays, and settlements that came too late."""
    _require_order(since, until)
    with reading(file) as session:
        report = house(session, since, until)
    click.echo(json.dumps(house_object(report)) if as_json else "\n".join(house_lines(report)))


def _require_order(since: float, until: float) -> None:
    if since >= until:
        raise Unusable("--from is not before --to: there is nothing in between; exchange the two")


@ledger.command("backup")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@config_option
def back_up_store(target: Path, file: Path) -> None:
    """Copy the SQLite store, as it is at this moment, to a file that is not there yet, and prove the copy."""
    store = _sqlite_store(file, "pg_dump --schema=gateway --format=custom --file=FILE DATABASE")
    if not store.exists():
        raise Unusable(f"{store} does not exist; `gateway serve` makes it at its first start")
    with named_errors(), _named_files():
        proof = back_up(store, target)
    if not proof.holds:
        click.echo("\n".join([f"{target} is a copy of books that do not balance:", *proof_lines(proof)]), err=True)
        raise click.exceptions.Exit(NOT_DONE)
    click.echo(f"{target} holds {store}: {proof.entries} entries of {proof.accounts} accounts, and they balance")


@ledger.command("restore")
@click.argument("backup", metavar="FILE", type=click.Path(path_type=Path))
@config_option
def restore_backup(backup: Path, file: Path) -> None:
    """Put a backup in the place of the SQLite store, if it balances and no gateway has the store in use.

    What is there now is kept beside it. Takes some seconds, in which no gateway can start.
    """
    store = _sqlite_store(file, "pg_restore --clean --schema=gateway --dbname=DATABASE FILE")
    with named_errors(), _named_files():
        proof, aside = restore_store(backup, store)
    kept = "" if aside is None else f"; what was there is {aside}"
    click.echo(f"{store} is {backup}: {proof.entries} entries of {proof.accounts} accounts, and they balance{kept}")


def _sqlite_store(file: Path, command: str) -> Path:
    settings = ledger_settings(file)
    if settings.store != "sqlite":
        raise Unusable(f"{file}: ledger.store: is PostgreSQL, which brings its own: {command}")
    return Path(settings.path)


@contextmanager
def _named_files() -> Iterator[None]:
    """A file that cannot be used as this command's end."""
    try:
        yield
    except CannotBackUp as error:
        raise Unusable(str(error)) from None
    except OSError as error:
        raise Unusable(f"{error.filename}: {error.strerror}") from None


# --- words ------------------------------------------------------------------------------------------------------


def proof_lines(proof: Proof) -> list[str]:
    """What was proven, or what contradicts it."""
    broken = {discrepancy.check for discrepancy in proof.discrepancies}
    lines = [f"{proof.entries} entries, {proof.accounts} accounts", ""]
    for name, says in proof.checks.items():
        lines.append(f"  {'NO' if name in broken else 'ok'}  {says}")
    lines += ["", *(f"  {dollars_in_column(held)}  {name}" for name, held in proof.totals.items())]
    if proof.holds:
        return [*lines, "", "the books balance"]
    told = [f"  {d.check}: {d.about}: {d.why}" for d in proof.discrepancies]
    return [*lines, "", f"the books do not balance; amounts below are nano-dollars ({len(told)} found):", *told]


def proof_object(proof: Proof) -> dict[str, Any]:
    """The proof for programs."""
    return {
        "balance": proof.holds,
        "entries": proof.entries,
        "accounts": proof.accounts,
        "checks": dict(proof.checks),
        "totals": dict(proof.totals),
        "discrepancies": [asdict(discrepancy) for discrepancy in proof.discrepancies],
    }


def house_lines(report: HouseReport) -> list[str]:
    """The losses in columns."""
    rows: list[Mapping[str, Any]] = [
        {
            "route": route,
            "attempts": loss.attempts,
            "their cost": dollars(loss.attempt_nanodollars),
            "late": loss.late,
            "their charge": dollars(loss.late_nanodollars),
            "loss": dollars(loss.attempt_nanodollars + loss.late_nanodollars),
        }
        for route, loss in report.routes.items()
    ]
    return [
        *(table(LOSSES, rows) if rows else ["no route has cost the house anything"]),
        "",
        f"credited by hand  {dollars(report.credits)}",
        f"debited by hand   {dollars(report.debits)}",
        f"loss in all       {dollars(report.nanodollars)}",
    ]


def house_object(report: HouseReport) -> dict[str, Any]:
    """The losses for programs."""
    return {
        "routes": {route: asdict(loss) for route, loss in report.routes.items()},
        "credit_nanodollars": report.credits,
        "debit_nanodollars": report.debits,
        "loss_nanodollars": report.nanodollars,
    }
