"""Real clients against a real gateway process: each shows what the table says (clients that pip installs)."""

from __future__ import annotations

import pytest

from clients.conftest import Stages
from clients.playing import expected, play, playing, restart_under
from clients.table import cells


@pytest.mark.parametrize(("situation", "client"), cells("usual", is_npm=False))
def test_a_client_shows_what_the_table_says(stages: Stages, situation: str, client: str) -> None:
    """R15, R2, X1–X4, O2, B6: the text once, the failure once, and no call that nobody decided on."""
    assert play(stages.of("usual", is_npm=False), situation, client) == expected(situation, client)


def test_a_socket_whose_time_is_over_says_so_and_the_next_one_answers(stages: Stages) -> None:
    """W6, T5."""
    clients = [client for _, client in cells("hour", is_npm=False)]
    with playing(stages.of("hour", is_npm=False), "hour", clients) as results:
        assert results() == {client: expected("hour", client) for client in clients}


def test_a_rolling_restart_is_not_seen(stages: Stages) -> None:
    """T7, W6: running turns end, and the next one finds a worker."""
    clients = [client for _, client in cells("restart", is_npm=False)]
    seen = restart_under(stages.of("restart", is_npm=False), clients)
    assert seen == {client: expected("restart", client) for client in clients}
