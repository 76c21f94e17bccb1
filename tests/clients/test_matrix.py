"""Real clients against a real gateway process: each shows what the table says.

Those that pip installs are in the suite; those that npm installs are brought by `deploy/test --clients`.
"""

from __future__ import annotations

import pytest

from clients.conftest import Stages
from clients.node_clients import NPM
from clients.playing import expected, play, playing, restart_under
from clients.table import cells

BOTH = [pytest.param(False, id="pip"), pytest.param(True, id="npm", marks=NPM)]
USUAL = [
    pytest.param(*cell, is_npm, id="-".join(cell), marks=NPM if is_npm else ())
    for is_npm in (False, True)
    for cell in cells("usual", is_npm=is_npm)
]


@pytest.mark.parametrize(("situation", "client", "is_npm"), USUAL)
def test_a_client_shows_what_the_table_says(stages: Stages, situation: str, client: str, is_npm: bool) -> None:
    """R15, R2, X1–X4, O2, B6: the text once, the failure once, and no call that nobody decided on."""
    assert play(stages.of("usual", is_npm=is_npm), situation, client) == expected(situation, client)


@pytest.mark.parametrize("is_npm", BOTH)
def test_a_socket_whose_time_is_over_says_so_and_the_next_one_answers(stages: Stages, is_npm: bool) -> None:
    """W6, T5."""
    clients = [client for _, client in cells("hour", is_npm=is_npm)]
    with playing(stages.of("hour", is_npm=is_npm), "hour", clients) as results:
        assert results() == {client: expected("hour", client) for client in clients}


@pytest.mark.parametrize("is_npm", BOTH)
def test_a_rolling_restart_is_not_seen(stages: Stages, is_npm: bool) -> None:
    """T7, W6: running turns end, and the next one finds a worker."""
    clients = [client for _, client in cells("restart", is_npm=is_npm)]
    seen = restart_under(stages.of("restart", is_npm=is_npm), clients)
    assert seen == {client: expected("restart", client) for client in clients}


# --- Codex alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "client"), [pytest.param(*cell, marks=NPM) for cell in cells("expanding", is_npm=True)]
)
def test_codex_sees_no_failure_that_is_replayed(stages: Stages, situation: str, client: str) -> None:
    """R15, W10: over WebSocket its turns go on from its warm-up, and are replayed where that is switched on."""
    assert play(stages.of("expanding", is_npm=True), situation, client) == expected(situation, client)


@pytest.mark.parametrize(
    ("situation", "client"), [pytest.param(*cell, marks=NPM) for cell in cells("minute", is_npm=True)]
)
def test_codex_meets_the_rate_limit(stages: Stages, situation: str, client: str) -> None:
    """§9: over SSE it waits as it is told. Over WebSocket a 429 is fatal to it, and the limit is the key's own."""
    assert play(stages.of("minute", is_npm=True), situation, client) == expected(situation, client)
