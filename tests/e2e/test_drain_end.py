"""The end of a drain, on real processes: what has not ended by itself, what waits, what would be replayed, who does not
read (T7, R12)."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from e2e.scenarios import ANSWER, BEGINNING, KEY, OVERLOADED, write_configuration
from gateway.upstream.scripted import Reply, Script, Silence
from gateway.upstream.scripts import event, prelude
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process

AUTHORIZED = {"authorization": f"Bearer {KEY}"}
DRAIN_SECONDS = 2.0
MARGIN_SECONDS = 5.0 + 10.0
"""What the whole may take beyond the drain: the margin that is promised, and a machine under load."""
DELTA = event("response.output_text.delta", sequence_number=6, item_id="msg", output_index=0, delta="x" * 60_000)

REPLIES = {
    "plain": ANSWER,
    "silent": Reply((*BEGINNING, Silence())),
    "failing": Reply((*prelude("resp_failing"), 1.5, *OVERLOADED.steps)),
    "flood": Reply((*BEGINNING, *[DELTA] * 400)),
}
"""Answers at once; begins and never ends; holds, and then fails in a way that is replayed otherwise; sends 24 MB."""


@dataclass(frozen=True)
class Draining:
    """A gateway whose drain takes `DRAIN_SECONDS` at most."""

    process: Process
    url: str
    scripts: dict[str, Script]

    def websocket(self) -> Connection:
        return connect(f"{self.url.replace('http', 'ws', 1)}/v1/responses", additional_headers=AUTHORIZED)

    def turns(self) -> list[dict[str, Any]]:
        """The log lines of turns."""
        lines = [json.loads(line) for line in self.process.output.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == "turn"]


@contextmanager
def gateway(folder: Path) -> Iterator[Draining]:
    scripts = {
        f"{model}-{number}": Script(f"{model}-{number}", [reply])
        for model, reply in REPLIES.items()
        for number in (1, 2)
    }
    with LoopbackUpstreams(list(scripts.values())) as upstreams:
        file = write_configuration(folder, {name: upstreams.base_url(name) for name in scripts}, list(REPLIES))
        settings = f"[server]\nmetrics_port = 0\ndrain_timeout = {DRAIN_SECONDS}\n"
        file.write_text(file.read_text().replace("[server]\n", settings))
        with gateway_process("serve", "--config", str(file), "--port", "0") as process:
            url = process.wait_for(r'"event": "listening".*"url": "(http://.*?)"')[1]
            yield Draining(process, url, scripts)


def create(model: str) -> str:
    return json.dumps({"type": "response.create", "model": model, "input": "hello", "store": False})


def frames_of(websocket: Connection) -> list[dict[str, Any]]:
    """What comes until it is closed."""
    frames: list[dict[str, Any]] = []
    try:
        while True:
            frames.append(json.loads(websocket.recv(PATIENCE_SECONDS)))
    except ConnectionClosed:
        return frames


def test_what_has_not_ended_by_itself_is_told_recorded_and_costs_nothing(tmp_path: Path) -> None:
    """T7 on both doors; W3: a create that waits is refused at its turn."""
    request = {"model": "silent", "input": "hello", "stream": True}
    with gateway(tmp_path) as draining:
        process, url = draining.process, draining.url
        with (
            draining.websocket() as busy,
            httpx2.Client(headers=AUTHORIZED, timeout=PATIENCE_SECONDS) as client,
            client.stream("POST", f"{url}/v1/responses", json=request) as response,
        ):
            busy.send(create("silent"))
            busy.recv(PATIENCE_SECONDS)
            busy.send(create("silent"))
            began = time.monotonic()
            process.signal(signal.SIGTERM)
            text, frames = response.read().decode(), frames_of(busy)
            seconds = time.monotonic() - began
        assert process.wait() == 0, process.output
    assert text.count('"code":"server_draining"') >= 1, text
    assert text.count("event: response.failed\n") == 1
    errors = [frame for frame in frames if frame["type"] == "error"]
    assert [(error["status"], error["code"]) for error in errors] == [(503, "server_draining")] * 2
    assert busy.close_code == 1012
    assert DRAIN_SECONDS <= seconds < DRAIN_SECONDS + MARGIN_SECONDS
    told = [(turn["door"], turn["outcome"], turn["ledger"], turn["nanodollars"]) for turn in draining.turns()]
    assert sorted(told) == [
        ("http", "server_draining", "voided", None),
        ("websocket", "server_draining", "voided", None),
    ]


def test_nothing_is_replayed_after_the_signal(tmp_path: Path) -> None:
    """R12: the same failure is replayed before it."""
    with gateway(tmp_path) as draining, draining.websocket() as busy:
        busy.send(create("failing"))
        while len(draining.scripts["failing-1"].calls) < 1:
            time.sleep(0.01)
        draining.process.signal(signal.SIGTERM)
        frames = frames_of(busy)
        assert draining.process.wait() == 0, draining.process.output
    assert draining.scripts["failing-2"].calls == []
    assert frames[-1]["type"] in ("error", "response.failed")
    (turn,) = draining.turns()
    assert turn["attempts"] == [{"route": "failing-1", "outcome": "server_is_overloaded", "reason": "draining"}]


def test_a_connection_that_has_served_turns_serves_more_and_does_not_hold_the_process(tmp_path: Path) -> None:
    """An answer's end must not be cut off from what Hypercorn does after it: the next request, the idle timer."""
    request = {"model": "plain", "input": "hello", "stream": True}
    with (
        gateway(tmp_path) as draining,
        httpx2.Client(headers=AUTHORIZED, timeout=PATIENCE_SECONDS) as client,
    ):
        for _ in range(25):
            answer = client.post(f"{draining.url}/v1/responses", json=request)
            assert answer.text.count("event: response.completed\n") == 1
        began = time.monotonic()
        draining.process.signal(signal.SIGTERM)
        assert draining.process.wait() == 0, draining.process.output
        lines = [json.loads(line) for line in draining.process.output.splitlines() if line.startswith("{")]
    at = {line["event"]: datetime.fromisoformat(line["timestamp"]) for line in lines}
    assert (at["stopped"] - at["draining"]).total_seconds() < DRAIN_SECONDS
    assert time.monotonic() - began < DRAIN_SECONDS + MARGIN_SECONDS


@pytest.mark.parametrize("signals", [1, 2])
def test_a_client_that_reads_nothing_cannot_hold_the_process(tmp_path: Path, signals: int) -> None:
    """Its turn is recorded all the same; on a second signal at once."""
    body = json.dumps({"model": "flood", "input": "hello", "stream": True})
    head = (
        f"POST /v1/responses HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with gateway(tmp_path) as draining:
        parts = urlsplit(draining.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_SECONDS) as deaf:
            deaf.sendall((head + body).encode())
            assert deaf.recv(16)
            began = time.monotonic()
            for _ in range(signals):
                draining.process.signal(signal.SIGTERM)
                draining.process.wait_for('"draining"')
            code = draining.process.wait()
            seconds = time.monotonic() - began
        assert code == signals - 1, draining.process.output
        assert seconds < (DRAIN_SECONDS if signals == 1 else 0) + MARGIN_SECONDS, draining.process.output
        assert len(draining.turns()) == 1, draining.process.output
