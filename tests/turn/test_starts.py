"""H9, H6: when an HTTP response starts, and what keeps it alive while it is silent. None of it commits a turn."""

import pytest

from gateway.upstream.scripted import Break, Silence
from support.gateways import play, words_of_failure, world
from support.stores import SlowRecords
from support.virtual import in_every_order
from support.voices import ANSWERED, NEUTRAL, A, B, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

OVERLOADED = "server_is_overloaded"
KEEPALIVE = b": keepalive"
PATIENT = "first_event_timeout = 100"
EARLY = 'start = "early"'


def kept_alive_at(*times: float) -> list[tuple[float, bytes]]:
    """Comments at these instants."""
    return [(at, KEEPALIVE) for at in times]


# --- late, the default ------------------------------------------------------------------------------------------


@in_every_order
async def test_headers_leave_with_the_first_events() -> None:
    """H9, T1: not with the upstream's headers, and not while events are held."""
    client = await play(world(A.reply(2.0, A.prelude, 3.0, A.delta(), A.completed(), head_seconds=1.0)), "http")
    assert (client.started_at, client.comments) == (6.0, [])


@in_every_order
async def test_an_early_failure_is_a_real_status() -> None:
    """H9, X2."""
    client = await play(world(A.reply(26.999, Break()), route=PATIENT), "http")
    assert (client.started_at, client.failure) == (26.999, (502, "stream_read_error"))


@pytest.mark.parametrize("fails_at", [27.0, 27.001, 40.0])
@in_every_order
async def test_from_27_seconds_on_a_failure_is_an_event(fails_at: float) -> None:
    """H9, X3: headers and a comment have left; no response is known that would have to end."""
    client = await play(world(A.reply(fails_at, Break()), route=PATIENT), "http")
    assert (client.status, client.started_at, client.comments[0]) == (200, 27.0, (27.0, KEEPALIVE))
    assert client.times == [(fails_at, "error stream_read_error")]


@in_every_order
async def test_the_latest_start_may_be_configured() -> None:
    """H9: `start_latest`."""
    client = await play(world(A.answer(9.0), server="start_latest = 4"), "http")
    assert (client.started_at, client.comments) == (4.0, kept_alive_at(4.0))


@pytest.mark.parametrize("fails_at", [26.0, 27.0, 30.0])
@in_every_order
async def test_headers_that_left_do_not_end_replayability(fails_at: float) -> None:
    """§1, H9: headers and comments are not events; so the turn is not committed."""
    w = world(A.reply(fails_at, Break()), B.answer(6.0), route=PATIENT)
    client = await play(w, "http")
    assert (client.told, w.called, w.money) == (ANSWERED, ["a", "b"], ["settled 7000"])


@in_every_order
async def test_headers_leave_in_time_while_the_records_take_long() -> None:
    """H9, L2: at 27 s, though from 24 s to 28 s the second attempt is being noted."""
    w = world(A.reply(24.0, Break()), B.answer(), records=SlowRecords(open_attempt=[0.0, 4.0]))
    client = await play(w, "http")
    assert (client.started_at, client.comments) == (27.0, kept_alive_at(27.0))
    assert client.times == [(28.0, label) for label in ANSWERED]


@in_every_order
async def test_headers_that_left_before_the_attempt_was_chosen_name_no_upstream() -> None:
    """H5, R: the delivered attempt's headers are left out then, and the discarded one's never go in."""
    client = await play(world(A.reply(28.0, Break()), B.answer(), route=PATIENT), "http")
    assert sorted(client.headers) == [
        "cache-control",
        "content-type",
        "x-accel-buffering",
        "x-billing-transaction-id",
        "x-request-id",
    ]


@in_every_order
async def test_a_first_event_timeout_of_the_default_route_is_a_real_status() -> None:
    """T2, H9: 25 s come before 27 s."""
    client = await play(world(A.reply(Silence())), "http")
    assert (client.started_at, client.failure) == (25.0, (504, "first_event_timeout"))


# --- early ------------------------------------------------------------------------------------------------------


@in_every_order
async def test_an_early_start_sends_headers_and_a_comment_at_once() -> None:
    """H9: for proxies that cannot wait."""
    client = await play(world(A.answer(3.0), server=EARLY), "http")
    assert (client.status, client.started_at, client.comments) == (200, 0.0, kept_alive_at(0.0))
    assert client.times == [(3.0, label) for label in ANSWERED]


@in_every_order
async def test_after_an_early_start_every_failure_is_an_event() -> None:
    """H9, X3, X5: also one that came as an HTTP status."""
    client = await play(world(A.status(400, "invalid_value", head_seconds=1.0), server=EARLY), "http")
    assert (client.status, client.told) == (200, ["error invalid_value"])
    assert client.events[0].payload["status"] == 400


@in_every_order
async def test_an_early_start_does_not_end_replayability() -> None:
    """H9."""
    w = world(A.reply(A.prelude, 3.0, A.failed(OVERLOADED)), B.answer(), server=EARLY)
    client = await play(w, "http")
    assert (client.told, w.called, w.money) == (ANSWERED, ["a", "b"], ["settled 7000"])


@in_every_order
async def test_an_early_start_says_nothing_twice() -> None:
    """H9, X3: one head, one body, one end."""
    client = await play(world(A.reply(A.prelude, A.delta(), 1.0, Break()), server=EARLY), "http")
    told = [*ANSWERED[:3], *words_of_failure("http", "stream_read_error")]
    assert ([m["type"] for _, m in client.sent].count("http.response.start"), client.told) == (1, told)


# --- keepalive --------------------------------------------------------------------------------------------------


@in_every_order
async def test_silence_is_broken_by_a_comment_every_fifteen_seconds() -> None:
    """H6: counted from the last write; an event starts it anew."""
    w = world(A.reply(A.prelude, A.delta(), 50.0, A.delta(), 14.999, A.delta(), 15.5, A.completed()))
    client = await play(w, "http")
    assert client.comments == kept_alive_at(15.0, 30.0, 45.0, 79.999)


@in_every_order
async def test_no_comment_leaves_before_the_headers() -> None:
    """H6: while events are held nothing was sent, so nothing has to be kept alive; then from the release on."""
    client = await play(world(A.reply(8.0, A.prelude, 39.0, A.delta(), A.completed())), "http")
    assert (client.started_at, client.comments) == (18.0, kept_alive_at(33.0))


@in_every_order
async def test_before_the_first_event_comments_go_on_after_the_latest_start() -> None:
    """H6, H9."""
    client = await play(world(A.answer(70.0), route=PATIENT), "http")
    assert client.comments == kept_alive_at(27.0, 42.0, 57.0)


@in_every_order
async def test_after_an_early_start_comments_leave_during_the_hold_too() -> None:
    """H6, H9, T1: they are no events, and release nothing."""
    client = await play(world(A.reply(10.0, A.prelude, 9.0, A.delta(), A.completed()), server=EARLY), "http")
    assert client.comments == kept_alive_at(0.0, 15.0)
    assert client.times == [(19.0, label) for label in ANSWERED]


@in_every_order
async def test_the_upstreams_comments_are_never_forwarded() -> None:
    """E7, H6: the gateway makes its own."""
    client = await play(world(A.reply(A.prelude, A.delta(), *repeat(4, 5.0, b": theirs\n\n"), A.completed())), "http")
    assert client.comments == kept_alive_at(15.0)


@in_every_order
async def test_neutral_events_that_were_delivered_count_as_a_sign_of_life() -> None:
    """H6: a write is a write."""
    client = await play(world(A.reply(A.prelude, A.delta(), *repeat(3, 14.0, NEUTRAL), A.completed())), "http")
    assert client.comments == []


@in_every_order
async def test_a_websocket_gets_neither_comments_nor_headers_late() -> None:
    """H6, W7: it has pings."""
    client = await play(world(A.answer(70.0), route=PATIENT), "websocket")
    assert (client.sent[0][0], client.told) == (0.0, ANSWERED)


# --- the end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ending",
    [A.completed(), A.ending("incomplete"), A.failed("server_error")],
    ids=["completed", "incomplete", "failed"],
)
@in_every_order
async def test_the_body_ends_right_after_the_terminal(ending: bytes) -> None:
    """X1: whatever the upstream's connection does."""
    client = await play(world(A.reply(A.prelude, A.delta(), 4.0, ending, Silence())), "http")
    assert (client.body_ended_at, client.events[-1].at) == (4.0, 4.0)
