"""The same for clients that npm installs: openai-node and Codex. `deploy/test --clients` brings them."""

from __future__ import annotations

import pytest

from clients.conftest import Stages
from clients.node_clients import what_is_missing
from clients.playing import expected, play, playing, restart_under
from clients.table import cells

pytestmark = [pytest.mark.npm, pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "all is here")]


@pytest.mark.parametrize(("situation", "client"), cells("usual", is_npm=True))
def test_a_client_shows_what_the_table_says(stages: Stages, situation: str, client: str) -> None:
    """R15, R2, X1–X4, O2, B6: the text once, the failure once, and no call that nobody decided on."""
    assert play(stages.of("usual", is_npm=True), situation, client) == expected(situation, client)


@pytest.mark.parametrize(("situation", "client"), cells("expanding", is_npm=True))
def test_codex_sees_no_failure_that_is_replayed(stages: Stages, situation: str, client: str) -> None:
    """R15, W10: over WebSocket its turns go on from its warm-up, and are replayed where that is switched on."""
    assert play(stages.of("expanding", is_npm=True), situation, client) == expected(situation, client)


@pytest.mark.parametrize(("situation", "client"), cells("minute", is_npm=True))
def test_codex_meets_the_rate_limit(stages: Stages, situation: str, client: str) -> None:
    """§9: over SSE it waits as it is told. Over WebSocket a 429 is fatal to it, and the limit is the key's own."""
    assert play(stages.of("minute", is_npm=True), situation, client) == expected(situation, client)


def test_a_socket_whose_time_is_over_says_so_and_the_next_one_answers(stages: Stages) -> None:
    """W6, T5."""
    clients = [client for _, client in cells("hour", is_npm=True)]
    with playing(stages.of("hour", is_npm=True), "hour", clients) as results:
        assert results() == {client: expected("hour", client) for client in clients}


def test_a_rolling_restart_is_not_seen(stages: Stages) -> None:
    """T7, W6: running turns end, and the next one finds a worker."""
    clients = [client for _, client in cells("restart", is_npm=True)]
    seen = restart_under(stages.of("restart", is_npm=True), clients)
    assert seen == {client: expected("restart", client) for client in clients}
