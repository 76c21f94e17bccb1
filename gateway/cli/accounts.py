"""`gateway accounts`: who pays. Every amount that is moved by hand has its actor in the books, and stays in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.live_store import NOT_DONE, config_option, json_option, live_store, operating_system_user
from gateway.cli.unusable import Unusable
from gateway.cli.written import ACTOR, DOLLARS, NAME, REMARK, SIGNED_DOLLARS
from gateway.config.amounts import dollars
from gateway.core.accounts import Account, Kind
from gateway.core.ledger import CloseAccount, OpenAccount, Operation, Transfer
from gateway.core.money import Result
from gateway.store.commit import transact
from gateway.store.database import Row, Session
from gateway.store.money import carry_out

DONE: Final = frozenset({Result.CREATED, Result.CLOSED})
REFUSALS: Final = {
    # why the books were not changed
    Result.ACCOUNT_NOT_FOUND: "there is no account {name}; `gateway accounts create {name}` opens it",
    Result.ACCOUNT_CLOSED: "the account {name} is closed",
    Result.EXISTS: "the account {name} is there already; nothing was changed",
    Result.EXISTS_WITH_DIFFERENT_AMOUNT: (
        "the account {name} is there already, with the other of limited and unlimited; nothing was changed"
    ),
    Result.INSUFFICIENT_BALANCE: "the account {name} has less than that available; nothing was taken",
}
ACCOUNTS: Final = "select name, balance, open, is_unlimited, is_closed from account order by name"
ACCOUNT: Final = "select name, balance, open, is_unlimited, is_closed from account where name = :name"
COLUMNS: Final = ("account", "balance", "reserved", "available", "state")

MAY_BE_NEGATIVE: Final = {"ignore_unknown_options": True}
"""A dash before a digit begins an amount and no option: what is wrong with it is told by the amount's own words."""
BALANCE_NANODOLLARS_MAX: Final = 10**18
"""A thousand million dollars: sums of a few such balances fit the 64-bit integers of the stores."""

actor_option = click.option(
    "--actor", type=ACTOR, default=operating_system_user, show_default="your login name", help="Who does it."
)
reason_option = click.option("--reason", type=REMARK, required=True, help="Why; it stays in the books.")


@click.group()
def accounts() -> None:
    """Open, fund, correct and close the accounts that pay for turns.

    Amounts are dollars as decimal text. Exit code 1: the books said no, and nothing was changed.
    """


@accounts.command("create")
@click.argument("name", type=NAME)
@click.option("--unlimited", is_flag=True, help="No balance bounds its turns; what they cost is counted all the same.")
@click.option("--deposit", type=DOLLARS, help="What is paid in at once.")
@actor_option
@config_option
@json_option
def create_account(name: str, unlimited: bool, deposit: int | None, actor: str, file: Path, as_json: bool) -> None:
    """Open an account: empty, with a deposit, or unlimited."""
    if unlimited and deposit is not None:
        raise click.UsageError("--unlimited and --deposit exclude each other: nothing bounds an unlimited account")
    operations: list[Operation] = [OpenAccount(name, unlimited)]
    if deposit is not None:
        operations.append(Transfer(Kind.DEPOSIT, name, deposit, actor))
    _carry_out(file, name, operations, "the account {name} is open", as_json)


@accounts.command("deposit", context_settings=MAY_BE_NEGATIVE)
@click.argument("name", type=NAME)
@click.argument("amount", type=DOLLARS)
@click.option("--reason", type=REMARK, help="For example an invoice's number.")
@actor_option
@config_option
@json_option
def deposit_money(name: str, amount: int, reason: str | None, actor: str, file: Path, as_json: bool) -> None:
    """Pay an amount in."""
    done = f"{dollars(amount)} dollars were paid in to {{name}}"
    _carry_out(file, name, [Transfer(Kind.DEPOSIT, name, amount, actor, reason)], done, as_json)


@accounts.command("adjust", context_settings=MAY_BE_NEGATIVE)
@click.argument("name", type=NAME)
@click.argument("amount", type=SIGNED_DOLLARS)
@reason_option
@actor_option
@config_option
@json_option
def adjust_balance(name: str, amount: int, reason: str, actor: str, file: Path, as_json: bool) -> None:
    """Give (+5.00) or take (-5.00) an amount at the house's expense: a correction, a gift, a refund.

    Nothing can be taken that running turns have set aside.
    """
    kind, verb = (Kind.CREDIT, "given to") if amount > 0 else (Kind.DEBIT, "taken from")
    done = f"{dollars(abs(amount))} dollars were {verb} {{name}}"
    _carry_out(file, name, [Transfer(kind, name, abs(amount), actor, reason)], done, as_json)


@accounts.command("close")
@click.argument("name", type=NAME)
@reason_option
@actor_option
@config_option
@json_option
def close_account(name: str, reason: str, actor: str, file: Path, as_json: bool) -> None:
    """Let no turn start on an account any more. What is left on it stays in the books."""
    _carry_out(file, name, [CloseAccount(name, actor, reason)], "the account {name} is closed", as_json)


@accounts.command("show")
@click.argument("name", type=NAME)
@config_option
@json_option
def show_account(name: str, file: Path, as_json: bool) -> None:
    """Show how an account stands."""
    with live_store(file) as database, database.snapshot() as session:
        rows = session.fetch(ACCOUNT, {"name": name})
    if not rows:
        _answer(Result.ACCOUNT_NOT_FOUND, name, None, "", as_json)
    standing = _standing(_account(rows[0]))
    click.echo(json.dumps(standing) if as_json else "\n".join(f"{key:<10}{standing[key]}" for key in COLUMNS))


@accounts.command("list")
@config_option
@json_option
def list_accounts(file: Path, as_json: bool) -> None:
    """Show how all accounts stand."""
    with live_store(file) as database, database.snapshot() as session:
        rows = session.fetch(ACCOUNTS, {})
    standings = [_standing(_account(row)) for row in rows]
    click.echo(json.dumps({"accounts": standings}) if as_json else "\n".join(table(COLUMNS, standings)))


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows under a headline, each column as wide as it needs; what is not there is a dash."""
    lines = [columns, *(["-" if row[column] is None else str(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


# --- on the store -----------------------------------------------------------------------------------------------


def _carry_out(file: Path, name: str, operations: Sequence[Operation], done: str, as_json: bool) -> None:
    """All of them in one transaction, up to the first that is refused: it changes nothing, nor do those behind it."""

    def work(session: Session) -> tuple[Result, Account | None]:
        result = Result.CREATED
        _require_room(session, name, operations)
        for operation in operations:
            (result,) = carry_out(session, [operation], session.now())
            if result not in DONE:
                break
        rows = session.fetch(ACCOUNT, {"name": name})
        return result, _account(rows[0]) if rows else None

    with live_store(file) as database:
        result, account = transact(database, work)
    _answer(result, name, account, done, as_json)


def _require_room(session: Session, name: str, operations: Sequence[Operation]) -> None:
    rows = session.fetch(ACCOUNT, {"name": name})
    balance = _account(rows[0]).balance if rows else 0
    given = sum(paid.nanodollars for paid in operations if isinstance(paid, Transfer) and paid.kind is not Kind.DEBIT)
    if given and balance + given > BALANCE_NANODOLLARS_MAX:
        most = dollars(BALANCE_NANODOLLARS_MAX)
        raise Unusable(f"the account {name} would hold more than {most} dollars, the most there can be on one")


def _answer(result: Result, name: str, account: Account | None, done: str, as_json: bool) -> None:
    """The result as a sentence, or as its word in JSON; the exit code tells whether it was done."""
    sentence = (done if result in DONE else REFUSALS[result]).format(name=name)
    if as_json:
        standing = {"account": name} if account is None else _standing(account)
        click.echo(json.dumps({"result": result.value, "message": sentence, **standing}))
    elif result in DONE and account is not None:
        click.echo(f"{sentence}; {_told(account)}")
    else:
        click.echo(sentence, err=True)
    if result not in DONE:
        raise click.exceptions.Exit(NOT_DONE)


def _account(row: Row) -> Account:
    return Account(row[0], row[1], row[2], bool(row[3]), bool(row[4]))


def _standing(account: Account) -> dict[str, str]:
    """An account in dollars."""
    return {
        "account": account.name,
        "balance": dollars(account.balance),
        "reserved": dollars(account.open),
        "available": "unlimited" if account.is_unlimited else dollars(account.available),
        "state": "closed" if account.is_closed else "open",
    }


def _told(account: Account) -> str:
    available = "without a limit" if account.is_unlimited else f"of which {dollars(account.available)} is available"
    return f"its balance is {dollars(account.balance)} dollars, {available}"
