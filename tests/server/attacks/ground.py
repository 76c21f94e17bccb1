"""Where attacks happen: a real gateway process, its figures, and a witness whose stream must notice nothing."""

from __future__ import annotations

import json
import os
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.scenarios import ANSWER, BEGINNING, KEY, MODEL, ROUTE
from gateway.upstream.scripted import Reply, Script, Silence
from gateway.upstream.scripts import event, prelude, text_answer
from server.attacks.wire import PATIENCE_SECONDS, Peer, ToEnd, request
from support.certificates import with_certificate
from support.loopback import LoopbackUpstreams
from support.processes import Process

IMPATIENT = ("head_timeout = 1", "body_pause = 1")
"""Slow peers are cut within a test's time."""
BODY_BYTES_MAX = 1_048_576
TICK_SECONDS = 0.05
TICKING = text_answer(["tick "] * 40, response_id="resp_ticking", pause=TICK_SECONDS)
SILENT = Reply((*prelude("resp_silent"), Silence()))
"""Held by the gateway: its client sees nothing yet."""
DELTA = event(
    "response.output_text.delta", item_id="msg_endless", output_index=0, content_index=0, delta="word " * 2000
)
ENDLESS = Reply((*BEGINNING, *[DELTA] * 30_000))
"""300 MB of deltas."""
REPLIES: Mapping[str, Reply] = {"plain": ANSWER, "ticking": TICKING, "silent": SILENT, "endless": ENDLESS}

CONFIGURATION = """
[server]
absent_store = "false"
allow_inline_secrets = true
metrics_port = "off"
{server}
[limits]
body_bytes_max = {body_bytes_max}

[accounts.main]
balance = "unlimited"

[keys.main]
account = "main"
secret = {{ inline = "{key}" }}
"""

LISTENING = "0A"
"""A state of TCP, as Linux writes it."""
AUTHORIZED = f"authorization: Bearer {KEY}"


def turn_body(model: str, **fields: object) -> bytes:
    """What asks for a streamed turn."""
    return json.dumps({"model": model, "input": "hello", "stream": True, **fields}).encode()


def turn_request(model: str, *headers: str) -> bytes:
    """A whole request for a turn."""
    body = turn_body(model)
    return request(
        "POST /v1/responses HTTP/1.1",
        AUTHORIZED,
        "content-type: application/json",
        f"content-length: {len(body)}",
        *headers,
        body=body,
    )


class Witness:
    """Another client, whose turns follow each other; it notes how long it ever waited for the next bytes."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        self._is_wanted = True
        self._longest = 0.0
        self._problems: list[str] = []
        self._turns = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def look(self) -> tuple[float, list[str]]:
        """The longest silence in seconds, and what went wrong, since the last look."""
        seen = self._longest, self._problems
        self._longest, self._problems = 0.0, []
        return seen

    def dismiss(self) -> None:
        """It has seen enough."""
        self._is_wanted = False
        self._thread.join(PATIENCE_SECONDS)

    def _watch(self) -> None:
        while self._is_wanted:
            try:
                self._play_turn()
            except (AssertionError, OSError) as error:
                self._problems.append(repr(error))

    def _play_turn(self) -> None:
        peer = _TimedPeer(self._place, self._note)
        received = peer.play([turn_request("ticking", "connection: close"), ToEnd(rb"response\.completed")])
        assert received.count(b"event: response.output_text.delta") == 40, received[-300:]

    def _note(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)


class _TimedPeer(Peer):
    def __init__(self, place: Ground, note: Callable[[float], None]) -> None:
        super().__init__(place.port, place.trust)
        self._note = note

    def _read(self) -> bytes:
        begun = time.monotonic()
        data = super()._read()
        self._note(time.monotonic() - begun)
        return data


@dataclass
class Ground:
    """The process under attack."""

    process: Process
    port: int
    scripts: Mapping[str, Script] = field(repr=False)
    trust: ssl.SSLContext | None = None
    """What its clients trust, if it speaks TLS."""

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    @property
    def resident_bytes(self) -> int:
        """Its memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def busy_seconds(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def has_settled(self) -> bool:
        """Whether it does little: it takes half a second to see that."""
        before = self.busy_seconds
        time.sleep(0.5)
        return self.busy_seconds - before < 0.1

    @property
    def descriptors(self) -> int:
        """Its open files and sockets."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def connections(self) -> int:
        """Connections of clients that it has not closed, whatever state TCP is in."""
        rows = [line.split() for line in Path(f"/proc/{self.pid}/net/tcp").read_text("ascii").splitlines()[1:]]
        ours = [row for row in rows if int(row[1].rpartition(":")[2], 16) == self.port and row[3] != LISTENING]
        return sum(row[9] != "0" for row in ours)

    @property
    def open_calls(self) -> int:
        """Conversations with upstreams that are not over, but for the witness's."""
        calls = [call for name, script in self.scripts.items() if name != "ticking" for call in script.calls]
        return sum(call.closed_at is None for call in calls)

    def peer(self) -> Peer:
        """A new connection."""
        return Peer(self.port, self.trust)

    def play_turn(self) -> float:
        """An ordinary turn; how long it took."""
        begun = time.monotonic()
        self.peer().play([turn_request("plain", "connection: close"), ToEnd(rb"200 .*response\.completed", 10)])
        return time.monotonic() - begun


@contextmanager
def ground(folder: Path, *settings: str, is_impatient: bool = True, is_tls: bool = False) -> Iterator[Ground]:
    """A gateway with these lines in its `server` table, in front of the models of REPLIES."""
    lines = (*settings, *(IMPATIENT if is_impatient else ()))
    scripts = {name: Script(name, [reply]) for name, reply in REPLIES.items()}
    with LoopbackUpstreams(list(scripts.values())) as upstreams:
        tables = [ROUTE.format(name=name, base_url=upstreams.base_url(name)) for name in scripts]
        tables += [MODEL.format(name=name, routes=json.dumps([name])) for name in scripts]
        head = CONFIGURATION.format(server="\n".join(lines), body_bytes_max=BODY_BYTES_MAX, key=KEY)
        file = folder / "gateway.toml"
        file.write_text(head + "".join(tables), encoding="utf-8")
        options, trust = with_certificate(folder) if is_tls else ((), None)
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0", *options]
        with Process(command) as process:
            url = process.wait_for(r'"event": "listening".*"url": "(https?://[^"]+)"')[1]
            yield Ground(process, int(re.sub(r".*:", "", url)), scripts, trust)


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether it comes to hold."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
