"""The proof that the lock holds (K4): each mutant is played until a scenario shows it.

A mutant is looked for first where it should show: in scenarios that name its rules, or whose files hold its words. If
none of those is broken, all others are played. One that breaks none is a survivor.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import active_children, connection, get_context, parent_process
from pathlib import Path
from threading import Thread

from gateway.lock.files import text_of
from gateway.lock.mutants import Mutant, all_mutants
from gateway.lock.pack import Pack
from gateway.lock.player import play_door
from gateway.lock.scenario import DOORS, DoorName, Scenario, read_scenario
from gateway.lock.transcript import Transcript, changed_columns, read_transcript


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A scenario with its transcript, and both as the text in which a mutant's words are looked for."""

    name: str
    scenario: Scenario
    transcript: Transcript
    text: str


@dataclass(frozen=True, slots=True)
class Caught:
    """A mutant by its name, and what showed it: a scenario, a door, the columns that differed. A survivor has none."""

    mutant: str
    scenario: str | None = None
    door: DoorName | None = None
    shown: str = ""

    @property
    def has_survived(self) -> bool:
        """Whether no scenario was broken."""
        return self.scenario is None


def read_recorded(pack: Pack) -> list[Recorded]:
    """The whole pack."""
    return [_recorded(pack, name) for name in pack.names]


def _recorded(pack: Pack, name: str) -> Recorded:
    scenario, transcript = read_scenario(pack.scenario(name)), read_transcript(pack.transcript(name))
    return Recorded(name, scenario, transcript, text_of(pack.scenario(name)) + text_of(pack.transcript(name)))


# --- all of them ------------------------------------------------------------------------------------------------


def catch_all(pack: Pack, names: Sequence[str], processes: int) -> Iterator[Caught]:
    """What became of each of these mutants, in their order. Each process has flips of its own. Raises ScenarioError
    and Unreadable, before any process is started."""
    _material(pack.root)
    if processes == 1 or len(names) < 2 * processes:
        yield from (_catch(pack.root, name) for name in names)
        return
    others = set(active_children())
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_with_parent) as workers:
        try:
            with _deaf_to_interrupts():
                caught = [workers.submit(_catch, pack.root, name) for name in names]
            yield from (each.result() for each in caught)
        except BaseException:  # Ctrl-C above all: who interrupts does not wait for what has begun
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started in the block do not hear Ctrl-C, not even while they import: their parent answers it,
    once, after the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """A worker ends at once when its parent has, whatever that died of."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _catch(root: Path, name: str) -> Caught:
    recorded, mutants = _material(root)
    return catch(mutants[name], recorded)


@lru_cache(maxsize=1)
def _material(root: Path) -> tuple[list[Recorded], dict[str, Mutant]]:
    """What each process reads once."""
    return read_recorded(Pack(root)), all_mutants()


# --- one of them ------------------------------------------------------------------------------------------------


def catch(mutant: Mutant, pack: Sequence[Recorded]) -> Caught:
    """Play the mutant until it shows. A scenario that is not as recorded without it shows nothing."""
    for recorded in _likeliest_first(mutant, pack):
        for door in DOORS:
            if door in recorded.transcript and (shown := _shown(mutant, recorded, door)) and _is_true(recorded, door):
                return Caught(mutant.name, recorded.name, door, shown)
    return Caught(mutant.name)


@cache
def _is_true(recorded: Recorded, door: DoorName) -> bool:
    """Whether the gateway as it is behaves as recorded here."""
    return play_door(recorded.scenario, f"{recorded.name}.toml", door) == recorded.transcript[door]


def _shown(mutant: Mutant, recorded: Recorded, door: DoorName) -> str:
    """What differs on this door, in words; empty if nothing does. A crash is a difference, and so is a deadlock."""
    try:
        with mutant.flip():
            played = play_door(recorded.scenario, f"{recorded.name}.toml", door, change=mutant.change)
    except Exception as error:
        return type(error).__name__
    return ", ".join(changed_columns({door: recorded.transcript[door]}, {door: played}))


def _likeliest_first(mutant: Mutant, pack: Sequence[Recorded]) -> list[Recorded]:
    return sorted(pack, key=lambda recorded: (-_likelihood(mutant, recorded), len(recorded.text)))


def _likelihood(mutant: Mutant, recorded: Recorded) -> int:
    """Its words count for more than its rules; of equals the shortest scenario goes first."""
    words = sum(word in recorded.text for word in mutant.words)
    return 2 * words + len(set(mutant.rules) & set(recorded.scenario.rules))
