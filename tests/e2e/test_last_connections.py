"""Who waits in the kernel's queue when a gateway is told to end gets an answer, not a reset (T7)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from e2e.scenarios import ANSWER, KEY, write_configuration
from gateway.upstream.scripted import Script
from support.certificates import with_certificate
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, gateway_process, run

CLIENTS = 50
BODY = json.dumps({"model": "plain", "input": "hello", "stream": True}).encode()
REQUEST = (
    b"POST /v1/responses HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer %b\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (KEY.encode(), len(BODY), BODY)
)
REFUSED = rb'(?is)\AHTTP/1\.1 503 .*connection: close.*"code": ?"server_draining"'
SERVED = rb"(?is)\AHTTP/1\.1 200 .*connection: close.*event: response\.completed.*\r\n0\r\n\r\n\Z"
STARTED = r'"event": "worker_started", "worker": %d, "pid": (\d+)'


def pids_of(process: Process) -> list[int]:
    """The processes that serve."""
    control = process.wait_for('"(?:path|control)": "(.*?)"')[1]
    shown = run(sys.executable, "-m", "gateway", "status", "--json", "--control", control)
    return [worker["pid"] for worker in json.loads(shown.stdout)["workers"]]


def answer_to(sock: socket.socket, trust: ssl.SSLContext | None) -> bytes:
    """All that comes to one who asks for a turn."""
    with sock if trust is None else trust.wrap_socket(sock, server_hostname="127.0.0.1") as stream:
        stream.sendall(REQUEST)
        answer = b""
        while data := stream.recv(65_536):
            answer += data
    return answer


@pytest.mark.parametrize("kind", ["one process", "TLS", "two workers", "one of two still starts"])
def test_who_waits_at_the_end_is_answered(kind: str, tmp_path: Path) -> None:
    """They connect while the processes stand still: nobody but the kernel has accepted them."""
    options, trust = with_certificate(tmp_path) if kind == "TLS" else ((), None)
    is_supervised = kind in ("two workers", "one of two still starts")
    options = (*options, "--workers", "2") if is_supervised else options
    scripts = [Script(name, [ANSWER]) for name in ("plain-1", "plain-2")]
    with LoopbackUpstreams(scripts) as upstreams, ExitStack() as held:
        file = write_configuration(tmp_path, {one.name: upstreams.base_url(one.name) for one in scripts}, ["plain"])
        file.write_text(file.read_text().replace("[server]\n", "[server]\nmetrics_port = 0\n"))
        process = held.enter_context(gateway_process("serve", "--config", str(file), "--port", "0", *options))
        if kind == "one of two still starts":
            os.kill(int(process.wait_for(STARTED % 1)[1]), signal.SIGSTOP)
        address = urlsplit(process.wait_for(r'"event": "listening".*"url": "(https?://.*?)"')[1])
        if kind == "two workers":
            process.wait_for(r'(?s)"worker_ready".*"worker_ready"')
        pids = pids_of(process)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        at = (address.hostname or "", address.port or 0)
        waiting = [held.enter_context(socket.create_connection(at, PATIENCE_SECONDS)) for _ in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = [clients.submit(answer_to, sock, trust) for sock in waiting]
            process.signal(signal.SIGTERM)
            if kind == "two workers":
                process.wait_for('"event": "signal"')
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            odd = [
                answer
                for answer in (one.result() for one in answers)
                if not (re.search(REFUSED, answer) or re.search(SERVED, answer))
            ]
        assert odd == []
        assert process.wait() == 0, process.output
