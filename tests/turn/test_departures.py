"""H7, R1: a client may leave at any moment; its upstream is closed, nothing is replayed, the books are in order.

A reset, a closed socket or WebSocket close 1001, or the end of the sending side only: each is a departure.
"""

import math
from collections.abc import Callable

import pytest
import trio

from gateway.lock.driver import Client, connect
from gateway.upstream.scripted import Break, Reply, Silence, Step
from support.gateways import Seen, World, assert_all_is_well, create_frame, seen, turn, turn_beside, world
from support.stores import SlowLedger, SlowRecords
from support.virtual import in_every_order, in_orders
from support.voices import ANSWERED, A, B, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
LEFT = "a client_disconnected (client_disconnected)"
OVERLOADED = "server_is_overloaded"
WAYS: dict[str, Callable[[Client], None]] = {
    "gone": lambda client: client.leave(),
    "closed": lambda client: client.leave(1001),
    "half-closed": lambda client: client.half_close(),
}


async def leave_at(w: World, door: str, at: float, way: str = "gone") -> Client:
    """One turn whose client leaves then."""
    async with turn(w, door) as client:
        await trio.sleep_until(at)
        WAYS[way](client)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    return client


# --- at each moment of a turn -----------------------------------------------------------------------------------

MOMENTS: dict[str, tuple[Reply, float, list[str], str]] = {
    # what A does, when the client leaves, what it was told before, the money
    "while connecting": (A.reply(connect_seconds=4.0), 2.0, [], "voided"),
    "before the status line": (A.reply(head_seconds=20.0), 2.0, [], "voided"),
    "before the first event": (A.reply(Silence()), 2.0, [], "voided"),
    "during the hold": (A.reply(A.prelude, Silence()), 2.0, [], "voided"),
    "after the hold's release": (A.reply(A.prelude, Silence()), 12.0, HELD, "voided"),
    "during the grace": (A.reply(A.prelude, 1.9, A.error(OVERLOADED), Silence()), 2.0, [], "voided"),
    "in silence after output": (
        A.reply(A.prelude, A.delta(), Silence()),
        2.0,
        [*HELD, "output_text.delta"],
        "settled 3000 estimated",
    ),
    "in the middle of output": (
        A.reply(A.prelude, *repeat(50, A.delta(), 1.5)),
        2.0,
        [*HELD, "output_text.delta", "output_text.delta"],
        "settled 5000 estimated",
    ),
    "in an error body": (Reply((b'{"error":', Silence()), status=503), 2.0, [], "voided"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@in_every_order
async def test_a_departure_closes_the_upstream_at_once(door: str, moment: str) -> None:
    """H7, R1, B3, T10: at each moment of a turn: no second call, the books closed then, and nothing more is said."""
    reply, at, told, money = MOMENTS[moment]
    w = world(reply, B.answer())
    client = await leave_at(w, door, at)
    called = [] if moment == "while connecting" else ["a"]
    assert seen(w, client) == Seen(told, called, [LEFT], [money])
    assert (w.closed_at, w.ended_at, client.ended_at) == ([at] * len(called), [at], at)
    assert w.failures == ["disconnected"]


@pytest.mark.parametrize("way", ["closed", "half-closed"])
@pytest.mark.parametrize("moment", ["during the hold", "in silence after output"])
@in_every_order
async def test_whichever_way_a_client_leaves_it_has_left(door: str, moment: str, way: str) -> None:
    """H7: a half-close counts; what would still arrive is not sent."""
    reply, at, told, money = MOMENTS[moment]
    w = world(reply, B.answer())
    client = await leave_at(w, door, at, way)
    assert seen(w, client) == Seen(told, ["a"], [LEFT], [money])
    assert (w.closed_at, client.ended_at) == ([at], at)


@pytest.mark.smoke
@in_every_order
async def test_a_failure_after_the_departure_is_not_replayed(door: str) -> None:
    """R1, bug case 22: the client left at 2 s, A would fail at 3 s."""
    w = world(A.reply(A.prelude, 3.0, A.failed(OVERLOADED)), B.answer())
    await leave_at(w, door, 2.0)
    assert (w.called, w.attempts) == (["a"], [LEFT])


@pytest.mark.parametrize("door", ["http"])
@in_every_order
async def test_a_departure_after_the_terminal_changes_nothing(door: str) -> None:
    """E9: the body has ended; the server's disconnect that follows is none of the client's."""
    w = world(A.reply(A.prelude, A.delta(), A.completed(), Silence()))
    async with turn(w, door) as client:
        await client.wait_for(lambda client: not math.isnan(client.body_ended_at))
        client.leave()
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])


@in_every_order
async def test_a_departure_while_the_upstream_is_drained_delays_nothing(door: str) -> None:
    """E9, H7: after the terminal the upstream's body gets a moment to end; nobody waits for it longer than a second."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed(), Silence()))
    async with turn(w, door) as client:
        await client.wait_for(lambda client: client.has_last_word)
        client.leave()
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])
    assert client.ended_at <= 2.0


@pytest.mark.parametrize(("behind", "closed_at"), [(0.05, 1.05), (0.099, 1.099), (Silence(), 1.1)])
@in_every_order
async def test_behind_its_terminal_an_upstream_has_a_moment_to_end(
    door: str, behind: Step, closed_at: float, each_transport: str
) -> None:
    """E9: then its connection is closed. That of an upstream's WebSocket is kept, and is free at once."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed(), behind))
    async with turn(w, door) as client:
        pass
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])
    assert w.closed_at == [1.0 if each_transport == "websocket" else closed_at]


# --- between two attempts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [3.001, 4.999])
@in_every_order
async def test_a_departure_while_the_second_attempt_is_being_opened_keeps_it_from_being_sent(
    door: str, at: float
) -> None:
    """H7, R1: A broke at 3 s, the records take until 5 s to note B's attempt; up to that instant B is not called."""
    await leave_before_the_second_attempt(door, at)


@in_orders(12)
async def test_a_departure_at_the_instant_at_which_the_second_attempt_was_opened_keeps_it_from_being_sent(
    door: str,
) -> None:
    """H7, §7: the client that left goes first, under every task order."""
    await leave_before_the_second_attempt(door, 5.0)


async def leave_before_the_second_attempt(door: str, at: float) -> None:
    """It was opened, so it is closed on record; nothing was sent."""
    w = world(A.reply(3.0, Break()), B.answer(), records=SlowRecords(open_attempt=[0.0, 2.0]))
    client = await leave_at(w, door, at)
    assert (client.told, w.called, w.money) == ([], ["a"], ["voided"])
    assert w.attempts[-1].endswith("client_disconnected (client_disconnected)")


@in_every_order
async def test_a_departure_after_the_second_attempt_was_sent_closes_it(door: str) -> None:
    """H7."""
    w = world(A.reply(3.0, Break()), B.answer(10.0), records=SlowRecords(open_attempt=[0.0, 2.0]))
    client = await leave_at(w, door, 5.001)
    attempts = ["a stream_read_error (replay)", "b client_disconnected (client_disconnected)"]
    assert seen(w, client) == Seen([], ["a", "b"], attempts, ["voided"])
    assert w.closed_at == [3.0, 5.001]


@in_orders(12)
async def test_a_departure_while_the_first_attempt_is_being_opened_keeps_it_from_being_sent(door: str) -> None:
    """H7: nobody is called for a client that is gone."""
    w = world(A.answer(), B.answer(), records=SlowRecords(open_attempt=2.0))
    await leave_at(w, door, 1.0)
    assert (w.called, w.attempts, w.money) == ([], [LEFT], ["voided"])


@pytest.mark.parametrize("at", [1.0, 2.0])
@in_orders(12)
async def test_a_departure_while_the_turn_is_being_opened_keeps_it_from_being_sent(door: str, at: float) -> None:
    """H7, B1: also during the reservation."""
    w = world(A.answer(), B.answer(), records=SlowRecords(open_turn=2.0))
    await leave_at(w, door, at)
    assert (w.called, w.money) == ([], ["voided"])


# --- slow books -------------------------------------------------------------------------------------------------


@in_every_order
async def test_slow_books_do_not_delay_the_upstreams_close(door: str) -> None:
    """H7, T10."""
    w = world(A.reply(3.0, A.prelude, Silence()), B.answer(), ledger=SlowLedger)
    await leave_at(w, door, 7.0)
    assert (w.closed_at, w.attempts, w.money) == ([7.0], [LEFT], ["voided"])


@in_every_order
async def test_slow_books_do_not_delay_the_clients_frames(door: str) -> None:
    """T10, L2: the reservation takes three seconds, and nothing behind it."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed()), ledger=SlowLedger)
    async with turn(w, door) as client:
        pass
    assert client.times == [
        (3.0, "created"),
        (3.0, "in_progress"),
        (3.0, "output_text.delta"),
        (4.0, "completed"),
    ]


# --- a socket with more than one turn ---------------------------------------------------------------------------


@in_every_order
async def test_a_departure_drops_what_waits_on_the_socket() -> None:
    """H7, W3: creates that wait are no turns yet."""
    w = world(A.reply(A.prelude, A.delta(), Silence()))
    async with connect(w.app, "websocket") as client:
        for _ in range(3):
            client.send_text(create_frame())
        await trio.sleep(2.0)
        client.leave()
    assert_all_is_well(w, client)
    assert (w.called, len(w.turns), client.ended_at) == (["a"], 1, 2.0)


@in_every_order
async def test_a_departure_between_two_turns_ends_the_connection() -> None:
    """H7."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep(9.0)
        client.leave()
    assert_all_is_well(w, client)
    assert (client.told, client.ended_at) == (ANSWERED, 9.0)


@in_every_order
async def test_two_clients_of_which_one_leaves(door: str) -> None:
    """H7: the other one's turn goes on."""
    steps: list[Step] = [A.prelude, A.delta(), 4.0, A.completed()]
    w = world(A.reply(*steps), B.answer())
    async with connect(w.app, "websocket") as leaving:
        leaving.send_text(create_frame())
        await trio.sleep(1.0)
        async with turn_beside(w, door) as staying:
            await trio.sleep(1.0)
            leaving.leave()
    assert_all_is_well(w, staying)
    assert (staying.told, leaving.ended_at) == (ANSWERED, 2.0)
