"""Many WebSockets on one process: a thousand idle, two hundred with turns, one that asks without a pause.

`pytest tests/bench/test_sockets.py -m bench -s` shows the figures; with GATEWAY_SOCKETS_SECONDS=600, of ten minutes.
The clients and the upstream share the test's process, so a figure is what the gateway and they take together.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.asyncio.client import ClientConnection, connect

from e2e.scenarios import KEY, TEXT, WORDS, write_configuration
from gateway.upstream.scripted import Script
from gateway.upstream.scripts import text_answer
from support.loopback import LoopbackUpstreams
from support.processes import serving_gateway

SECONDS: Final = float(os.environ.get("GATEWAY_SOCKETS_SECONDS", "60"))
WARM_UP_SECONDS: Final = 15.0
IDLE: Final = 1_000
ACTIVE: Final = 200
WORD_SECONDS: Final = 0.5
"""Between two words of an active socket's turn: it has six."""
OPENING_AT_ONCE: Final = 50
LOOK_SECONDS: Final = 1.0
PINGED_AT_A_LOOK: Final = 25

GROWTH_MAX: Final = 1.10
"""Of the memory, behind the warm-up."""
PONG_SECONDS_MAX: Final = 10.0
"""The gateway's own patience with a peer is 20 s: half of it, on a machine that does other things, too."""
SHARE_MIN: Final = 0.5
"""Of the turns that a socket in the middle has had: whoever has fewer was starved, however slow the machine is."""

pytestmark = pytest.mark.bench


@dataclass
class Figures:
    """What was seen. Durations are seconds, memory is bytes."""

    memory: list[int] = field(default_factory=list)
    pongs: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    turns_of: list[int] = field(default_factory=lambda: [0] * ACTIVE)
    hot_turns: int = 0
    refused: int = 0
    """503 `ledger_unavailable`: on a disk that others keep busy, too."""
    closed: int = 0

    def told(self) -> str:
        """In a line."""
        longest, middle = max(self.turns), sorted(self.turns)[len(self.turns) // 2]
        return (
            f"{IDLE} idle, {ACTIVE} active, 1 hot, {SECONDS:.0f} s: memory {self.memory[0] / 2**20:.1f} MiB behind the "
            f"warm-up, {self.memory[-1] / 2**20:.1f} at the end, {max(self.memory) / 2**20:.1f} at most; "
            f"{len(self.pongs)} pongs, the slowest in {max(self.pongs) * 1000:.0f} ms; {len(self.turns)} turns of "
            f"{middle:.2f} s, the longest {longest:.2f} s; {self.hot_turns} turns of the hot one; "
            f"{self.refused} refused while the ledger was away"
        )


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[int, str]]:
    """Its pid and WebSocket endpoint; `steady` is a turn with pauses, `hot` one without."""
    replies = {
        "steady": text_answer(WORDS, response_id="resp_steady", pause=WORD_SECONDS),
        "hot": text_answer(WORDS, response_id="resp_hot"),
    }
    scripts = [Script(f"{model}-{number}", [reply]) for model, reply in replies.items() for number in (1, 2)]
    with LoopbackUpstreams(scripts) as upstreams:
        file = write_configuration(folder, {one.name: upstreams.base_url(one.name) for one in scripts}, list(replies))
        with serving_gateway(file) as (process, url):
            yield process.pid, f"{url.replace('http', 'ws', 1)}/v1/responses"


class Crowd:
    """The sockets, and what happens on them until the time is over."""

    def __init__(self, pid: int, url: str) -> None:
        self._pid = pid
        self._url = url
        self._opening = asyncio.Semaphore(OPENING_AT_ONCE)
        self._idle: list[ClientConnection] = []
        self._end = float("inf")
        self.figures = Figures()

    async def live(self) -> Figures:
        """Open all, warm up, look until the end."""
        self._idle = await asyncio.gather(*(self._open() for _ in range(IDLE)))
        active = await asyncio.gather(*(self._open() for _ in range(ACTIVE)))
        hot = await self._open()
        self._end = time.monotonic() + WARM_UP_SECONDS + SECONDS
        await asyncio.gather(self._look(), self._run_hot(hot), *map(self._run, active, range(ACTIVE)))
        self.figures.closed = sum(one.close_code is not None for one in [*self._idle, *active, hot])
        await asyncio.gather(*(one.close() for one in [*self._idle, *active, hot]))
        return self.figures

    async def _open(self) -> ClientConnection:
        async with self._opening:
            headers = {"Authorization": f"Bearer {KEY}"}
            return await connect(self._url, additional_headers=headers, compression=None, open_timeout=60)

    async def _run(self, socket: ClientConnection, number: int) -> None:
        await asyncio.sleep(number / ACTIVE * WORD_SECONDS * len(WORDS))  # they began at different times
        while (began := time.monotonic()) < self._end:
            if await self._turn(socket, "steady"):
                self.figures.turns.append(time.monotonic() - began)
                self.figures.turns_of[number] += 1

    async def _run_hot(self, socket: ClientConnection) -> None:
        while time.monotonic() < self._end:
            self.figures.hot_turns += await self._turn(socket, "hot")

    async def _turn(self, socket: ClientConnection, model: str) -> bool:
        """Whether it was answered, or refused for what passes."""
        text = await turn(socket, model)
        if text is None:
            self.figures.refused += 1
            await asyncio.sleep(1.0)
            return False
        assert text == TEXT
        return True

    async def _look(self) -> None:
        """At the memory, and at whether idle sockets answer: each in its turn."""
        await asyncio.sleep(WARM_UP_SECONDS)
        at = 0
        while time.monotonic() < self._end:
            self.figures.memory.append(memory_of(self._pid))
            pinged = [self._idle[(at + one) % IDLE] for one in range(PINGED_AT_A_LOOK)]
            at += PINGED_AT_A_LOOK
            self.figures.pongs += await asyncio.gather(*(pong_seconds(one) for one in pinged))
            await asyncio.sleep(LOOK_SECONDS)


async def turn(socket: ClientConnection, model: str) -> str | None:
    """A turn's text; None while the ledger is away, an `AssertionError` if it ends in any other way."""
    await socket.send(json.dumps({"type": "response.create", "model": model, "input": "hello", "store": False}))
    text = ""
    while True:
        event: dict[str, Any] = json.loads(await socket.recv())
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        elif event["type"] == "response.completed":
            return text
        if event.get("code") == "ledger_unavailable":
            return None
        assert event["type"] not in {"error", "response.failed"}, event


async def pong_seconds(socket: ClientConnection) -> float:
    """How long its answer took. `TimeoutError` if it takes longer than anybody waits."""
    began = time.monotonic()
    await asyncio.wait_for(await socket.ping(), 2 * PONG_SECONDS_MAX)
    return time.monotonic() - began


def memory_of(pid: int) -> int:
    """What the kernel has given the process."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_a_thousand_idle_sockets_and_a_hot_one_leave_two_hundred_their_turns(tmp_path: Path) -> None:
    """W7, T6: the memory stays, pings are answered, nobody starves, nobody is closed."""
    with gateway(tmp_path) as (pid, url):
        figures = asyncio.run(Crowd(pid, url).live())
    print(f"\n{figures.told()}")  # noqa: T201 - what it is run for
    assert figures.closed == 0
    assert max(figures.memory) <= GROWTH_MAX * figures.memory[0]
    assert max(figures.pongs) <= PONG_SECONDS_MAX
    assert min(figures.turns_of) >= max(1.0, SHARE_MIN * sorted(figures.turns_of)[ACTIVE // 2])
    assert figures.hot_turns >= 1
