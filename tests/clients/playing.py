"""Cells of the matrix, played: one alone, or all of a situation beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from clients.conversation import Seen
from clients.situations import situation_of
from clients.stage import Stage, cell_of
from clients.table import CALLS, CLIENTS, EXPECTED
from support.processes import PATIENCE_SECONDS

Played = tuple[Seen, tuple[int, int]]
"""What was shown, and how many calls each of the two upstreams got."""


def play(stage: Stage, situation: str, client: str) -> Played:
    """One cell."""
    return CLIENTS[client].load()(stage.asked(situation, client)), stage.calls(cell_of(situation, client))


def expected(situation: str, client: str) -> object:
    """What `play` is to find, a reason in the place of a cell that is not played."""
    return EXPECTED[situation][client], CALLS.get((situation, client), situation_of(situation, client).calls)


@contextmanager
def playing(stage: Stage, situation: str, clients: Sequence[str]) -> Iterator[Callable[[], Mapping[str, Played]]]:
    """All these clients at once; the block gets what waits for their results."""
    for client in clients:
        CLIENTS[client].load()  # before the clock runs
    with ThreadPoolExecutor(len(clients)) as threads:
        found = {client: threads.submit(play, stage, situation, client) for client in clients}
        yield lambda: {client: one.result(PATIENCE_SECONDS) for client, one in found.items()}


def restart_under(stage: Stage, clients: Sequence[str]) -> Mapping[str, Played]:
    """A rolling restart while all clients are in the middle of a turn; the second worker's drain meets the next one."""
    with playing(stage, "restart", clients) as results, ThreadPoolExecutor(1) as beside:
        try:
            wait_until(lambda: all(stage.calls(cell_of("restart", client))[0] for client in clients))
            restarted = beside.submit(stage.restart)
            stage.process.wait_for('"event": "draining"')
            stage.gates[0].open()
            stage.process.wait_for('(?s)"event": "draining".*"event": "draining"')
        finally:
            for gate in stage.gates:
                gate.open()
        assert restarted.result(PATIENCE_SECONDS) == "all 2 workers are replaced\n"
        return results()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Bounded."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
