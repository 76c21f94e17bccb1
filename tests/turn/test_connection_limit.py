"""T5, W6: a WebSocket lives sixty minutes; what runs, waits or idles then has a defined end."""

import pytest
import trio

from gateway.lock.driver import connect
from gateway.upstream.scripted import Break, Silence
from support.gateways import Seen, World, assert_all_is_well, create_frame, play, seen, world
from support.stores import SlowLedger, SlowRecords
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B, C, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

LIMIT = "websocket_connection_limit_reached"
HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]


@in_every_order
async def test_an_idle_socket_ends_with_one_error_frame() -> None:
    """T5, W6: status 400, then close 1001, both at 3600 s."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        pass
    assert (client.times, client.failure) == ([(3600.0, f"error {LIMIT}")], (400, LIMIT))
    assert (client.closed_at, client.close_code) == (3600.0, 1001)


@in_every_order
async def test_a_socket_that_served_turns_ends_as_an_idle_one() -> None:
    """T5, W6."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
    assert client.told == [*ANSWERED, f"error {LIMIT}"]
    assert (client.closed_at, client.close_code) == (3600.0, 1001)


@in_every_order
async def test_a_turn_that_ends_just_before_is_whole() -> None:
    """T5."""
    w = world(A.reply(A.prelude, A.delta(), 9.999, A.completed()))
    client = await play(w, "websocket", begins_at=3590.0)
    assert (client.told, w.money) == ([*ANSWERED, f"error {LIMIT}"], ["settled 7000"])


@pytest.mark.parametrize("would_end_at", [3600.0, 3600.001, 3700.0])
@in_every_order
async def test_a_running_turn_is_cut_at_that_instant(would_end_at: float) -> None:
    """T5, W6, B3: one error frame for it and no other, the attempt on record, the money resolved, the upstream
    closed."""
    w = world(A.reply(A.prelude, A.delta(), would_end_at - 3590.0, A.completed()), B.answer())
    client = await play(w, "websocket", begins_at=3590.0)
    assert seen(w, client) == Seen(
        [*OUT, f"error {LIMIT}"], ["a"], [f"a {LIMIT} (output_delivered)"], ["settled 3000 estimated"]
    )
    assert (client.events[-1].at, client.closed_at, client.close_code) == (3600.0, 3600.0, 1001)
    assert (w.closed_at, w.ended_at) == ([3600.0], [10.0])


@in_every_order
async def test_a_socket_whose_turn_is_cut_closes_at_that_instant_whatever_the_books_take() -> None:
    """W6, T10: so that a client that asks at once asks on a new one."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), B.answer(), ledger=SlowLedger)
    client = await play(w, "websocket", begins_at=3590.0)
    assert (client.told, client.closed_at, client.close_code) == ([*OUT, f"error {LIMIT}"], 3600.0, 1001)


@in_every_order
async def test_held_events_are_handed_over_before_the_error_frame() -> None:
    """W6, B3: without output nothing is charged."""
    w = world(A.reply(A.prelude, Silence()), B.answer())
    client = await play(w, "websocket", begins_at=3595.0)
    assert seen(w, client) == Seen([*HELD, f"error {LIMIT}"], ["a"], [f"a {LIMIT} (connection_limit)"], ["voided"])
    assert [at for at, _ in client.times] == [3600.0, 3600.0, 3600.0]


@in_every_order
async def test_a_silent_turn_is_cut_like_any_other() -> None:
    """T5, B3."""
    w = world(A.reply(Silence()), B.answer())
    client = await play(w, "websocket", begins_at=3580.0)
    assert seen(w, client) == Seen([f"error {LIMIT}"], ["a"], [f"a {LIMIT} (connection_limit)"], ["voided"])


@in_every_order
async def test_a_limit_that_comes_while_the_replay_is_being_recorded_keeps_it_from_being_sent() -> None:
    """T5, T10: B's attempt is noted from 59 s to 61 s; what was opened is closed."""
    records = SlowRecords(open_attempt=[0.0, 2.0])
    w = world(A.reply(9.0, Break()), B.answer(), server="connection_limit = 60", records=records)
    client = await play(w, "websocket", begins_at=50.0)
    attempts = ["a stream_read_error (replay)", "b not_called"]
    assert seen(w, client) == Seen([f"error {LIMIT}"], ["a"], attempts, ["voided"])


async def fill(w: World, begins_at: float) -> list[object]:
    """One turn that runs and two creates that wait, on a socket that is about to end; the `event_id`s of the frames."""
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(begins_at)
        for number in (1, 2, 3):
            client.send_text(create_frame(event_id=f"ev_{number}"))
    assert_all_is_well(w, client)
    assert client.close_code == 1001
    return [(heard.at, heard.label, heard.payload.get("event_id")) for heard in client.events]


@in_every_order
async def test_each_waiting_create_gets_its_own_error_frame() -> None:
    """W6: in order, behind the running turn's, with its `event_id`; none of them was reserved for or sent."""
    w = world(A.reply(A.prelude, A.delta(), Silence()))
    frames = await fill(w, 3590.0)
    assert frames[3:] == [
        (3600.0, f"error {LIMIT}", None),
        (3600.0, f"error {LIMIT}", "ev_2"),
        (3600.0, f"error {LIMIT}", "ev_3"),
    ]
    assert (w.called, len(w.reserved)) == (["a"], 1)


@in_every_order
async def test_a_create_that_comes_at_the_limit_is_refused() -> None:
    """W6: no turn starts at or after 60:00; its error frame stands for the idle one."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(3600.0)
        client.send_text(create_frame())
    assert (client.told, w.called, w.reserved) == ([f"error {LIMIT}"], [], [])


@in_every_order
async def test_a_create_that_comes_just_before_the_limit_becomes_a_turn() -> None:
    """W6: and is cut."""
    w = world(A.answer(5.0))
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(3599.999)
        client.send_text(create_frame())
    assert (client.times, w.called) == ([(3600.0, f"error {LIMIT}")], ["a"])
    w.assert_at_rest()


# --- the grace --------------------------------------------------------------------------------------------------

GRACE = "connection_grace = 30"


@pytest.mark.parametrize("ends_at", [3600.0, 3620.0, 3629.999])
@in_every_order
async def test_a_grace_lets_the_running_turn_end(ends_at: float) -> None:
    """W6: then the socket closes, with the frame that an idle one gets."""
    w = world(A.reply(A.prelude, A.delta(), ends_at - 3590.0, A.completed()), server=GRACE)
    client = await play(w, "websocket", begins_at=3590.0)
    assert (client.told, w.money) == ([*ANSWERED, f"error {LIMIT}"], ["settled 7000"])
    assert (client.closed_at, client.close_code) == (ends_at, 1001)


@in_every_order
async def test_a_grace_has_an_end() -> None:
    """W6."""
    w = world(A.reply(A.prelude, A.delta(), 40.0, A.completed()), server=GRACE)
    client = await play(w, "websocket", begins_at=3590.0)
    assert (client.told, client.closed_at) == ([*OUT, f"error {LIMIT}"], 3630.0)


@in_every_order
async def test_in_the_grace_no_new_turn_starts() -> None:
    """W6: what waits is refused when the running turn has ended."""
    w = world([A.reply(A.prelude, A.delta(), 20.0, A.completed()), C.answer()], server=GRACE)
    frames = await fill(w, 3590.0)
    assert frames[3:] == [
        (3610.0, "completed", None),
        (3610.0, f"error {LIMIT}", "ev_2"),
        (3610.0, f"error {LIMIT}", "ev_3"),
    ]
    assert w.called == ["a"]


@in_every_order
async def test_an_idle_socket_gets_no_grace() -> None:
    """W6."""
    w = world(A.answer(), server=GRACE)
    async with connect(w.app, "websocket") as client:
        pass
    assert client.closed_at == 3600.0


@in_every_order
async def test_the_limit_may_be_shortened() -> None:
    """T5: `connection_limit`."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), server="connection_limit = 60")
    client = await play(w, "websocket", begins_at=30.0)
    assert (client.told, client.closed_at) == ([*OUT, f"error {LIMIT}"], 60.0)


@in_every_order
async def test_http_has_no_such_limit() -> None:
    """T5, T8: it is the WebSocket's."""
    w = world(A.reply(A.prelude, A.delta(), *repeat(13, 299.0, A.delta()), A.completed()))
    client = await play(w, "http")
    assert client.times[-1] == (3887.0, "completed")
