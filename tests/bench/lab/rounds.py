"""The run: all systems started, those not under test stopped, and rounds that alternate between them.

    core of the gateways   the one under test; every other one is stopped (SIGSTOP), children too
    core of the rest       upstream, load client, database, this program

Each load is a number of rounds; each round asks every entrant once, in turn, every second round in the reverse order:
what the machine does meanwhile to one, it does to all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.lab import results as figure
from bench.lab.loads import DIRECT, Load, door_of, system_of
from bench.lab.programs import CannotMeasure, Programs, Told, Upstream
from bench.lab.programs import Load as LoadClient
from bench.lab.results import Results
from bench.lab.systems import Running, System

SETTLE_SECONDS: Final = 0.4
"""What a system gets to end its connections, before it is stopped."""


@dataclass
class Lab:
    """What all measurements share."""

    programs: Programs
    folder: Path
    core: int
    other_core: int
    upstream: Upstream
    results: Results
    say: Callable[[str], None]
    systems: dict[str, System] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)

    def start_all(self) -> None:
        """Each system, then stopped until its turn comes. One that does not start is left out, and that is told."""
        for name, system in [*self.systems.items()]:
            try:
                running = self.start(system)
            except CannotMeasure as reason:
                self.miss(f"{name} was not measured: {reason}")
                del self.systems[name]
                continue
            self.running[name] = running
            if system.version:
                self.results.versions[name] = system.version
            time.sleep(SETTLE_SECONDS)
            running.tree.freeze()

    def start(self, system: System) -> Running:
        """One in a folder of its own."""
        folder = self.folder / f"{len([*self.folder.iterdir()])}"
        folder.mkdir()
        self.say(f"starting {system.name} {system.version}".strip())
        return system.start(folder, self.upstream.port, self.core)

    def end_all(self) -> None:
        """They are gone."""
        for running in self.running.values():
            running.tree.end()
        self.running.clear()

    def miss(self, sentence: str) -> None:
        """Tell what is not measured, now and in the results."""
        self.say(sentence)
        self.results.missing.append(sentence)

    @contextmanager
    def fresh(self, name: str) -> Iterator[Running]:
        """A system of that name that has served nobody yet, for the block."""
        running = self.start(self.systems[name])
        try:
            yield running
        finally:
            running.tree.end()

    @contextmanager
    def awake(self, name: str) -> Iterator[Running | None]:
        """The running system of that name, for the block; None is none."""
        running = self.running.get(name)
        if running is not None:
            running.tree.thaw()
        try:
            yield running
        finally:
            time.sleep(SETTLE_SECONDS)
            if running is not None:
                running.tree.freeze()

    def client(self, running: Running | None, door: str, options: Mapping[str, object]) -> LoadClient:
        """A load client of that system, or of the upstream itself."""
        to: dict[str, object] = {"port": self.upstream.port}
        if running is not None:
            to = {"port": running.port, "key": running.key, "path": running.path, "headers": running.headers}
        return LoadClient(self.programs, to | {"door": door} | dict(options), self.other_core)

    def measure(self, running: Running | None, door: str, load: Load) -> tuple[Told, float]:
        """What the client told of its window, and the processor's seconds that the system used meanwhile."""
        marks: list[float] = []

        def mark() -> None:
            marks.append(0.0 if running is None else running.tree.cpu_seconds())

        options = {"model": load.model, "connections": load.connections, "warm": load.warm}
        with self.client(running, door, options | {"seconds": load.seconds, "ramp": load.ramp}) as client:
            told = client.result(mark, mark)
        return told, marks[1] - marks[0]


def measure_rounds(lab: Lab, load: Load, entrants: Sequence[str], rounds: int) -> None:
    """The load's rounds, into the lab's results."""
    present = [name for name in entrants if name == DIRECT or system_of(name) in lab.running]
    for number in range(rounds):
        for entrant in present if number % 2 == 0 else reversed(present):
            with lab.awake(system_of(entrant)) as running:
                measure_once(lab, running, load, entrant)


def measure_once(lab: Lab, running: Running | None, load: Load, entrant: str) -> None:
    """One figure of each kind; none where a turn failed."""
    try:
        told, cpu_seconds = lab.measure(running, door_of(entrant), load)
    except CannotMeasure as reason:
        lab.miss(f"{entrant} under {load.name}: {reason}")
        return
    if told.failed or not told.events:
        what = f"{told.failed} turns failed: {told.why}" if told.failed else "no event came within the window"
        lab.miss(f"{entrant} under {load.name}: {what}")
        return
    figures = figures_of(told, cpu_seconds, load)
    lab.results.add(entrant, load.name, figures)
    shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if value is not None)
    lab.say(f"{load.name}: {entrant}: {shown}")


def figures_of(told: Told, cpu_seconds: float, load: Load) -> dict[str, float | None]:
    """What is kept of one measurement. No gateway costs nothing, which is no figure. Turns are counted by their events:
    a slow system ends few within the window, and those that it cuts would be missing."""
    figures: dict[str, float | None] = {
        figure.EVENT_P50_MS: told.event.p50,
        figure.EVENT_P99_MS: told.event.p99,
        figure.FIRST_P50_MS: told.first.p50,
        figure.PACE: pace_of(told, load),
    }
    if cpu_seconds > 0:
        figures[figure.CPU_US_PER_EVENT] = cpu_seconds / told.events * 1e6
        figures[figure.CPU_MS_PER_TURN] = cpu_seconds / told.events * load.events_per_turn * 1e3
        figures[figure.TURNS_PER_CPU_SECOND] = told.events / load.events_per_turn / cpu_seconds
    return figures


def pace_of(told: Told, load: Load) -> float | None:
    """How much of the load came through; None where it has no pace of its own."""
    due = load.events_per_second * told.seconds
    return told.events / due if due else None
