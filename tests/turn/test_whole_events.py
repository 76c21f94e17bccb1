"""H1 over a WebSocket upstream, which always streams: its events are kept by nobody, its terminal one is the body."""

from __future__ import annotations

import pytest

from gateway.lock.driver import Client
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply, Silence, Step
from support.gateways import World, play, world
from support.voices import A, B, repeat

pytestmark = pytest.mark.trio(run=virtual_run)


def events_of(*replies: Reply) -> World:
    """Routes that are reached over WebSocket."""
    return world(*replies, transport="websocket")


async def ask(w: World) -> Client:
    return await play(w, "http", stream=False)


async def test_a_break_behind_a_lifecycle_event_is_not_replayed() -> None:
    """R9."""
    w = events_of(A.reply(A.created, 1.0, Break()), B.answer())
    client = await ask(w)
    assert w.attempts == ["a stream_read_error (read_error_after_first_event)"]
    assert client.failure == (502, "stream_read_error")


@pytest.mark.parametrize("end", [(Break(),), (A.failed(),), (A.error(),)])
async def test_output_that_was_kept_is_a_result(end: tuple[Step, ...]) -> None:
    """R4: nothing was handed over, and it is not replayed all the same."""
    w = events_of(A.reply(A.created, A.delta(), *end), B.answer())
    await ask(w)
    assert w.attempts[0].endswith("(result_observed)")
    assert (w.called, w.money) == (["a"], ["voided"])


async def test_an_error_alone_is_a_status() -> None:
    """H1, X5: with its object, after the grace (E6); a 403 is never the client's (F2)."""
    w = events_of(A.reply(A.created, A.error("some_code"), Silence()))
    client = await ask(w)
    assert (client.times, client.failure) == ([(0.25, "error some_code")], (500, "some_code"))

    client = await ask(events_of(A.reply(A.created, A.error("some_code", status=403), Silence())))
    assert client.failure == (502, "upstream_auth_error")


async def test_thousands_of_events_are_kept_by_none() -> None:
    """R7: what is passed over takes no room."""
    w = events_of(A.reply(A.created, *repeat(3000, A.delta("x" * 2000)), A.completed()))
    assert (await ask(w)).told == ["completed"]
