"""H1 over a WebSocket upstream, which always streams: its events are kept by nobody, its terminal one is the body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.lock.driver import Client
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply, Silence, Step
from gateway.upstream.scripts import event, usage_object
from support.gateways import World, cost, play, world
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


BARE = [{}, {"response": None}, {"response": []}, {"response": "resp_of_a"}]
bare = pytest.mark.parametrize("fields", BARE, ids=["missing", "null", "a list", "a text"])


def ends(kind: str, **fields: Any) -> Reply:
    """Its last event, which lacks the response that it should have."""
    return A.reply(A.created, A.delta(), event(f"response.{kind}", sequence_number=3, **fields))


@bare
@pytest.mark.parametrize("kind", ["completed", "incomplete", "cancelled"])
async def test_an_end_without_its_response_is_no_empty_success(kind: str, fields: dict[str, Any]) -> None:
    """H1, P9, R4: a result was made, so it is not made again; nothing was delivered, so nothing is paid (B3)."""
    w = events_of(ends(kind, **fields), B.answer())
    client = await ask(w)
    assert client.failure == (502, "upstream_bad_response")
    assert w.attempts == ["a upstream_bad_response (result_observed)"]
    assert (w.called, w.money) == (["a"], ["voided"])


async def test_nor_is_it_free_where_it_says_what_it_has_metered() -> None:
    """R4, B3."""
    w = events_of(ends("completed", usage=usage_object(5, 1)), B.answer())
    client = await ask(w)
    assert (w.called, w.money) == (["a"], [f"settled {cost(5, 1)} failed_metered"])
    assert client.failure == (502, "upstream_bad_response")


@bare
async def test_a_failed_response_that_lacks_itself_is_an_error(fields: dict[str, Any]) -> None:
    """H1, X5: a status with an error object, which the gateway makes where the upstream has none."""
    client = await ask(events_of(ends("failed", **fields)))
    assert client.status == 500
    assert json.loads(client.body)["error"] == {
        "message": "the upstream failed and did not say why",
        "type": "upstream_bad_response",
        "code": None,
        "param": None,
    }


@pytest.mark.parametrize("is_first", [True, False], ids=["first frame", "later"])
async def test_a_flat_error_has_its_members_in_the_object(is_first: bool) -> None:
    """E8, X5: the API's own `error` event is flat; what it says decides, too."""
    told = event("error", status=429, code="insufficient_quota", message="pay", param="model", sequence_number=1)
    client = await ask(events_of(A.reply(*([] if is_first else [A.created]), told, Silence())))
    assert client.failure == (429, "insufficient_quota")
    assert json.loads(client.body)["error"] == {
        "message": "pay",
        "type": "insufficient_quota",
        "code": "insufficient_quota",
        "param": "model",
    }


async def test_a_flat_first_frame_is_judged_by_its_code_and_mark() -> None:
    """§5: a quota is a route's fault, and an explicit `retryable` counts."""
    for marked, attempts in ((True, 2), (False, 1)):
        told = event("error", status=418, code="odd", message="no", retryable=marked)
        w = events_of(A.reply(told), B.answer())
        await ask(w)
        assert len(w.attempts) == attempts


async def test_a_stream_client_gets_such_an_end_as_it_came(door: str) -> None:
    """X1, E10: it reads events, and judges them itself."""
    w = events_of(ends("completed"))
    client = await play(w, door)
    assert client.told == ["created", "output_text.delta", "completed"]
