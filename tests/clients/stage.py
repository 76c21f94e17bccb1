"""Real gateway processes in front of scripted upstreams on loopback: one for each stage that a matrix needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clients.conversation import Asked
from clients.situations import SITUATIONS, Gate, Scripts, gated, situation_of
from gateway.upstream.scripted import Script
from support.loopback import LoopbackUpstreams
from support.processes import PATIENT, Process, run

HOUR_SECONDS = 2.0
"""What stands for the 60 minutes of a connection."""

SWITCH = "replay_expanded_continuations"


@dataclass(frozen=True, slots=True)
class Set:
    """How a stage differs: lines of [server], arguments of `gateway serve`, the program that takes them."""

    server: str = ""
    arguments: tuple[str, ...] = ()
    program: str = PATIENT


SETS: Mapping[str, Set] = {
    "usual": Set(),
    "expanding": Set(f"{SWITCH} = true"),
    "hour": Set(f"connection_limit = {HOUR_SECONDS}"),
    "minute": Set(program=str(Path(__file__).with_name("short_minute.py"))),
    "restart": Set('control_socket = "gw.sock"\nmetrics_port = 0', ("--workers", "2")),
}

HEAD = """
[server]
allow_inline_secrets = true
{server}

[accounts.main]
balance = "unlimited"

[accounts.poor]
balance = "0.000000001"

[keys.main]
account = "main"
secret = {{ inline = "key-main" }}

[keys.poor]
account = "poor"
secret = {{ inline = "key-poor" }}
"""

LIMITED_KEY = """
[keys.rate-{client}]
account = "main"
secret = {{ inline = "key-rate-{client}" }}
requests_per_minute = {count}
"""

ROUTE = """
[routes.{name}]
base_url = "{base_url}"
credential = "none"
price = {{ input = "1", output = "2" }}
"""

MODEL = """
[models.{name}]
routes = {routes}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway with a model for each of its cells."""

    process: Process
    url: str
    scripts: Mapping[str, Script]
    gates: Sequence[Gate]
    folder: Path

    def asked(self, situation: str, client: str) -> Asked:
        """What this client is to ask here."""
        row = situation_of(situation, client)
        secret = f"key-{row.key}-{client}" if row.key == "rate" else f"key-{row.key}"
        return Asked(f"{self.url}/v1", secret, cell_of(situation, client), row)

    def calls(self, cell: str) -> tuple[int, int]:
        """How many calls the cell's two upstreams got."""
        first, second = (len(self.scripts[f"{cell}-{number}"].calls) for number in (1, 2))
        return first, second

    def restart(self) -> str:
        """`gateway restart`: replaces the workers one by one. What it prints."""
        done = run(sys.executable, "-m", "gateway", "restart", "--control", str(self.folder / "gw.sock"))
        assert done.returncode == 0, done.stderr
        return done.stdout


def cell_of(situation: str, client: str) -> str:
    """The model's name."""
    return f"{situation}-{client}"


@contextmanager
def staged(name: str, clients: Sequence[str], folder: Path) -> Iterator[Stage]:
    """The stage of that name, with cells for these clients."""
    gates = (Gate(), Gate())
    scripts = {
        f"{cell_of(situation, client)}-{number}": Script(f"{situation}-{client}-{number}", replies)
        for situation in SITUATIONS
        for client in clients
        if situation_of(situation, client).stage == name
        for number, replies in enumerate(scripts_of(situation, client, gates), start=1)
    }
    with serving(SETS[name], clients, scripts, folder) as (process, url):
        yield Stage(process, url, scripts, gates, folder)


@contextmanager
def serving(
    difference: Set, clients: Sequence[str], scripts: Mapping[str, Script], folder: Path
) -> Iterator[tuple[Process, str]]:
    """A gateway with a model for every two scripts, `MODEL-1` and `MODEL-2`: its process and its URL."""
    with LoopbackUpstreams(list(scripts.values())) as upstreams:
        base_urls = {name: upstreams.base_url(name) for name in scripts}
        file = folder / "gateway.toml"
        file.write_text(_configuration(difference, clients, base_urls), "utf-8")
        command = [sys.executable, difference.program, "serve", "--config", str(file), "--port", "0"]
        with Process([*command, *difference.arguments]) as process:
            yield process, process.wait_for(r'"event": "listening".*?"url": "(http://[^"]+)"')[1]


def scripts_of(name: str, client: str, gates: Sequence[Gate]) -> Scripts:
    """What the cell's two upstreams answer."""
    first, second = situation_of(name, client).scripts(cell_of(name, client))
    return (gated(gates, first) if name == "restart" else first), second


def requests_before_limit(client: str) -> int:
    """One turn; the warm-up of a socket counts, too."""
    return 2 if client == "codex-websocket" else 1


def _configuration(difference: Set, clients: Sequence[str], base_urls: Mapping[str, str]) -> str:
    cells = dict.fromkeys(route.rpartition("-")[0] for route in base_urls)
    return "".join(
        [
            HEAD.format(server=difference.server),
            *(LIMITED_KEY.format(client=client, count=requests_before_limit(client)) for client in clients),
            *(ROUTE.format(name=route, base_url=base_url) for route, base_url in base_urls.items()),
            *(MODEL.format(name=cell, routes=json.dumps([f"{cell}-1", f"{cell}-2"])) for cell in cells),
        ]
    )
