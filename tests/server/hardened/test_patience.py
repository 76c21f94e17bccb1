"""How long a peer may take, to the instant."""

from math import inf

from gateway.server.hardened.patience import Pace, Patience


def patience() -> Patience:
    return Patience(Pace(head_seconds=15, body_pause_seconds=20, body_bytes_per_second=500))


def test_a_heads_time_counts_from_its_first_byte() -> None:
    due = patience()
    assert due.deadline == inf
    due.expect_head(100)
    due.expect_head(110)
    assert due.deadline == 115


def test_a_body_must_keep_a_pace_and_cannot_hoard_it() -> None:
    due = patience()
    due.expect_body(100)
    assert due.deadline == 120
    due.advance(1, 119)
    assert due.deadline == 120.002
    due.advance(1000, 119)
    assert due.deadline == 122.002
    due.advance(1_000_000, 121)
    assert due.deadline == 141
    due.rest()
    assert due.deadline == inf


def test_a_wait_follows_what_becomes_due_meanwhile() -> None:
    due = patience()
    scope = due.scope()
    due.expect_head(100)
    assert scope.deadline == 115


def test_behind_the_end_nothing_becomes_due() -> None:
    due = patience()
    due.end(102)
    due.expect_body(100)
    assert due.deadline == 102
