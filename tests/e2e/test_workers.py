"""`gateway serve --workers 2`: real workers behind one port, replaced under load, killed, orphaned and ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from click.exceptions import Exit
from click.testing import CliRunner
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from e2e.scenarios import ANSWER, KEY, WORDS, write_configuration
from gateway.cli import gateway as command_line
from gateway.cli.configured import read_config, with_server
from gateway.cli.workers import supervise
from gateway.server.last_good import LastGood
from gateway.server.posts import Launch
from gateway.upstream.scripted import Reply, Script
from gateway.upstream.scripts import text_answer
from support.load import under_load
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process, run

HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
LOAD_CLIENTS = 6
SHORT = text_answer(WORDS, response_id="resp_short", pause=0.05)
LONG = Reply((*ANSWER.steps[:7], 6.0, *ANSWER.steps[7:]))
"""Longer than it takes until the first worker is told to drain, shorter than the drain."""
LONG_CLIENTS = 4
CONNECTIONS = 60
"""That all of them come to one worker of two happens once in 2**59 times."""


@dataclass
class Gateway:
    """The supervisor's process and what it said of itself."""

    process: Process
    url: str
    control: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def ask(self, command: str, *options: str) -> str:
        """What `gateway COMMAND` prints."""
        done = run(sys.executable, "-m", "gateway", command, "--control", self.control, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def workers(self) -> list[dict[str, Any]]:
        workers: list[dict[str, Any]] = json.loads(self.ask("status", "--json"))["workers"]
        return workers

    def wait_for_workers(self, pids: set[int]) -> list[dict[str, Any]]:
        """The workers, once two are ready and none is one of these."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = [worker for worker in self.workers() if worker["state"] == "ready"]
            if len(found) == 2 and pids.isdisjoint(worker["pid"] for worker in found):
                return found
        raise AssertionError(self.process.output)


@contextmanager
def two_workers(folder: Path, *, limits: str = "") -> Iterator[Gateway]:
    """A gateway with two workers; its model `short` streams for 0.3 s, `long` for 6 s."""
    replies = {"short": SHORT, "long": LONG}
    scripts = [Script(f"{model}-{number}", [reply]) for model, reply in replies.items() for number in (1, 2)]
    with LoopbackUpstreams(scripts) as upstreams:
        file = write_configuration(folder, {one.name: upstreams.base_url(one.name) for one in scripts}, list(replies))
        head = f'[limits]\n{limits}\n[server]\ncontrol_socket = "gw.sock"\nmetrics_port = 0\n'
        file.write_text(file.read_text().replace("[server]\n", head))
        with gateway_process("serve", "--config", str(file), "--port", "0", "--workers", "2") as process:
            ready = process.wait_for(r'"event": "listening", "url": "(.*?)", "workers": 2, "control": "(.*?)"')
            yield Gateway(process, ready[1], ready[2])


def one_turn(gateway: Gateway, model: str, begun: threading.Event | None = None) -> str:
    """How a turn on a connection of its own went: "completed", or what became of it instead."""
    connection = http.client.HTTPConnection(*gateway.address, timeout=PATIENCE_SECONDS)
    try:
        body = json.dumps({"model": model, "input": "hello", "stream": True})
        connection.request("POST", "/v1/responses", body, HEADERS)
        response = connection.getresponse()
        if begun is not None:
            begun.set()
        text = response.read().decode()
    except ConnectionRefusedError:
        return "refused"
    except (OSError, http.client.HTTPException) as error:
        return f"cut: {error!r}"
    finally:
        connection.close()
    is_whole = response.status == 200 and text.count("event: response.completed\n") == 1
    return "completed" if is_whole else f"{response.status}: {text[-300:]}"


@contextmanager
def running_turns(gateway: Gateway, model: str, count: int) -> Iterator[list[str]]:
    """So many turns that have begun, for the block; how they went stands in the list at its end."""
    outcomes: list[str] = []
    begun = [threading.Event() for _ in range(count)]
    threads = [
        threading.Thread(target=lambda one=one: outcomes.append(one_turn(gateway, model, one)), daemon=True)
        for one in begun
    ]
    for thread in threads:
        thread.start()
    assert all(one.wait(PATIENCE_SECONDS) for one in begun)
    yield outcomes
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


def test_a_rolling_restart_under_load_cuts_nothing_and_refuses_nobody(tmp_path: Path) -> None:
    """And then SIGTERM to the supervisor lets what runs end by itself."""
    with two_workers(tmp_path) as gateway:
        old = {worker["pid"] for worker in gateway.workers()}
        outcomes: list[str] = []

        def play(_number: int) -> None:
            outcomes.append(one_turn(gateway, "short"))

        with running_turns(gateway, "long", LONG_CLIENTS) as long, under_load(play, LOAD_CLIENTS):
            said = gateway.ask("restart")
        assert said == "all 2 workers are replaced\n"
        assert long == ["completed"] * LONG_CLIENTS
        assert set(outcomes) == {"completed"}, outcomes
        new = {worker["pid"] for worker in gateway.workers()}
        assert (len(new), old & new) == (2, set())
        with running_turns(gateway, "short", 1) as last:
            gateway.process.signal(signal.SIGTERM)
        assert last == ["completed"]
        assert gateway.process.wait() == 0, gateway.process.output
        assert one_turn(gateway, "short") == "refused"
        assert '"cut_short"' not in gateway.process.output
        assert not Path(gateway.control).exists()


def test_a_worker_that_is_killed_comes_back_and_its_sibling_serves_on(tmp_path: Path) -> None:
    """And workers whose supervisor is killed drain, and end."""
    with two_workers(tmp_path) as gateway:
        victim, sibling = (worker["pid"] for worker in gateway.workers())
        gateway.process.signal(signal.SIGHUP)
        gateway.process.wait_for('(?s)"routes_unchanged".*"routes_unchanged"')
        os.kill(victim, signal.SIGKILL)
        workers = gateway.wait_for_workers({victim})
        assert [worker["pid"] for worker in workers if worker["restarts"] == 0] == [sibling]
        assert one_turn(gateway, "short") == "completed"
        url = f"{gateway.url.replace('http', 'ws', 1)}/v1/responses"
        with connect(url, additional_headers=HEADERS) as idle:
            gateway.process.signal(signal.SIGKILL)
            with pytest.raises(ConnectionClosed):
                idle.recv(PATIENCE_SECONDS)
            assert idle.close_code == 1012
        assert gateway.process.wait() == -signal.SIGKILL
        gateway.process.wait_for('(?s)"event": "stopped".*"event": "stopped"')


def test_a_second_signal_cuts_what_runs_in_every_worker_and_records_it(tmp_path: Path) -> None:
    """Ctrl-C twice; T7, X2: in the gateway's own words."""
    with two_workers(tmp_path) as gateway:
        with running_turns(gateway, "long", LONG_CLIENTS) as long:
            gateway.process.signal(signal.SIGINT)
            gateway.process.wait_for('(?s)"draining", "worker".*"draining", "worker"')
            gateway.process.signal(signal.SIGINT)
        assert gateway.process.wait() == 1, gateway.process.output
        assert all("server_draining" in outcome for outcome in long), long
        turns = [line for line in gateway.process.output.splitlines() if '"event": "turn"' in line]
        assert [json.loads(line)["outcome"] for line in turns] == ["server_draining"] * LONG_CLIENTS
        assert "Traceback" not in gateway.process.output
        assert '"event": "cut_short"' in gateway.process.output


def test_two_workers_share_what_may_be_there_at_once(tmp_path: Path) -> None:
    """C6: of four connections each has two, whomever the kernel sends where."""
    with two_workers(tmp_path, limits="connections_max = 4") as gateway, ExitStack() as held:
        url = f"{gateway.url.replace('http', 'ws', 1)}/v1/responses"
        statuses = Counter[int]()
        for _ in range(CONNECTIONS):
            try:
                held.enter_context(connect(url, additional_headers=HEADERS))
            except InvalidStatus as refused:
                statuses[refused.response.status_code] += 1
            else:
                statuses[101] += 1
    assert statuses == {101: 4, 503: CONNECTIONS - 4}


def test_a_place_is_only_a_supervisors_to_give(tmp_path: Path) -> None:
    result = CliRunner().invoke(command_line, ["serve", "--config", str(tmp_path / "none"), "--place", "first"])
    assert result.exit_code == 2
    assert "is a supervisor's to give: use --workers" in result.stderr


def test_workers_that_never_come_up_end_the_command_with_3(tmp_path: Path) -> None:
    file = write_configuration(tmp_path, {"m-1": "http://u.test/v1", "m-2": "http://u.test/v1"}, ["m"])
    config = with_server(read_config(file), control_socket=str(tmp_path / "gw.sock"), port=0)
    broken = Launch([sys.executable, "-c", "raise SystemExit(7)"], os.environ)
    with capture_logs() as lines, pytest.raises(Exit) as ended:
        supervise(LastGood(config, lambda: config), 2, lambda _place: broken, "", lambda _candidate: config)
    assert ended.value.exit_code == 3
    assert lines[-2]["event"] == "given_up"


def test_workers_share_one_balance(tmp_path: Path) -> None:
    """C6, B6: a durable ledger is one for all of them; one in memory is refused (tests/cli/test_serve_command.py)."""
    file = write_configuration(tmp_path, {"m-1": "http://127.0.0.1:9/v1", "m-2": "http://127.0.0.1:9/v1"}, ["m"])
    paid = file.read_text().replace('"unlimited"', '"5"').replace('"free"', '{ input = "1", output = "2" }')
    file.write_text(paid)
    with gateway_process("serve", "--config", str(file), "--port", "0", "--workers", "2") as process:
        url = process.wait_for(r'"event": "listening".*"url": "(http://.*?)"')[1]
        request = {"model": "m", "input": "hello", "stream": True, "store": False}
        headers = {"authorization": f"Bearer {KEY}"}
        answers = [httpx2.post(f"{url}/v1/responses", json=request, headers=headers, trust_env=False) for _ in range(5)]
        codes = {answer.json()["error"]["code"] for answer in answers}
    assert codes == {"upstream_connect_error"}
    shown = run(sys.executable, "-m", "gateway", "accounts", "show", "main", "--json", "--config", str(file))
    assert json.loads(shown.stdout)["balance"] == "5.00", shown.stdout
