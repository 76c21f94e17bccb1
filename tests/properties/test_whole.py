"""H1: any upstream, any client that may leave, for a request without a stream: one answer or none, never two runs."""

from __future__ import annotations

import json

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs

from gateway.lock.driver import Client, connect
from gateway.lock.virtual import virtual_run
from properties.plays import PLAYS, Play, reply_of
from support.gateways import World, cost, create, world

EXAMPLES = 120


@pytest.mark.parametrize("transport", ["sse", "websocket"])
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=EXAMPLES, derandomize=True)
@given(play=PLAYS)
def test_whatever_happens_there_is_one_answer_at_most(transport: str, play: Play) -> None:
    """H1, R, B1-B3, T10, C5."""
    with capture_logs():
        w, client = virtual_run(_performed, play, transport, order=play.order)
    assert client.crash is None, client.crash
    assert not any("internal_error" in outcome for outcome in w.attempts), w.attempts
    w.assert_at_rest()
    w.assert_no_trace_of_discarded(client)
    _assert_one_answer(play, client)
    _assert_replayed_by_the_rules_alone(play, w)
    _assert_money(w)


async def _performed(play: Play, transport: str) -> tuple[World, Client]:
    replies = [reply_of(part, route) for part, route in zip(play.parts, "ab", strict=False)]
    w = world(*replies, transport=transport, route="response_timeout = 60")
    body = json.dumps(create(store=play.store, stream=False)).encode()
    async with connect(w.app, "http", body=body) as client, trio.open_nursery() as nursery:
        if play.manners.leaves_at is not None:
            nursery.start_soon(_leave, client, play.manners.leaves_at)
        await client.wait_for(lambda client: client.has_last_word)
        nursery.cancel_scope.cancel()
    return w, client


async def _leave(client: Client, at: float) -> None:
    await trio.sleep(at)
    client.leave()


def _assert_one_answer(play: Play, client: Client) -> None:
    """One head, one JSON body in one piece, whole; nothing for a client that left before."""
    heads = [message for _, message in client.sent if message["type"] == "http.response.start"]
    if not heads:
        assert play.manners.leaves_at is not None
        return
    assert (len(heads), len(client.pieces)) == (1, 1) or client.has_left
    if client.has_whole_body:
        assert client.headers["content-length"] == str(len(client.body))
        assert isinstance(json.loads(client.body), dict)
        assert client.comments == []


def _assert_replayed_by_the_rules_alone(play: Play, w: World) -> None:
    """R4, R10: a first attempt that was stored, metered, or gave output, is the only one."""
    if len(w.closings) < 2:
        return
    first = w.closings[0].report
    assert first.usage is None or (first.usage.input_tokens, first.usage.output_tokens) == (0, 0)
    assert not play.store or first.outcome == "upstream_connect_error"
    assert first.first_output_at is None


def _assert_money(w: World) -> None:
    """B2, B3: by the last attempt's usage, or void: no play has a body with output in it."""
    for resolution in w.resolutions:
        usage = w.closings[-1].report.usage
        if resolution.kind == "settled":
            assert usage is not None
            assert resolution.nanodollars == cost(usage.input_tokens, usage.output_tokens)
