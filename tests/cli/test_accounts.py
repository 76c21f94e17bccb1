"""`gateway accounts`: the books changed by hand, with who did it and why (B6, B8)."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict

from cli.administered import CONFIGURATION, told
from gateway.cli import gateway
from gateway.core.ledger import Reserve, Resolve
from gateway.core.money import Resolution
from gateway.store.commit import commit
from gateway.store.schema import prepare
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase

Run = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIGURATION, encoding="utf-8")
    return path


@pytest.fixture
def run(file: Path) -> Run:
    """`gateway accounts ...` on the store of this configuration."""

    def invoke(*arguments: str) -> Result:
        runner = CliRunner(env={"GATEWAY_KEY": "sk-client", "GATEWAY_CONFIG": str(file)})
        return runner.invoke(gateway, ["accounts", *arguments])

    return invoke


def entries(file: Path) -> list[tuple[Any, ...]]:
    """What the books say."""
    rows = sqlite3.connect(file.parent / "gateway.sqlite").execute(
        "select kind, account, nanodollars, actor, reason from entry order by id"
    )
    return rows.fetchall()


# --- what can be done -------------------------------------------------------------------------------------------


def test_an_account_is_opened_funded_corrected_and_closed(run: Run, file: Path) -> None:
    """B6, B8: each amount with its actor, each correction with its reason, all of it to the last digit."""
    assert told(run("create", "acme", "--deposit", "12.5", "--actor", "jo")) == (
        0,
        "the account acme is open; its balance is 12.50 dollars, of which 12.50 is available\n",
        "",
    )
    assert told(run("deposit", "acme", "0.000000001", "--actor", "jo", "--reason", "invoice 7")) == (
        0,
        "0.000000001 dollars were paid in to acme;"
        " its balance is 12.500000001 dollars, of which 12.500000001 is available\n",
        "",
    )
    assert run("adjust", "acme", "-2.5", "--reason", "paid twice", "--actor", "jo").exit_code == 0
    assert run("adjust", "acme", "+1", "--reason", "an outage", "--actor", "jo").exit_code == 0
    assert told(run("close", "acme", "--reason", "gone", "--actor", "jo")) == (
        0,
        "the account acme is closed; its balance is 11.000000001 dollars, of which 11.000000001 is available\n",
        "",
    )
    assert entries(file) == [
        ("deposit", "acme", 12_500_000_000, "jo", None),
        ("deposit", "acme", 1, "jo", "invoice 7"),
        ("debit", "acme", 2_500_000_000, "jo", "paid twice"),
        ("credit", "acme", 1_000_000_000, "jo", "an outage"),
        ("debit", "acme", 0, "jo", "closed: gone"),
    ]


def test_who_runs_the_command_is_the_actor(run: Run, file: Path) -> None:
    """B8: the operating system's user, whatever the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USER", "somebody-else")
        patch.setenv("LOGNAME", "somebody-else")
        run("create", "acme", "--deposit", "1")
    assert entries(file) == [("deposit", "acme", 1_000_000_000, pwd.getpwuid(os.getuid()).pw_name, None)]


def test_an_account_shows_what_is_reserved(run: Run, file: Path) -> None:
    """B6: what running turns have set aside is not available, and not taken off the balance."""
    run("create", "acme", "--deposit", "10")
    run("create", "big", "--unlimited")
    commit(SQLiteDatabase(file.parent / "gateway.sqlite"), [Reserve("turn", "acme", 2_500_000_000)])
    assert run("show", "acme").stdout.splitlines() == [
        "account   acme",
        "balance   10.00",
        "reserved  2.50",
        "available 7.50",
        "state     open",
    ]
    assert run("list").stdout.splitlines() == [
        "account  balance  reserved  available  state",
        "acme     10.00    2.50      7.50       open",
        "big      0.00     0.00      unlimited  open",
    ]
    acme = {"account": "acme", "balance": "10.00", "reserved": "2.50", "available": "7.50", "state": "open"}
    assert json.loads(run("show", "acme", "--json").stdout) == acme
    assert json.loads(run("list", "--json").stdout)["accounts"][0] == acme


def test_a_program_reads_the_result_as_a_word(run: Run) -> None:
    """House: results are named words."""
    done = json.loads(run("create", "acme", "--deposit", "1", "--json").stdout)
    assert (done["result"], done["balance"]) == ("created", "1.00")
    refused = run("create", "acme", "--deposit", "1", "--json")
    assert (refused.exit_code, refused.stderr) == (1, "")
    assert json.loads(refused.stdout)["result"] == "exists"
    missing = run("show", "nobody", "--json")
    assert (missing.exit_code, json.loads(missing.stdout)["result"]) == (1, "account_not_found")


READ_ONLY = [("list",), ("show", "main")]
CHANGING = [("deposit", "main", "1"), ("adjust", "main", "+1", "--reason", "x"), ("close", "main", "--reason", "x")]


@pytest.mark.parametrize("arguments", [*READ_ONLY, *CHANGING])
def test_a_store_that_is_not_there_is_not_made_but_by_create(run: Run, file: Path, arguments: tuple[str, ...]) -> None:
    """House: a mistyped path must not look like empty books, nor leave a file behind."""
    path = file.parent / "gateway.sqlite"
    said = f"{path} does not exist; `gateway serve` makes it at its first start\n"
    assert told(run(*arguments)) == (2, "", said)
    assert list(file.parent.iterdir()) == [file]

    assert run("create", "main").exit_code == 0
    assert run(*arguments).exit_code == 0


@pytest.mark.parametrize("arguments", [*READ_ONLY, *CHANGING])
def test_a_file_without_books_says_so(run: Run, file: Path, arguments: tuple[str, ...]) -> None:
    """House."""
    path = file.parent / "gateway.sqlite"
    path.touch()
    said = f"ledger: {path} holds no books; `gateway serve` makes them at its first start\n"
    assert told(run(*arguments)) == (2, "", said)
    assert path.stat().st_size == 0


@pytest.mark.parametrize("arguments", [("create", "other"), *READ_ONLY])
def test_what_a_gateway_left_in_its_spool_is_for_the_next_gateway(
    run: Run, file: Path, arguments: tuple[str, ...]
) -> None:
    """L2: a command beside it, perhaps of another user, takes nothing over."""
    run("create", "main", "--unlimited")
    spool = FileSpool(file.parent / "gateway-spool")
    spool.add([Resolve("turn", Resolution(1))])
    spool.close()
    (left,) = spool.directory.iterdir()

    assert run(*arguments).exit_code == 0
    assert left.read_bytes()


@pytest.mark.parametrize("arguments", READ_ONLY)
def test_what_only_reads_waits_for_no_writer(run: Run, file: Path, arguments: tuple[str, ...]) -> None:
    """X1: a migration or a stuck process holds the file; its books can be read all the same."""
    run("create", "main")
    database = SQLiteDatabase(file.parent / "gateway.sqlite")
    with database.transaction():
        assert run(*arguments).exit_code == 0
    database.close()


def test_an_empty_store_has_no_accounts(run: Run, file: Path) -> None:
    """House."""
    database = SQLiteDatabase(file.parent / "gateway.sqlite")
    prepare(database)
    database.close()
    assert told(run("list")) == (0, "account  balance  reserved  available  state\n", "")


# --- what the books refuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create", "acme", "--deposit", "1"], "the account acme is there already; nothing was changed"),
        (
            ["create", "acme", "--unlimited"],
            "the account acme is there already, with the other of limited and unlimited; nothing was changed",
        ),
        (["deposit", "nobody", "1"], "there is no account nobody; `gateway accounts create nobody` opens it"),
        (["show", "nobody"], "there is no account nobody; `gateway accounts create nobody` opens it"),
        (["close", "nobody", "--reason", "r"], "there is no account nobody; `gateway accounts create nobody` opens it"),
        (
            ["adjust", "acme", "-7.500000001", "--reason", "r"],
            "the account acme has less than that available; nothing was taken",
        ),
        (["deposit", "old", "1"], "the account old is closed"),
        (["create", "old"], "the account old is closed"),
        (["close", "old", "--reason", "r"], "the account old is closed"),
    ],
)
def test_what_the_books_refuse_changes_nothing(run: Run, file: Path, arguments: list[str], sentence: str) -> None:
    """B6: exit code 1 and a sentence."""
    run("create", "acme", "--deposit", "10")
    run("create", "old")
    run("close", "old", "--reason", "r")
    commit(SQLiteDatabase(file.parent / "gateway.sqlite"), [Reserve("turn", "acme", 2_500_000_000)])
    before = entries(file)
    assert told(run(*arguments)) == (1, "", f"{sentence}\n")
    assert entries(file) == before


def test_all_that_is_available_can_be_taken(run: Run, file: Path) -> None:
    """B6: and an account can be closed when its turns have ended."""
    run("create", "acme", "--deposit", "10")
    database = SQLiteDatabase(file.parent / "gateway.sqlite")
    commit(database, [Reserve("turn", "acme", 2_500_000_000)])
    assert run("adjust", "acme", "-7.5", "--reason", "r").exit_code == 0
    commit(database, [Resolve("turn", Resolution(2_500_000_000))])
    assert run("close", "acme", "--reason", "r").exit_code == 0


# --- what is no such command ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["deposit", "acme", "-1"], "'AMOUNT': must not be negative; write dollars as decimal text"),
        (["deposit", "acme", "nan"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "1e3"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "1,50"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "1.0000000001"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "1000000000"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "٣"], "'AMOUNT': is not an amount of money; write dollars as decimal text"),
        (["deposit", "acme", "0.00"], "'AMOUNT': is nothing; write more than 0"),
        (["deposit", "acme", ""], "'AMOUNT': is not an amount of money"),
        (["adjust", "acme", "5", "--reason", "r"], "'AMOUNT': has no sign; write +5.00 to give and -5.00 to take"),
        (["adjust", "acme", "--5", "--reason", "r"], "'AMOUNT': must not be negative"),
        (["adjust", "acme", "-5"], "Missing option '--reason'"),
        (["adjust", "acme", "-5", "--reason", " "], "'--reason': must be one line of 1 to 500 printable characters"),
        (["adjust", "acme", "-5", "--reason", "a\nb"], "'--reason': must be one line of 1 to 500 printable characters"),
        (["close", "acme"], "Missing option '--reason'"),
        (["create", "the house"], "'NAME': is not a usable name; use 1 to 128 visible ASCII characters without spaces"),
        (["create", "x" * 129], "'NAME': is not a usable name"),
        (["create", "ä"], "'NAME': is not a usable name"),
        (["create", "acme", "--unlimited", "--deposit", "1"], "--unlimited and --deposit exclude each other"),
        (["deposit", "acme", "1", "--actor", "the configuration"], "'--actor': 'the configuration' is the actor of"),
    ],
)
def test_what_is_wrongly_written_is_named_with_its_fix(
    run: Run, file: Path, arguments: list[str], problem: str
) -> None:
    """B1: exit code 2; not even the store is opened."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert not (file.parent / "gateway.sqlite").exists()


def test_a_balance_stays_within_what_the_store_can_count(run: Run, file: Path) -> None:
    """B1: 64 bits, with room for sums."""
    run("create", "acme", "--deposit", "999999999")
    result = run("deposit", "acme", "1.000000001")
    assert told(result) == (
        2,
        "",
        "the account acme would hold more than 1000000000.00 dollars, the most there can be on one\n",
    )
    assert run("deposit", "acme", "1").exit_code == 0
    assert len(entries(file)) == 2


def as_url(dsn: str) -> str:
    """A DSN as a configuration takes it: without spaces."""
    words = conninfo_to_dict(dsn)
    database = words.pop("dbname")
    return f"postgresql:///{database}?{urlencode(words)}"


def test_accounts_and_keys_are_administered_on_postgresql_too(file: Path, fresh_dsn: str) -> None:
    """C6: whatever the configuration names."""
    ledger = '[ledger]\nstore = "postgres"\ndsn = { env = "GATEWAY_DSN" }\n'
    file.write_text(ledger + CONFIGURATION, encoding="utf-8")
    runner = CliRunner(env={"GATEWAY_KEY": "sk-client", "GATEWAY_CONFIG": str(file), "GATEWAY_DSN": as_url(fresh_dsn)})
    commands = (
        ["accounts", "create", "acme", "--deposit", "2"],
        ["keys", "create", "--account", "acme", "--name", "ci", "--spend-per-day", "1"],
        ["keys", "rotate", "ci", "--overlap", "1h"],
        ["keys", "revoke", "ci"],
        ["accounts", "close", "acme", "--reason", "gone"],
    )
    assert [runner.invoke(gateway, command).exit_code for command in commands] == [0] * len(commands)
    assert json.loads(runner.invoke(gateway, ["accounts", "show", "acme", "--json"]).stdout)["state"] == "closed"
    keys = json.loads(runner.invoke(gateway, ["keys", "list", "--json"]).stdout)["keys"]
    assert [key["state"] for key in keys] == ["revoked", "revoked"]


def test_a_store_that_cannot_be_reached_is_named_without_its_password(file: Path) -> None:
    """House: a clear error, exit code 2."""
    file.write_text('[ledger]\nstore = "postgres"\ndsn = { env = "GATEWAY_DSN" }\n' + CONFIGURATION, encoding="utf-8")
    dsn = "postgresql://me:s3cret@127.0.0.1:1/books"
    runner = CliRunner(env={"GATEWAY_KEY": "sk-client", "GATEWAY_CONFIG": str(file), "GATEWAY_DSN": dsn})
    code, stdout, stderr = told(runner.invoke(gateway, ["accounts", "list"]))
    assert (code, stdout) == (2, "")
    assert stderr.startswith("ledger: PostgreSQL 127.0.0.1/books: ")
    assert "s3cret" not in stderr


def test_a_store_in_memory_has_nothing_to_administer(run: Run, file: Path) -> None:
    """C6."""
    file.write_text(f'[ledger]\nstore = "memory"\n{CONFIGURATION}', encoding="utf-8")
    assert told(run("list")) == (
        2,
        "",
        f'{file}: ledger.store: is "memory", which is gone with its process; write store = "sqlite" or "postgres"\n',
    )


def test_a_file_that_is_no_database_is_named(run: Run, file: Path) -> None:
    """House: a clear error naming it, and no traceback."""
    (file.parent / "gateway.sqlite").write_text("not a database, " * 100, encoding="utf-8")
    code, stdout, stderr = told(run("list"))
    assert (code, stdout) == (2, "")
    assert stderr.startswith(f"ledger: {file.parent / 'gateway.sqlite'}: ")
    assert len(stderr.splitlines()) == 1


def test_a_configuration_that_cannot_be_read_is_told_as_serve_tells_it(tmp_path: Path) -> None:
    """C1."""
    missing = tmp_path / "missing.toml"
    result = CliRunner(env={"GATEWAY_CONFIG": None}).invoke(gateway, ["accounts", "list", "--config", str(missing)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{missing}: cannot be read")


def test_no_secret_of_the_configuration_is_needed(file: Path) -> None:
    """House: an operator's shell has none of them."""
    runner = CliRunner(env={"GATEWAY_KEY": None, "GATEWAY_CONFIG": str(file)})
    assert runner.invoke(gateway, ["accounts", "create", "acme"]).exit_code == 0
    assert runner.invoke(gateway, ["keys", "revoke", "none"]).exit_code == 1
