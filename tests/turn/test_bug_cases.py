"""Public bug reports about turns (shared/bug-cases.md), by number; where they and the specification differ, it stands.

Here: the decision, the end of a stream, departures, several creates (1, 3, 4, 5, 17, 18, 20, 22, 42). The bytes are in
test_bug_cases_bytes.py.
"""

import math
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest
import trio

from gateway.lock.driver import connect
from gateway.upstream.scripted import Break, Reply, Silence, Step
from support.gateways import (
    Seen,
    assert_all_is_well,
    create_frame,
    play,
    seen,
    turn,
    words_of_failure,
    world,
)
from support.virtual import in_every_order
from support.voices import ANSWERED, COMMENT, A, B, C, repeat

pytestmark = pytest.mark.usefixtures("each_transport")

OVERLOADED = "server_is_overloaded"
HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]


def bytewise(*parts: bytes) -> list[Step]:
    """The same bytes, one in each chunk."""
    data = b"".join(parts)
    return [data[at : at + 1] for at in range(len(data))]


def chunked(parts: Sequence[bytes], *, is_bytewise: bool) -> list[Step]:
    """In one segment, or bytewise."""
    return bytewise(*parts) if is_bytewise else [b"".join(parts)]


# --- case 1 -----------------------------------------------------------------------------------------------------

CASE_1 = {
    "error and failed": ([A.prelude, A.error(OVERLOADED), A.failed(OVERLOADED)], OVERLOADED),
    "error alone": ([A.prelude, A.error(OVERLOADED)], OVERLOADED),
    "failed alone": ([A.prelude, A.failed(OVERLOADED)], OVERLOADED),
    "quota": ([A.prelude, A.error("insufficient_quota")], "insufficient_quota"),
}


@pytest.mark.smoke
@pytest.mark.parametrize("is_bytewise", [False, True], ids=["one segment", "bytewise"])
@pytest.mark.parametrize("variant", CASE_1)
@in_every_order
async def test_case_1_an_error_before_failed_is_no_output(door: str, variant: str, is_bytewise: bool) -> None:
    """Case 1: calls A1 B1, one response id, no trace of A, B's usage charged, A on record."""
    parts, code = CASE_1[variant]
    w = world(A.reply(*chunked(parts, is_bytewise=is_bytewise)), B.answer())
    client = await play(w, door)
    attempts = [f"a {code} (replay)", "b completed"]
    assert seen(w, client) == Seen(ANSWERED, ["a", "b"], attempts, ["settled 7000"])
    assert {heard.payload.get("response", {}).get("id", "resp_of_b") for heard in client.events} == {"resp_of_b"}


@pytest.mark.parametrize("is_bytewise", [False, True], ids=["one segment", "bytewise"])
@in_every_order
async def test_case_1_a_request_at_fault_is_delivered_unchanged(door: str, is_bytewise: bool) -> None:
    """Case 1: `E(invalid_prompt)`."""
    parts = [A.prelude, A.error("invalid_prompt")]
    w = world(A.reply(*chunked(parts, is_bytewise=is_bytewise)), B.answer())
    client = await play(w, door)
    attempts = ["a invalid_prompt (deterministic)"]
    assert seen(w, client) == Seen([*HELD, "error invalid_prompt"], ["a"], attempts, ["voided"])
    assert door == "websocket" or client.body == b"".join(parts)


@in_every_order
async def test_case_1_a_second_failure_of_the_kind_is_told_in_its_own_words(door: str) -> None:
    """Case 1: B's failure, its own code, a refund, no third call."""
    w = world(
        A.reply(A.prelude + A.error(OVERLOADED)), B.reply(B.prelude + B.error("slow_down") + B.failed("slow_down"))
    )
    client = await play(w, door)
    assert (w.called, client.told[-1], w.money) == (["a", "b"], "failed slow_down", ["voided"])
    assert b"of_a" not in client.body


# --- case 3 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[], [COMMENT]], ids=["an empty body", "a comment"])
@in_every_order
async def test_case_3_nothing_is_no_success(door: str, steps: list[Step]) -> None:
    """Case 3: a read error before the first event: replayed, else `stream_read_error` and a refund."""
    w = world(A.reply(*steps), B.answer())
    client = await play(w, door)
    assert (client.told, w.called, w.money) == (ANSWERED, ["a", "b"], ["settled 7000"])
    alone = world(A.reply(*steps))
    client = await play(alone, door)
    assert (client.told, alone.money) == (["error stream_read_error"], ["voided"])


@in_every_order
async def test_case_3_an_end_behind_held_events_is_a_failure(door: str) -> None:
    """Case 3, R9: not replayed."""
    w = world(A.reply(A.prelude), B.answer())
    client = await play(w, door)
    told = [*HELD, *words_of_failure(door, "stream_read_error")]
    attempts = ["a stream_read_error (read_error_after_first_event)"]
    assert seen(w, client) == Seen(told, ["a"], attempts, ["voided"])


@in_every_order
async def test_case_3_an_empty_completed_is_delivered_and_costs_nothing(door: str) -> None:
    """Case 3, R4, B3: never "success, charged minimum"."""
    w = world(A.reply(A.prelude, A.ending("completed", output=[])), B.answer())
    client = await play(w, door)
    assert seen(w, client) == Seen([*HELD, "completed"], ["a"], ["a completed"], ["voided unmetered"])


# --- case 4 -----------------------------------------------------------------------------------------------------

CASE_4 = {
    "function call": [
        A.output("response.output_item.added", item={"type": "function_call", "call_id": "call_1"}),
        A.output("response.function_call_arguments.delta", 3, delta='{"a"'),
        A.output("response.function_call_arguments.delta", 4, delta=":1}"),
    ],
    "reasoning": [A.output("response.reasoning_summary_text.delta", delta="hm")],
    "an empty delta": [A.delta("")],
    "refusal": [A.output("response.refusal.delta", delta="no")],
    "image": [A.output("response.image_generation_call.partial_image", partial_image_b64="AAAA")],
    "an unknown type": [A.output("response.something_new")],
}


@pytest.mark.parametrize(
    ("output", "ending", "code"),
    [
        *((output, Break(), "stream_read_error") for output in CASE_4),
        ("function call", A.failed("server_error"), "server_error"),
    ],
)
@in_every_order
async def test_case_4_any_output_ends_replayability(door: str, output: str, ending: Step, code: str) -> None:
    """Case 4: even where the visible text is empty; B gets no call."""
    w = world(A.reply(A.prelude, *CASE_4[output], ending), B.answer())
    client = await play(w, door)
    assert (w.called, w.attempts) == (["a"], [f"a {code} (output_delivered)"])
    assert client.events[-1].code == code
    assert client.told.count("created") == 1


# --- case 5 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        [A.prelude, Break()],
        [A.prelude, A.failed(OVERLOADED)],
        [A.prelude, 10.0, Break()],
        [A.prelude, 10.0, A.failed(OVERLOADED)],
        [A.created, 10.0, A.in_progress + A.failed(OVERLOADED)],
    ],
    ids=["reset at once", "failed at once", "reset at 10 s", "failed at 10 s", "failed and more at 10 s"],
)
@in_every_order
async def test_case_5_a_client_sees_one_response(door: str, first: list[Step]) -> None:
    """Case 5: exactly one `created`, one id, one end; also where A's last bytes come as the hold expires."""
    w = world(A.reply(*first), B.answer())
    client = await play(w, door)
    ids = {heard.payload["response"]["id"] for heard in client.events if "response" in heard.payload}
    ends = [label for label in client.told if label.startswith(("completed", "failed"))] or client.told[-1:]
    assert (client.told.count("created"), len(ids), len(ends)) == (1, 1, 1)
    assert ids == ({"resp_of_b"} if "b" in w.called else {"resp_of_a"})


# --- case 17, the SSE half --------------------------------------------------------------------------------------


class ShortTransport(httpx2.AsyncBaseTransport):
    """A network on which a body ends before its content-length."""

    def __init__(self, *events: bytes) -> None:
        self._events = events

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer."""
        await trio.lowlevel.checkpoint()
        return httpx2.Response(200, headers=list(A.headers), stream=_Short(self._events), request=request)


class _Short(httpx2.AsyncByteStream):
    def __init__(self, events: tuple[bytes, ...]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:  # noqa: ASYNC900 - the library's own interface
        for event in self._events:
            await trio.lowlevel.checkpoint()
            yield event
        raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("ending", ["EOF", "reset", pytest.param("short body", marks=pytest.mark.over_http)])
@in_every_order
async def test_case_17_a_stream_without_a_terminal_is_a_failure(door: str, ending: str) -> None:
    """Case 17: the client can tell; what was delivered is estimated; a WebSocket stays open."""
    steps: list[Step] = [A.prelude, A.delta("half"), *([Break()] if ending == "reset" else [])]
    transports = {"a": ShortTransport(A.prelude, A.delta("half"))} if ending == "short body" else {}
    w = world(A.reply(*steps), B.answer(), transports=transports)
    client = await play(w, door)
    assert client.told == [*OUT, *words_of_failure(door, "stream_read_error")]
    assert (w.attempts, w.money) == (["a stream_read_error (output_delivered)"], ["settled 5000 estimated"])


@pytest.mark.parametrize("ending", ["EOF", "reset", pytest.param("short body", marks=pytest.mark.over_http)])
@in_every_order
async def test_case_17_before_the_first_event_it_is_replayed(door: str, ending: str) -> None:
    """Case 17, R15."""
    steps: list[Step] = [Break()] if ending == "reset" else []
    transports = {"a": ShortTransport()} if ending == "short body" else {}
    w = world(A.reply(*steps), B.answer(), transports=transports)
    client = await play(w, door)
    assert (client.told, w.money) == (ANSWERED, ["settled 7000"])


@in_every_order
async def test_case_17_after_the_failure_a_websocket_serves_the_next_turn() -> None:
    """Case 17."""
    w = world([A.reply(A.prelude, A.delta()), C.answer()])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.has_last_word)
        client.send_text(create_frame())
        await client.wait_for(lambda client: "completed" in client.told)
        client.leave()
    assert_all_is_well(w, client)
    assert client.told == [*OUT, "error stream_read_error", *ANSWERED]


# --- case 18 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last",
    [
        [A.completed(2, 1), *repeat(60, 1.0, COMMENT)],
        [A.completed(2, 1), Silence()],
        [A.completed(2, 1), Break()],
        [A.completed(2, 1), A.completed(9, 9)],
        [A.completed(2, 1) + A.completed(9, 9)],
        [A.completed(2, 1) + A.delta("late") + A.failed("late")],
    ],
    ids=["pings", "silence", "reset", "another read", "the same read", "output and failed"],
)
@in_every_order
async def test_case_18_the_first_terminal_ends_the_turn(door: str, last: list[Step]) -> None:
    """Case 18, E9: at once; charged by it; whatever follows is dropped, and the upstream is closed within bounds."""
    w = world(A.reply(A.prelude, A.delta("a"), *last), B.answer())
    client = await play(w, door)
    assert seen(w, client) == Seen(ANSWERED, ["a"], ["a completed"], ["settled 4000"])
    assert client.events[-1].at == 0.0
    assert w.closed_at[0] in (0.0, 0.1)


@in_every_order
async def test_case_18_a_websocket_is_ready_at_once() -> None:
    """Case 18: while the first upstream connection is still open."""
    w = world([A.reply(A.prelude, A.delta(), A.completed(), Silence()), A.answer()])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told.count("completed") == 2)
        ended_at = trio.current_time()
        client.leave()
    assert_all_is_well(w, client)
    assert ended_at < 0.2


# --- case 20 ----------------------------------------------------------------------------------------------------

CLOCKS = "first_event_timeout = 3\nidle_timeout = 3"
DEAD: list[Step] = repeat(30, 1.0, COMMENT)


@pytest.mark.parametrize(
    ("before", "told", "code"),
    [
        ([], [], "first_event_timeout"),
        ([A.created], ["created"], "stream_idle_timeout"),
        ([A.prelude, A.delta()], OUT, "stream_idle_timeout"),
    ],
    ids=["nothing else", "behind created", "behind output"],
)
@in_every_order
async def test_case_20_comments_keep_nothing_alive(door: str, before: list[Step], told: list[str], code: str) -> None:
    """Case 20: the failure at 3 s, the upstream cancelled then, B not called."""
    w = world(A.reply(*before, *DEAD), B.answer(), route=CLOCKS)
    client = await play(w, door)
    assert client.told == [*told, *(words_of_failure(door, code) if told else [f"error {code}"])]
    assert (client.events[-1].at, w.called, w.closed_at) == (3.0, ["a"], [3.0])


# --- case 22 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["reset", "close 1001", "half-close"])
@pytest.mark.parametrize(
    "reply",
    [A.reply(A.prelude, *repeat(100, A.delta(), 0.3)), A.reply(3.0, A.failed(OVERLOADED))],
    ids=["endless output", "a failure at 3 s"],
)
@in_every_order
async def test_case_22_a_departure_closes_the_upstream_and_replays_nothing(door: str, reply: Reply, way: str) -> None:
    """Case 22, H7: at 2 s, within a second."""
    w = world(reply, B.answer())
    async with turn(w, door) as client:
        await trio.sleep_until(2.0)
        client.half_close() if way == "half-close" else client.leave(1001 if way == "close 1001" else 1006)
        await client.wait_for(lambda client: not math.isnan(client.ended_at))
    assert (w.called, w.closed_at, client.ended_at) == (["a"], [2.0], 2.0)
    assert w.attempts == ["a client_disconnected (client_disconnected)"]


# --- case 42 ----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_42_creates_are_served_one_after_the_other() -> None:
    """Case 42, W3: back to back, and one at the instant at which the first one's terminal is written."""
    w = world([v.reply(v.prelude, 1.0, v.delta(), v.completed()) for v in (A, B, C)])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        client.send_text(create_frame())
        await client.wait_for(lambda client: "completed" in client.told)
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told.count("completed") == 3)
        client.leave()
    assert_all_is_well(w, client)
    ids = [heard.payload["response"]["id"] for heard in client.events if heard.type == "response.completed"]
    assert (client.told, ids) == (ANSWERED * 3, ["resp_of_a", "resp_of_b", "resp_of_c"])


@in_every_order
async def test_case_42_more_creates_than_may_wait_are_refused_and_disturb_nobody() -> None:
    """Case 42, W3, W5: sixteen wait; each other one gets its own error, with its `event_id`, in its place."""
    w = world([A.reply(A.prelude, 1.0, A.delta(), A.completed()), A.answer()])
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep(0.5)
        for number in range(20):
            client.send_text(create_frame(event_id=f"ev_{number}"))
        await client.wait_for(lambda client: len(client.told) == 17 * 4 + 4)
        client.leave()
    assert_all_is_well(w, client)
    refused = [heard.payload["event_id"] for heard in client.events if heard.code == "response_queue_full"]
    assert (refused, client.told[:4]) == (["ev_16", "ev_17", "ev_18", "ev_19"], ANSWERED)
    assert (client.told.count("completed"), len(w.reserved)) == (17, 17)


@in_every_order
async def test_case_42_fifty_frames_and_a_dropped_connection_leave_nothing_behind() -> None:
    """Case 42: the handler ends and the upstream closes."""
    w = world(A.reply(A.prelude, A.delta(), Silence()))
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await trio.sleep(1.0)
        for _ in range(50):
            client.send_text(create_frame())
        await trio.sleep(1.0)
        client.leave()
    assert_all_is_well(w, client)
    assert (w.called, w.closed_at, client.ended_at) == (["a"], [2.0], 2.0)
