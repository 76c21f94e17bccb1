"""`gateway keys`: made, listed, rotated and revoked; their secrets shown once (B6)."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.administered import CONFIGURATION, told
from gateway.cli import gateway
from gateway.keys.secrets import digest_of, is_secret

Run = Callable[..., Result]
DAY_SECONDS = 86_400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIGURATION, encoding="utf-8")
    return path


@pytest.fixture
def run(file: Path) -> Run:
    """`gateway keys ...` on a store with the accounts `acme` and `other`."""
    runner = CliRunner(env={"GATEWAY_KEY": "sk-client", "GATEWAY_CONFIG": str(file)})
    for name in ("acme", "other"):
        runner.invoke(gateway, ["accounts", "create", name])
    return lambda *arguments: runner.invoke(gateway, ["keys", *arguments])


def made(run: Run, *options: str) -> str:
    """A key's secret."""
    result = run("create", *options, "--quiet")
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def listed(run: Run, *options: str) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = json.loads(run("list", "--json", *options).stdout)["keys"]
    return keys


def whole_store(file: Path) -> str:
    """Everything that is in it."""
    return "\n".join(sqlite3.connect(file.parent / "gateway.sqlite").iterdump())


CI = ("--account", "acme", "--name", "ci")


def test_a_secret_is_shown_once_and_kept_nowhere(run: Run, file: Path) -> None:
    """B6: its digest alone is in the store; no command shows it again."""
    code, stdout, stderr = told(run("create", *CI))
    first, second, secret = stdout.splitlines()
    assert (code, stderr) == (0, "")
    assert re.fullmatch(r"the key ci of acme is made \(key_[0-9a-f]{16}\); it does not expire", first)
    assert second == "its secret is shown this once; keep it where secrets are kept:"
    assert is_secret(secret)
    assert secret not in whole_store(file)
    assert digest_of(secret) in whole_store(file)
    shown = run("list").output + run("list", "--json").output
    assert secret not in shown
    assert digest_of(secret) not in shown


def test_a_quiet_command_prints_the_secret_and_nothing_else(run: Run) -> None:
    """B6: for `gateway keys create --quiet > a-file`."""
    code, stdout, stderr = told(run("create", *CI, "--quiet"))
    assert (code, stderr) == (0, "")
    assert is_secret(stdout.removesuffix("\n"))


def test_a_key_is_shown_with_all_that_it_may_do(run: Run) -> None:
    """B6."""
    run(
        "create",
        *CI,
        *("--expires", "2100-01-31", "--models", "gpt", "--requests-per-minute", "60"),
        *("--spend-per-day", "5", "--spend-per-month", "0.000000001", "--time-zone", "Asia/Tokyo", "--replay", "never"),
    )
    (key,) = listed(run)
    assert (key["account"], key["name"], key["state"]) == ("acme", "ci", "active")
    assert key["expires"] == "2100-01-31T00:00:00+09:00"
    assert key["created"].endswith("+09:00")
    assert key["limits"] == {
        "models": ["gpt"],
        "requests_per_minute": 60,
        "spend_per_day": "5.00",
        "spend_per_month": "0.000000001",
        "time_zone": "Asia/Tokyo",
        "replay": "never",
    }
    headline, line = run("list").stdout.splitlines()
    assert headline.split() == ["id", "account", "name", "state", "created", "expires", "limits"]
    assert line.endswith(
        "models=gpt requests_per_minute=60 spend_per_day=5.00 spend_per_month=0.000000001"
        " time_zone=Asia/Tokyo replay=never"
    )


def test_a_program_gets_the_secret_with_the_rest(run: Run) -> None:
    """House: results are named words."""
    answer = json.loads(run("create", *CI, "--json").stdout)
    secret = answer.pop("secret")
    assert is_secret(secret)
    assert answer == {"result": "created", **listed(run)[0]}


@pytest.mark.parametrize(
    ("written", "seconds"), [("30d", 30 * DAY_SECONDS), ("12h", 43_200), ("90m", 5_400), ("45s", 45)]
)
def test_a_key_may_end_after_a_while(run: Run, written: str, seconds: int) -> None:
    """B6."""
    made(run, *CI, "--expires", written)
    (key,) = listed(run)
    lasts = datetime.fromisoformat(key["expires"]) - datetime.fromisoformat(key["created"])
    assert abs(lasts.total_seconds() - seconds) <= 1


def test_keys_are_listed_by_account(run: Run) -> None:
    """House."""
    made(run, *CI)
    made(run, "--account", "other", "--name", "ci")
    assert [key["account"] for key in listed(run)] == ["acme", "other"]
    assert [key["account"] for key in listed(run, "--account", "other")] == ["other"]


# --- rotating and revoking --------------------------------------------------------------------------------------


def test_a_rotated_key_has_two_secrets_for_the_overlap(run: Run) -> None:
    """B6: the new one like the old one, which ends after it."""
    old = made(run, *CI, "--requests-per-minute", "60")
    result = run("rotate", "ci", "--overlap", "24h", "--quiet")
    first, second = listed(run)
    assert result.exit_code == 0
    assert is_secret(result.stdout.strip())
    assert result.stdout.strip() != old
    assert (second["name"], second["limits"], second["expires"]) == ("ci", first["limits"], None)
    lasts = datetime.fromisoformat(first["expires"]) - datetime.fromisoformat(second["created"])
    assert abs(lasts.total_seconds() - DAY_SECONDS) <= 1


def test_a_key_is_revoked_by_name_with_all_its_secrets(run: Run) -> None:
    """B6: a leak ends with one command."""
    made(run, *CI)
    run("rotate", "ci", "--overlap", "24h")
    ids = [key["id"] for key in listed(run)]
    assert told(run("revoke", "ci")) == (0, f"the key ci of acme is revoked: {', '.join(ids)}\n", "")
    assert [key["state"] for key in listed(run)] == ["revoked", "revoked"]


def test_one_of_its_secrets_is_revoked_by_id(run: Run) -> None:
    """B6: the old one before its overlap is over."""
    made(run, *CI)
    run("rotate", "ci", "--overlap", "24h")
    old, new = (key["id"] for key in listed(run))
    answer = json.loads(run("revoke", old, "--json").stdout)
    assert answer == {"result": "revoked", "account": "acme", "name": "ci", "ids": [old]}
    assert {key["id"]: key["state"] for key in listed(run)} == {old: "revoked", new: "active"}


def test_the_account_says_which_key_of_a_name_is_meant(run: Run) -> None:
    """B6."""
    made(run, *CI)
    made(run, "--account", "other", "--name", "ci")
    several = "several accounts have a key ci: acme, other; say which with --account\n"
    assert told(run("revoke", "ci")) == (1, "", several)
    assert told(run("rotate", "ci", "--overlap", "1h")) == (1, "", several)
    assert run("revoke", "ci", "--account", "other").exit_code == 0
    assert [key["state"] for key in listed(run)] == ["active", "revoked"]
    assert run("rotate", "ci", "--overlap", "1h").exit_code == 0, "only one of them works"


# --- what cannot be done ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word", "sentence"),
    [
        (["create", *CI], "exists", "acme has a key ci that works; rotate or revoke it, or choose another name"),
        (
            ["create", "--account", "nobody", "--name", "x"],
            "account_not_found",
            "there is no account nobody; `gateway accounts create nobody` opens it",
        ),
        (
            ["create", "--account", "main", "--name", "main"],
            "exists",
            "the configuration has a key main of main; choose another name",
        ),
        (
            ["create", "--account", "acme", "--name", "x", "--models", "gpt,gtp"],
            "model_not_found",
            'the configuration has no model gtp; did you mean "gpt"?',
        ),
        (
            ["create", "--account", "acme", "--name", "x", "--expires", "2020-01-31"],
            "invalid_expiry",
            "2020-01-31T00:00:00+00:00 is over; name a time to come",
        ),
        (
            ["revoke", "nothing"],
            "not_found",
            "there is no key nothing that works; `gateway keys list` shows all there are",
        ),
        (
            ["rotate", "nothing", "--overlap", "1h"],
            "not_found",
            "there is no key nothing that works; `gateway keys list` shows all there are",
        ),
        (
            ["rotate", "ci", "--overlap", "1h", "--account", "other"],
            "not_found",
            "there is no key ci that works; `gateway keys list` shows all there are",
        ),
    ],
)
def test_what_cannot_be_done_changes_nothing(run: Run, arguments: list[str], word: str, sentence: str) -> None:
    """B6: exit code 1, a sentence or its word."""
    made(run, *CI)
    before = listed(run)
    assert told(run(*arguments)) == (1, "", f"{sentence}\n")
    answer = run(*arguments, "--json")
    assert (answer.exit_code, answer.stderr) == (1, "")
    assert json.loads(answer.stdout) == {"result": word, "message": sentence}
    assert listed(run) == before


def test_a_closed_account_gets_no_key(run: Run, file: Path) -> None:
    """B6."""
    environment = {"GATEWAY_KEY": "sk-client", "GATEWAY_CONFIG": str(file)}
    CliRunner(env=environment).invoke(gateway, ["accounts", "close", "acme", "--reason", "gone"])
    assert told(run("create", *CI)) == (1, "", "the account acme is closed\n")


def test_a_revoked_key_is_not_revoked_again_nor_rotated(run: Run) -> None:
    """B6; its name is free for another key."""
    made(run, *CI)
    run("revoke", "ci")
    assert run("revoke", "ci").exit_code == 1
    assert run("rotate", "ci", "--overlap", "1h").exit_code == 1
    made(run, *CI)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["create", *CI, "--expires", "soon"], "'--expires': is neither a date nor a time; write a date like"),
        (["create", *CI, "--expires", "-1d"], "'--expires': is neither a date nor a time; write a date like"),
        (["create", *CI, "--expires", "9999-12-31"], "'--expires': is in a year that no zone's calendar is sure of"),
        (["create", *CI, "--time-zone", "Mars"], "'--time-zone': is no time zone that is known here; use a name like"),
        (["create", *CI, "--models", "gpt,"], "'--models': is not a usable name"),
        (["create", *CI, "--requests-per-minute", "0"], "'--requests-per-minute': 0 is not in the range"),
        (["create", *CI, "--spend-per-day", "0"], "'--spend-per-day': is nothing; write more than 0"),
        (["create", *CI, "--spend-per-day", "nan"], "'--spend-per-day': is not an amount of money"),
        (["create", *CI, "--replay", "always"], "'--replay': 'always' is not one of 'auto', 'never'"),
        (["create", "--account", "acme"], "Missing option '--name'"),
        (["create", "--name", "ci"], "Missing option '--account'"),
        (["create", "--account", "acme", "--name", "a b"], "'--name': is not a usable name"),
        (["rotate", "ci"], "Missing option '--overlap'"),
        (["rotate", "ci", "--overlap", "24"], "'--overlap': is no duration; write a whole number and its unit"),
        (["rotate", "ci", "--overlap", "1.5h"], "'--overlap': is no duration; write a whole number and its unit"),
    ],
)
def test_what_is_wrongly_written_is_named_with_its_fix(run: Run, arguments: list[str], problem: str) -> None:
    """B6: exit code 2."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr
    assert listed(run) == []
