"""A run's course: compile, start, the rounds of each load, then what is measured once."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.lab.loads import DIRECT, GATEWAY, OURS, STEADY, TWO_WORKERS, system_of
from bench.lab.ours import REPOSITORY, Settings, start_gateway
from bench.lab.peers import PEERS
from bench.lab.placing import on_core, two_cores
from bench.lab.programs import CannotMeasure, compile_programs, running_upstream
from bench.lab.results import Results
from bench.lab.rounds import Lab, measure_rounds
from bench.lab.singles import measure_crowds, measure_evenness, measure_growth, measure_held, measure_ladder
from bench.lab.systems import Running, System
from bench.lab.tls import tls_front
from support.postgres import DURABLE, PostgresServer

INSTALLED: Final = REPOSITORY / "build" / "bench" / "peers"
GROWTH_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be measured."""

    entrants: Mapping[str, Sequence[str]]
    """Ours, by load."""
    peers: Sequence[str] = ()
    """Under each of these loads, too."""
    server: Mapping[str, str] | None = None
    """Further keys of our [server]."""
    python: str = sys.executable
    """What runs ours."""
    is_whole: bool = True
    """Also what is measured once: the ladder, memory, crowds."""


def measure(order: Order, results: Results, say: Callable[[str], None]) -> None:
    """Everything that was ordered, into `results`. Raises CannotMeasure where nothing can be."""
    core, other_core = two_cores()
    if core == other_core:
        say("this machine has one core: gateway, upstream and load client share it, and latencies say nothing")
    os.sched_setaffinity(0, {other_core})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gw-bench-")))
        programs = compile_programs(folder)
        upstream = stack.enter_context(running_upstream(programs, other_core))
        homes = folder / "systems"
        homes.mkdir()
        lab = Lab(programs, homes, core, other_core, upstream, results, say)
        stack.callback(lab.end_all)
        add_ours(lab, stack, order)
        add_peers(lab, order.peers)
        lab.start_all()
        peers = [name for name in order.peers if name in lab.running]
        for load, names in order.entrants.items():
            measure_rounds(lab, STEADY[load], [*names, *peers], results.rounds)
        if order.is_whole:
            measure_the_rest(lab, [GATEWAY, *peers])


def measure_the_rest(lab: Lab, names: Sequence[str]) -> None:
    """What is measured once; one that cannot be does not keep the others."""
    singles: Sequence[Callable[[], None]] = (
        lambda: measure_ladder(lab, [DIRECT, *names]),
        lambda: measure_held(lab, names),
        lambda: measure_evenness(lab, TWO_WORKERS),
        lambda: measure_crowds(lab, GATEWAY),
        lambda: measure_growth(lab, GATEWAY, GROWTH_SECONDS),
    )
    for single in singles:
        try:
            single()
        except CannotMeasure as reason:
            lab.miss(str(reason))


def add_ours(lab: Lab, stack: ExitStack, order: Order) -> None:
    """The gateways that are wanted, and what they need beside them."""
    wanted = {system_of(name) for names in order.entrants.values() for name in names if name != DIRECT}
    for name, settings in OURS.items():
        if name in wanted:
            try:
                own = with_surroundings(lab, stack, replace(settings, python=order.python, server=order.server or {}))
            except CannotMeasure as reason:
                lab.miss(f"{name} was not measured: {reason}")
            else:
                lab.systems[name] = System(name, starter(own))


def with_surroundings(lab: Lab, stack: ExitStack, settings: Settings) -> Settings:
    """The settings with the database or the TLS end that they ask for, which then run on the other core."""
    if settings.store == "postgres":
        with on_core(lab.other_core):
            database = PostgresServer(DURABLE)
        stack.callback(database.close)
        settings = replace(settings, dsn=database.dsn(database.create_database()))
    if settings.has_tls_upstream:
        folder = lab.folder.parent / "tls"
        settings = replace(settings, front=stack.enter_context(tls_front(folder, lab.upstream.port, lab.other_core)))
    return settings


def starter(settings: Settings) -> Callable[[Path, int, int], Running]:
    """Starts a gateway with these settings."""
    return lambda folder, upstream_port, core: start_gateway(settings, folder, upstream_port, core)


def add_peers(lab: Lab, names: Sequence[str]) -> None:
    """What cannot be installed is told."""
    for peer in PEERS:
        if peer.name not in names:
            continue
        lab.say(f"installing {peer.name}, if it is not there")
        try:
            lab.systems[peer.name] = peer.system(INSTALLED / peer.name.lower())
        except CannotMeasure as reason:
            lab.miss(f"{peer.name} was not measured, for it cannot be installed: {reason}")
