"""`gateway turns`: what became of a turn, as people and programs read it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.store.schema import prepare
from gateway.store.sqlite import SQLiteDatabase
from support.booked import BEGAN, aged, book_history

SECRETS_ELSEWHERE = """
[ledger]
path = "books.sqlite"

[routes.only]
base_url = "https://upstream.test/v1"
credential = { env = "A_SECRET_THAT_THIS_SHELL_DOES_NOT_HAVE" }
price = "free"
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteDatabase]:
    """What the configuration names, with a history in it that began at `BEGAN`."""
    (tmp_path / "gateway.toml").write_text(SECRETS_ELSEWHERE, "utf-8")
    database = SQLiteDatabase(tmp_path / "books.sqlite")
    prepare(database)
    book_history(database)
    with database.transaction() as session:
        session.run_each("update attempt set opened_at = :at", [{"at": BEGAN + 0.25}])
        session.run_each("update attempt set opened_at = :at where number = 2", [{"at": BEGAN + 1.0}])
        session.run_each("drop trigger entry_no_update", [{}])
        session.run_each("update entry set at = :at", [{"at": BEGAN}])
        session.run_each("update entry set at = :at where kind <> 'reserve'", [{"at": BEGAN + 3.25}])
        session.run_each("update reservation set reserved_at = :at, lease_ends_at = :at", [{"at": BEGAN}])
    yield database
    database.close()


def run(store: SQLiteDatabase, *arguments: str) -> Result:
    file = store.path.with_name("gateway.toml")
    return CliRunner(env={"GATEWAY_CONFIG": None}).invoke(gateway, [*arguments, "--config", str(file)])


def test_turns_are_listed_with_the_newest_first(store: SQLiteDatabase) -> None:
    """L1."""
    result = run(store, "turns", "list", "--since", "2026-01-01", "--limit", "3")

    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "opened (UTC)         turn     account  key     model     door       routes  outcome    seconds  charged",
            "2026-09-21 14:14:20  running  main     laptop  gpt-test  http       -       running    -        -",
            "2026-09-21 14:13:20  failed   main     -       gpt-test  websocket  a       failed     3.250    -",
            "2026-09-21 14:13:20  late     main     laptop  gpt-test  http       b       completed  3.250    -",
        ],
    )


def test_turns_are_listed_for_programs(store: SQLiteDatabase) -> None:
    """L1: amounts and times as the store has them."""
    options = ("--account", "main", "--key", "laptop", "--model", "gpt-test", "--outcome", "completed")
    result = run(store, "turns", "list", *options, "--json")

    found = json.loads(result.stdout)["turns"]
    assert [turn["turn_id"] for turn in found] == ["late", "plain", "replayed"]
    assert found[2] | {"ended_at": None} == {
        "turn_id": "replayed",
        "account": "main",
        "key": "laptop",
        "model": "gpt-test",
        "door": "http",
        "reserved_nanodollars": 1000,
        "opened_at": BEGAN,
        "client_retry_count": "1",
        "client_address": "192.0.2.7",
        "outcome": "completed",
        "ended_at": None,
        "seconds": 3.25,
        "nanodollars": 40,
        "flags": [],
        "routes": ["a", "b"],
        "failure_code": None,
        "failure_kind": None,
        "response_id": "resp_1",
    }


def test_a_list_of_nothing_says_so(store: SQLiteDatabase) -> None:
    assert run(store, "turns", "list", "--outcome", "compleeted").stdout == "no turn matches\n"


def test_a_replayed_turn_shows_both_attempts_and_its_money(store: SQLiteDatabase) -> None:
    """L1: a timeline from the turn's beginning."""
    assert run(store, "turns", "show", "replayed").stdout.splitlines() == [
        "turn replayed",
        "  completed, 2 attempts, 3.250 s",
        "  began     2026-09-21 14:13:20 UTC, door http",
        "  account   main, key laptop",
        "  model     gpt-test",
        "  client    at 192.0.2.7, its retry 1",
        "  response  resp_1",
        "",
        "    0.250 s  attempt 1 on route a",
        "    0.750 s    first event",
        "    1.000 s    server_error: replayed",
        "               usage: 10 input (2 cached), 5 output (1 reasoning)",
        "               the house bears 0.000000017 for it",
        "               response resp_1",
        "               upstream request req_up",
        "",
        "    1.000 s  attempt 2 on route b",
        "    1.500 s    first event",
        "    2.000 s    first output",
        "    3.500 s    completed",
        "               usage: 10 input (2 cached), 5 output (1 reasoning)",
        "               response resp_1",
        "               upstream request req_up",
        "",
        "money, in dollars: 0.00000003 charged of 0.000001 set aside (estimated)",
        "    0.000 s  reserve           0.000001     main",
        "    3.250 s  released          0.000001     main",
        "    3.250 s  settled           0.00000003   main estimated",
        "    3.250 s  house             0.000000017  the house for attempt 1",
    ]


@pytest.mark.parametrize(
    ("turn_id", "lines"),
    [
        (
            "failed",
            [
                "  failed, 1 attempt, 3.250 s",
                "  failure   server_error (upstream_error)",
                "    2.750 s    server_error: not replayed (no_route_left)",
                "money, in dollars: 0.000001 given back",
            ],
        ),
        (
            "running",
            [
                "  running, 1 attempt",
                "               running",
                "money, in dollars: 0.000001 set aside, its lease ends 2026-09-21 14:13:20 UTC",
            ],
        ),
        (
            "late",
            [
                "money, in dollars: 0.000001 given back when the lease ended; "
                "the house bears 0.00000007, which came late"
            ],
        ),
        ("expired", ["  its record has had its time; the entries stay"]),
    ],
)
def test_a_turn_says_how_it_ended(store: SQLiteDatabase, turn_id: str, lines: list[str]) -> None:
    """L1, B3, B7."""
    shown = run(store, "turns", "show", turn_id).stdout.splitlines()
    assert [line for line in lines if line not in shown] == []


def test_a_turn_is_shown_for_programs(store: SQLiteDatabase) -> None:
    """L1."""
    shown = json.loads(run(store, "turns", "show", "replayed", "--json").stdout)

    assert [(a["route"], a["outcome"], a["is_replayed"]) for a in shown["attempts"]] == [
        ("a", "server_error", True),
        ("b", "completed", False),
    ]
    assert [(e["kind"], e["nanodollars"], e["flags"]) for e in shown["entries"]] == [
        ("reserve", 1000, []),
        ("released", 1000, []),
        ("settled", 30, ["estimated"]),
        ("house", 17, []),
    ]
    assert (shown["reservation"]["state"], len(shown["reservation"]["windows"])) == ("settled", 2)
    assert shown["turn"]["turn_id"] == shown["turn_id"] == "replayed"


def test_a_turn_that_nobody_knows_is_told(store: SQLiteDatabase) -> None:
    result = run(store, "turns", "show", "req_none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "there is no turn req_none; `gateway turns list` shows the newest\n"


# --- purge ------------------------------------------------------------------------------------------------------


def test_what_is_due_is_counted_and_then_taken_away(store: SQLiteDatabase) -> None:
    """L1: `ledger.record_days`."""
    aged(store, (BEGAN - time.time()) / 86_400 + 91)
    counted, taken, again = (
        json.loads(run(store, "turns", "purge", "--json", *options).stdout)["purged"]
        for options in (["--dry-run"], [], ["--dry-run"])
    )

    assert (counted["turns"], counted["reservations"]) == (4, 3)
    assert (taken["turns"], taken["reservations"]) == (4, 3)
    assert (again["turns"], again["reservations"]) == (0, 0)


def test_a_dry_run_says_that_it_is_one(store: SQLiteDatabase) -> None:
    assert "0 origins due" in run(store, "turns", "purge", "--dry-run").stdout
    assert "0 origins taken away" in run(store, "turns", "purge").stdout


# --- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--since", "yesterday"], "is no time; write a date like"),
        (["list", "--limit", "0"], "0 is not in the range 1<=x<=10000"),
        (["show"], "Missing argument 'ID'"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(store: SQLiteDatabase, arguments: list[str], said: str) -> None:
    result = run(store, "turns", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_time_may_be_a_date_a_time_or_how_long_ago(store: SQLiteDatabase) -> None:
    """UTC, unless it says otherwise."""
    given = ("2026-09-21", "2026-09-21T14:13:20", "2026-09-21T15:13:20+01:00", "2026-09-21T14:13:21", "1h")
    listed = [json.loads(run(store, "turns", "list", "--json", "--since", at).stdout)["turns"] for at in given]
    assert [len(found) for found in listed] == [5, 5, 5, 1, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[ledger]\nstore = "memory"\n', 'ledger.store: is "memory", which is gone with its process'),
        ('[ledger]\nstore = "sqlight"\n', "ledger.store: is not one of the words allowed here"),
        ('[ledger]\npath = "elsewhere.sqlite"\n', "elsewhere.sqlite does not exist; `gateway serve` makes it"),
        ('[ledger]\npath = "gateway.toml"\n', "gateway.toml: file is not a database"),
        ("[ledger\n", "is not valid TOML"),
    ],
)
def test_a_store_that_cannot_be_read_is_named(store: SQLiteDatabase, text: str, said: str) -> None:
    store.path.with_name("gateway.toml").write_text(text, "utf-8")
    result = run(store, "turns", "list")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_reading_a_store_makes_none(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text("", "utf-8")
    file = str(tmp_path / "gateway.toml")
    result = CliRunner(env={"GATEWAY_CONFIG": None}).invoke(gateway, ["turns", "list", "--config", file])
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.toml"]
