"""What a start costs until `/readyz` is true, and what 200 sockets cost that do nothing: CPU, and time.

`pytest tests/bench/test_start.py -m bench -s` shows the figures; GATEWAY_STARTS=9 takes medians of nine,
GATEWAY_IDLE_SECONDS=300 looks for five minutes. CPU is what the kernel says that the process and its children have had.
"""

from __future__ import annotations

import base64
import http.client
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from e2e.scenarios import KEY, write_configuration
from support.processes import PATIENCE_SECONDS, REPOSITORY, environment

STARTS: Final = int(os.environ.get("GATEWAY_STARTS", "5"))
IDLE_SECONDS: Final = float(os.environ.get("GATEWAY_IDLE_SECONDS", "60"))
IDLE: Final = 200
LOOK_SECONDS: Final = 0.005
SETTLING_SECONDS: Final = 3.0

START_CPU_SECONDS_MAX: Final = 4.0
"""It takes less than one on a machine that does nothing else."""
IDLE_SHARE_MAX: Final = 0.01
"""Of one core, above what the process takes without a socket."""

PING, PONG = b"\x89", b"\x8a\x80\0\0\0\0"

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="CPU time is read from /proc/PID/schedstat"),
]


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until it was ready, all its processes together."""

    cpu: float
    wall: float


def configured(folder: Path, store: str = "sqlite") -> Path:
    """One model with two routes that are https://, as people have them."""
    folder.mkdir(exist_ok=True)
    file = write_configuration(folder, {"m-1": "https://127.0.0.1:9", "m-2": "https://127.0.0.1:9"}, ["m"])
    text = file.read_text("utf-8").replace("[server]\n", f'[server]\nmetrics_port = 0\ncontrol_socket = "{folder}/c"\n')
    file.write_text(f'{text}\n[ledger]\nstore = "{store}"\n', encoding="utf-8")
    return file


@contextmanager
def gateway(file: Path, *options: str) -> Iterator[tuple[int, int, Start]]:
    """`gateway serve`, ready: its pid, its port, and what that has cost."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gateway", "serve", f"--config={file}", f"--port={port}", *options]
    began = time.monotonic()
    with file.with_name("log").open("w") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stderr=log)
    try:
        while not is_ready(port):
            assert process.poll() is None, file.with_name("log").read_text()
            assert time.monotonic() < began + PATIENCE_SECONDS
            time.sleep(LOOK_SECONDS)
        wall = time.monotonic() - began
        yield process.pid, port, Start(sum(map(cpu_seconds, family(process.pid))), wall)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def is_ready(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)) as connection:
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False


def family(pid: int) -> list[int]:
    """The process and those that it has started."""
    told = " ".join(file.read_text("ascii") for file in Path(f"/proc/{pid}/task").glob("*/children"))
    return [pid, *(one for child in told.split() for one in family(int(child)))]


def cpu_seconds(pid: int) -> float:
    """What its threads have had so far."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def tell(words: str) -> None:
    print(f"\n{words}")  # noqa: T201 - what it is run for


@pytest.mark.parametrize(
    ("store", "options", "is_first"),
    [("memory", (), False), ("sqlite", (), False), ("sqlite", (), True), ("sqlite", ("--workers", "2"), False)],
    ids=["memory", "SQLite", "SQLite, the first start", "SQLite, two workers"],
)
def test_a_start_until_it_is_ready(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, options: tuple[str, ...], is_first: bool
) -> None:
    """Issue 7: less than a second of CPU where the store is there."""
    starts = []
    for number in range(STARTS + 1):
        with gateway(configured(tmp_path / (str(number) if is_first else "0"), store), *options) as (_, _, start):
            starts.append(start)
    cpu, wall = ([getattr(one, name) for one in starts[1:]] for name in ("cpu", "wall"))  # the first makes the store
    figures = [f"{median(one):.2f} s {name} ({min(one):.2f})" for name, one in (("CPU", cpu), ("wall", wall))]
    tell(f"{request.node.callspec.id}: {', '.join(figures)}; medians of {STARTS}, and the least")
    assert min(cpu) <= START_CPU_SECONDS_MAX * (3 if options else 1)


def test_two_hundred_idle_sockets_cost_nothing(tmp_path: Path) -> None:
    """Issue 7: of each kind; WebSockets are pinged every 20 s (W7), and answer."""
    shares = {}
    with gateway(configured(tmp_path)) as (pid, port, _):
        shares["none"] = idle_share(pid, [])
        for name, opened in (("keep-alive", kept_alive), ("WebSockets", websocket)):
            sockets = [opened(port) for _ in range(IDLE)]
            shares[name] = idle_share(pid, sockets)
            for one in sockets:
                one.close()
    tell(", ".join(f"{name}: {share:.3%} of a core" for name, share in shares.items()) + f"; {IDLE} sockets each")
    assert max(shares.values()) - shares["none"] <= IDLE_SHARE_MAX


def kept_alive(port: int) -> socket.socket:
    """A connection that has had its answer."""
    one = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    one.sendall(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n")
    assert one.recv(4096).startswith(b"HTTP/1.1 200")
    return one


def websocket(port: int) -> socket.socket:
    """A WebSocket that is open."""
    one = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    lines = [
        "GET /v1/responses HTTP/1.1",
        "Host: gateway",
        f"Authorization: Bearer {KEY}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
    ]
    one.sendall("\r\n".join([*lines, "", ""]).encode())
    assert one.recv(4096).startswith(b"HTTP/1.1 101")
    return one


def idle_share(pid: int, sockets: list[socket.socket]) -> float:
    """The part of a core that the process takes while these do nothing but answer its pings."""
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
        answer_pings(selector, SETTLING_SECONDS)
        before = cpu_seconds(pid)
        answer_pings(selector, IDLE_SECONDS)
        return (cpu_seconds(pid) - before) / IDLE_SECONDS


def answer_pings(selector: selectors.BaseSelector, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            assert (frame := one.recv(4096)).startswith(PING), frame
            one.sendall(PONG)
