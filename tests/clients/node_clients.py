"""openai-node, and where Node and what runs on it are: programs of our own in tests/clients/node, one for each way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from clients.conversation import Asked, Client, Seen
from clients.situations import FOUND
from support.processes import run

NODE: Final = Path(__file__).with_name("node")
INSTALLED: Final = NODE / "node_modules"
NODE_VERSION_MIN: Final = 18


def what_is_missing() -> str:
    """Why nothing runs on Node here, or nothing."""
    node = shutil.which("node")
    if node is None:
        return "no Node is installed"
    told = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    version = re.match(r"v(\d+)\.", told)
    if version is None or int(version[1]) < NODE_VERSION_MIN:
        return f"Node {NODE_VERSION_MIN} or newer is wanted, and this is {told.strip() or 'none that starts'}"
    if not INSTALLED.exists():
        return "the npm packages are not installed: `deploy/test --clients` does it"
    return ""


MISSING: Final = what_is_missing()
NPM: Final = [pytest.mark.npm, pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is here")]
"""Of tests that play what npm installs."""


def program(name: str) -> Client:
    """A client that is a program for Node."""

    def client(asked: Asked) -> Seen:
        told = {
            "base_url": asked.base_url,
            "key": asked.key,
            "turns": asked.situation.turns,
            "is_chained": asked.situation.is_chained,
            "pause_seconds": asked.situation.pause_seconds,
            "found": FOUND,
            "first_request": asked.first_request,
        }
        done = run("node", str(NODE / name), extra={"ASKED": json.dumps(told)})
        assert done.returncode == 0, done.stderr
        return tuple(json.loads(done.stdout))

    return client


node_loop = program("stream.mjs")
node_stream = program("stream_helper.mjs")
node_websocket = program("socket.mjs")
