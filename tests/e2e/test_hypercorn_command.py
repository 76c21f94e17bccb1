"""Hypercorn's own command line with deploy/hypercorn.toml."""

import json
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from e2e.scenarios import ANSWER, KEY, write_configuration
from gateway.upstream.scripted import Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process

COMMAND = [
    *(sys.executable, "-m", "hypercorn", "-k", "trio", "-c", "deploy/hypercorn.toml"),
    *("--bind", "127.0.0.1:0", "gateway.app:app"),
]
CHECKED = [one.replace("deploy/hypercorn.toml", "file:deploy/hypercorn.py") for one in COMMAND]


@pytest.mark.parametrize("command", [COMMAND, CHECKED], ids=["toml", "checked"])
def test_it_serves_a_turn_logs_as_the_configuration_says_and_names_the_production_way(
    tmp_path: Path, command: list[str]
) -> None:
    names = ("only-1", "only-2")
    with LoopbackUpstreams([Script(name, [ANSWER]) for name in names]) as upstreams:
        file = write_configuration(tmp_path, {name: upstreams.base_url(name) for name in names}, ["only"])
        with Process(command, GATEWAY_CONFIG=str(file)) as process:
            url = process.wait_for(r'"Running on (http://\S+)')[1]
            response = httpx2.post(
                f"{url}/v1/responses",
                json={"model": "only", "input": "hello", "stream": True},
                headers={"authorization": f"Bearer {KEY}"},
                timeout=PATIENCE_SECONDS,
            )
            assert (response.status_code, response.text.count("event: response.completed\n")) == (200, 1)
            assert "server" not in response.headers
            told = process.wait_for('.*"event": "not_for_production".*')[0]
            assert (json.loads(told)["level"], "use `gateway serve`" in told) == ("warning", True)
            process.wait_for('"event": "turn".*"outcome": "completed"')
            process.signal(signal.SIGTERM)
            assert process.wait() == 0


def test_a_configuration_that_cannot_be_used_is_told_and_nothing_is_served(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    with Process(COMMAND, GATEWAY_CONFIG=str(file)) as process:
        process.wait()
        lines = process.output.splitlines()
        assert lines[0] == f'{file}: server.prot: is not a known key; did you mean "port"?'
        assert all(line.startswith(f"{file}: ") for line in lines)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_checked_before_it_starts_any_worker_it_ends_with_a_code_that_says_so(tmp_path: Path, workers: str) -> None:
    """C1: Hypercorn's first process reads the configuration, too, where its own is a file of Python."""
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    with Process([*CHECKED, "--workers", workers], GATEWAY_CONFIG=str(file)) as process:
        assert process.wait() == 2
        assert process.output.splitlines()[0] == f'{file}: server.prot: is not a known key; did you mean "port"?'
        assert all(line.startswith(f"{file}: ") for line in process.output.splitlines())


def test_served_in_the_process_itself_it_ends_with_a_code_that_says_so(tmp_path: Path) -> None:
    """Hypercorn loses the code of a worker's process."""
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    with Process([*COMMAND, "--workers", "0"], GATEWAY_CONFIG=str(file)) as process:
        assert process.wait() == 2


def test_another_worker_than_trios_is_refused_in_a_sentence(tmp_path: Path) -> None:
    command = [*(sys.executable, "-m", "hypercorn", "-k", "asyncio"), *COMMAND[-3:]]
    with Process(command, GATEWAY_CONFIG=str(tmp_path / "none.toml")) as process:
        process.wait()
        assert process.output.splitlines()[-1] == (
            "the gateway needs Hypercorn's Trio worker: start it with `hypercorn -k trio`, or use `gateway serve`"
        )
        assert "Traceback" not in process.output
