"""§7: several things at one instant go: client left, T5, T7, T2, T4, T1, T9, and an event last, under every task order.

Each test runs under 26 orders of the tasks, 13 on each door or all on the one; nothing it sees depends on them.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from gateway import limits
from gateway.beside_asgi import LEAVING
from gateway.downstream.connections import Departure, departure_of
from gateway.lock.driver import Client, connect
from gateway.server.hardened.inbox import LAST, Inbox
from gateway.turn.inputs import let_the_instant_pass
from gateway.upstream.scripted import Break, Silence, Step
from support.gateways import Seen, World, create, create_frame, play, seen, turn, words_of_failure, world
from support.virtual import in_orders
from support.voices import A, B

pytestmark = pytest.mark.usefixtures("each_transport")

in_many_orders = in_orders(13)
in_twice_as_many = in_orders(26)
HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
OVERLOADED = "server_is_overloaded"
LIMIT = "websocket_connection_limit_reached"
LEFT = ["a client_disconnected (client_disconnected)"]
SOMETHING: dict[str, list[Step]] = {
    # what the upstream may do at the instant
    "completed": [A.completed()],
    "reset": [Break()],
}


class Passes(trio.abc.Instrument):
    """How often a task was run."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task = task
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def depart(client: Client, at: float) -> None:
    """The client leaves then."""
    await trio.sleep_until(at)
    client.leave()


async def drain(w: World, at: float) -> None:
    """Draining begins then."""
    await trio.sleep_until(at)
    w.gateway.drain()


# --- an event at a deadline -------------------------------------------------------------------------------------


@in_many_orders
async def test_a_failure_at_the_end_of_the_hold_comes_after_it(door: str) -> None:
    """T1 before an event: released, so not replayed."""
    w = world(A.reply(A.prelude, 10.0, A.failed(OVERLOADED)), B.answer())
    client = await play(w, door)
    assert seen(w, client) == Seen(
        [*HELD, f"failed {OVERLOADED}"], ["a"], [f"a {OVERLOADED} (lifecycle_delivered)"], ["voided"]
    )


@in_many_orders
async def test_an_answer_at_the_first_event_limit_comes_after_it(door: str) -> None:
    """T2 before an event."""
    w = world(A.answer(25.0), B.answer())
    client = await play(w, door)
    assert (client.told, w.money) == (["error first_event_timeout"], ["voided"])


@in_many_orders
async def test_output_at_the_idle_limit_comes_after_it(door: str) -> None:
    """T4 before an event."""
    w = world(A.reply(A.prelude, A.delta(), 20.0, A.completed()), route="idle_timeout = 20")
    client = await play(w, door)
    assert client.told == [*OUT, *words_of_failure(door, "stream_idle_timeout")]


@in_many_orders
async def test_a_failed_at_the_end_of_the_grace_comes_after_it(door: str) -> None:
    """T9 before an event: the `error` is told alone."""
    w = world(A.reply(A.prelude, A.error("some"), 0.25, A.failed("invalid_prompt")), B.answer())
    client = await play(w, door)
    assert (client.told, w.attempts) == ([*HELD, "error some"], ["a some (not_retryable)"])


@pytest.mark.parametrize("what", SOMETHING)
@in_twice_as_many
async def test_whatever_comes_at_the_sixty_minutes_comes_after_them(what: str) -> None:
    """T5 before an event."""
    w = world(A.reply(A.prelude, A.delta(), 10.0, *SOMETHING[what]), B.answer(), server="connection_limit = 60")
    client = await play(w, "websocket", begins_at=50.0)
    told, attempts = [*OUT, f"error {LIMIT}"], [f"a {LIMIT} (output_delivered)"]
    assert seen(w, client) == Seen(told, ["a"], attempts, ["settled 3000 estimated"])


@in_many_orders
async def test_an_answer_at_the_drains_end_comes_after_it(door: str) -> None:
    """T7 before an event."""
    w = world(A.reply(A.prelude, A.delta(), 9.0, A.completed()), B.answer(), server="drain_timeout = 6")
    async with turn(w, door) as client:
        await drain(w, 3.0)
    told = [*OUT, *words_of_failure(door, "server_draining")]
    assert (client.told, w.money) == (told, ["voided unmetered"])


@in_many_orders
async def test_a_failure_at_the_instant_at_which_draining_begins_is_not_replayed(door: str) -> None:
    """R12: the house is asked when all that happened at the instant is known."""
    w = world(A.reply(3.0, Break()), B.answer())
    async with turn(w, door) as client:
        await drain(w, 3.0)
    assert seen(w, client) == Seen(["error stream_read_error"], ["a"], ["a stream_read_error (draining)"], ["voided"])


# --- a departure at anything ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", SOMETHING)
@in_many_orders
async def test_a_departure_comes_before_anything_the_upstream_does_before_output(door: str, what: str) -> None:
    """R1: nothing is told, nothing is called."""
    w = world(A.reply(A.prelude, 3.0, *SOMETHING[what]), B.answer())
    async with turn(w, door) as client:
        await depart(client, 3.0)
    assert seen(w, client) == Seen([], ["a"], LEFT, ["voided"])


@pytest.mark.parametrize("what", SOMETHING)
@in_many_orders
async def test_a_departure_comes_before_anything_the_upstream_does_after_output(door: str, what: str) -> None:
    """§7, B3: also before an answer's end; what was delivered until then is what is paid."""
    w = world(A.reply(A.prelude, A.delta(), 3.0, *SOMETHING[what]), B.answer())
    async with turn(w, door) as client:
        await depart(client, 3.0)
    assert (w.attempts, w.money) == (LEFT, ["settled 3000 estimated"])


@in_many_orders
async def test_output_at_the_instant_of_a_departure_changes_nothing_but_what_was_handed_over(door: str) -> None:
    """B3: the estimate is by what was handed over, which is one delta or two."""
    w = world(A.reply(A.prelude, A.delta(), 3.0, A.delta(), Silence()), B.answer())
    async with turn(w, door) as client:
        await depart(client, 3.0)
    assert (w.attempts, w.closed_at) == (LEFT, [3.0])
    assert w.money in (["settled 3000 estimated"], ["settled 5000 estimated"])


@pytest.mark.parametrize(
    ("steps", "at"),
    [([A.prelude, Silence()], 10.0), ([A.prelude, A.delta(), Silence()], 20.0)],
    ids=["T1", "T4"],
)
@in_many_orders
async def test_a_departure_comes_before_an_upstreams_clock(door: str, steps: list[Step], at: float) -> None:
    """Client left before T1 and T4."""
    w = world(A.reply(*steps), B.answer(), route="idle_timeout = 20")
    async with turn(w, door) as client:
        await depart(client, at)
    assert (w.attempts, w.closed_at) == (LEFT, [at])


@in_many_orders
async def test_a_departure_comes_before_the_end_of_the_grace(door: str) -> None:
    """Client left before T9: no replay."""
    w = world(A.reply(A.prelude, 2.75, A.error(OVERLOADED), Silence()), B.answer())
    async with turn(w, door) as client:
        await depart(client, 3.0)
    assert seen(w, client) == Seen([], ["a"], LEFT, ["voided"])


@in_many_orders
async def test_a_departure_comes_before_the_drains_end(door: str) -> None:
    """Client left before T7: so it pays what was delivered."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), server="drain_timeout = 6")
    async with turn(w, door) as client:
        await drain(w, 3.0)
        await depart(client, 9.0)
    assert (w.attempts, w.money) == (LEFT, ["settled 3000 estimated"])


@in_twice_as_many
async def test_a_departure_comes_before_the_sixty_minutes() -> None:
    """Client left before T5."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), server="connection_limit = 60")
    async with turn(w, "websocket", begins_at=50.0) as client:
        await depart(client, 60.0)
    assert (w.attempts, client.told) == (LEFT, OUT)


@in_many_orders
async def test_a_stalled_client_is_gone_before_the_answer_that_comes_then(door: str) -> None:
    """T6 counts as a departure: at 61 s, which is also when the upstream ends."""
    w = world(A.reply(A.prelude, 1.0, A.delta(), 60.0, A.completed()), B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(0.5)
        client.stall()
        await depart(client, 70.0)
    assert (w.attempts, w.money, w.closed_at) == (LEFT, ["settled 3000 estimated"], [61.0])


# --- clocks among themselves ------------------------------------------------------------------------------------


@in_many_orders
async def test_the_idle_limit_comes_before_the_end_of_the_hold(door: str) -> None:
    """T4 before T1: the failure is that of a turn that was not committed."""
    w = world(A.reply(A.prelude, Silence()), B.answer(), route="idle_timeout = 10")
    client = await play(w, door)
    told = [*HELD, *words_of_failure(door, "stream_idle_timeout")]
    assert seen(w, client) == Seen(told, ["a"], ["a stream_idle_timeout (idle_timeout)"], ["voided"])


@in_many_orders
async def test_the_drains_end_comes_before_the_upstreams_clocks(door: str) -> None:
    """T7 before T2."""
    w = world(A.reply(Silence()), B.answer(), server="drain_timeout = 15")
    async with turn(w, door) as client:
        await drain(w, 10.0)
    assert (client.times, w.attempts) == ([(25.0, "error server_draining")], ["a server_draining (draining)"])


@in_twice_as_many
async def test_the_sixty_minutes_come_before_everything_but_a_departure() -> None:
    """T5 before T7, T4, T1 and an event, all of them at 60 s; T2 in the next one."""
    w = world(
        A.reply(A.prelude, 10.0, A.failed(OVERLOADED)),
        B.answer(),
        server="connection_limit = 60\ndrain_timeout = 5",
        route="idle_timeout = 10",
    )
    async with turn(w, "websocket", begins_at=50.0) as client:
        await drain(w, 55.0)
    assert client.times == [(60.0, label) for label in [*HELD, f"error {LIMIT}"]]
    assert w.attempts == [f"a {LIMIT} (connection_limit)"] or w.attempts == [f"a {LIMIT} (draining)"]


@in_twice_as_many
async def test_the_sixty_minutes_come_before_the_first_event_limit() -> None:
    """T5 before T2."""
    w = world(A.reply(Silence()), B.answer(), server="connection_limit = 60")
    client = await play(w, "websocket", begins_at=35.0)
    assert client.times == [(60.0, f"error {LIMIT}")]


# --- on a socket ------------------------------------------------------------------------------------------------


@in_twice_as_many
async def test_a_create_sent_at_the_terminals_instant_is_the_next_turn() -> None:
    """W3, bug case 42: no frame is lost in the gap between two turns."""
    w = world(A.reply(A.prelude, A.delta(), 3.0, A.completed()))
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep_until(3.0)
        client.send_text(create_frame())
        await trio.sleep_until(9.0)
        client.leave()
    w.assert_at_rest()
    assert client.told == [*OUT, "completed"] * 2


@in_twice_as_many
async def test_a_create_sent_at_the_instant_of_the_drain_is_answered() -> None:
    """W3, W6: as refused or as served, never lost; then the socket closes."""
    w = world(A.answer())
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(3.0)
        client.send_text(create_frame())
        w.gateway.drain()
    w.assert_at_rest()
    assert (client.told, client.close_code) == (["error server_draining"], 1012)


@in_twice_as_many
async def test_a_create_of_a_client_that_leaves_at_once_costs_nothing() -> None:
    """H7, B3."""
    w = world(A.answer(1.0))
    async with connect(w.app, "websocket") as client:
        await trio.sleep_until(3.0)
        client.send_text(create_frame())
        client.leave()
    w.assert_at_rest()
    assert (w.charged, client.told) == (0, [])


# --- how long an instant is -------------------------------------------------------------------------------------


@asynccontextmanager
async def told_by_a_call(w: World) -> AsyncIterator[Callable[[], None]]:
    """One turn of a client whose server tells of its departure by a call; gives what makes it leave."""
    told: list[Callable[[], None]] = []
    async with connect(w.app, "http", body=json.dumps(create()).encode(), state={LEAVING: told.append}) as client:

        def leave() -> None:
            client.leave()
            told[0]()

        yield leave


@pytest.mark.parametrize(
    ("steps", "at"),
    [
        *[([A.prelude, 3.0, *steps], 3.0) for steps in SOMETHING.values()],
        ([A.prelude, Silence()], 10.0),
        ([A.prelude, 2.75, A.error(OVERLOADED), Silence()], 3.0),
    ],
    ids=[*SOMETHING, "T1", "T9"],
)
@in_twice_as_many
async def test_a_departure_that_is_told_by_a_call_comes_before_all_else(steps: list[Step], at: float) -> None:
    """R1, §7: at its instant, though it is waited for no longer than a departure takes then."""
    w = world(A.reply(*steps), B.answer())
    async with told_by_a_call(w) as leave:
        await trio.sleep_until(at)
        leave()
    assert (w.called, w.attempts, w.money) == (["a"], LEFT, ["voided"])


@pytest.mark.parametrize("passes", [1, 2, 3])
@in_orders(1)
async def test_the_instant_passes_when_everybody_was_as_often_at_work(passes: int) -> None:
    """§7: at the same time by the clock."""
    counted = Passes(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(counted)
    await let_the_instant_pass(passes)
    trio.lowlevel.remove_instrument(counted)
    assert (counted.count, trio.current_time()) == (passes, 0.0)


def have_the_servers_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the driver's channel: what Hypercorn's apps receive from here (hardened/inbox.py)."""
    inboxes: dict[Client, Inbox] = {}

    def inbox_of(client: Client) -> Inbox:
        return inboxes.setdefault(client, Inbox(10))

    def say(client: Client, message: dict[str, object]) -> None:
        inbox = inbox_of(client)
        (inbox.end if message["type"] in LAST else inbox.put_first)(message)

    monkeypatch.setattr(Client, "say", say)
    monkeypatch.setattr(Client, "receive", lambda client: inbox_of(client).receive())


@pytest.mark.parametrize(("scheme", "passes"), [("http", 2), ("ws", 2), ("https", 3), ("wss", 3)])
def test_over_tls_a_departure_takes_a_pass_more(scheme: str, passes: int) -> None:
    """Trio's TLS stream yields before it tells of an end without a goodbye."""
    assert departure_of({"scheme": scheme}, passes=2).passes == passes


@pytest.mark.parametrize("through", ["a channel", "the server's inbox"])
@pytest.mark.parametrize("way", ["http", "websocket", "by a call"])
@in_many_orders
async def test_a_departure_has_come_when_its_instant_has_passed(
    way: str, through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§7: under every task order, and with at most one pass to spare; on a WebSocket one more, which a Close takes."""
    if through == "the server's inbox":
        have_the_servers_inbox(monkeypatch)
    told: list[tuple[int, int]] = []
    counted = Passes(trio.lowlevel.current_task())
    tell = Departure.tell

    def noting(departure: Departure, how: str = "disconnected") -> None:
        told.append((counted.count, departure.passes))
        tell(departure, how)

    monkeypatch.setattr(Departure, "tell", noting)
    w = world(A.reply(Silence()))
    async with AsyncExitStack() as stack:
        if way == "by a call":
            leave = await stack.enter_async_context(told_by_a_call(w))
        else:
            leave = (await stack.enter_async_context(turn(w, way))).leave
        await trio.sleep_until(3.0)
        trio.lowlevel.add_instrument(counted)
        leave()
        await let_the_instant_pass(limits.INSTANT_PASSES)
        trio.lowlevel.remove_instrument(counted)
    at, passes = told[0]
    spare = 2 if way == "websocket" else 1
    assert max(0, passes - 1 - spare) <= at <= passes - 1
