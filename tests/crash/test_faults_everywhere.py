"""T10, B1, L2: a fault at every await of a turn and at every transaction of its store, one after the other.

Whatever fails, wherever: the reservation is resolved exactly once, by the turn itself and not by the sweeper; no
attempt stays open; the books balance. The fast suite strikes at some places, drawn by a seed; the long tier at all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from crash.injection import BUG, FaultAt
from crash.worlds import DurableWorld, OpenDatabase, Trouble, WallClock, durable_world
from gateway.lock.driver import Client
from gateway.lock.virtual import virtual_run
from gateway.store.database import StoreAway
from gateway.upstream.scripted import Break, Reply, Silence
from support.gateways import World, turn_beside, world
from support.voices import A, B

pytestmark = pytest.mark.widens

IS_LONG = bool(os.environ.get("GATEWAY_LONG"))
SEED = 4
PLACES = 2
PLACES_ON_POSTGRES = 1
"""How many places the fast suite strikes in each cell."""
RUNS = count(1)
"""Each run has turns of its own, on whichever database."""
QUIET_SECONDS = 90.0
"""After a turn: longer than a lease, so that a sweeper would have ended what the turn has left."""

AnyWorld = World | DurableWorld


@dataclass(frozen=True)
class Shape:
    """How a turn goes if nothing fails."""

    first: Reply
    second: Reply | None = None
    client: Callable[[AnyWorld, Client], Awaitable[None]] | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    kind: str = field(default="", compare=False)


async def _leaves(_world: AnyWorld, client: Client) -> None:
    await trio.sleep(1.0)
    client.leave()


async def _drains(world: AnyWorld, _client: Client) -> None:
    await trio.sleep(1.0)
    world.gateway.drain()


SHAPES: Mapping[str, Shape] = {
    "completes": Shape(A.answer()),
    "is replayed": Shape(A.reply(A.prelude, A.failed()), B.answer()),
    "fails after output": Shape(A.reply(A.prelude, A.delta(), 1.0, Break()), B.answer()),
    "is left in the hold": Shape(A.reply(A.prelude, Silence()), client=_leaves),
    "is a warm-up": Shape(A.answer(), fields={"generate": False}),
    "is cut by the drain": Shape(A.reply(A.prelude, A.delta(), Silence()), client=_drains),
}


async def one_turn(
    world: AnyWorld, door: str, shape: Shape, fault: FaultAt | None = None, *, stops: bool = False
) -> None:
    """The turn, with the fault in it, and a while."""
    async with turn_beside(world, door, **shape.fields) as client:  # type: ignore[arg-type]  # it asks for an app
        if fault is not None and stops:
            fault.cancel = client.stop_server
        if shape.client is not None:
            await shape.client(world, client)
    await trio.sleep(QUIET_SECONDS)


def places(total: int, cell: str) -> list[int]:
    """Where to strike."""
    everywhere = range(1, total + 1)
    if IS_LONG:
        return list(everywhere)
    wanted = PLACES_ON_POSTGRES if cell.startswith("postgres") else PLACES
    return sorted(random.Random(f"{SEED} {cell}").sample(everywhere, min(wanted, total)))


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    """Each in turn."""
    return SHAPES[request.param]


@pytest.fixture(params=["raises", "cancels"])
def stops(request: pytest.FixtureRequest) -> bool:
    """Whether the await raises, or the client's task is cancelled at it."""
    return bool(request.param == "cancels")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield


# --- in the memory ----------------------------------------------------------------------------------------------


def in_memory(door: str, shape: Shape, number: int, *, stops: bool) -> FaultAt:
    """One run on the in-memory stores."""
    fault = FaultAt(number)

    async def run() -> None:
        w = world(shape.first, shape.second)
        await one_turn(w, door, shape, fault, stops=stops)
        w.assert_at_rest()

    run_with(fault, run)
    return fault


def run_with(fault: FaultAt, run: Callable[[], Awaitable[None]]) -> None:
    try:
        virtual_run(run, instruments=[fault])
    except BaseException as error:
        error.add_note(f"struck at step {fault.number}, in {fault.struck_in}")
        raise


def test_a_fault_at_any_await_of_a_turn_is_resolved_in_memory(door: str, shape: Shape, stops: bool) -> None:
    """T10, B1, bug case 28."""
    total = in_memory(door, shape, 0, stops=stops).steps
    for number in places(total, f"memory {door} {shape.first!r} {stops}"):
        assert in_memory(door, shape, number, stops=stops).has_struck


# --- on a database ----------------------------------------------------------------------------------------------


class Runs:
    """Many runs on one database: each has turns of its own, and at the end everything is at rest."""

    def __init__(self, database: OpenDatabase, spool: Path) -> None:
        self._database = database
        self._spool = spool
        self.dialect = database().dialect

    def run(
        self, door: str, shape: Shape, fault: FaultAt, trouble: Trouble | None = None, *, stops: bool = False
    ) -> None:
        """One turn on the database, which is found at rest behind it, nothing of it ended by a sweeper."""
        name = f"run{next(RUNS)}"

        async def play() -> None:
            store = trouble or self._database()
            async with durable_world(store, self._spool, shape.first, shape.second, name=name) as w:
                await one_turn(w, door, shape, fault, stops=stops)
                w.assert_at_rest()
                assert w.fetch("select turn_id from entry where kind = 'expired'") == []

        run_with(fault, play)


@pytest.fixture
def runs(used_database: OpenDatabase, tmp_path: Path, wall_clock: WallClock) -> Runs:
    """On SQLite, then on PostgreSQL."""
    return Runs(used_database, tmp_path / "spool")


def test_a_fault_at_any_await_of_a_turn_is_resolved_on_a_database(
    door: str, shape: Shape, stops: bool, runs: Runs
) -> None:
    """T10, B1, L2, bug case 28."""
    untouched = FaultAt(0)
    runs.run(door, shape, untouched)
    for number in places(untouched.steps, f"{runs.dialect} awaits {door} {shape.first!r} {stops}"):
        fault = FaultAt(number)
        runs.run(door, shape, fault, stops=stops)
        assert fault.has_struck


ERRORS: Mapping[str, Exception] = {
    "the store is away": StoreAway("the connection was lost"),
    "the store has a bug": BUG,
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("after_commit", [False, True], ids=["before it is written", "once it is written"])
def test_a_fault_at_any_transaction_of_a_turn_is_resolved(
    door: str, shape: Shape, error: str, after_commit: bool, used_database: OpenDatabase, runs: Runs
) -> None:
    """T10, B1, L2: also where nobody can know whether it was written."""
    fails = partial(Trouble, error=ERRORS[error], after_commit=after_commit)
    untouched = fails(used_database())
    runs.run(door, shape, FaultAt(0), untouched)
    relevant = min(untouched.transactions, 12)
    for number in places(relevant, f"{runs.dialect} transactions {door} {shape.first!r} {error} {after_commit}"):
        trouble = fails(used_database(), fails_at=number)
        runs.run(door, shape, FaultAt(0), trouble)
        assert trouble.has_struck
