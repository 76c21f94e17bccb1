"""What the gateway does for one event and for one short turn, counted: function calls and system calls.

Times are noise on a shared machine, counts are not: these bounds hold in CI, so that no later change loses unseen what
was gained. A figure is what the gateway's process does from before the first request until behind the last response,
over the events or turns that came through: a turn's beginning and end are in the price of its events.

Each event comes alone, for the upstream sends it when the client has the one before (`stepped` in lab/wire.h): a pace
by the clock would let events pile up on a machine under load, and a pile is cheaper than its events apart.
`pytest tests/bench/test_counts.py -s` shows the figures and who is called most.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from bench.lab.asking import asked
from bench.lab.ours import SERVE, Settings, start_gateway
from bench.lab.placing import ended
from bench.lab.programs import CannotMeasure, Load, Programs, Told, compile_programs, running_upstream
from bench.lab.systems import Running

PROFILED: Final = Path(__file__).parent / "lab" / "profiled.py"
PATIENCE_SECONDS: Final = 20.0
SHOWN: Final = 15
COUNTED_AT_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Turns to count for: so many on each connection, one after another; the price is that of an event or of a turn."""

    model: str
    connections: int
    turns: int
    is_of_events: bool = False


WARM_UP: Final = Shape("m-0-1", 8, 4)
"""What is done once, caches and first connections, is nobody's price."""
EVENT: Final = Shape("stepped-200", 4, 1, is_of_events=True)
"""The shape of real tokens: one event per read."""
SHORT_TURN: Final = Shape("m-0-1", 2, 25)
"""Nine events that come at once."""

DOORS: Final = {"sse": ("http", "websocket"), "websocket": ("http",)}
"""By the upstream's transport."""

Counts = Mapping[tuple[str, str, str], float]
"""By transport, door, and what for."""

CALLS_MAX: Final[Counts] = {
    ("sse", "http", "event"): 125,
    ("sse", "http", "short turn"): 2_550,
    ("sse", "websocket", "event"): 150,
    ("sse", "websocket", "short turn"): 3_700,
    ("websocket", "http", "event"): 125,
    ("websocket", "http", "short turn"): 3_000,
}
"""Of functions, Python's and C's, as cProfile counts them. What was measured, and some 15 % for what differs between
Python's versions; on a busy machine fewer events share one pass of the scheduler, which makes 20 calls more for each.
To be lowered with each gain; the target is 150 per event. Of long streams an event takes 85 to 105: the rest is its
turn's beginning and end, and on a WebSocket the handshake."""

SYSTEM_CALLS_MAX: Final[Counts] = {
    ("sse", "http", "event"): 3.5,
    ("sse", "http", "short turn"): 17,
    ("sse", "websocket", "event"): 3.6,
    ("sse", "websocket", "short turn"): 19,
    ("websocket", "http", "event"): 3.5,
    ("websocket", "http", "short turn"): 19,
}
"""As strace counts them. To be lowered with each gain; the target is 5 per event."""


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    try:
        return compile_programs(tmp_path)
    except CannotMeasure as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("transport", DOORS)
def test_an_event_and_a_short_turn_cost_no_more_function_calls_than_they_did(
    programs: Programs, tmp_path: Path, transport: str
) -> None:
    """Issue 7: what was gained stays. All is one process, and its main thread is what is counted."""
    file = tmp_path / "calls.json"
    with serving(programs, tmp_path, transport, str(PROFILED), str(file), "serve") as running:
        counted = count(programs, running, transport, lambda play: called(running, file, play), CALLS_MAX)
    assert_within(counted, CALLS_MAX)


@pytest.mark.parametrize("transport", DOORS)
def test_an_event_and_a_short_turn_cost_no_more_system_calls_than_they_did(
    programs: Programs, tmp_path: Path, transport: str
) -> None:
    """Issue 7: the kernel's part of the price, all threads."""
    if shutil.which("strace") is None:
        pytest.skip("there is no strace to count system calls with; install strace")
    with serving(programs, tmp_path, transport) as running:
        counted = count(
            programs, running, transport, lambda play: traced(running, tmp_path / "strace", play), SYSTEM_CALLS_MAX
        )
    assert_within(counted, SYSTEM_CALLS_MAX)


# --- counting -----------------------------------------------------------------------------------------------------

Play = Callable[[], Told]
Counter = Callable[[Play], tuple[int, Told]]


@contextmanager
def serving(programs: Programs, folder: Path, transport: str, *serve: str) -> Iterator[Running]:
    with running_upstream(programs) as upstream:
        running = start_gateway(Settings(transport), folder, upstream.port, serve=serve or SERVE)
        try:
            yield running
        finally:
            running.tree.end()


def count(programs: Programs, running: Running, transport: str, counter: Counter, bounds: Counts) -> Counts:
    """Per event and per short turn, over each door."""
    counts = {}
    for door in DOORS[transport]:
        play_turns(programs, running, door, WARM_UP)
        for name, shape in (("event", EVENT), ("short turn", SHORT_TURN)):
            where = transport, door, name
            counts[where] = least(partial(play_turns, programs, running, door, shape), counter, shape, bounds[where])
    return counts


def least(play: Play, counter: Counter, shape: Shape, bound: float) -> float:
    """What else runs can only add to a count, for fewer events share one wake-up: the least of up to three."""
    figure = math.inf
    for _ in range(COUNTED_AT_MOST):
        total, told = counter(play)
        figure = min(figure, total / (told.events if shape.is_of_events else told.turns))
        if figure <= bound:
            break
    return figure


def play_turns(programs: Programs, running: Running, door: str, shape: Shape) -> Told:
    """All of them must have been whole."""
    options = {"model": shape.model, "connections": shape.connections, "turns": shape.turns, "ramp": 0}
    to = {"port": running.port, "key": running.key, "path": running.path, "door": door, "step": running.upstream_port}
    with Load(programs, to | options) as load:
        told = load.result()
    assert (told.failed, told.turns) == (0, shape.connections * shape.turns), told.why
    return told


def called(running: Running, file: Path, play: Play) -> tuple[int, Told]:
    """The calls that cProfile counted meanwhile."""
    before = calls_so_far(running, file)
    told = play()
    after = calls_so_far(running, file)
    spent = {name: calls - before.get(name, 0) for name, calls in after.items()}
    for name, calls in sorted(spent.items(), key=lambda item: -item[1])[:SHOWN]:
        tell(f"{calls / told.events:8.2f} per event  {name}")
    return sum(spent.values()), told


def calls_so_far(running: Running, file: Path) -> dict[str, int]:
    calls: dict[str, int] = json.loads(asked(running, file))
    return calls


def traced(running: Running, file: Path, play: Play) -> tuple[int, Told]:
    """The system calls that strace counted meanwhile."""
    command = ["strace", "-c", "-f", "-o", str(file), "-p", str(running.tree.pid)]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert strace.stderr is not None
    with ended(strace):
        first = strace.stderr.readline()
        if "attached" not in first:
            pytest.skip(f"strace may not look at another process here: {first.strip()}")
        told = play()
        strace.send_signal(signal.SIGINT)
        strace.wait(PATIENCE_SECONDS)
    text = file.read_text("utf-8")
    tell(text)
    total = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)\s.*total$", text, re.MULTILINE)
    assert total is not None, text
    return int(total[1]), told


def assert_within(counted: Counts, bounds: Counts) -> None:
    for (transport, door, name), figure in counted.items():
        tell(f"{transport} upstream, {door}: {figure:.1f} per {name}")
    beyond = {where: figure for where, figure in counted.items() if figure > bounds[where]}
    assert beyond == {}, f"counted {counted}, allowed {bounds}"


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
