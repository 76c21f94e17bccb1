"""Which routes take turns, by what their turns end by: circuits, probes, room, shares (C3, C6, F2, M1, R14, X2).

A turn of these worlds takes no time unless it says so; `turns` plays one at each of the given seconds.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any

import pytest
import trio

from gateway.lock.driver import Client
from gateway.upstream.scripted import Break, Reply, Silence
from support.gateways import World, play, turn_beside, world
from support.virtual import in_every_order, in_orders
from support.voices import A, B

FAILS = A.reply(A.prelude, A.failed("server_is_overloaded"))
FIVE = [FAILS] * 5
STATEFUL = {"store": True}
"""A request that is not replayed: its failure is the client's to see."""


async def turns(w: World, door: str, at: Sequence[float], **fields: Any) -> list[Client]:
    """One turn at each of these times, beside each other if they last; to their end, and the invariants of all."""
    clients: list[Client] = []

    async def one(begins_at: float) -> None:
        await trio.sleep_until(begins_at)
        async with turn_beside(w, door, begins_at=begins_at, **fields) as client:
            clients.append(client)

    async with trio.open_nursery() as nursery:
        for begins_at in at:
            nursery.start_soon(one, begins_at)
    assert [client.crash for client in clients] == [None] * len(at)
    w.assert_at_rest()
    assert all(row["open_attempts"] == 0 for row in w.house.as_shown().values())
    return clients


def answers(*replies: Reply) -> list[Reply]:
    """The replies of `a`, and an answer for ever after."""
    return [*replies, A.answer()]


# --- circuits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("faults", "called"), [(4, "abababab" + "a"), (5, "ababababab" + "b")])
@in_every_order
async def test_c3_after_five_faults_in_a_row_the_route_is_left_alone(door: str, faults: int, called: str) -> None:
    """C3: each was replayed, and the sixth turn does not even try."""
    w = world(answers(*[FAILS] * faults), B.answer())
    await turns(w, door, [number / 10 for number in range(faults + 1)])
    assert "".join(w.called) == called


@pytest.mark.parametrize(("at", "called"), [(1.399, "b"), (1.4, "a"), (1.401, "a")])
@in_every_order
async def test_c3_a_second_after_the_fifth_a_turn_probes_it(door: str, at: float, called: str) -> None:
    """C3: the fifth fault is at 0.4 s."""
    w = world(answers(*FIVE), B.answer())
    await turns(w, door, [0, 0.1, 0.2, 0.3, 0.4, at])
    assert w.called[10:] == [called]


@in_every_order
async def test_c3_a_probe_that_fails_doubles_the_time_and_is_replayed(door: str) -> None:
    """C3: probes at 1, 3 and 7 s; between them `b` serves, and from the last on `a` does."""
    w = world(answers(*FIVE, FAILS, FAILS), B.answer())
    clients = await turns(w, door, [0] * 5 + [0.999, 1, 2.999, 3, 6.999, 7, 7.1])
    assert "".join(w.called[10:]) == "b" + "ab" + "b" + "ab" + "b" + "aa"
    assert {client.told[-1] for client in clients} == {"completed"}


@in_every_order
async def test_c3_while_one_turn_probes_no_other_does(door: str) -> None:
    """C3: the probe is silent for a second; others go to `b`, until something of it has been delivered."""
    slow = A.reply(1.0, A.prelude, A.delta(), 60.0, A.completed())
    w = world(answers(*FIVE, slow), B.answer())
    await turns(w, door, [0] * 5 + [2, 2.5, 2.999, 3.001])
    assert "".join(w.called[10:]) == "a" + "b" + "b" + "a"


@in_every_order
async def test_c3_held_events_are_no_delivery(door: str) -> None:
    """C3: a route that says `created` and then overloads is not back; the hold's end is (T1)."""
    held = A.reply(A.prelude, 20.0, A.delta(), A.completed())
    w = world(answers(*FIVE, held), B.answer())
    await turns(w, door, [0] * 5 + [1, 10.999, 11.001])
    assert "".join(w.called[10:]) == "aba"


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(A.status(400), id="a-requests-own-fault"),
        pytest.param(A.reply(A.prelude, A.failed("invalid_prompt")), id="in-the-stream"),
    ],
)
@in_every_order
async def test_c3_a_probe_without_a_verdict_is_given_back(door: str, probe: Reply) -> None:
    """C3: the next turn probes."""
    w = world(answers(*FIVE, probe, FAILS), B.answer())
    await turns(w, door, [0] * 5 + [1, 1.5, 3.499, 3.5])
    assert "".join(w.called[10:]) == "a" + "ab" + "b" + "a"


@in_every_order
async def test_c3_a_client_that_leaves_gives_its_probe_back(door: str) -> None:
    """C3, R1: nothing was seen of the route; the next turn probes, at the instant after."""
    w = world(answers(*FIVE, A.reply(Silence())), B.answer())
    await turns(w, door, [0] * 5)
    await trio.sleep_until(5)
    async with turn_beside(w, door, begins_at=5) as client:
        await trio.sleep_until(6)
        assert w.house.routes["a"].open_attempts == 1
        client.leave()
    await turns(w, door, [trio.current_time()])
    assert w.called[10:] == ["a", "a"]


@in_every_order
async def test_c3_a_turn_that_is_refused_its_money_gives_its_probe_back(door: str) -> None:
    """B6: it never was a turn; neither does it count for the budget."""
    w = world(answers(*FIVE), B.answer(), balance="0.03")
    await turns(w, door, [0] * 5)
    (client,) = await turns(w, door, [5], max_output_tokens=100_000)
    assert (client.failure, w.called[10:]) == ((402, "insufficient_balance"), [])
    await turns(w, door, [10])
    assert w.called[10:] == ["a"]


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        pytest.param(Reply(refuses=True), 0, id="F2-never-sent"),
        pytest.param(A.status(401), 0, id="F2-our-own-account"),
        pytest.param(A.reply(A.failed("insufficient_quota")), 0, id="F2-in-the-stream"),
        pytest.param(A.status(500), 0, id="retryable-status"),
        pytest.param(A.reply(A.prelude, A.error("server_error")), 0, id="retryable-in-a-200"),
        pytest.param(A.reply(Break()), 0, id="read-error"),
        pytest.param(A.reply(A.prelude, A.delta(), Break()), 0, id="read-error-after-output"),
        pytest.param(A.reply(Silence()), 25, id="first-event-timeout"),
        pytest.param(A.status(504), 0, id="upstream-timeout"),
        pytest.param(A.reply(A.prelude, A.delta(), Silence()), 300, id="idle-timeout"),
    ],
)
@in_every_order
async def test_c3_what_counts_as_a_fault(door: str, fault: Reply, seconds: float) -> None:
    """C3, F2: also after output, also inside a 200."""
    w = world([fault] * 5, B.answer())
    await turns(w, door, [0] * 5, **STATEFUL)
    assert w.house.as_shown()["a"]["coolings"] == 1
    assert w.house.routes["a"].circuit.cools_until == seconds + 1


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(A.status(400), id="R8"),
        pytest.param(A.reply(A.prelude, A.failed("context_length_exceeded")), id="R8-in-the-stream"),
        pytest.param(A.reply(A.failed("mystery")), id="R8a"),
        pytest.param(A.reply(A.prelude, A.delta(), A.ending("incomplete")), id="incomplete"),
    ],
)
@in_every_order
async def test_c3_what_does_not(door: str, end: Reply) -> None:
    """C3: deterministic failures are not, and neither is an end that is none."""
    w = world(end, B.answer())
    await turns(w, door, [0] * 20)
    assert set(w.called) == {"a"}
    assert w.house.as_shown()["a"]["coolings"] == 0


# --- retry-after ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "called"), [(6.999, "b"), (7, "a"), (7.001, "a")])
@in_every_order
async def test_c3_one_answer_with_retry_after_cools_the_route_for_that_long(door: str, at: float, called: str) -> None:
    """C3: at once."""
    limited = A.status(429, headers=(("retry-after", "7"),))
    w = world(answers(limited), B.answer())
    await turns(w, door, [0, at])
    assert w.called == ["a", "b", called]


@pytest.mark.parametrize("dated", [True, False], ids=["by its own clock", "by ours"])
@pytest.mark.parametrize(("at", "called"), [(6.999, "b"), (7, "a")])
@in_orders(1)
async def test_c3_an_upstream_may_name_the_time_and_need_not_say_what_time_it_is(
    door: str, at: float, called: str, dated: bool
) -> None:
    """C3: an HTTP date (RFC 9110, 10.2.3)."""
    date = [("date", "Thu, 01 Jan 2026 00:00:13 GMT")] if dated else []
    limited = A.status(503, headers=(("retry-after", "Thu, 01 Jan 2026 00:00:20 GMT"), *date))
    clock = 0.0 if dated else 1_767_225_613.0
    w = world(answers(limited), B.answer(), wall_clock=lambda: clock)
    await turns(w, door, [0, at])
    assert w.called == ["a", "b", called]


@pytest.mark.parametrize(("written", "retry_after"), [("7", 7), ("300", 60), ("86400", 60)])
@in_every_order
async def test_x2_a_client_is_told_when_the_first_route_is_back(door: str, written: str, retry_after: int) -> None:
    """X2, C3: at most a minute, in the error object and in the header."""
    limits = [A.status(429, headers=(("retry-after", "300"),)), B.status(503, headers=(("retry-after", written),))]
    w = world(limits[0], limits[1])
    await play(w, door)
    client = await play(w, door, begins_at=trio.current_time())
    assert client.failure == (503, "no_route_available")
    passed = 0 if door == "http" else 2
    error = client.events[-1].payload["error"]
    assert error["retry_after"] == (retry_after if retry_after == 60 else 7 - passed)
    assert error["retryable"] is True
    assert error["message"] == "every route for the model 'gpt-test' is cooling down"
    if door == "http":
        assert (client.headers["retry-after"], client.headers["x-should-retry"]) == (str(retry_after), "true")


# --- room, states, shares ---------------------------------------------------------------------------------------


@in_every_order
async def test_c6_a_route_that_is_full_takes_no_turn_until_one_has_ended(door: str) -> None:
    """C6: the third turn goes elsewhere; at 10 s there is room again."""
    slow = A.reply(A.prelude, A.delta(), 10.0, A.completed())
    w = world(slow, B.answer(), route_extras={"a": "concurrency = 2"})
    await turns(w, door, [0, 1, 2, 9.999, 10.001])
    assert w.called == ["a", "a", "b", "b", "a"]


@pytest.mark.parametrize(("concurrency", "room"), [(4, 2), (5, 2), (1, 1)])
@in_every_order
async def test_c6_each_worker_has_its_part_of_a_routes_room(
    door: str, concurrency: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C6: of two; rounded down, and at least one."""
    monkeypatch.setenv("GATEWAY_WORKERS", "2")
    slow = A.reply(A.prelude, A.delta(), 10.0, A.completed())
    w = world(slow, B.answer(), route_extras={"a": f"concurrency = {concurrency}"})
    await turns(w, door, [0, 1, 2])
    assert w.called == ["a", "a", "b"][:room] + ["b"] * (3 - room)


@in_every_order
async def test_c6_a_full_route_takes_no_replay_and_is_refused_to_new_turns(door: str) -> None:
    """R14, X2: a place may be free at any moment, so a client may come again in a second."""
    slow = B.reply(B.prelude, B.delta(), 10.0, B.completed())
    w = world(FAILS, slow, route="concurrency = 1")
    clients = await turns(w, door, [0, 1])
    assert w.attempts == [
        "a server_is_overloaded (replay)",
        "b completed",
        "a server_is_overloaded (no_route_left)",
    ]
    assert sorted(client.told[-1] for client in clients) == ["completed", "failed server_is_overloaded"]

    busy = world(A.reply(A.prelude, A.delta(), 10.0, A.completed()), route="concurrency = 1")
    now = trio.current_time()
    clients = await turns(busy, door, [now, now + 1])
    refused = next(client for client in clients if client.told[0] == "error no_route_available")
    assert refused.events[0].payload["error"]["retry_after"] == 1
    assert refused.events[0].payload["error"]["message"] == "every route for the model 'gpt-test' is full"


@in_every_order
async def test_c3_a_draining_route_takes_neither_turns_nor_replays(door: str) -> None:
    """C3, R14."""
    w = world(A.answer(), B.answer(), route_extras={"a": 'state = "drain"'})
    await play(w, door)
    assert w.called == ["b"]
    other = world(FAILS, B.answer(), route_extras={"b": 'state = "drain"'})
    await play(other, door, begins_at=trio.current_time())
    assert other.attempts == ["a server_is_overloaded (no_route_left)"]
    none = world(A.answer(), route='state = "drain"')
    client = await play(none, door, begins_at=trio.current_time())
    assert client.failure == (503, "no_route_available")
    assert client.events[-1].payload["error"]["message"] == "every route for the model 'gpt-test' is draining"
    assert client.events[-1].payload["error"]["retry_after"] == 5


@in_every_order
async def test_m1_routes_of_one_priority_share_the_turns(door: str) -> None:
    """M1: three in four."""
    w = world(A.answer(), B.answer(), listed='[{ name = "a", weight = 3 }, { name = "b", weight = 1 }]')
    await turns(w, door, [number / 10 for number in range(40)])
    assert 29 <= w.called.count("a") <= 31


@in_every_order
async def test_m1_a_replay_stays_within_the_priority_while_it_can(door: str) -> None:
    """M1, R15: `b` has the lower number."""
    w = world(A.answer(), B.reply(Break()), listed='[{ name = "a", priority = 2 }, { name = "b" }]')
    await play(w, door)
    assert w.attempts == ["b stream_read_error (replay)", "a completed"]


# --- the log ----------------------------------------------------------------------------------------------------


@in_every_order
async def test_c3_each_change_of_a_route_is_one_line_of_the_log(
    door: str, logged: list[MutableMapping[str, Any]]
) -> None:
    """C3."""
    logged.clear()
    w = world(answers(*FIVE), B.answer())
    await turns(w, door, [0] * 5 + [1, 1.5])
    told = [
        {name: value for name, value in entry.items() if name != "log_level"}
        for entry in logged
        if str(entry["event"]).startswith("route_")
    ]
    assert told == [
        {
            "event": "route_cooling",
            "route": "a",
            "seconds": 1.0,
            "faults": 5,
            "code": "server_is_overloaded",
            "was_asked": False,
        },
        {"event": "route_probed", "route": "a"},
        {"event": "route_back", "route": "a"},
    ]


@in_every_order
async def test_c2_a_route_that_is_forgotten_begins_as_sound() -> None:
    """C2: its configuration is another; what still runs on the former one ends with it."""
    w = world(FIVE, B.answer())
    await turns(w, "http", [0] * 5)
    former = w.house.take("a")
    assert w.house.is_cooling("a")
    w.house.forget("a")
    assert not w.house.is_cooling("a")
    former.ended(None)
    former.leave()
    assert (w.house.open_attempts("a"), repr(former)) == (0, "<OpenAttempt on a, over=True>")
