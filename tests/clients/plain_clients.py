"""Clients without an SDK: `websockets`, `httpx` and `curl`. They read what the gateway's documents say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from clients.conversation import Asked, Ear, Seen, converse
from clients.reopening import Reopened
from support.processes import PATIENCE_SECONDS, run


def websockets_library(asked: Asked) -> Seen:
    """One connection for all turns."""

    def ask(connection: ClientConnection, request: dict[str, Any]) -> Ear:
        ear = Ear()
        connection.send(json.dumps({"type": "response.create", **request}))
        while not ear.hear(json.loads(connection.recv(PATIENCE_SECONDS))):
            pass
        return ear

    socket = Reopened(lambda: connect(asked.websocket_url, additional_headers=asked.headers, max_size=None), ask)
    try:
        return converse(asked, socket.turn)
    finally:
        socket.close()


def httpx_library(asked: Asked) -> Seen:
    """A pooled client that reads the events' lines."""
    with httpx.Client(headers=asked.headers, timeout=PATIENCE_SECONDS, trust_env=False) as client:

        def turn(request: dict[str, Any]) -> Ear:
            body = {**request, "stream": True}
            with client.stream("POST", f"{asked.base_url}/responses", json=body) as response:
                if response.status_code != 200:
                    return refused(str(response.status_code), response.read())
                return heard(response.iter_lines())

        return converse(asked, turn)


def curl(asked: Asked) -> Seen:
    """A command for each turn."""

    def turn(request: dict[str, Any]) -> Ear:
        body = json.dumps({**request, "stream": True})
        headers = ["-H", f"Authorization: Bearer {asked.key}", "-H", "Content-Type: application/json"]
        status = ["-w", "\n%{http_code} %{exitcode}"]
        url = f"{asked.base_url}/responses"
        done = run("curl", "-sS", "-N", "--noproxy", "*", *status, *headers, "--data-binary", body, url)
        printed, _, last = done.stdout.rpartition("\n")
        code, exit_code = last.split()
        assert exit_code == "0", done.stderr
        return heard(printed.splitlines()) if code == "200" else refused(code, printed.encode())

    return converse(asked, turn)


def heard(lines: Iterable[str]) -> Ear:
    """A turn from an event stream's lines."""
    ear = Ear()
    for line in lines:
        if line.startswith("data:"):
            ear.hear(json.loads(line.removeprefix("data:")))
    return ear


def refused(status: str, body: bytes) -> Ear:
    """A turn that ended before its stream."""
    ear = Ear()
    ear.hear_error(status, json.loads(body)["error"]["code"])
    return ear
