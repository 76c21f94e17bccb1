"""Real `gateway serve` processes on one store, in front of scripted upstreams, under load; killed and started again.

with stage(folder, store) as s, s.serve() as (process, url), load(lambda: url, …):
    process.kill()
"""

from __future__ import annotations

import http.client
import json
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from crash.proof import Fetch
from crash.worlds import assert_at_rest
from e2e.scenarios import KEY, WORDS
from gateway.upstream.scripted import Break, Reply, Script, Silence
from gateway.upstream.scripts import prelude, text_answer, two_step_failure
from support.load import under_load
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, run

HEADERS: Final = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
BALANCE: Final = 1_000_000_000_000
PRICE: Final = 12 * 1000 + len(WORDS) * 2000
"""What a whole answer costs: 12 tokens in, one for each word out."""

CONFIGURATION = """
[server]
absent_store = "false"
allow_inline_secrets = true
metrics_port = "off"

[ledger]
{ledger}
lease = {lease}
spool = "spool"

[accounts.main]
balance = "1000"

[keys.main]
account = "main"
secret = {{ inline = "{key}" }}
"""
ROUTE = """
[routes.{name}]
base_url = "{base_url}"
credential = "none"
price = {{ input = "1", cached_input = "1", output = "2", reasoning = "2" }}
"""
MODEL = """
[models.{name}]
routes = {routes}
max_output_tokens = 1000
"""

ANSWER = text_answer(WORDS, response_id="resp_answer", pause=0.02)
OVERLOADED = two_step_failure("server_is_overloaded", "The engine is overloaded.", response_id="resp_overloaded")
REPLIES: Mapping[str, tuple[Reply, Reply]] = {
    # a model: what its first route does, what its second
    "plain": (ANSWER, ANSWER),
    "replayed": (OVERLOADED, ANSWER),
    "broken": (Reply((*ANSWER.steps[:8], Break())), ANSWER),
    "long": (text_answer(WORDS, response_id="resp_long", pause=2.0), ANSWER),
    "middling": (text_answer(WORDS, response_id="resp_middling", pause=0.5), ANSWER),
    "replayed-late": (Reply((*prelude("resp_late"), 3.0, *OVERLOADED.steps)), ANSWER),
    "silent": (Reply((*ANSWER.steps[:8], Silence())), ANSWER),
}


# --- stores -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoreSettings:
    """How the configuration names the store, and how the test reads it."""

    ledger: str
    fetch: Fetch


def sqlite_store(folder: Path) -> StoreSettings:
    """A file in the folder."""

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(folder / "gateway.sqlite", timeout=PATIENCE_SECONDS)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    return StoreSettings('store = "sqlite"\npath = "gateway.sqlite"', fetch)


def postgres_store(dsn: str) -> StoreSettings:
    """A database of a server."""

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn, options="-c search_path=gateway") as connection:
            return connection.execute(statement.encode()).fetchall()

    url = f"postgresql:///?{urlencode(conninfo_to_dict(dsn))}"
    return StoreSettings(f'store = "postgres"\ndsn = {{ inline = "{url}" }}', fetch)


# --- the stage --------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """Upstreams, a configuration file, and a store that outlives every process."""

    folder: Path
    file: Path
    scripts: Mapping[str, Script]
    fetch: Fetch

    def start(self) -> Process:
        """A process that may or may not come to serve."""
        return Process([sys.executable, "-m", "gateway", "serve", "--config", str(self.file), "--port", "0"])

    @contextmanager
    def serve(self) -> Iterator[tuple[Process, str]]:
        """A process that serves, and where."""
        with self.start() as process:
            yield process, url_of(process)

    def calls(self, *models: str) -> int:
        """How many requests the upstreams of these models got."""
        return sum(len(self.scripts[f"{model}-{number}"].calls) for model in models for number in (1, 2))

    def spooled(self) -> list[str]:
        """The lines in the spool."""
        files = sorted((self.folder / "spool").glob("*.jsonl"))
        return [line for file in files for line in file.read_text().splitlines()]

    def wait_until_open(self, count: int) -> None:
        """Until so many reservations are open."""
        still_open = "select 1 from reservation where state = 'reserved'"
        wait_until(lambda: len(self.fetch(still_open)) == count)

    def wait_until_at_rest(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Until nothing is open; then everything is proven, by the gateway's own command, too."""
        wait_until(lambda: not self.fetch("select 1 from reservation where state = 'reserved'"), seconds)
        open_records = "select 1 from turn where outcome is null union all select 1 from attempt where outcome is null"
        wait_until(lambda: not self.fetch(open_records), seconds)
        assert_at_rest(self.fetch)
        verified = run(sys.executable, "-m", "gateway", "ledger", "verify", "--config", str(self.file))
        assert verified.returncode == 0, verified.stdout + verified.stderr

    def money(self) -> dict[str, str]:
        """How each turn's reservation ended: "settled 24000", "voided", "expired"."""
        rows = self.fetch("select turn_id, state, resolved_nanodollars from reservation")
        return {turn_id: f"{state} {amount}" if state == "settled" else state for turn_id, state, amount in rows}


def url_of(process: Process) -> str:
    """Where it serves, once it does."""
    return process.wait_for(r'"event": "listening".*"url": "(http://[^"]+)"')[1]


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """AssertionError if it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


@contextmanager
def stage(folder: Path, store: StoreSettings, lease: float = 1.0) -> Iterator[Stage]:
    """Upstreams for every model in REPLIES, and the file."""
    scripts = {
        f"{model}-{number}": Script(f"{model}-{number}", [reply])
        for model, pair in REPLIES.items()
        for number, reply in enumerate(pair, start=1)
    }
    with LoopbackUpstreams(list(scripts.values())) as upstreams:
        parts = [CONFIGURATION.format(ledger=store.ledger, lease=lease, key=KEY)]
        parts += [ROUTE.format(name=name, base_url=upstreams.base_url(name)) for name in scripts]
        parts += [MODEL.format(name=m, routes=json.dumps([f"{m}-1", f"{m}-2"])) for m in REPLIES]
        file = folder / "gateway.toml"
        file.write_text("".join(parts), encoding="utf-8")
        yield Stage(folder, file, scripts, store.fetch)


# --- clients ----------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """A turn as its client saw it. `turn_id` is empty if no head came."""

    model: str
    status: int = 0
    turn_id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    cut: str = ""

    @property
    def is_completed(self) -> bool:
        """Whether the client has the whole answer."""
        return "event: response.completed\n" in self.text

    @property
    def code(self) -> str | None:
        """The error's, of a refusal or in the stream."""
        if self.status != 200:
            return str(json.loads(self.text)["error"]["code"])
        errors = [line for line in self.text.split("\n\n") if line.startswith("event: error\n")]
        return str(json.loads(errors[0].split("data: ", 1)[1])["code"]) if errors else None


def ask(url: str, model: str, begun: threading.Event | None = None) -> Asked:
    """One turn on a connection of its own, to its end or its cut. `begun` is set at its first output."""
    asked, address = Asked(model), urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 0, timeout=PATIENCE_SECONDS)
    try:
        connection.request(
            "POST", "/v1/responses", json.dumps({"model": model, "input": "hi", "stream": True}), HEADERS
        )
        response = connection.getresponse()
        asked.status, asked.headers = response.status, dict(response.headers.items())
        asked.turn_id = asked.headers.get("x-request-id", "")
        while line := response.readline():
            asked.text += line.decode()
            if begun is not None and "event: response.output" in asked.text:
                begun.set()
    except (OSError, http.client.HTTPException) as error:
        asked.cut = repr(error)
    finally:
        connection.close()
    return asked


@contextmanager
def load(url: Callable[[], str | None], models: Sequence[str], clients: int) -> Iterator[list[Asked]]:
    """Clients that ask for one turn after the other of these models, of whoever `url` says serves just now."""
    asked: list[Asked] = []

    def play(number: int) -> None:
        if (at := url()) is None:
            time.sleep(0.01)
        else:
            asked.append(ask(at, models[number % len(models)]))

    with under_load(play, clients):
        yield asked


@contextmanager
def running(url: str, *models: str) -> Iterator[list[Asked]]:
    """Turns that have begun to tell their output, or wait before it; how they went stands in the list at the end."""
    asked: list[Asked] = []
    begun = [threading.Event() for _ in models]
    threads = [
        threading.Thread(target=lambda m=model, one=one: asked.append(ask(url, m, one)), daemon=True)
        for model, one in zip(models, begun, strict=True)
    ]
    for thread in threads:
        thread.start()
    for model, one in zip(models, begun, strict=True):
        assert model == "replayed-late" or one.wait(PATIENCE_SECONDS)
    yield asked
    for thread in threads:
        thread.join(PATIENCE_SECONDS)


def kill(process: Process) -> None:
    """`kill -9`, and wait for its end."""
    process.signal(signal.SIGKILL)
    process.wait()
