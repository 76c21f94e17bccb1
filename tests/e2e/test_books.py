"""The books of a real gateway, looked at while it serves: a turn that was replayed, one that failed, what they cost."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.scenarios import ANSWER, KEY, OVERLOADED, write_configuration
from gateway.upstream.scripted import Reply, Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, run, serving_gateway

PRICE = 'price = { input = "1", cached_input = "0.5", output = "2" }'


@dataclass(frozen=True)
class Served:
    """A gateway that serves, its configuration, and the turns that it has served: by model, the turn's id."""

    file: Path
    turns: dict[str, str]

    def gateway(self, *arguments: str, code: int = 0) -> str:
        """What a command beside it says."""
        done = run(sys.executable, "-m", "gateway", *arguments, "--config", str(self.file))
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One turn whose first route was overloaded, and one whose routes both were."""
    folder = tmp_path_factory.mktemp("books")
    replies: dict[str, tuple[Reply, Reply]] = {"replayed": (OVERLOADED, ANSWER), "failing": (OVERLOADED, OVERLOADED)}
    scripts = [Script(f"{model}-{n}", [r]) for model, pair in replies.items() for n, r in enumerate(pair, start=1)]
    with LoopbackUpstreams(scripts) as upstreams:
        base_urls = {script.name: upstreams.base_url(script.name) for script in scripts}
        file = write_configuration(folder, base_urls, list(replies))
        text = (
            file.read_text("utf-8").replace('price = "free"', PRICE).replace('balance = "unlimited"', 'balance = "5"')
        )
        file.write_text(f'[ledger]\npath = "books.sqlite"\n{text}', "utf-8")
        with serving_gateway(file) as (_, url):
            yield Served(file, {model: turn_of(url, model) for model in replies})


def turn_of(url: str, model: str) -> str:
    request = {"model": model, "input": "hello", "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx2.Client(headers=headers, timeout=PATIENCE_SECONDS) as client:
        return str(client.post(f"{url}/v1/responses", json=request).headers["x-request-id"])


def shown(served: Served, model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(served.gateway("turns", "show", served.turns[model], "--json"))
    return found


def test_a_replayed_turn_shows_both_attempts_and_is_charged_for_one(served: Served) -> None:
    """L1, B2."""
    turn = shown(served, "replayed")

    assert [(a["route"], a["is_replayed"]) for a in turn["attempts"]] == [("replayed-1", True), ("replayed-2", False)]
    assert [entry["kind"] for entry in turn["entries"]] == ["reserve", "released", "settled"]
    text = served.gateway("turns", "show", served.turns["replayed"])
    assert "attempt 1 on route replayed-1" in text
    assert ": replayed" in text
    assert "attempt 2 on route replayed-2" in text


def test_a_failed_turn_costs_nothing(served: Served) -> None:
    """B3, L1."""
    turn = shown(served, "failing")

    assert [(a["route"], a["outcome"]) for a in turn["attempts"]] == [
        ("failing-1", "server_is_overloaded"),
        ("failing-2", "server_is_overloaded"),
    ]
    assert (turn["reservation"]["state"], turn["turn"]["nanodollars"]) == ("voided", None)


def test_turns_are_listed_while_the_gateway_serves(served: Served) -> None:
    """L1."""
    listed = json.loads(served.gateway("turns", "list", "--account", "main", "--json"))["turns"]
    assert {turn["turn_id"] for turn in listed} == set(served.turns.values())
    assert served.gateway("turns", "list", "--model", "failing").count("\n") == 2


def test_the_books_balance_while_the_gateway_serves(served: Served) -> None:
    """B8."""
    assert served.gateway("ledger", "verify").endswith("the books balance\n")


def test_a_statement_ends_with_the_balance_that_the_account_has(served: Served) -> None:
    """B8."""
    rows = list(csv.DictReader(io.StringIO(served.gateway("ledger", "statement", "main", "--format", "csv"))))
    account = json.loads(served.gateway("accounts", "show", "main", "--json"))

    assert (rows[0]["balance"], rows[1]["kind"], rows[1]["change"]) == ("0.00", "deposit", "5.00")
    assert (rows[-1]["balance"], rows[-1]["set_aside"]) == (account["balance"], "0.00")
    charge = shown(served, "replayed")["turn"]["nanodollars"]
    assert 5 * 10**9 - round(float(rows[-1]["balance"]) * 10**9) == charge > 0


def test_what_the_house_lost_is_told_while_the_gateway_serves(served: Served) -> None:
    """B2: these upstreams metered nothing of what failed."""
    assert json.loads(served.gateway("ledger", "house", "--json"))["loss_nanodollars"] == 0


def test_a_live_store_is_backed_up_and_not_restored_under_the_gateway(served: Served, tmp_path: Path) -> None:
    backup = tmp_path / "backup.sqlite"
    assert "they balance" in served.gateway("ledger", "backup", str(backup))
    assert "is in use" in served.gateway("ledger", "restore", str(backup), code=2)
    assert served.gateway("ledger", "verify").endswith("the books balance\n")


def test_a_backup_takes_the_place_of_a_store_that_nobody_has(served: Served, tmp_path: Path) -> None:
    """What a gateway on it then has is what was backed up."""
    backup = tmp_path / "backup.sqlite"
    served.gateway("ledger", "backup", str(backup))
    other = tmp_path / "gateway.toml"
    other.write_text(served.file.read_text("utf-8"), "utf-8")
    elsewhere = Served(other, served.turns)
    assert "they balance" in elsewhere.gateway("ledger", "restore", str(backup))

    assert shown(elsewhere, "replayed") == shown(served, "replayed")
    assert elsewhere.gateway("ledger", "statement", "main") == served.gateway("ledger", "statement", "main")
