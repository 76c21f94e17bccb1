"""`gateway ledger`: proof, statements, losses, backups, as people and programs read them."""

import csv
import io
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.store import backup
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import VERSIONS, prepare
from gateway.store.sqlite import SQLiteDatabase
from support.booked import BEGAN, book_history
from support.durable import unprivileged


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteDatabase]:
    """What the configuration names, with a history in it, all of whose entries were made at `BEGAN` plus their id."""
    (tmp_path / "gateway.toml").write_text('[ledger]\npath = "books.sqlite"\n', "utf-8")
    database = SQLiteDatabase(tmp_path / "books.sqlite")
    prepare(database)
    book_history(database)
    with database.transaction() as session:
        session.run_each("drop trigger entry_no_update", [{}])
        session.run_each("update entry set at = :began + id", [{"began": BEGAN}])
    yield database
    database.close()


def run(store: SQLiteDatabase, *arguments: str, **environment: str) -> Result:
    file = store.path.with_name("gateway.toml")
    runner = CliRunner(env={"GATEWAY_CONFIG": None, **environment})
    return runner.invoke(gateway, ["ledger", *arguments, "--config", str(file)])


def damage(store: SQLiteDatabase) -> None:
    with store.transaction() as session:
        session.run_each("update account set balance = 77 where name = 'main'", [{}])


# --- verify -----------------------------------------------------------------------------------------------------


def test_what_was_proven_is_said(store: SQLiteDatabase) -> None:
    """B8."""
    result = run(store, "verify")
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert (lines[0], lines[-1]) == ("21 entries, 2 accounts", "the books balance")
    assert "  ok  each account's balance is its deposits and credits less its debits and settlements" in lines
    assert "          -0.00001      the world" in lines
    assert not any(line.startswith("  NO") for line in lines)


def test_the_books_are_read_while_somebody_writes(store: SQLiteDatabase) -> None:
    """B8: in a snapshot, which waits for no writer."""
    with store.transaction():
        assert run(store, "verify").exit_code == 0


def test_the_books_are_read_where_nothing_can_be_written(store: SQLiteDatabase) -> None:
    """B8: a read-only mount, a backup's folder."""
    store.close()
    with read_only_copy(store.path.parent) as copy:
        result = run(copy, "verify")
    assert (result.exit_code, result.stdout.splitlines()[-1:], result.stderr) == (0, ["the books balance"], "")


def test_a_log_that_cannot_be_read_is_not_left_out(store: SQLiteDatabase) -> None:
    """B8: what a gateway that was killed has left is part of the books."""
    damage(store)
    with read_only_copy(store.path.parent) as copy:
        result = run(copy, "verify")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "its log (books.sqlite-wal) can only be read where the folder may be written to" in result.stderr


@contextmanager
def read_only_copy(folder: Path) -> Iterator[SQLiteDatabase]:
    """The books in a folder where nothing can be made or written; pytest's own are root's where the tests are."""
    shared = Path(tempfile.mkdtemp())
    copy = shutil.copytree(folder, shared / "copy", ignore=shutil.ignore_patterns("*-shm"))
    for path in copy.iterdir():
        path.chmod(0o444)
    for path in (copy, shared):
        path.chmod(0o555)
    try:
        with unprivileged():
            yield SQLiteDatabase(copy / "books.sqlite")
    finally:
        for path in (shared, copy):
            path.chmod(0o755)
        shutil.rmtree(shared)


def test_books_of_an_older_gateway_are_brought_up_to_date_by_a_gateway(
    store: SQLiteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """House: whoever reads changes nothing."""
    monkeypatch.setattr("gateway.store.schema.VERSIONS", (*VERSIONS, "9999"))
    result = run(store, "verify")
    assert result.exit_code == 2
    assert result.stderr == (
        f"ledger: {store.path} has schema {VERSIONS[-1]}, this gateway reads 9999: start the gateway once, which"
        " brings it up to date\n"
    )


def test_a_file_of_no_bytes_holds_no_books(store: SQLiteDatabase) -> None:
    """House: that is not an empty ledger which balances."""
    store.close()
    store.path.write_bytes(b"")
    result = run(store, "verify")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"ledger: {store.path} holds no books; `gateway serve` makes them at its first start\n"
    assert store.path.stat().st_size == 0


def test_each_discrepancy_is_said_and_the_exit_code_is_1(store: SQLiteDatabase) -> None:
    """B8."""
    damage(store)
    result = run(store, "verify")
    lines = result.stdout.splitlines()

    assert result.exit_code == 1
    assert "  NO  each account's balance is its deposits and credits less its debits and settlements" in lines
    assert "the books do not balance; amounts below are nano-dollars (2 found):" in lines
    assert "  balances: main: the balance is 77, its entries say 10330" in lines


def test_the_proof_is_told_to_programs(store: SQLiteDatabase) -> None:
    """B8."""
    good = run(store, "verify", "--json")
    damage(store)
    bad = run(store, "verify", "--json")

    assert (good.exit_code, json.loads(good.stdout)["balance"], json.loads(good.stdout)["discrepancies"]) == (
        0,
        True,
        [],
    )
    assert (bad.exit_code, json.loads(bad.stdout)["balance"]) == (1, False)
    assert json.loads(bad.stdout)["discrepancies"][0] == {
        "check": "balances",
        "about": "main",
        "why": "the balance is 77, its entries say 10330",
    }
    assert json.loads(bad.stdout)["totals"]["the revenue"] == 40 + 30 + 5000 + 70


@pytest.mark.parametrize(
    ("command", "last"),
    [
        (["ledger", "verify"], "the books balance"),
        (["ledger", "house"], "loss in all       0.000000487"),
        (["ledger", "statement", "rich", "--format", "csv"], ",,closing,,,-0.000005,0.00,,,,"),
        (["turns", "purge"], "       0 reservations in windows taken away"),
        (["turns", "purge", "--dry-run"], "       0 reservations in windows due"),
        (["turns", "list", "--outcome", "nothing"], "no turn matches"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_books_on_postgresql_are_read_too(tmp_path: Path, fresh_dsn: str, command: list[str], last: str) -> None:
    """B8, L1."""
    database = PostgresDatabase(fresh_dsn)
    prepare(database)
    book_history(database)
    database.close()
    file = tmp_path / "gateway.toml"
    file.write_text('[ledger]\nstore = "postgres"\ndsn = { env = "DSN_OF_TEST" }\n', "utf-8")
    dsn = fresh_dsn if "://" in fresh_dsn else dsn_as_url(fresh_dsn)
    result = CliRunner(env={"DSN_OF_TEST": dsn}).invoke(gateway, [*command, "--config", str(file)])

    assert (result.exit_code, result.stdout.splitlines()[-1:]) == (0, [last]), result.stderr


def dsn_as_url(dsn: str) -> str:
    """A secret has no spaces."""
    from urllib.parse import quote

    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(dsn)
    words = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in parts.items() if name != "dbname")
    return f"postgresql:///{parts['dbname']}?{words}"


# --- statement --------------------------------------------------------------------------------------------------


def test_a_statement_has_its_opening_its_entries_and_its_closing(store: SQLiteDatabase) -> None:
    """B8: exact dollars."""
    result = run(store, "statement", "rich")
    assert result.exit_code == 0
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "account rich, from the beginning to now, in dollars",
        "",
        "amount balance set aside",
        "the beginning opening 0.00 0.00",
        "2026-09-21 14:13:28 reserve 0.000001 0.00 0.000001 rich-turn",
        "2026-09-21 14:13:37 released 0.000001 0.00 0.00 rich-turn",
        "2026-09-21 14:13:38 settled 0.000005 -0.000005 0.00 rich-turn",
        "now closing -0.000005 0.00",
    ]


def test_the_points_of_a_statement_s_amounts_are_below_each_other(store: SQLiteDatabase) -> None:
    lines = run(store, "statement", "main").stdout.splitlines()[3:]
    assert len({line.rindex(".") for line in lines if line.endswith("0")}) == 1
    assert len({len(line.split(".")[0]) for line in lines[1:-1]}) == 1


def test_a_statement_of_a_period_opens_with_what_was_before(store: SQLiteDatabase) -> None:
    """B8: `--to` itself is not included."""
    result = run(store, "statement", "main", "--from", "2026-09-21T14:13:22", "--to", "2026-09-21T14:13:24")
    assert [" ".join(line.split()) for line in result.stdout.splitlines()][3:] == [
        "2026-09-21 14:13:22 opening 0.00001 0.00",
        "2026-09-21 14:13:22 credit 0.0000005 0.0000105 0.00 by somebody a gift",
        "2026-09-21 14:13:23 debit 0.0000001 0.0000104 0.00 by somebody =a mistake",
        "2026-09-21 14:13:24 closing 0.0000104 0.00",
    ]


def test_a_statement_as_csv_is_harmless_in_a_spreadsheet(store: SQLiteDatabase) -> None:
    """A reason that begins with `=` is no formula."""
    rows = list(csv.DictReader(io.StringIO(run(store, "statement", "main", "--format", "csv").stdout)))

    assert [row["kind"] for row in rows[:4]] == ["opening", "deposit", "credit", "debit"]
    assert (rows[3]["change"], rows[3]["balance"], rows[3]["reason"]) == ("-0.0000001", "0.0000104", "'=a mistake")
    assert (rows[-1]["kind"], rows[-1]["balance"], rows[-1]["set_aside"]) == ("closing", "0.00001033", "0.000001")


def test_a_statement_as_json_has_whole_nano_dollars(store: SQLiteDatabase) -> None:
    """B1."""
    told = json.loads(run(store, "statement", "main", "--format", "json", "--from", "2026-09-21T14:13:22").stdout)

    assert (told["account"], told["from"], told["to"]) == ("main", BEGAN + 2, None)
    assert told["opening"] == {"balance_nanodollars": 10_000, "set_aside_nanodollars": 0}
    assert told["closing"] == {"balance_nanodollars": 10_330, "set_aside_nanodollars": 1000}
    assert told["entries"][0] == {
        "id": 2,
        "at": BEGAN + 2,
        "kind": "credit",
        "account": "main",
        "turn_id": None,
        "attempt": None,
        "nanodollars": 500,
        "flags": [],
        "actor": "somebody",
        "reason": "a gift",
        "change_nanodollars": 500,
        "balance_nanodollars": 10_500,
        "set_aside_nanodollars": 0,
    }


@pytest.mark.parametrize("form", ["text", "csv", "json"])
def test_a_statement_without_entries_opens_and_closes(store: SQLiteDatabase, form: str) -> None:
    result = run(store, "statement", "main", "--format", form, "--from", "2030-01-01")
    assert result.exit_code == 0
    assert ("opening" in result.stdout, "closing" in result.stdout, "deposit" in result.stdout) == (True, True, False)


def test_an_account_that_nobody_has_is_named_with_the_nearest(store: SQLiteDatabase) -> None:
    result = run(store, "statement", "mian")
    assert (result.exit_code, result.stderr) == (2, 'there is no account mian; did you mean "main"?\n')


# --- house ------------------------------------------------------------------------------------------------------


def test_the_house_s_losses_are_listed_by_route(store: SQLiteDatabase) -> None:
    """B2, B7."""
    assert run(store, "house").stdout.splitlines() == [
        "route  attempts  their cost   late  their charge  loss",
        "a      1         0.000000017  0     0.00          0.000000017",
        "b      0         0.00         1     0.00000007    0.00000007",
        "",
        "credited by hand  0.0000005",
        "debited by hand   0.0000001",
        "loss in all       0.000000487",
    ]
    assert run(store, "house", "--to", "2026-01-01").stdout.startswith("no route has cost the house anything\n")


def test_the_house_s_losses_are_told_to_programs(store: SQLiteDatabase) -> None:
    """B2."""
    assert json.loads(run(store, "house", "--json").stdout) == {
        "routes": {
            "a": {"attempts": 1, "attempt_nanodollars": 17, "late": 0, "late_nanodollars": 0},
            "b": {"attempts": 0, "attempt_nanodollars": 0, "late": 1, "late_nanodollars": 70},
        },
        "credit_nanodollars": 500,
        "debit_nanodollars": 100,
        "loss_nanodollars": 487,
    }


# --- backup and restore -----------------------------------------------------------------------------------------


def test_a_backup_is_made_and_restored(store: SQLiteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "GIVE_UP_SECONDS", 0.0)
    monkeypatch.setattr("gateway.store.backup.time.sleep", lambda _seconds: None)
    file = tmp_path / "backup.sqlite"
    made = run(store, "backup", str(file))
    damage(store)
    store.close()
    restored = run(store, "restore", str(file))
    (aside,) = tmp_path.glob("books.sqlite.before-restore-*")

    assert (made.exit_code, made.stdout) == (
        0,
        f"{file} holds {store.path}: 21 entries of 2 accounts, and they balance\n",
    )
    assert (restored.exit_code, restored.stdout) == (
        0,
        f"{store.path} is {file}: 21 entries of 2 accounts, and they balance; what was there is {aside}\n",
    )
    assert run(store, "verify").exit_code == 0


def test_a_backup_of_books_that_do_not_balance_is_made_and_says_so(store: SQLiteDatabase, tmp_path: Path) -> None:
    """It may be all there is."""
    damage(store)
    result = run(store, "backup", str(tmp_path / "backup.sqlite"))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path}/backup.sqlite is a copy of books that do not balance:\n")
    with closing(sqlite3.connect(tmp_path / "backup.sqlite")) as connection:
        assert connection.execute("select count(*) from entry").fetchone() == (21,)


@pytest.mark.parametrize(
    ("command", "target", "said"),
    [
        ("backup", "gateway.toml", "gateway.toml is there already; name a file that is not"),
        ("backup", "nowhere/backup.sqlite", "nowhere/backup.sqlite cannot be written: No such file or directory"),
        ("restore", "nowhere", "nowhere is no file"),
        ("restore", "gateway.toml", "it is no database"),
        ("restore", "backup.sqlite", "books.sqlite is in use (database is locked): stop the gateways"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    store: SQLiteDatabase, tmp_path: Path, command: str, target: str, said: str
) -> None:
    assert run(store, "backup", str(tmp_path / "backup.sqlite")).exit_code == 0
    result = run(store, command, str(tmp_path / target))
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr


@pytest.mark.parametrize(("command", "tool"), [("backup", "pg_dump"), ("restore", "pg_restore")])
def test_postgresql_brings_its_own_backup(store: SQLiteDatabase, command: str, tool: str) -> None:
    text = '[ledger]\nstore = "postgres"\ndsn = { env = "DSN_OF_TEST" }\n'
    store.path.with_name("gateway.toml").write_text(text, "utf-8")
    result = run(store, command, "file", DSN_OF_TEST="postgresql://nobody@nowhere.invalid/none")
    assert result.exit_code == 2
    assert f"is PostgreSQL, which brings its own: {tool} " in result.stderr
