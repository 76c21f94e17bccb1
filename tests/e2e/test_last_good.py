"""Real workers that die or are replaced while the files cannot be used: the last good configuration serves (C1, C2)."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.scenarios import KEY
from e2e.test_routes_swapped import PAUSE_SECONDS, REQUEST, Swapped, swapped
from support.processes import PATIENCE_SECONDS, Process, run

BROKEN = "[routes.broken\n"


def workers(gateway: Swapped) -> list[dict[str, Any]]:
    """Those that are ready."""
    return [worker for worker in gateway.told("status") if worker["state"] == "ready"]


def kill_one(gateway: Swapped) -> int:
    """And wait until another is ready in its place: its number."""
    victim = workers(gateway)[0]
    os.kill(victim["pid"], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := workers(gateway)) != 2 or victim["pid"] in [worker["pid"] for worker in found]:
        assert time.monotonic() < deadline, gateway.process.output
        time.sleep(PAUSE_SECONDS)
    return int(victim["number"])


def lines(gateway: Swapped, event: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gateway.process.output.splitlines() if f'"event": "{event}"' in line]


def assert_all_complete(gateway: Swapped, count: int = 20) -> None:
    """Each on a connection of its own, so that both workers get some."""
    headers = {"authorization": f"Bearer {KEY}", "connection": "close"}
    with httpx2.Client(headers=headers, timeout=PATIENCE_SECONDS, trust_env=False) as client:
        for _ in range(count):
            answer = client.post(f"{gateway.url}/v1/responses", json=REQUEST)
            assert answer.text.count("event: response.completed\n") == 1, answer.text


def broken_routes(gateway: Swapped) -> None:
    gateway.file.write_text(BROKEN)


def broken_gateway_toml(gateway: Swapped) -> None:
    gateway.file.with_name("gateway.toml").write_text("routes = \n")


def store_of_ones_own(gateway: Swapped) -> None:
    """Right for one process, wrong for two (C6)."""
    file = gateway.file.with_name("gateway.toml")
    file.write_text(f'{file.read_text()}\n[ledger]\nstore = "memory"\n')


@pytest.mark.parametrize("spoil", [pytest.param(broken_routes, marks=pytest.mark.long), broken_gateway_toml])
def test_a_worker_that_dies_while_the_files_are_broken_comes_back_with_the_last_good_table(
    tmp_path: Path, spoil: Any
) -> None:
    """C1, C2: the newest that could be used, not that of the start; it says so, and follows when they are repaired."""
    with swapped(tmp_path) as gateway:
        gateway.file.write_text(text := gateway.new_text())
        gateway.wait_for(table := gateway.hash_of(text))
        whole = gateway.file.with_name("gateway.toml").read_text()
        spoil(gateway)
        number = kill_one(gateway)

        assert [one[: len(table)] for one in gateway.tables()] == [table, table]
        assert_all_complete(gateway)
        (told,) = lines(gateway, "last_good_serves")
        assert (told["level"], told["worker"], told["table"]) == ("error", number, table)
        assert told["problems"]
        gateway.process.wait_for(rf'"event": "routes_refused".*"worker": {number}|"worker": {number}.*"routes_refused"')
        assert told["problems"][0] in gateway.ask("show")

        gateway.file.with_name("gateway.toml").write_text(whole)
        gateway.file.write_text(text := gateway.new_text())
        gateway.wait_for(gateway.hash_of(text))
        assert_all_complete(gateway)


def test_a_worker_that_dies_while_a_secrets_file_is_gone_comes_back_with_the_secret(tmp_path: Path) -> None:
    with swapped(tmp_path) as gateway:
        secret = tmp_path / "secret"
        secret.write_text("sk-1")
        text = gateway.new_text().replace('credential = "none"', 'credential = { file = "secret" }')
        gateway.file.write_text(text)
        gateway.process.wait_for('(?s)"routes_applied".*"routes_applied"')
        table = gateway.tables()[0]
        secret.unlink()
        kill_one(gateway)
        assert gateway.tables() == [table, table]
        assert_all_complete(gateway)
        assert "sk-1" not in gateway.process.output


@pytest.mark.parametrize(
    "spoil", [broken_routes, pytest.param(broken_gateway_toml, marks=pytest.mark.long), store_of_ones_own]
)
def test_a_restart_with_files_that_cannot_be_used_changes_nothing_and_says_why(tmp_path: Path, spoil: Any) -> None:
    """C1: whoever restarts wants what is in the files now."""
    with swapped(tmp_path) as gateway:
        before = workers(gateway)
        spoil(gateway)
        refused = run(sys.executable, "-m", "gateway", "restart", "--control", gateway.control)
        assert refused.returncode == 1
        assert "worker 0: its successor cannot use the configuration:" in refused.stderr
        assert str(tmp_path) in refused.stderr
        gateway.process.signal(signal.SIGUSR2)
        gateway.process.wait_for('(?s)"restart_given_up".*"restart_given_up"')
        assert [worker["pid"] for worker in workers(gateway)] == [worker["pid"] for worker in before]
        assert_all_complete(gateway)


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_whoever_starts_with_files_that_cannot_be_used_is_refused(tmp_path: Path, options: Sequence[str]) -> None:
    """C1: also where the last good table lies beside the routes file, as after a restart of the machine."""
    with swapped(tmp_path) as gateway:
        (tmp_path / "new.toml").write_text(gateway.new_text())
        gateway.ask("apply", str(tmp_path / "new.toml"))
        gateway.file.write_text(BROKEN)
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(tmp_path / "gateway.toml"), *options]
    with Process(command) as process:
        assert process.wait() == 2
        assert process.output.startswith(f"{tmp_path}/routes.toml: line 1, column ")
