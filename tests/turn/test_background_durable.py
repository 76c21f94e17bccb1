"""B9 on a database: what one process began, whichever lives looks after, and the lease with it (B7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from crash.conftest import sqlite, sqlite_template, wall_clock
from crash.worlds import OpenDatabase, durable_world
from gateway.lock.driver import connect
from gateway.upstream.scripted import JSON_BODY, Break, Reply
from gateway.upstream.scripts import response_object, usage_object
from support.gateways import create
from support.virtual import in_orders
from support.voices import A

__all__ = ["sqlite", "sqlite_template", "wall_clock"]

BACKGROUND = json.dumps(create(background=True, store=True)).encode()


def shown(status: str, usage: object = None) -> Reply:
    body = response_object("resp_of_a", status, background=True, usage=usage)
    return Reply((json.dumps(body).encode(),), headers=JSON_BODY)


@pytest.mark.usefixtures("wall_clock")
@in_orders(1)
async def test_another_process_takes_over_the_poll_and_the_lease(sqlite: OpenDatabase, tmp_path: Path) -> None:
    """B7, B9: for longer than a lease nobody else has seen to it, and it is settled, not expired."""
    async with durable_world(sqlite(), tmp_path / "first", A.reply(A.created, Break())) as first:
        async with connect(first.app, "http", body=BACKGROUND):
            pass
        assert (first.money, first.outcomes) == ([], [None])

    runs = shown("in_progress")
    replies = [runs, runs, runs, runs, shown("completed", usage_object(5, 1))]
    async with durable_world(sqlite(), tmp_path / "second", replies, name="another") as second:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.gateway.background.run)
            await trio.sleep(130)
            assert (second.money, second.outcomes) == ([], [None])
            await trio.sleep(60)
            second.gateway.background.stop()
        assert (second.money, second.outcomes, second.leases.expired) == (["settled 7000"], ["completed"], 0)


@pytest.mark.usefixtures("wall_clock")
@in_orders(1)
async def test_where_nobody_looks_the_lease_ends(sqlite: OpenDatabase, tmp_path: Path) -> None:
    """B7: what the test above keeps from happening."""
    breaks = A.reply(A.created, Break())
    async with durable_world(sqlite(), tmp_path / "1", breaks) as first, connect(first.app, "http", body=BACKGROUND):
        pass
    async with durable_world(sqlite(), tmp_path / "2", A.answer(), name="another") as second:
        await trio.sleep(130)
        assert (second.money, second.leases.expired) == (["expired"], 1)
