"""What is measured once, outside the rounds: how many streams a core carries, what a held stream takes of memory, and
whether a turn costs more where much is open, or after many turns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bench.lab import results as figure
from bench.lab.loads import (
    ALONE,
    HELD_STREAMS,
    LADDER,
    LADDER_P99_MS_MAX,
    OPEN,
    OPEN_STREAMS,
    POOLED,
    POOLED_CONNECTIONS,
    STEADY,
    Load,
    ladder_step,
)
from bench.lab.ours import turns_of_workers
from bench.lab.programs import CannotMeasure, Told
from bench.lab.rounds import Lab, pace_of
from bench.lab.systems import Running

ARRIVAL_SECONDS_MAX: Final = 90.0
"""For thousands of streams to arrive at the upstream through the slowest peer."""
KB: Final = 1024


def measure_ladder(lab: Lab, names: Sequence[str]) -> None:
    """The most streams that one core carried in time."""
    for name in names:
        carried = 0
        with lab.awake(name) as running:
            for streams in LADDER:
                try:
                    told, _ = lab.measure(running, "http", ladder_step(streams))
                except CannotMeasure:
                    break
                if not is_carried(told, ladder_step(streams)):
                    break
                carried = streams
                lab.say(f"ladder: {name} carries {streams} streams, p99 {told.event.p99} ms")
        lab.results.add(name, "ladder", {figure.STREAMS_MAX: carried})


def is_carried(told: Told, step: Load) -> bool:
    """Whole turns, at their pace, and in time."""
    is_in_time = told.event.p99 is not None and told.event.p99 <= LADDER_P99_MS_MAX
    return told.failed == 0 and is_in_time and (pace_of(told, step) or 0) >= figure.PACE_MIN


def measure_held(lab: Lab, names: Sequence[str]) -> None:
    """Memory per stream that waits for its output, of a system that has served nobody before."""
    for name in names:
        with lab.fresh(name) as running:
            warm_up(lab, running)
            before = running.tree.memory_bytes()
            options = {"model": "held-240", "connections": HELD_STREAMS, "ramp": 3, "warm": 0, "seconds": 200}
            with lab.client(running, "http", options):
                if not wait_for_turns(lab, HELD_STREAMS):
                    lab.miss(f"{name} did not hold {HELD_STREAMS} streams within {ARRIVAL_SECONDS_MAX:g} s")
                    continue
                each = (running.tree.memory_bytes() - before) / HELD_STREAMS / KB
                lab.results.add(name, "held", {figure.KB_PER_STREAM: each})
                lab.say(f"held: {name}: {each:.1f} KB per stream")


def measure_evenness(lab: Lab, name: str) -> None:
    """How the held streams are spread over two workers: the most over the fewest."""
    with lab.fresh(name) as running:
        options = {"model": "held-240", "connections": HELD_STREAMS, "ramp": 3, "warm": 0, "seconds": 200}
        with lab.client(running, "http", options):
            if not wait_for_turns(lab, HELD_STREAMS):
                lab.miss(f"{name} did not hold {HELD_STREAMS} streams")
                return
            turns = turns_of_workers(running)
        lab.say(f"held by the workers of {name}: {turns}")
        lab.results.add(name, "held", {figure.UNEVENNESS: max(turns) / max(1, min(turns))})


def measure_crowds(lab: Lab, name: str) -> None:
    """A short turn's price alone, beside idle connections in the pool, and beside open streams: in one process."""
    short = replace(STEADY["short"], connections=4)
    with lab.fresh(name) as running:
        warm_up(lab, running)
        price(lab, running, name, short, ALONE)
        pool = {"model": "held-15", "connections": POOLED_CONNECTIONS, "turns": 1, "ramp": 2}
        with lab.client(running, "http", pool) as client:
            client.result()
        price(lab, running, name, short, POOLED)
        crowd = {"model": "open-240", "connections": OPEN_STREAMS, "ramp": 6, "warm": 0, "seconds": 200}
        with lab.client(running, "http", crowd):
            if wait_for_turns(lab, OPEN_STREAMS):
                price(lab, running, name, short, OPEN)
            else:
                lab.miss(f"{name} did not open {OPEN_STREAMS} streams")


def price(lab: Lab, running: Running, name: str, load: Load, as_load: str) -> None:
    """One more row of the short turn."""
    told, cpu_seconds = lab.measure(running, "http", load)
    if told.failed:
        lab.miss(f"{name} under {as_load}: {told.failed} turns failed: {told.why}")
        return
    lab.results.add(name, as_load, {figure.CPU_MS_PER_TURN: cpu_seconds / max(1, told.turns) * 1e3})
    lab.say(f"{as_load}: {name}: {cpu_seconds / max(1, told.turns) * 1e3:.3f} ms per turn")


def measure_growth(lab: Lab, name: str, seconds: float) -> None:
    """What memory grows by, per thousand turns, once the first thousands have been served."""
    with lab.fresh(name) as running:
        load = replace(STEADY["short"], seconds=seconds)
        lab.measure(running, "http", replace(load, seconds=max(2.0, seconds / 4)))
        before = running.tree.memory_bytes()
        told, _ = lab.measure(running, "http", load)
        each = (running.tree.memory_bytes() - before) / KB / max(1, told.turns) * 1000
        lab.results.add(name, "many turns", {figure.KB_PER_1000_TURNS: each})
        lab.say(f"many turns: {name}: {each:.1f} KB more per 1,000 turns, over {told.turns} turns")


def warm_up(lab: Lab, running: Running) -> None:
    """What the first turns alone cost."""
    with lab.client(running, "http", {"model": "m-0-1", "connections": 8, "turns": 10, "ramp": 0.1}) as client:
        client.result()


def wait_for_turns(lab: Lab, count: int) -> bool:
    """Whether so many run at the upstream, before long."""
    deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
    while lab.upstream.counts()["running"] < count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
