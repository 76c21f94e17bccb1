"""SIGTERM to a real gateway process: what runs ends by itself, what is idle is told, and then the process ends (T7)."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from e2e.scenarios import ANSWER, BEGINNING, KEY, write_configuration
from gateway.upstream.scripted import Reply, Script, Silence
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, serving_gateway

AUTHORIZED = {"authorization": f"Bearer {KEY}"}
SOON_SECONDS = 14.0
"""Far below the drain's 30 s and the pings' 20 s, far above what a process needs to end."""


@contextmanager
def gateway_before(reply: Reply, folder: Path, first: Script | None = None) -> Iterator[tuple[Process, str]]:
    """A gateway whose one model `slow` answers like this; `first` may be the script that is asked."""
    first = first or Script("slow-1", [reply])
    with LoopbackUpstreams([first, Script("slow-2", [reply])]) as upstreams:
        base_urls = {name: upstreams.base_url(name) for name in ("slow-1", "slow-2")}
        with serving_gateway(write_configuration(folder, base_urls, ["slow"])) as served:
            yield served


@contextmanager
def streaming(url: str) -> Iterator[Iterator[str]]:
    """A turn's lines, its first output already read."""
    request = {"model": "slow", "input": "hello", "stream": True}
    with (
        httpx2.Client(headers=AUTHORIZED, timeout=PATIENCE_SECONDS) as client,
        client.stream("POST", f"{url}/v1/responses", json=request) as response,
    ):
        lines = response.iter_lines()
        read_until(lines, "response.output_item.added")
        yield lines


def read_until(lines: Iterator[str], event_type: str) -> None:
    assert any(line == f"event: {event_type}" for line in lines), f"no {event_type}"


def frames_until_closed(websocket: Connection) -> list[str]:
    frames: list[str] = []
    try:
        while True:
            frames.append(str(websocket.recv(PATIENCE_SECONDS)))
    except ConnectionClosed:
        return frames


def accepts_connections(url: str) -> bool:
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_running_stream_ends_by_itself_and_an_idle_websocket_is_told(tmp_path: Path) -> None:
    """T7, W6: in between, nobody new is let in; then the process ends at once, with exit code 0."""
    rest = ANSWER.steps[len(BEGINNING) :]
    reply = Reply((*BEGINNING, 1.0, *rest[:1], 1.0, *rest[1:]))
    with gateway_before(reply, tmp_path) as (process, url):
        websocket_url = f"{url.replace('http', 'ws', 1)}/v1/responses"
        with connect(websocket_url, additional_headers=AUTHORIZED) as idle, streaming(url) as lines:
            process.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as raised:
                idle.recv(PATIENCE_SECONDS)
            assert raised.value.rcvd is not None
            assert (raised.value.rcvd.code, raised.value.rcvd.reason) == (1012, "service restart")
            read_until(lines, "response.output_text.delta")
            assert not accepts_connections(url)
            read_until(lines, "response.completed")
        assert process.wait(SOON_SECONDS) == 0, process.output
        assert '"outcome": "completed"' in process.output
        assert '"event": "stopped"' in process.output


def test_a_busy_websocket_finishes_its_turn_before_it_is_closed(tmp_path: Path) -> None:
    """W6."""
    reply = Reply((*BEGINNING, 1.0, *ANSWER.steps[len(BEGINNING) :]))
    with gateway_before(reply, tmp_path) as (process, url):
        with connect(f"{url.replace('http', 'ws', 1)}/v1/responses", additional_headers=AUTHORIZED) as busy:
            busy.send('{"type": "response.create", "model": "slow", "input": "hello", "store": false}')
            busy.recv(PATIENCE_SECONDS)
            process.signal(signal.SIGTERM)
            frames = frames_until_closed(busy)
        assert '"response.completed"' in frames[-1]
        assert busy.close_code == 1012, process.output
        assert process.wait(SOON_SECONDS) == 0, process.output


def test_an_idle_keep_alive_connection_does_not_hold_the_process(tmp_path: Path) -> None:
    with (
        gateway_before(ANSWER, tmp_path) as (process, url),
        httpx2.Client(timeout=PATIENCE_SECONDS) as client,
    ):
        assert client.get(f"{url}/readyz").json() == {"status": "ready"}
        process.signal(signal.SIGTERM)
        assert process.wait(SOON_SECONDS) == 0, process.output


def test_a_second_signal_cuts_what_runs(tmp_path: Path) -> None:
    """T7, B3: it is recorded as the drain's doing, and costs the client nothing."""
    with gateway_before(Reply((*BEGINNING, Silence())), tmp_path) as (process, url), streaming(url) as lines:
        process.signal(signal.SIGTERM)
        process.wait_for('"draining"')
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        read_until(lines, "response.failed")
        assert process.wait() == 1
        assert time.monotonic() - began < SOON_SECONDS
        assert '"event": "cut_short"' in process.output
        turn = next(json.loads(line) for line in process.output.splitlines() if '"event": "turn"' in line)
        attempt = {"route": "slow-1", "outcome": "server_draining", "reason": "output_delivered"}
        assert (turn["outcome"], turn["attempts"]) == ("server_draining", [attempt])
        assert (turn["ledger"], turn["nanodollars"], turn["flags"]) == ("voided", None, ["unmetered"])
        assert "Traceback" not in process.output


@pytest.mark.parametrize("streams", [True, False])
def test_a_second_signal_answers_what_had_no_answer_yet(tmp_path: Path, streams: bool) -> None:
    """T7, X2: as the drain's end does."""
    request = {"model": "slow", "input": "hello", "stream": streams}
    silence = Reply((Silence(),))
    asked = Script("slow-1", [silence])
    with gateway_before(silence, tmp_path, asked) as (process, url), ThreadPoolExecutor(1) as beside:
        post = partial(httpx2.post, json=request, headers=AUTHORIZED, timeout=PATIENCE_SECONDS)
        answering = beside.submit(post, f"{url}/v1/responses")
        while not asked.calls:
            time.sleep(0.01)
        process.signal(signal.SIGTERM)
        process.wait_for('"draining"')
        process.signal(signal.SIGTERM)
        answer = answering.result(SOON_SECONDS)
        assert process.wait() == 1
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_draining")
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-request-id"].startswith("req_")
