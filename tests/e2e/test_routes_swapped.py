"""Routes swapped in a real gateway of two workers (C2): by `routes apply`, by their file and by SIGHUP, under load."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from e2e.scenarios import CONFIGURATION, KEY, WORDS
from gateway import limits
from gateway.config import Candidate, load_routes
from gateway.server.control import ask
from gateway.upstream.scripted import Script
from gateway.upstream.scripts import text_answer
from support.load import under_load
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process, run

PLACES = ("u0", "u1", "u2")
LOAD_CLIENTS = 4
SWAPS = 8
SOON_SECONDS = 20.0
"""A second until the file is steady, half a second until it is looked at, and a machine under load."""
PAUSE_SECONDS = 0.05
"""Between two looks."""
REQUEST = {"model": "m", "input": "hello", "stream": True, "store": False}


def routes_text(number: int, base_url: str) -> str:
    """The table with that number: its one route is called after it."""
    return (
        f'[routes.r{number}]\nbase_url = "{base_url}"\ncredential = "none"\nprice = "free"\n'
        f'[models.m]\nroutes = ["r{number}"]\n'
    )


@dataclass
class Swapped:
    """The gateway, its routes file, and where its upstreams are."""

    process: Process
    url: str
    control: str
    file: Path
    base_urls: Sequence[str]
    next_number: int = 1

    def ask(self, *arguments: str, code: int = 0) -> str:
        """What `gateway routes …` says; what went wrong, if something was to."""
        done = run(sys.executable, "-m", "gateway", "routes", *arguments, "--control", self.control)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stderr if code else done.stdout

    def tables(self) -> list[str]:
        """Which one each worker serves."""
        return [worker["table"] for worker in self.told("routes_show")]

    def told(self, command: str) -> list[dict[str, Any]]:
        """What the gateway says of its workers: asked here, for a process of its own takes its time to start."""
        answer = trio.run(ask, Path(self.control), {"command": command}, PATIENCE_SECONDS)
        return list(answer["workers"])

    def new_text(self) -> str:
        """A table that there has not been yet."""
        self.next_number += 1
        return routes_text(self.next_number, self.base_urls[self.next_number % len(PLACES)])

    def hash_of(self, text: str) -> str:
        return load_routes(Candidate(text, "a test's"), {}, self.file.parent)[: limits.TABLE_DIGITS]

    def wait_for(self, table: str) -> None:
        """Until both workers serve it."""
        deadline = time.monotonic() + SOON_SECONDS
        while (found := [one[: len(table)] for one in self.tables()]) != [table, table]:
            assert time.monotonic() < deadline, (found, table, self.process.output)
            time.sleep(PAUSE_SECONDS)


@contextmanager
def swapped(folder: Path) -> Iterator[Swapped]:
    answer = text_answer(WORDS, response_id="resp_swapped", pause=0.02)
    with LoopbackUpstreams([Script(place, [answer]) for place in PLACES]) as upstreams:
        base_urls = [upstreams.base_url(place) for place in PLACES]
        head = '[server]\ncontrol_socket = "gw.sock"\nmetrics_port = 0\n'
        gateway = 'routes = "routes.toml"\n' + CONFIGURATION.format(key=KEY).replace("[server]\n", head)
        (folder / "gateway.toml").write_text(gateway)
        (folder / "routes.toml").write_text(routes_text(1, base_urls[1]))
        (folder / "routes.toml").chmod(0o640)
        arguments = ("serve", "--config", str(folder / "gateway.toml"), "--port", "0", "--workers", "2")
        with gateway_process(*arguments) as process:
            ready = process.wait_for(r'"event": "listening", "url": "(.*?)", "workers": 2, "control": "(.*?)"')
            yield Swapped(process, ready[1], ready[2], folder / "routes.toml", base_urls)


@contextmanager
def short_turns(url: str) -> Iterator[list[str]]:
    """Clients that ask for one turn after the other, for the block; how they ended."""
    seen: list[str] = []
    with httpx2.Client(headers={"authorization": f"Bearer {KEY}"}, timeout=PATIENCE_SECONDS, trust_env=False) as client:

        def play(_number: int) -> None:
            answer = client.post(f"{url}/v1/responses", json=REQUEST)
            is_whole = answer.status_code == 200 and answer.text.count("event: response.completed\n") == 1
            seen.append("completed" if is_whole else f"{answer.status_code} {answer.text[-300:]}")

        with under_load(play, LOAD_CLIENTS):
            yield seen


def turns_of(output: str) -> list[dict[str, object]]:
    """The log's lines about turns."""
    return [json.loads(line) for line in output.splitlines() if '"event": "turn"' in line]


def swap_often(gateway: Swapped, times: int) -> dict[str, str]:
    """So many swaps by all ways, with broken files between them; which route each table had."""
    routes = {table[:12]: "r1" for table in gateway.tables()}
    for number in range(times):
        text = gateway.new_text()
        if number % 4 == 0:
            (gateway.file.with_name("new.toml")).write_text(text)
            gateway.ask("apply", str(gateway.file.with_name("new.toml")))
        elif number % 4 == 1:
            gateway.file.write_text(text)
            gateway.process.signal(signal.SIGHUP)
        elif number % 4 == 2:
            staging = gateway.file.with_name("staging.toml")
            staging.write_text(text)
            staging.replace(gateway.file)
        else:
            gateway.file.write_text("[routes.broken]\n")
            gateway.process.signal(signal.SIGHUP)
            gateway.file.write_text(text)
        table = gateway.hash_of(text)
        routes[table] = f"r{gateway.next_number}"
        gateway.wait_for(table)
    return routes


def assert_nothing_is_lost(folder: Path, swaps: int) -> None:
    with swapped(folder) as gateway:
        with short_turns(gateway.url) as seen:
            routes = swap_often(gateway, swaps)
        assert set(seen) == {"completed"}, seen
        assert len(seen) >= swaps
        gateway.process.signal(signal.SIGTERM)
        assert gateway.process.wait() == 0, gateway.process.output
        turns = turns_of(gateway.process.output)
    assert len(turns) == len(seen)
    assert {turn["outcome"] for turn in turns} == {"completed"}
    astray = [turn for turn in turns if turn["attempts"][0]["route"] != routes[str(turn["table"])]]  # type: ignore[index]  # the log's own form
    assert astray == []
    assert "Traceback" not in gateway.process.output


def test_turns_under_load_are_neither_lost_nor_sent_astray_by_swaps(tmp_path: Path) -> None:
    """C2: a slice of the long one."""
    assert_nothing_is_lost(tmp_path, SWAPS)


@pytest.mark.long
def test_a_hundred_swaps_lose_nothing(tmp_path: Path) -> None:
    """C2."""
    assert_nothing_is_lost(tmp_path, 100)


def test_a_table_is_applied_shown_refused_and_gone_back_from(tmp_path: Path) -> None:
    """C2: the whole of `gateway routes`."""
    with swapped(tmp_path) as gateway:
        first = gateway.tables()[0]
        new = tmp_path / "new.toml"
        new.write_text(gateway.new_text())
        said = gateway.ask("apply", str(new))
        second = gateway.hash_of(new.read_text())
        assert said.splitlines()[0] == f"table {second} is in its place"
        assert [line.split()[-1] for line in said.splitlines()[2:]] == [second, second]
        assert gateway.file.read_text() == new.read_text()
        assert os.stat(gateway.file).st_mode & 0o777 == 0o640

        new.write_text('[routes.r9]\nbase_url = "ftp://u"\n[models.m]\nroutes = ["r8"]\n')
        refused = gateway.ask("apply", str(new), code=2).splitlines()
        assert [line.removeprefix(f"{new}: ").split(":")[0] for line in refused] == [
            "routes.r9.base_url",
            "routes.r9.credential",
            "routes.r9.price",
            "models.m.routes[0]",
        ]
        assert [one[:12] for one in gateway.tables()] == [second, second]

        assert gateway.ask("rollback").startswith(f"table {first[:12]} is in its place\n")
        assert gateway.tables() == [first, first]
        assert gateway.ask("rollback", second[:8]).startswith(f"table {second} is in its place\n")
        assert "no table, or more than one, begins with 'ffffffff'" in gateway.ask("rollback", "ffffffff", code=2)
        shown = gateway.ask("show")
        assert shown.startswith(f"table {second}, from {tmp_path}/routes.toml\n")
        kept = [line.split()[0] for line in shown.split("\nkept")[1].splitlines()[1:]]
        assert kept == [second, first[:12]]


def test_how_the_routes_stand_is_shown_of_every_worker_also_of_one_that_is_stopped(tmp_path: Path) -> None:
    """C3, C6: the whole way from a worker's house to a person's terminal."""
    with swapped(tmp_path) as gateway:
        shown = json.loads(gateway.ask("show", "--json"))
        table = gateway.tables()[0]
        assert [(row["number"], row["table"], row["error"]) for row in shown["live"]] == [
            (0, table, None),
            (1, table, None),
        ]
        assert shown["summed"][0] == {
            "name": "r1",
            "open_attempts": 0,
            "workers": 2,
            "cooling_workers": 0,
            "cools_for_seconds": None,
            "is_drained": False,
        }
        lines = gateway.ask("show").split("\nroute ")[-1].splitlines()[1:4]
        assert [line.split()[:5] for line in lines] == [
            ["r1", "all", "0", "-", "serving"],
            ["r1", "0", "0", "-", "serving"],
            ["r1", "1", "0", "-", "serving"],
        ]
        stopped = shown["live"][1]["pid"]
        os.kill(stopped, signal.SIGSTOP)
        try:
            said = gateway.ask("show")
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert f"worker 1 (pid {stopped}) has not answered within 2 s: its routes are not shown" in said
        assert "\nr1     0 " in said
