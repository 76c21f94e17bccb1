"""Mixed turns on one process: shapes, transports, failures, disconnects, stalls. Books, memory, descriptors at the end.

The fast suite plays two hundred turns; `poe long` two hundred thousand. GATEWAY_SEED names the seed, GATEWAY_TURNS the
number of turns. What a client may see: one whole answer, or the beginning of one and one failure; never a text twice.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from crash.fleets import ROUTE, sqlite_store, wait_until
from crash.worlds import assert_at_rest
from e2e.scenarios import KEY, WORDS
from gateway.core.messages import Headers
from gateway.upstream.scripted import TURN_PATH, Break, Call, Reply, Script
from gateway.upstream.scripts import http_failure, prelude, text_answer, two_step_failure
from soak.people import OverHTTP, OverWebSocket, Seen
from support.loopback import LoopbackUpstreams
from support.processes import PATIENCE_SECONDS, Process, run, serving_gateway

pytestmark = pytest.mark.widens

IS_LONG = bool(os.environ.get("GATEWAY_LONG"))
TURNS = int(os.environ.get("GATEWAY_TURNS", "200000" if IS_LONG else "200"))
SEED = int(os.environ.get("GATEWAY_SEED", "7"))
SECONDS_MAX: Final = 3600.0 if IS_LONG else 120.0
CLIENTS_OVER_HTTP, CLIENTS_OVER_WEBSOCKET = 10, 6
GROWTH_MAX: Final = 1.10
"""Memory at the end of a long run, over that behind its first third."""
DESCRIPTORS_AT_REST: Final = 40
"""More than at the start: what its pool of idle upstream connections may keep."""

LONG_WORDS = ["w" * 999 + " "] * 300
TEXTS = ("".join(WORDS), "".join(LONG_WORDS))
ANSWER = text_answer(WORDS, response_id="resp_answer")
SLOW = text_answer(WORDS, response_id="resp_slow", pause=0.01, first_pause=0.05)
BURST = Reply([b"".join(step for step in ANSWER.steps if isinstance(step, bytes))])
_long = [step for step in text_answer(LONG_WORDS, response_id="resp_long").steps if isinstance(step, bytes)]
LONG = Reply([b"".join(_long[at : at + 20]) for at in range(0, len(_long), 20)])
OVERLOADED = two_step_failure("server_is_overloaded", "The engine is overloaded.", response_id="resp_overloaded")
REFUSED = Reply(refuses=True)
BUSY = http_failure(500, "server_error", "Something went wrong.")
OUT_OF_ORDER = Reply((*prelude("resp_broken"), b"event: response.created\ndata: {nonsense}\n\n", Break()))
BROKEN_BEFORE = Reply((*ANSWER.steps[:2], Break()))
BROKEN_BEHIND = Reply((*ANSWER.steps[:8], Break()))
ENDS_EARLY = Reply(ANSWER.steps[:8])

FIRST_ROUTE = [
    *(ANSWER, BURST, OVERLOADED, ANSWER, SLOW, BROKEN_BEFORE, BURST, ANSWER, BROKEN_BEHIND, ANSWER, BURST, BUSY),
    *(ANSWER, SLOW, REFUSED, BURST, ANSWER, ENDS_EARLY, ANSWER, BURST, OUT_OF_ORDER, ANSWER, BURST, ANSWER, ANSWER),
]
SECOND_ROUTE = [*(ANSWER, BURST) * 4, BROKEN_BEFORE, ANSWER, OVERLOADED]

CONFIGURATION = """
[server]
absent_store = "false"
allow_inline_secrets = true
metrics_port = "off"

[ledger]
{ledger}

[accounts.main]
balance = "1000000"

[keys.main]
account = "main"
secret = {{ inline = "{key}" }}

[models.any]
routes = ["first", "second"]
max_output_tokens = 1000

[models.long]
routes = ["long"]
max_output_tokens = 10000

[models.framed]
routes = ["framed-first", "framed-second"]
max_output_tokens = 1000

[models.framed-long]
routes = ["framed-long"]
max_output_tokens = 10000
"""
FRAMED = 'transport = "websocket"\n'


class Forgetful(Script):
    """A script that keeps no account of its calls: there are too many."""

    def note_call(self, headers: Headers, body: bytes, *, method: str = "POST", path: str = TURN_PATH) -> Call:
        """A call came in, and is forgotten."""
        call = super().note_call(headers, body, method=method, path=path)
        self.calls.clear()
        return call


def scripts_of(kind: str) -> list[Forgetful]:
    """What the upstreams of this transport say."""
    return [
        Forgetful(f"{kind}first", FIRST_ROUTE, is_cycle=True),
        Forgetful(f"{kind}second", SECOND_ROUTE, is_cycle=True),
        Forgetful(f"{kind}long", [LONG]),
    ]


@contextmanager
def stage(folder: Path) -> Iterator[tuple[Path, Process, str]]:
    """The configuration file, the gateway's process, and where it serves."""
    scripts, framed = scripts_of(""), scripts_of("framed-")
    with LoopbackUpstreams(scripts, framed) as upstreams:
        url_of = upstreams.base_url
        routes = [ROUTE.format(name=one.name, base_url=url_of(one.name)) for one in scripts]
        routes += [ROUTE.format(name=one.name, base_url=url_of(one.name)) + FRAMED for one in framed]
        file = folder / "gateway.toml"
        text = CONFIGURATION.format(ledger=sqlite_store(folder).ledger, key=KEY)
        file.write_text("".join([text, *routes]), encoding="utf-8")
        with serving_gateway(file) as (process, url):
            yield file, process, url


# --- what the process holds -----------------------------------------------------------------------------------------


def own_memory_bytes(pid: int) -> int:
    """What the process has for itself (RssAnon)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Watch:
    """Looks at a process once a second: its memory by how many turns there had been."""

    def __init__(self, pid: int, seen: list[Seen]) -> None:
        self._pid = pid
        self._seen = seen
        self.samples: list[tuple[int, int]] = []

    def look(self) -> int:
        """How many turns there were."""
        turns = sum(one.turns() for one in self._seen)
        self.samples.append((turns, own_memory_bytes(self._pid)))
        return turns

    def between(self, share: float, until: float) -> float:
        """The median of its memory in this part of all turns."""
        last = self.samples[-1][0]
        return statistics.median(held for turns, held in self.samples if share * last <= turns <= until * last)


def played(url: str, pid: int) -> tuple[list[Seen], Watch]:
    """TURNS turns of all clients; what each saw."""
    seen = [Seen() for _ in range(CLIENTS_OVER_HTTP + CLIENTS_OVER_WEBSOCKET)]
    is_over = threading.Event()

    def live(number: int) -> None:
        kind = OverHTTP if number < CLIENTS_OVER_HTTP else OverWebSocket
        person = kind(url, TEXTS, seen[number], SEED * 1000 + number)
        try:
            while not is_over.is_set():
                person.turn()
        except Exception as error:  # whatever it is, it is this test's news
            seen[number].wrong.append(f"client {number}: {error!r}")
        finally:
            person.close()

    threads = [threading.Thread(target=live, args=(number,), daemon=True) for number in range(len(seen))]
    for thread in threads:
        thread.start()
    watch, deadline = Watch(pid, seen), time.monotonic() + SECONDS_MAX
    while watch.look() < TURNS and time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
        time.sleep(1.0 if IS_LONG else 0.1)
    is_over.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return seen, watch


# --- the soak -------------------------------------------------------------------------------------------------------


def price_of(words: int) -> int:
    """In nano-dollars: 12 tokens in, one for each word out (crash/fleets.py)."""
    return 12 * 1000 + words * 2000


def test_a_process_serves_turns_of_every_shape_and_keeps_nothing_of_them(tmp_path: Path) -> None:
    """B1, B8, L2, P8: what was told once is paid once, whatever else happens; memory and descriptors stay."""
    fetch = sqlite_store(tmp_path).fetch
    with stage(tmp_path) as (file, process, url):
        before = descriptors(process.pid)
        seen, watch = played(url, process.pid)
        wait_until(lambda: not fetch("select 1 from reservation where state = 'reserved'"))
        wait_until(lambda: not fetch("select 1 from turn where outcome is null"))
        wait_until(lambda: descriptors(process.pid) <= before + DESCRIPTORS_AT_REST)
        verified = run(sys.executable, "-m", "gateway", "ledger", "verify", "--config", str(file))
        output = process.output
    figures = {
        "endings": {name: sum(one.endings[name] for one in seen) for name in sorted({*seen[0].endings})},
        "memory_mb": [round(held / 1e6, 1) for _, held in watch.samples[:: max(1, len(watch.samples) // 20)]],
    }
    print(json.dumps(figures))  # noqa: T201 - the long tier's figures
    assert [line for one in seen for line in one.wrong] == []
    assert sum(one.turns() for one in seen) >= TURNS
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert_at_rest(fetch)
    assert '"level": "error"' not in output
    assert_each_was_paid_once(dict(fetch("select turn_id, resolved_nanodollars from reservation")), seen)
    if IS_LONG:
        assert watch.between(0.9, 1.0) <= watch.between(0.33, 0.43) * GROWTH_MAX, figures


def assert_each_was_paid_once(resolved: Mapping[str, int | None], seen: list[Seen]) -> None:
    """What clients saw completed, at the price of its words."""
    completed = {turn_id: words for one in seen for turn_id, words in one.completed.items()}
    assert completed
    unpaid = {turn: resolved.get(turn) for turn, words in completed.items() if resolved.get(turn) != price_of(words)}
    assert unpaid == {}
