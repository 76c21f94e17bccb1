"""The upstream's clocks at their exact instants: T2 first event, T3 connect, T4 idle; through both doors."""

from collections.abc import Sequence

import pytest
import trio

from gateway.lock.driver import Client
from gateway.upstream.scripted import Break, Silence, Step
from support.gateways import Seen, play, seen, turn, words_of_failure, world
from support.virtual import in_every_order
from support.voices import ANSWERED, COMMENT, NEUTRAL, A, B, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
TIMED_OUT = Seen(["error first_event_timeout"], ["a"], ["a first_event_timeout (first_event_timeout)"], ["voided"])


# --- T2: the first event ----------------------------------------------------------------------------------------


@in_every_order
async def test_t2_an_event_just_before_the_limit_is_in_time(door: str) -> None:
    """T2: strictly before a deadline the event wins."""
    client = await play(world(A.answer(24.999), B.answer()), door)
    assert client.times == [(24.999, label) for label in ANSWERED]


@pytest.mark.parametrize("answers_at", [25.0, 25.001])
@in_every_order
async def test_t2_at_the_limit_the_clock_wins(door: str, answers_at: float) -> None:
    """T2, R5: not replayed, a real status where nothing was sent, the upstream closed at once, nothing charged."""
    w = world(A.answer(answers_at), B.answer())
    client = await play(w, door)
    assert seen(w, client) == TIMED_OUT
    assert (client.failure, client.events[0].at, w.closed_at) == ((504, "first_event_timeout"), 25.0, [25.0])


@pytest.mark.parametrize(
    "steps",
    [
        repeat(40, 1.0, COMMENT),
        repeat(5, 7.0, NEUTRAL),
        repeat(40, 1.0, COMMENT + b"data: 7\n\n"),
        [b"data: {", Silence()],
    ],
    ids=["comments", "neutral events", "data that is no event", "half an event"],
)
@in_every_order
async def test_t2_only_a_real_event_stops_the_clock(door: str, steps: Sequence[Step]) -> None:
    """T2, P4, E2, E7."""
    w = world(A.reply(*steps), B.answer())
    client = await play(w, door)
    assert (client.events[-1].at, client.told[-1]) == (25.0, "error first_event_timeout")
    assert (w.called, w.closed_at) == (["a"], [25.0])


@pytest.mark.parametrize(
    "event",
    [A.created, A.delta(), A.completed(), A.failed("server_error"), A.error("server_error")],
    ids=["lifecycle", "output", "completed", "failed", "error"],
)
@in_every_order
async def test_t2_any_real_event_stops_the_clock(door: str, event: bytes) -> None:
    """T2: and an `error` may be joined later than the limit, for the failure dates from when it was seen (E6)."""
    w = world(A.reply(24.999, event, 5.0, A.ending("completed")))
    client = await play(w, door)
    assert "first_event_timeout" not in str(client.told)


@in_every_order
async def test_t2_the_wait_for_the_status_line_counts(door: str) -> None:
    """T2: the clock starts with the attempt."""
    w = world(A.reply(A.prelude, connect_seconds=4.0, head_seconds=21.0), B.answer())
    client = await play(w, door)
    assert seen(w, client) == TIMED_OUT


@in_every_order
async def test_t2_each_attempt_has_its_own(door: str) -> None:
    """T2: A fails at 20 s; B's clock runs until 45 s."""
    w = world(A.reply(20.0, Break()), B.reply(Silence()))
    client = await play(w, door)
    attempts = ["a stream_read_error (replay)", "b first_event_timeout (first_event_timeout)"]
    assert seen(w, client) == Seen(["error first_event_timeout"], ["a", "b"], attempts, ["voided"])
    assert client.events[0].at == 45.0


@in_every_order
async def test_t2_each_route_has_its_own(door: str) -> None:
    """T2: `first_event_timeout` of the route."""
    w = world(A.reply(Silence()), B.answer(), route="first_event_timeout = 2.5")
    client = await play(w, door)
    assert client.times == [(2.5, "error first_event_timeout")]


# --- T3: connecting ---------------------------------------------------------------------------------------------


@in_every_order
async def test_t3_a_connect_just_before_the_limit_is_in_time(door: str) -> None:
    """T3."""
    client = await play(world(A.reply(A.prelude, A.delta(), A.completed(), connect_seconds=4.999), B.answer()), door)
    assert client.times == [(4.999, label) for label in ANSWERED]


@pytest.mark.parametrize("takes", [5.0, 5.001, 60.0])
@in_every_order
async def test_t3_at_the_limit_the_route_is_at_fault(door: str, takes: float) -> None:
    """T3, F2: never sent, so replayed at 5 s."""
    w = world(A.reply(connect_seconds=takes), B.answer())
    client = await play(w, door)
    assert client.times == [(5.0, label) for label in ANSWERED]
    assert w.attempts == ["a upstream_connect_error (replay)", "b completed"]


@in_every_order
async def test_t3_each_route_has_its_own(door: str) -> None:
    """T3: `connect_timeout` of the route."""
    w = world(A.reply(connect_seconds=2.0), B.answer(), route="connect_timeout = 0.5")
    client = await play(w, door)
    assert client.times == [(0.5, label) for label in ANSWERED]


# --- T4: between events -----------------------------------------------------------------------------------------


@in_every_order
async def test_t4_a_pause_just_below_the_limit_is_borne(door: str) -> None:
    """T4: before output and behind it."""
    w = world(A.reply(A.prelude, 299.999, A.delta(), 299.999, A.completed()), B.answer())
    client = await play(w, door)
    assert client.times[2:] == [(299.999, "output_text.delta"), (599.998, "completed")]


@pytest.mark.parametrize("pause", [300.0, 300.001, Silence()])
@in_every_order
async def test_t4_silence_after_output_ends_the_turn_at_the_limit(door: str, pause: float | Silence) -> None:
    """T4, R2."""
    w = world(A.reply(A.prelude, 1.0, A.delta(), pause, A.completed()), B.answer())
    client = await play(w, door)
    told = [*OUT, *words_of_failure(door, "stream_idle_timeout")]
    assert seen(w, client) == Seen(
        told, ["a"], ["a stream_idle_timeout (output_delivered)"], ["settled 3000 estimated"]
    )
    assert (client.events[-1].at, w.closed_at) == (301.0, [301.0])


@pytest.mark.parametrize("pause", [300.0, 300.001, Silence()])
@in_every_order
async def test_t4_silence_after_held_events_counts_from_the_last_of_them(door: str, pause: float | Silence) -> None:
    """T4, T1, R3: that they were handed over at 10 s is no sign of life of the upstream."""
    w = world(A.reply(A.prelude, pause, A.delta(), A.completed()), B.answer())
    client = await play(w, door)
    told = [*HELD, *words_of_failure(door, "stream_idle_timeout")]
    assert seen(w, client) == Seen(told, ["a"], ["a stream_idle_timeout (lifecycle_delivered)"], ["voided"])
    assert (client.events[-1].at, w.closed_at) == (300.0, [300.0])


@pytest.mark.parametrize("before", [[A.prelude], [A.prelude, A.delta()]], ids=["before output", "after output"])
@in_every_order
async def test_t4_comments_do_not_keep_a_dead_stream_alive(door: str, before: list[bytes]) -> None:
    """T4, P4."""
    w = world(A.reply(*before, *repeat(60, 7.0, COMMENT)), B.answer())
    client = await play(w, door)
    assert (client.events[-1].at, client.events[-1].code) == (300.0, "stream_idle_timeout")


@pytest.mark.parametrize("before", [[A.prelude], [A.prelude, A.delta()]], ids=["before output", "after output"])
@in_every_order
async def test_t4_neutral_events_do(door: str, before: list[bytes]) -> None:
    """T4, E2."""
    w = world(A.reply(*before, *repeat(3, 299.0, NEUTRAL), Silence()), B.answer())
    client = await play(w, door)
    assert (client.events[-1].at, client.events[-1].code) == (3 * 299.0 + 300.0, "stream_idle_timeout")


@in_every_order
async def test_t4_each_route_has_its_own(door: str) -> None:
    """T4: `idle_timeout` of the route."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), B.answer(), route="idle_timeout = 20")
    client = await play(w, door)
    assert (client.events[-1].at, client.events[-1].code) == (20.0, "stream_idle_timeout")


@in_every_order
async def test_t4_does_not_run_while_the_client_is_the_slow_side(door: str) -> None:
    """T4: from 2 s on the second delta waits for the client, which takes it at 50 s; the upstream has until 70 s."""
    w = world(A.reply(A.prelude, 1.0, A.delta(), 1.0, A.delta(), Silence()), route="idle_timeout = 20")
    async with turn(w, door) as client:
        await stall(client, 0.5, 50.0)
    assert (client.events[-1].at, client.events[-1].code) == (70.0, "stream_idle_timeout")


@pytest.mark.over_http  # its network is pulled by the reader: a pause begins when it is read
@in_every_order
async def test_t4_an_event_that_waited_for_the_slow_client_was_in_time(door: str) -> None:
    """T4, §7: an event carries the time at which the reader saw it, here 12 s; the next one comes 19.999 s after the
    client was itself again."""
    steps: list[Step] = [A.prelude, 1.0, A.delta(), 1.0, A.delta(), 10.0, A.delta(), 19.999, A.completed()]
    w = world(A.reply(*steps), route="idle_timeout = 20")
    async with turn(w, door) as client:
        await stall(client, 0.5, 35.0)
    assert (client.events[-1].at, client.told) == (54.999, [*HELD, *["output_text.delta"] * 3, "completed"])


async def stall(client: Client, since: float, until: float) -> None:
    """The client does not read for a while."""
    await trio.sleep_until(since)
    client.stall()
    await trio.sleep_until(until)
    client.resume()


@in_every_order
async def test_t8_no_clock_bounds_a_whole_stream_on_http() -> None:
    """T8: two hours of output with long pauses, delivered whole."""
    w = world(A.reply(A.prelude, *repeat(25, 299.0, A.delta()), A.completed()))
    client = await play(w, "http")
    assert client.times[-1] == (25 * 299.0, "completed")
