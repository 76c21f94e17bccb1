"""Codex CLI: `codex exec`, over server-sent events and over WebSocket, with a home of its own for each run.

A run is one session: Codex plays the tools that the model asks for and the turns behind them by itself. What it shows
are the lines of `--json`: the messages of the agent, the commands that it ran, and how the session ended.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clients.conversation import Asked, Seen
from clients.node_clients import INSTALLED
from support.processes import run

CONFIGURATION: Final = """
model = "{model}"
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.gateway]
name = "gateway"
base_url = "{base_url}"
env_key = "GATEWAY_KEY"
wire_api = "responses"
supports_websockets = {websockets}
request_max_retries = 2
stream_max_retries = 2
stream_idle_timeout_ms = 20000
"""


def codex_sse(asked: Asked) -> Seen:
    """Server-sent events, as the README has it."""
    return codex(asked, is_websocket=False)


def codex_websocket(asked: Asked) -> Seen:
    """`supports_websockets = true`."""
    return codex(asked, is_websocket=True)


def codex(asked: Asked, *, is_websocket: bool, prompt: str = "hello") -> Seen:
    """One session: what it showed."""
    with tempfile.TemporaryDirectory(prefix="codex-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        websockets = str(is_websocket).lower()
        configuration = CONFIGURATION.format(model=asked.model, base_url=asked.base_url, websockets=websockets)
        (home / "config.toml").write_text(configuration, "utf-8")
        command = [str(binary()), "exec", "--skip-git-repo-check", "--json", "--cd", folder, prompt]
        done = run(*command, extra={"CODEX_HOME": str(home), "GATEWAY_KEY": asked.key})
    return tuple(line for text in done.stdout.splitlines() if (line := shown(json.loads(text))))


def binary() -> Path:
    """The program itself, of this machine's kind: its wrapper would outlive a time-out."""
    return next((INSTALLED / "@openai").glob("codex-*/vendor/*/bin/codex"))


def shown(event: Mapping[str, Any]) -> str:
    """A line of the result, or nothing."""
    item = event.get("item", {})
    match event["type"], item.get("type"):
        case "item.completed", "agent_message":
            return str(item["text"])
        case "item.completed", "command_execution":
            return f"exec_command: {item['aggregated_output'].strip()}"
        case "item.completed", "error" if "Model metadata" not in item["message"]:
            return f"[{said(item['message'])}]"
        case "error", _ if event["message"].startswith("Reconnecting"):
            return f"[{said(event['message'])}]"
        case "turn.failed", _:  # the `error` before it says the same
            return f"[turn.failed {said(event['error']['message'])}]"
        case _:
            return ""


def said(message: str) -> str:
    """Without the URL and the request's id, which differ each time."""
    return re.sub(r", (?:url|request id): [^)]*", "", message)
