"""The gateway as the lab runs it: `gateway serve` with a configuration that a small company might have.

A key of an account that pays, a priced route, a credential, the log on, metrics on: what is measured is the product.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from bench.lab.placing import Tree
from bench.lab.programs import CannotMeasure
from bench.lab.systems import MODELS, START_SECONDS_MAX, Running, free_port, wait_until_listening
from bench.lab.tls import Front
from gateway.server.control import ask

REPOSITORY: Final = Path(__file__).parents[3]
KEY: Final = "bench-key"
SERVE: Final = ("-m", "gateway", "serve")
TRUSTING: Final = Path(__file__).parent / "trusting.py"


@dataclass(frozen=True, slots=True)
class Settings:
    """What differs between the gateways that are measured."""

    transport: str = "sse"
    store: str = "memory"
    dsn: str | None = None
    workers: int = 1
    has_tls_upstream: bool = False
    front: Front | None = None
    """The TLS end of the upstream, where it has one."""
    python: str = sys.executable
    server: Mapping[str, str] = field(default_factory=dict)
    """Further keys of [server], as TOML values: {"data_plane": '"plain"'}."""


def configuration(settings: Settings, port: int, upstream_port: int) -> str:
    """The gateway's configuration file."""
    dsn = "" if settings.dsn is None else f'dsn = {{ inline = "{settings.dsn}" }}\n'
    server = "".join(f"{name} = {value}\n" for name, value in settings.server.items())
    upstream = f"http://127.0.0.1:{upstream_port}"
    if settings.front is not None:
        upstream = f"https://127.0.0.1:{settings.front.port}"
    models = "".join(f'[models."{model}"]\nroutes = ["lab"]\n' for model in MODELS)
    return f"""
[server]
port = {port}
metrics_port = 0
allow_inline_secrets = true
control_socket = "control.sock"
{server}
[ledger]
store = "{settings.store}"
{dsn}
[accounts.bench]
balance = "1000000.00"

[keys.bench]
account = "bench"
secret = {{ inline = "{KEY}" }}

[routes.lab]
base_url = "{upstream}/v1"
credential = {{ inline = "sk-lab" }}
transport = "{settings.transport}"
price = {{ input = "1.25", cached_input = "0.125", output = "10" }}

{models}"""


def start_gateway(
    settings: Settings,
    folder: Path,
    upstream_port: int,
    core: int | None = None,
    serve: Sequence[str] = SERVE,
) -> Running:
    """Start one in `folder`, which must be its own, and wait until it serves; `serve` is what Python runs."""
    port = free_port()
    file = folder / "gateway.toml"
    file.write_text(configuration(settings, port, upstream_port), encoding="utf-8")
    workers = ["--workers", str(settings.workers)] if settings.workers > 1 else []
    if settings.front is not None:
        serve = (str(TRUSTING), str(settings.front.authority), "serve")
    command = [settings.python, *serve, "--config", str(file), *workers]
    tree = Tree(command, folder / "log", core, PYTHONPATH=f"{REPOSITORY}:{REPOSITORY / 'tests'}")
    wait_until_listening(tree, port)
    running = Running(tree, port, upstream_port, KEY)
    if settings.workers > 1:
        wait_until_all_are_ready(running)
    return running


def wait_until_all_are_ready(running: Running) -> None:
    """Whoever is stopped while it starts is too late when it goes on: its supervisor has another one in its place.
    Raises CannotMeasure."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while {worker["state"] for worker in workers_of(running)} != {"ready"}:
        if time.monotonic() > deadline:
            running.tree.end()
            raise CannotMeasure(f"its workers are not ready after {START_SECONDS_MAX:.0f} s")
        time.sleep(0.05)


def workers_of(running: Running) -> list[dict[str, Any]]:
    """As the supervisor tells of them."""
    answer = trio.run(ask, running.tree.log.parent / "control.sock", {"command": "status"}, 10.0)
    return list(answer["workers"])


def turns_of_workers(running: Running) -> list[int]:
    """How many turns each worker runs now."""
    return [int(worker["turns"]) for worker in workers_of(running)]
