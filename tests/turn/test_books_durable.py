"""B3, B4, B5, B6, O1 through the whole app on a database: what the entries and the origins say of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from crash.conftest import sqlite, sqlite_template, wall_clock
from crash.worlds import DurableWorld, OpenDatabase, WallClock, durable_world
from gateway.ports import Origin
from gateway.upstream.scripted import Break, Reply, Silence
from gateway.upstream.scripts import event, usage_object
from support.gateways import MODEL, turn_beside
from support.virtual import in_orders
from support.voices import A, B

__all__ = ["sqlite", "sqlite_template", "wall_clock"]

USAGE = usage_object(5, 1)
METERED = "settled 7000"
ESTIMATED = "settled 3000 estimated"
"""A token of "hi" each way."""


@pytest.fixture(autouse=True)
def _clock(wall_clock: WallClock) -> WallClock:
    return wall_clock


async def played(w: DurableWorld, door: str, leaves_at: float = 0.0, drains_at: float = 0.0, **fields: Any) -> None:
    """One turn, whose client may leave, or whose gateway may drain, in it; then everything is at rest."""
    async with turn_beside(w, door, **fields) as client:  # type: ignore[arg-type]  # it asks for an app
        if leaves_at:
            await trio.sleep(leaves_at)
            client.leave()
        if drains_at:
            await trio.sleep(drains_at)
            w.gateway.drain()
    await trio.sleep(1.0)
    w.assert_at_rest()


HELD, OUT = (A.prelude,), (A.prelude, A.delta())
CELLS: Mapping[str, tuple[Reply, Mapping[str, float], str]] = {
    # how the turn ends: its upstream, what happens at which second, what the entries say
    "completed with usage, no output": (A.reply(*HELD, A.completed()), {}, METERED),
    "completed with usage, output": (A.reply(*OUT, A.completed()), {}, METERED),
    "incomplete with usage, no output (case 26)": (A.reply(*HELD, A.ending("incomplete", USAGE)), {}, METERED),
    "incomplete with usage, output (case 26)": (A.reply(*OUT, A.ending("incomplete", USAGE)), {}, METERED),
    "cancelled with usage, output (case 26)": (A.reply(*OUT, A.ending("cancelled", USAGE)), {}, METERED),
    "failed with usage, no output": (A.reply(*HELD, A.failed(usage=USAGE)), {}, f"{METERED} failed_metered"),
    "failed with usage, output (case 26)": (A.reply(*OUT, A.failed(usage=USAGE)), {}, METERED),
    "completed without usage, no output": (A.reply(*HELD, A.ending("completed")), {}, "voided unmetered"),
    "completed without usage, output (case 27)": (A.reply(*OUT, A.ending("completed")), {}, ESTIMATED),
    "incomplete without usage, no output": (A.reply(*HELD, A.ending("incomplete")), {}, "voided unmetered"),
    "incomplete without usage, output": (A.reply(*OUT, A.ending("incomplete")), {}, ESTIMATED),
    "cancelled without usage, no output": (A.reply(*HELD, A.ending("cancelled")), {}, "voided unmetered"),
    "cancelled without usage, output": (A.reply(*OUT, A.ending("cancelled")), {}, ESTIMATED),
    "failed without usage, no output": (A.reply(*HELD, A.failed()), {}, "voided"),
    "failed without usage, output": (A.reply(*OUT, A.failed()), {}, ESTIMATED),
    "reset, no output (case 28)": (A.reply(*HELD, Break()), {}, "voided"),
    "reset, output (case 27)": (A.reply(*OUT, Break()), {}, ESTIMATED),
    "end of file, no output": (A.reply(*HELD), {}, "voided"),
    "end of file, output (case 27)": (A.reply(*OUT), {}, ESTIMATED),
    "first-event timeout (case 28)": (A.reply(Silence()), {}, "voided"),
    "idle timeout, output": (A.reply(*OUT, Silence()), {}, ESTIMATED),
    "connect refused (case 28)": (A.reply(refuses=True), {}, "voided"),
    "an HTTP status (case 28)": (A.status(500), {}, "voided"),
    "client left, no output": (A.reply(*HELD, Silence()), {"leaves_at": 1.0}, "voided"),
    "client left, output (case 27)": (A.reply(*OUT, Silence()), {"leaves_at": 1.0}, ESTIMATED),
    "drain, no output": (A.reply(*HELD, Silence()), {"drains_at": 1.0}, "voided"),
    "drain, output": (A.reply(*OUT, Silence()), {"drains_at": 1.0}, "voided unmetered"),
}


@pytest.mark.parametrize("cell", CELLS)
@in_orders(1)
async def test_each_cell_of_the_table_is_what_the_entries_say(
    door: str, cell: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """B3, B4, B5, bug cases 26, 27, 28: one resolution, the same on both doors, and the balance is what is left."""
    reply, happens, expected = CELLS[cell]
    async with durable_world(sqlite(), tmp_path / "spool", reply) as w:
        await played(w, door, **happens)
        charged = int(expected.split()[1]) if expected.startswith("settled") else 0
        assert w.money == [expected]
        assert w.fetch("select balance, open from account") == [(1_000_000_000_000 - charged, 0)]


BAD_USAGES: Mapping[str, object] = {
    "negative": {"input_tokens": -5, "output_tokens": 1},
    "huge": {"input_tokens": 10**30, "output_tokens": 1},
    "NaN": {"input_tokens": float("nan"), "output_tokens": 1},
    "missing a count": {"input_tokens": 5},
    "a string": {"input_tokens": "5", "output_tokens": 1},
    "a fraction": {"input_tokens": 5.5, "output_tokens": 1},
    "no object": [5, 1],
    "more cached than there are": {"input_tokens": 5, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 6}},
}


@pytest.mark.parametrize("usage", BAD_USAGES)
@in_orders(1)
async def test_a_usage_that_cannot_be_is_no_usage(door: str, usage: str, sqlite: OpenDatabase, tmp_path: Path) -> None:
    """B5: never a success of zero tokens, never a charge by it, and nothing that a store could choke on."""
    completed = json.dumps({"id": "resp_of_a", "status": "completed", "usage": BAD_USAGES[usage]})
    terminal = event("response.completed", sequence_number=3).replace(
        b"3}", b'3,"response":' + completed.encode() + b"}"
    )
    async with durable_world(sqlite(), tmp_path / "spool", A.reply(*OUT, terminal)) as w:
        await played(w, door)
        assert w.money == [ESTIMATED]


@in_orders(1)
async def test_a_usage_beyond_the_reservation_and_the_balance_is_charged_and_flagged(
    door: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """B6: the balance goes below zero by the excess, and the next turn is refused before any call."""
    large = A.reply(*OUT, A.completed(5, 2000))
    async with durable_world(sqlite(), tmp_path / "spool", large, balance="0.003") as w:
        await played(w, door)
        assert w.money == ["settled 4005000 overdrawn"]
        assert w.fetch("select balance, open from account") == [(3_000_000 - 4_005_000, 0)]
        async with turn_beside(w, door) as client:  # type: ignore[arg-type]  # it asks for an app
            pass
        assert (client.failure, w.called) == ((402, "insufficient_balance"), ["a"])


# --- origins ----------------------------------------------------------------------------------------------------

ORIGINS: Mapping[str, tuple[Reply, Mapping[str, Any], list[tuple[str, str]]]] = {
    # how the response comes: its upstream, the turn, what is learned
    "with its output": (A.answer(), {"store": True}, [("resp_of_a", "a")]),
    "stored by the upstream's default": (A.answer(), {"store": ...}, [("resp_of_a", "a")]),
    "released by the hold": (A.reply(A.prelude, 12.0, A.delta(), A.completed()), {"store": True}, [("resp_of_a", "a")]),
    "only created, then the client left (case 48)": (
        A.reply(A.created, Silence()),
        {"store": True, "leaves_at": 11.0},
        [("resp_of_a", "a")],
    ),
    "never told to the client, who left before": (A.reply(A.created, Silence()), {"store": True, "leaves_at": 5.0}, []),
    "from the second route, the first was never reached": (
        A.reply(refuses=True),
        {"store": True},
        [("resp_of_b", "b")],
    ),
    "stored nowhere": (A.answer(), {"store": False}, []),
}


@pytest.mark.parametrize("how", ORIGINS)
@in_orders(2)
async def test_an_origin_is_learned_from_the_first_created_that_was_delivered(
    door: str, how: str, sqlite: OpenDatabase, tmp_path: Path
) -> None:
    """O1, bug case 48: durable, by account, once; and known to whoever asks on another connection."""
    reply, fields, learned = ORIGINS[how]
    async with durable_world(sqlite(), tmp_path / "spool", reply, B.answer()) as w:
        await played(w, door, **fields)
        assert w.fetch("select response_id, route from origin where account = 'main'") == learned
        for response_id, route in learned:
            found = await w.stores.records.origin("main", response_id)
            assert found is not None
            assert found.place is not None
            assert replace(found, place=None) == Origin("main", response_id, route, MODEL)
            assert await w.stores.records.origin("another", response_id) is None
