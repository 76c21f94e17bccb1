"""T10, X: whatever fails within, the books are closed, the client is told `internal_error`, and nothing stays open.

Faults are put into each neighbour of the turn: the ledger, the records, the house, the upstream's adapter, the door's
writes; and the task that serves the client is cancelled from outside, as at a hard stop.
"""

from collections.abc import AsyncIterator, MutableMapping
from traceback import format_exception
from typing import Any

import httpx2
import pytest
import trio

from gateway.lock.driver import connect
from gateway.turn.house import StandingHouse
from gateway.upstream.scripted import Break, Silence
from support.gateways import Seen, create_frame, play, seen, turn, turn_beside, words_of_failure, world
from support.stores import (
    BrokenLedger,
    FailingRecords,
    FlakyLedger,
    ForgetfulLedger,
    HangingLedger,
    LedgerAway,
    LedgerGone,
    SlowLedger,
    SlowRecords,
)
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.usefixtures("each_transport")

HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
BUG = ZeroDivisionError("a bug of ours")
Log = list[MutableMapping[str, Any]]


def errors(logged: Log) -> Log:
    """What was logged as an error."""
    return [entry for entry in logged if entry["log_level"] == "error"]


def names(logged: Log) -> list[str]:
    """The names of what was logged as an error."""
    return [str(entry["event"]) for entry in errors(logged)]


def assert_these_name_the_turn(logged: Log, door: str, *expected: str) -> None:
    """These errors were logged with the turn's id, and no others."""
    turn_id = "req_1" if door == "http" else "req_1.1"
    named = [(entry["event"], entry["turn_id"]) for entry in errors(logged) if "turn_id" in entry]
    assert named == [(name, turn_id) for name in expected]


# --- before the turn begins -------------------------------------------------------------------------------------


@in_every_order
async def test_while_the_ledger_is_away_no_turn_begins(door: str) -> None:
    """X, L2: 503, nothing sent; its client reads why."""
    w = world(A.answer(), ledger=LedgerAway)
    client = await play(w, door)
    assert (client.failure, client.told) == ((503, "ledger_unavailable"), ["error ledger_unavailable"])
    assert client.events[-1].payload["error"]["message"] == "no turn can start while the ledger is away"
    assert (w.called, w.attempts) == ([], [])


@in_every_order
async def test_a_bug_of_the_ledger_is_an_internal_error(door: str, logged: Log) -> None:
    """X: 500, logged with the turn's id, nothing leaked."""
    w = world(A.answer(), ledger=BrokenLedger)
    client = await play(w, door)
    assert (client.failure, w.called) == ((500, "internal_error"), [])
    assert b"bug" not in client.body
    assert client.events[0].payload["error"]["message"] == "the gateway failed; the failure is logged"
    assert_these_name_the_turn(logged, door, "internal_error")


@in_every_order
async def test_a_turn_that_cannot_be_recorded_does_not_begin(door: str) -> None:
    """L2, B1: its reservation is given back."""
    w = world(A.answer(), records=FailingRecords("open_turn", BUG))
    client = await play(w, door)
    assert (client.failure, client.told) == ((500, "internal_error"), ["error internal_error"])
    assert (w.called, w.money, w.turns) == ([], ["voided"], [])


class BlindHouse(StandingHouse):
    """A house that does not know its routes, from some question on, or at that one only."""

    def __init__(self, answers: int, *, is_forgiving: bool = False) -> None:
        super().__init__()
        self._answers = answers
        self._is_forgiving = is_forgiving

    def is_cooling(self, route: str) -> bool:
        """An answer, or the fault."""
        self._answers -= 1
        if self._answers == -1 or (self._answers < 0 and not self._is_forgiving):
            raise BUG
        return False


@in_every_order
async def test_a_first_choice_that_fails_is_an_internal_error(door: str) -> None:
    """X: nothing was reserved."""
    w = world(A.answer(), B.answer(), house=BlindHouse(0))
    client = await play(w, door)
    assert (client.failure, w.called, w.reserved) == ((500, "internal_error"), [], [])


@pytest.mark.parametrize("fault", ["ledger", "records", "house"])
@in_every_order
async def test_after_a_turn_that_could_not_begin_a_websocket_is_usable(fault: str) -> None:
    """X4."""
    faults: dict[str, dict[str, Any]] = {
        "ledger": {"ledger": BrokenLedger},
        "records": {"records": FailingRecords("open_turn", BUG)},
        "house": {"house": BlindHouse(0, is_forgiving=True)},
    }
    w = world(A.answer(), **faults[fault])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        client.send_text(create_frame())
        await client.wait_for(lambda client: "completed" in client.told)
        client.leave()
    assert client.told == ["error internal_error", *ANSWERED]


# --- while it runs ----------------------------------------------------------------------------------------------


@in_every_order
async def test_an_attempt_that_cannot_be_recorded_is_not_sent(door: str) -> None:
    """L2: the attempt's opening is durable before its upstream call, or there is none."""
    w = world(A.answer(), B.answer(), records=FailingRecords("open_attempt", BUG))
    client = await play(w, door)
    assert seen(w, client) == Seen(["error internal_error"], [], [], ["voided"])
    assert client.failure == (500, "internal_error")


@in_every_order
async def test_a_second_attempt_that_cannot_be_recorded_is_a_choice_that_failed(door: str, logged: Log) -> None:
    """§4, the last point: a store that is down; logged with the turn's id."""
    w = world(A.reply(Break()), B.answer(), records=FailingRecords("open_attempt", BUG, fails_at=2))
    client = await play(w, door)
    code = {"http": "route_selection_failed", "websocket": "websocket_response_failed"}[door]
    assert seen(w, client) == Seen([f"error {code}"], ["a"], ["a stream_read_error (replay)"], ["voided"])
    assert_these_name_the_turn(logged, door, "route_selection_failed")


@in_every_order
async def test_an_attempt_that_never_called_its_upstream_is_on_record_as_that(door: str) -> None:
    """L1: its opening may have been noted, though nobody could say so in time."""
    w = world(A.reply(Break()), B.answer(), records=SlowRecords(open_attempt=[0.0, 60.0]))
    await play(w, door)
    assert (w.called, w.attempts) == (["a"], ["a stream_read_error (replay)", "b not_called"])


@in_every_order
async def test_a_house_that_cannot_tell_how_it_stands_ends_the_turn(door: str) -> None:
    """X: held events first, then the failure."""
    w = world(A.reply(A.prelude, A.failed("server_error")), B.answer(), house=BlindHouse(2))
    client = await play(w, door)
    assert (client.told, w.called) == ([*HELD, *words_of_failure(door, "internal_error")], ["a"])
    assert w.money == ["voided"]


class DeafHouse(StandingHouse):
    """A house that cannot be told how an attempt ended."""

    def take(self, route: str) -> Any:
        """A place that says so."""
        return DeafPlace(super().take(route))


class DeafPlace:
    """A place that takes all but that."""

    def __init__(self, place: Any) -> None:
        self.delivered, self.leave = place.delivered, place.leave

    def ended(self, _failure: object) -> None:
        """It cannot be told."""
        raise BUG


@in_every_order
async def test_a_house_that_cannot_be_told_of_the_end_keeps_no_books_open(door: str, logged: Log) -> None:
    """T10, B1: what was decided is told and paid for."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed()), B.answer(), house=DeafHouse())
    client = await play(w, door)
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])
    assert [closing.upstream_request_id for closing in w.closings] == ["req_of_a"]
    assert_these_name_the_turn(logged, door, "internal_error")


def _not_learned(*_told: object, **_of: object) -> Any:
    raise BUG


@pytest.mark.parametrize(
    ("steps", "told", "money"),
    [
        ([A.prelude + A.delta() + A.completed()], ANSWERED, "settled 7000"),
        ([A.prelude, A.delta(), 1.0, A.completed()], [*OUT, "internal"], "voided unmetered"),
    ],
    ids=["with its end", "before its end"],
)
@pytest.mark.over_http  # where the end comes in one piece with what is before it
@in_every_order
async def test_an_origin_that_cannot_be_learned_keeps_no_books_open(
    door: str, steps: list[Any], told: list[str], money: str, logged: Log
) -> None:
    """T10, B1, O1: also where the end is decided in the same step."""
    w = world(A.reply(*steps), B.answer())
    w.gateway.origins.learn = _not_learned  # type: ignore[method-assign]  # a fault in its place
    client = await play(w, door, store=True)
    words = words_of_failure(door, "internal_error")
    assert client.told == [*told[:-1], *(words if told[-1] == "internal" else told[-1:])]
    assert (w.called, w.money) == (["a"], [money])
    assert_these_name_the_turn(logged, door, "internal_error")


class BuggyTransport(httpx2.AsyncBaseTransport):
    """A network whose library raises what it never should: before it answers, or behind some events."""

    def __init__(self, *events: bytes) -> None:
        self._events = events

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer, or fail."""
        await trio.lowlevel.checkpoint()
        if not self._events:
            raise BUG
        return httpx2.Response(200, headers=list(A.headers), stream=_Buggy(self._events), request=request)


class _Buggy(httpx2.AsyncByteStream):
    def __init__(self, events: tuple[bytes, ...]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - the library's own interface
        for event in self._events:
            yield event
            await trio.lowlevel.checkpoint()
        raise BUG

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("events", "told", "money"),
    [
        ((), [], "voided"),
        ((A.prelude,), HELD, "voided"),
        ((A.prelude, A.delta()), OUT, "voided unmetered"),
    ],
    ids=["before any event", "during the hold", "after output"],
)
@pytest.mark.over_http  # the network is the test's own
@in_every_order
async def test_a_bug_in_the_upstreams_adapter_ends_the_turn(
    door: str, events: tuple[bytes, ...], told: list[str], money: str, logged: Log
) -> None:
    """T10, B3, X: told in order, behind what came before; not replayed; the gateway's own fault costs nothing."""
    w = world(A.answer(), B.answer(), transports={"a": BuggyTransport(*events)})
    client = await play(w, door)
    words = words_of_failure(door, "internal_error") if told else ["error internal_error"]
    assert (client.told, w.called, w.money) == ([*told, *words], [], [money])
    assert w.attempts[0].startswith("a internal_error")
    assert_these_name_the_turn(logged, door, "internal_error")


@pytest.mark.over_http  # the network is the test's own
@in_every_order
async def test_a_bug_in_the_upstreams_adapter_behind_the_turns_end_ends_nothing(door: str, logged: Log) -> None:
    """T10, E9: it is logged, and is no failure of the turn, which was told and paid for."""
    w = world(A.answer(), transports={"a": BuggyTransport(A.prelude, A.delta(), A.completed())})
    client = await play(w, door)
    assert (client.told, w.attempts, w.money) == (ANSWERED, ["a completed"], ["settled 7000"])
    assert_these_name_the_turn(logged, door, "internal_error")


@in_every_order
async def test_records_that_take_too_long_keep_an_attempt_from_being_sent(door: str, logged: Log) -> None:
    """L2, T10: bounded; the client is told then, and what may have been noted is closed. It is no bug of ours."""
    w = world(A.answer(), B.answer(), records=SlowRecords(open_attempt=1000.0))
    client = await play(w, door)
    assert (client.times, w.called, w.money) == ([(5.0, "error ledger_unavailable")], [], ["voided"])
    assert names(logged) == []


@pytest.mark.parametrize("slow", [{"records": {"open_turn": 1000.0}}, {"ledger": HangingLedger}], ids=list)
@in_every_order
async def test_stores_that_take_too_long_keep_a_turn_from_beginning(door: str, slow: dict[str, Any]) -> None:
    """B1, X: bounded; what was set aside is given back."""
    records = {name: SlowRecords(**seconds) for name, seconds in slow.items() if name == "records"}
    w = world(A.answer(), **{**slow, **records})
    async with turn_beside(w, door) as client:
        pass
    assert (client.told, client.failure, w.called) == (["error ledger_unavailable"], (503, "ledger_unavailable"), [])
    assert w.ledger.open_reservations("main") == 0
    closings = [turn.closing for turn in w.turns if turn.closing is not None]
    assert [(closing.outcome, closing.seconds) for closing in closings] == (
        [("ledger_unavailable", 5.0)] if records else []
    )


class ClingingTransport(httpx2.AsyncBaseTransport):
    """A network on which a connection cannot be closed."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer with a failure before output."""
        await trio.lowlevel.checkpoint()
        return httpx2.Response(200, headers=list(A.headers), stream=_Clinging(), request=request)


class _Clinging(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - the library's own interface
        yield A.prelude + A.failed("server_error")
        await trio.sleep_forever()

    async def aclose(self) -> None:
        """Hangs."""
        await trio.sleep_forever()


@pytest.mark.over_http  # the network is the test's own
@in_every_order
async def test_an_upstream_that_cannot_be_closed_delays_no_replay(door: str) -> None:
    """T10, H7, bug case 56: the replay begins at once, and the socket is given up within a second."""
    w = world(A.answer(), B.reply(B.prelude, B.delta(), 0.5, B.completed()), transports={"a": ClingingTransport()})
    client = await play(w, door)
    assert client.times == [(0.0, label) for label in OUT] + [(0.5, "completed")]
    assert w.attempts == ["a server_error (replay)", "b completed"]


@pytest.mark.over_http  # the network is the test's own
@in_every_order
async def test_an_upstream_that_cannot_be_closed_delays_no_failure(door: str) -> None:
    """T10, H7: frames and books at once, the turn's end within a second."""
    w = world(A.answer(), transports={"a": ClingingTransport()})
    client = await play(w, door)
    assert client.times == [(0.0, label) for label in [*HELD, "failed server_error"]]
    assert (w.ended_at, w.money) == ([0.0], ["voided"])


# --- when it ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", [FlakyLedger, ForgetfulLedger])
@in_every_order
async def test_a_resolution_that_fails_once_is_asked_for_again(door: str, ledger: Any) -> None:
    """B1, T10: whether it was written or not, it is resolved once; the client's frames know nothing of it."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed()), ledger=ledger)
    client = await play(w, door)
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])
    assert client.events[-1].at == 1.0


@in_every_order
async def test_a_ledger_that_is_gone_at_the_end_is_given_up_on_in_time(door: str, logged: Log) -> None:
    """T10, B7: bounded; logged as an error; the reservation is left to the sweeper; record and frames are in order."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed()), ledger=LedgerGone)
    async with turn_beside(w, door) as client:
        pass
    assert (client.told, client.events[-1].at, w.attempts) == (ANSWERED, 1.0, ["a completed"])
    assert (w.money, w.gateway.engine.running_turns) == ([], 0)
    said = [(entry["turn_id"], entry["steps"]) for entry in logged if entry["event"] == "books_not_closed"]
    assert said == [(w.turns[0].opening.turn_id, ["resolve"])]
    assert client.ended_at <= 10.0


@pytest.mark.parametrize("call", ["close_attempt", "close_turn"])
@in_every_order
async def test_a_record_that_fails_once_is_written_again(door: str, call: str) -> None:
    """T10, L2: and the money does not wait for it."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.completed()), records=FailingRecords(call, BUG))
    client = await play(w, door)
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 7000"])


@in_every_order
async def test_a_discarded_attempts_record_that_fails_once_is_written_again(door: str) -> None:
    """T10: the replay does not wait for it."""
    w = world(A.reply(1.0, Break()), B.answer(), records=FailingRecords("close_attempt", BUG))
    client = await play(w, door)
    attempts = ["a stream_read_error (replay)", "b completed"]
    assert seen(w, client) == Seen(ANSWERED, ["a", "b"], attempts, ["settled 7000"])
    assert client.events[0].at == 1.0


# --- the door's writes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [BUG, OSError("connection lost")], ids=["a bug", "an OS error"])
@in_every_order
async def test_a_write_that_raises_closes_the_books(door: str, error: Exception, logged: Log) -> None:
    """T10: the upstream is closed and nothing is charged, whether or not the client can still be told; the log shows
    what was raised."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.delta(), Silence()), B.answer())
    async with turn_beside(w, door) as client:
        await client.wait_for(lambda client: "output_text.delta" in client.told)
        client.fail_writes(error, error, error)
        await trio.sleep(5.0)
        client.leave()
    w.assert_at_rest()
    assert (w.called, w.closed_at, w.money) == (["a"], [1.0], ["voided unmetered"])
    assert [closing.upstream_request_id for closing in w.closings] == ["req_of_a"]
    assert_these_name_the_turn(logged, door, "internal_error", "client_not_told")
    assert str(error) in "".join(format_exception(errors(logged)[0]["exc_info"]))


@in_every_order
async def test_a_write_that_raises_once_is_told_as_an_internal_error(door: str) -> None:
    """X: if the client can be told."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.delta(), Silence()), B.answer())
    async with turn(w, door) as client:
        await client.wait_for(lambda client: "output_text.delta" in client.told)
        client.fail_writes(BUG)
    assert (client.told, w.money) == ([*OUT, *words_of_failure(door, "internal_error")], ["voided unmetered"])


@in_every_order
async def test_what_ends_the_process_closes_the_books_and_goes_on(logged: Log) -> None:
    """T10: it is no bug of a turn, and no turn stops it."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.delta(), Silence()), B.answer())

    async def play_until_then() -> None:
        async with turn_beside(w, "http") as client:
            await client.wait_for(lambda client: "output_text.delta" in client.told)
            client.fail_writes(SystemExit(3))

    with pytest.RaisesGroup(SystemExit, flatten_subgroups=True):
        await play_until_then()
    w.assert_at_rest()
    assert (w.money, names(logged)) == (["voided unmetered"], [])


@pytest.mark.parametrize("error", [trio.BrokenResourceError, trio.ClosedResourceError])
@in_every_order
async def test_a_connection_that_is_found_broken_is_a_client_that_left(door: str, error: type[Exception]) -> None:
    """H7, B3."""
    w = world(A.reply(A.prelude, A.delta(), 1.0, A.delta(), Silence()), B.answer())
    async with turn_beside(w, door) as client:
        await client.wait_for(lambda client: "output_text.delta" in client.told)
        client.fail_writes(error())
        await trio.sleep(5.0)
        client.leave()
    w.assert_at_rest()
    assert (w.attempts, w.failures) == (["a client_disconnected (client_disconnected)"], ["write failed"])
    assert w.money[0].startswith("settled")


# --- cancelled from outside -------------------------------------------------------------------------------------

STOPPED: dict[str, tuple[dict[str, Any], float, list[str], list[str]]] = {
    # the world, when the server stops, whom it called, the money
    "while reserving": ({"first": A.answer(), "ledger": SlowLedger}, 1.0, [], ["voided"]),
    "while the turn is recorded": ({"first": A.answer(), "records": {"open_turn": 2.0}}, 1.0, [], ["voided"]),
    "while the attempt is recorded": (
        {"first": A.answer(), "records": {"open_attempt": 2.0}},
        1.0,
        [],
        ["voided"],
    ),
    "while connecting": ({"first": A.reply(connect_seconds=4.0)}, 1.0, [], ["voided"]),
    "before the first event": ({"first": A.reply(Silence())}, 1.0, ["a"], ["voided"]),
    "during the hold": ({"first": A.reply(A.prelude, Silence())}, 1.0, ["a"], ["voided"]),
    "during the grace": (
        {"first": A.reply(A.prelude, 0.9, A.error("server_error"), Silence())},
        1.0,
        ["a"],
        ["voided"],
    ),
    "after output": ({"first": A.reply(A.prelude, A.delta(), Silence())}, 1.0, ["a"], ["voided unmetered"]),
    "while the replay is recorded": (
        {"first": A.reply(Break()), "second": B.answer(), "records": {"open_attempt": [0.0, 2.0]}},
        1.0,
        ["a"],
        ["voided"],
    ),
    "in the second attempt": ({"first": A.reply(Break()), "second": B.reply(Silence())}, 1.0, ["a", "b"], ["voided"]),
    "while the end is recorded": (
        {"first": A.answer(), "records": {"close_attempt": 2.0}},
        1.0,
        ["a"],
        ["settled 7000"],
    ),
}


@pytest.mark.parametrize("moment", STOPPED)
@in_every_order
async def test_a_server_that_stops_hard_closes_the_books(door: str, moment: str) -> None:
    """T10, B1, B3: attempt and money are resolved, the upstream is closed, within the bound."""
    parts, at, called, money = STOPPED[moment]
    slow = {name: SlowRecords(**seconds) for name, seconds in parts.items() if name == "records"}
    w = world(**{**parts, **slow})
    async with turn_beside(w, door) as client:
        await trio.sleep_until(at)
        client.stop_server()
    w.assert_at_rest()
    assert (w.called, w.money) == (called, money)
    assert client.ended_at <= at + 5.0


@in_every_order
async def test_a_bound_keeps_a_hard_stop_from_hanging(door: str) -> None:
    """T10: shielded, and bounded."""
    w = world(A.reply(A.prelude, A.delta(), Silence()), records=SlowRecords(close_attempt=1000.0))
    async with turn_beside(w, door) as client:
        await trio.sleep_until(1.0)
        client.stop_server()
    assert client.ended_at <= 7.0


CUT_SHORT: dict[str, tuple[Any, list[str], list[str]]] = {
    # what the upstream does, the attempt on record, the money (B3: the gateway's own fault)
    "before any event": (A.reply(Silence()), ["a server_draining (draining)"], ["voided"]),
    "during the hold": (A.reply(A.prelude, Silence()), ["a server_draining (draining)"], ["voided"]),
    "after output": (
        A.reply(A.prelude, A.delta(), Silence()),
        ["a server_draining (output_delivered)"],
        ["voided unmetered"],
    ),
}


@pytest.mark.parametrize("moment", CUT_SHORT)
@in_every_order
async def test_a_drain_that_is_cut_short_is_recorded_as_one(door: str, moment: str, logged: Log) -> None:
    """T7, T10, B3: a second signal."""
    reply, attempts, money = CUT_SHORT[moment]
    w = world(reply, B.answer())
    async with turn_beside(w, door) as client:
        await trio.sleep_until(2.0)
        w.gateway.drain()
        await trio.sleep_until(3.0)
        client.stop_server()
    w.assert_at_rest()
    assert (w.attempts, w.money) == (attempts, money)
    assert [record.closing.outcome for record in w.turns if record.closing] == ["server_draining"]
    assert names(logged) == []


@in_every_order
async def test_a_cancellation_without_a_drain_is_an_internal_error(door: str) -> None:
    """X: something in the server ended the connection's tasks."""
    w = world(A.reply(A.prelude, Silence()), B.answer())
    async with turn_beside(w, door) as client:
        await trio.sleep_until(2.0)
        client.stop_server()
    assert [record.closing.outcome for record in w.turns if record.closing] == ["internal_error"]
