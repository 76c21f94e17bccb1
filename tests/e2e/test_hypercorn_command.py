"""Hypercorn's own command line with deploy/hypercorn.toml."""

import json
import signal
import sys
from pathlib import Path

import httpx2

from e2e.scenarios import ANSWER, KEY, write_configuration
from gateway.upstream.scripted import Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process

COMMAND = [
    *(sys.executable, "-m", "hypercorn", "-k", "trio", "-c", "deploy/hypercorn.toml"),
    *("--bind", "127.0.0.1:0", "gateway.app:app"),
]


def test_it_serves_a_turn_logs_as_the_configuration_says_and_names_the_production_way(tmp_path: Path) -> None:
    names = ("only-1", "only-2")
    with LoopbackUpstreams([Script(name, [ANSWER]) for name in names]) as upstreams:
        file = write_configuration(tmp_path, {name: upstreams.base_url(name) for name in names}, ["only"])
        with Process(COMMAND, GATEWAY_CONFIG=str(file)) as process:
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
        assert f'{file}: server.prot: is not a known key; did you mean "port"?' in process.output
        assert "Running on" not in process.output
