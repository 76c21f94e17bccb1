"""The admin listener of a real `gateway serve`: found by its log line, its port told apart by the worker's number."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from gateway.config.workers import WORKER
from support.processes import PATIENCE_SECONDS, Process, gateway_process, serving_gateway

CONFIGURATION = """
[server]
allow_inline_secrets = true
metrics_port = {port}

[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = {{ inline = "key" }}

[routes.only]
base_url = "http://127.0.0.1:9/v1"
credential = "none"
price = "free"

[models.gpt]
routes = ["only"]
"""
LISTENING = r'"event": "admin_listening".*"url": "(http://[^"]+)"'


def written(folder: Path, port: int) -> Path:
    file = folder / "gateway.toml"
    file.write_text(CONFIGURATION.format(port=port), encoding="utf-8")
    return file


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=PATIENCE_SECONDS, trust_env=False) as client:
        yield client


def admin_url(process: Process) -> str:
    return process.wait_for(LISTENING)[1]


def free_ports_next_to_each_other() -> int:
    """The lower of two ports that were free a moment ago."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except (OSError, OverflowError):
                continue
            return port


def turn(client: httpx2.Client, url: str) -> None:
    """One turn, which fails: nobody listens upstream."""
    request = {"model": "gpt", "input": "hi", "stream": True, "store": False}
    client.post(f"{url}/v1/responses", json=request, headers={"authorization": "Bearer key"})


def say_garbage(url: str) -> None:
    """A connection that the server cuts."""
    with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0)) as peer:
        peer.sendall(b"garbage\r\n\r\n")
        while peer.recv(4096):
            pass


@pytest.mark.smoke
def test_a_worker_tells_what_it_does_and_changes_what_it_logs(tmp_path: Path, client: httpx2.Client) -> None:
    port = free_ports_next_to_each_other()
    with serving_gateway(written(tmp_path, port), **{WORKER: "1"}) as (process, url):
        admin = admin_url(process)
        turn(client, url)
        process.wait_for('"event": "turn"')  # written beside the response's end
        say_garbage(url)
        text = client.get(f"{admin}/metrics").text
        assert client.post(f"{admin}/log-level", content="error").json() == {"level": "error"}
        turn(client, url)
        again = client.get(f"{admin}/metrics").text
        lines = [json.loads(line) for line in process.output.splitlines()]
    assert admin == f"http://127.0.0.1:{port + 1}"
    assert 'gateway_worker{worker="1"} 1.0' in text
    assert 'gateway_connections_cut_total{why="bad_request"} 1.0' in text
    assert re.search(r"^gateway_open_sockets [12]\.0$", text, re.MULTILINE), (
        "the client's, and what is left of the garbage's"
    )
    assert 'gateway_attempts_total{outcome="upstream_connect_error",route="only"} 1.0' in text
    assert 'gateway_attempts_total{outcome="upstream_connect_error",route="only"} 2.0' in again
    assert [line["client_address"] for line in lines if line["event"] == "turn"] == ["127.0.0.1"]


def worker_of(client: httpx2.Client, port: int) -> str:
    """Which worker answers there, by its own word. Waits while nobody does: an old worker may still be ending."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            text = client.get(f"http://127.0.0.1:{port}/metrics").text
        except httpx2.TransportError:
            assert time.monotonic() < deadline, f"nobody answers at {port}"
            time.sleep(0.1)
        else:
            return text.partition('gateway_worker{worker="')[2].partition('"')[0]


def test_the_workers_of_a_supervisor_are_told_apart_also_after_they_were_replaced(
    tmp_path: Path, client: httpx2.Client
) -> None:
    """A successor starts while its predecessor has the port: it serves meanwhile, and takes the port then."""
    port = free_ports_next_to_each_other()
    command = ("serve", "--config", str(written(tmp_path, port)), "--port", "0", "--workers", "2")
    with gateway_process(*command, XDG_RUNTIME_DIR=str(tmp_path)) as process:
        process.wait_for(r'"event": "listening"')
        before = [worker_of(client, port + number) for number in (0, 1)]
        process.signal(signal.SIGUSR2)
        process.wait_for(r'"event": "restarted"')
        after = [worker_of(client, port + number) for number in (0, 1)]
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert (before, after) == (["0", "1"], ["0", "1"])
    assert "admin_cannot_listen" in process.output
