"""Any upstream, any client, through either door, under any task order: what must hold of every turn, holds.

Random plays through the whole app on the virtual clock (`plays.py`); what is asked of each (`invariants.py`).
"""

from __future__ import annotations

import json
import os

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from gateway.lock.driver import Client, connect
from gateway.lock.virtual import virtual_run
from properties.invariants import assert_invariants
from properties.plays import PLAYS, Manners, Play, reply_of
from support.gateways import World, create, create_frame, world

EXAMPLES = 300
LONG_EXAMPLES = 10_000 if os.environ.get("GATEWAY_LONG") else 1_000
AFTERWARDS_SECONDS = 2.0

unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(unhurried, max_examples=EXAMPLES, derandomize=True)
@given(play=PLAYS)
def test_whatever_happens_the_invariants_hold(play: Play) -> None:
    """R, E10, X, B1–B3, T10, C5. The same plays each time: `poe long` looks for others."""
    perform(play)


@pytest.mark.long
@settings(unhurried, max_examples=LONG_EXAMPLES, print_blob=True)
@given(play=PLAYS)
def test_whatever_happens_the_invariants_hold_at_length(play: Play) -> None:
    """The same, for other plays each time."""
    perform(play)


def perform(play: Play) -> None:
    """One play, and what must hold of it."""
    with capture_logs():
        played, client = virtual_run(_performed, play, order=play.order)
    assert_invariants(play, played, client)


async def _performed(play: Play) -> tuple[World, Client]:
    replies = [reply_of(part, route) for part, route in zip(play.parts, "ab", strict=False)]
    w = world(*replies, server=f'start = "{"early" if play.starts_early else "late"}"')
    body = json.dumps(create(store=play.store)).encode() if play.door == "http" else None
    async with connect(w.app, play.door, body=body) as client:
        if play.door == "websocket":
            client.send_text(create_frame(store=play.store))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stall, client, play.manners)
            nursery.start_soon(_leave, client, play.manners)
            await client.wait_for(lambda client: client.has_last_word)
            await trio.sleep(AFTERWARDS_SECONDS)
            client.resume()
            if play.door == "websocket":
                client.leave()
            nursery.cancel_scope.cancel()
    return w, client


async def _stall(client: Client, manners: Manners) -> None:
    if manners.stalls_at is not None:
        await trio.sleep(manners.stalls_at)
        client.stall()
        await trio.sleep(manners.stalls_for)
        client.resume()


async def _leave(client: Client, manners: Manners) -> None:
    if manners.leaves_at is not None:
        await trio.sleep(manners.leaves_at)
        if manners.half_closes:
            client.half_close()
        else:
            client.leave()
