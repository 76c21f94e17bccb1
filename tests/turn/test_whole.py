"""H1: `stream: false` is a turn like any other, told in one body. The same decision, money and records."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from gateway.lock.driver import Client
from gateway.lock.virtual import virtual_run
from gateway.ports import Origin
from gateway.upstream.scripted import JSON_BODY, Break, Close, Reply, Silence, Step
from gateway.upstream.scripts import response_object, usage_object
from support.gateways import MODEL, Seen, World, cost, play, seen, turn, world
from support.known_origins import a_made_resp_1
from support.voices import A, B, Voice

pytestmark = [pytest.mark.trio(run=virtual_run), pytest.mark.usefixtures("each_transport")]

MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi there"}]}


def body_of(voice: Voice, status: str = "completed", **fields: Any) -> bytes:
    """A response as an HTTP upstream sends it whole."""
    response = response_object(f"resp_{voice.mark}", status, **{"usage": usage_object(5, 1), **fields})
    return json.dumps(response, indent=1).encode() + b"\n"


def whole(voice: Voice, *steps: Step, **options: Any) -> Reply:
    """These bytes, and not an event stream."""
    headers = (*JSON_BODY, *voice.headers[1:])
    return Reply(steps, headers=headers, **options)


async def ask(w: World, **fields: Any) -> Client:
    return await play(w, "http", **{"stream": False, **fields})


# --- an answer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, None, ...])
async def test_a_request_that_does_not_stream_gets_one_body(stream: Any) -> None:
    """H1: absent and null are false, as the API has it."""
    w = world(A.answer())
    client = await ask(w, stream=stream)

    assert (client.status, client.headers["content-type"]) == (200, "application/json")
    assert json.loads(client.body)["id"] == "resp_of_a"
    assert client.headers["content-length"] == str(len(client.body))
    assert client.headers["cache-control"] == "no-store"
    assert client.headers["x-request-id"] == client.headers["x-billing-transaction-id"] == "req_1"
    assert seen(w, client) == Seen(["completed"], ["a"], ["a completed"], [f"settled {cost(5, 1)}"])


async def test_an_answer_of_a_second_and_headers_of_its_attempt() -> None:
    """H5, H6, H9: nothing leaves before the body, however long it takes, no comment and no head."""
    w = world(A.answer(90.0), server='start = "early"')
    client = await ask(w)

    assert (client.started_at, client.times) == (90.0, [(90.0, "completed")])
    assert client.headers["x-ratelimit-limit-tokens"] == "of_a"
    assert client.headers["x-upstream-request-id"] == "req_of_a"


async def test_t1_t2_and_t4_do_not_apply() -> None:
    """H1: minutes between events, and before the first of them."""
    w = world(A.reply(100.0, A.created, 200.0, A.in_progress, 290.0, A.completed()))
    client = await ask(w, headers=())
    assert client.times == [(590.0, "completed")]


async def test_what_is_kept_back_for_a_body_does_not_leave_as_a_hold_ends() -> None:
    """H1, T1, R3: nothing has reached the client until its body does, so a failure is replayed after any time."""
    w = world(A.reply(A.created, 10.0, A.in_progress, 5.0, A.failed()), B.answer())
    client = await ask(w)
    assert client.times == [(15.0, "completed")]
    assert w.attempts == ["a server_error (replay)", "b completed"]


@pytest.mark.parametrize(
    ("status", "fields"), [("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}), ("cancelled", {})]
)
async def test_another_ending_is_its_outcome(status: str, fields: Any) -> None:
    """R4: a result, delivered as it is."""
    w = world(A.reply(A.created, A.ending(status, usage_object(5, 2), **fields)), B.answer())
    client = await ask(w)
    assert seen(w, client) == Seen([status], ["a"], [f"a {status}"], [f"settled {cost(5, 2)}"])


async def test_the_client_keeps_its_name_of_the_model() -> None:
    """M3: `model` alone is another."""
    w = world(A.answer(), route='model = "gpt-demo"')
    client = await ask(w)
    assert json.loads(client.body)["model"] == "gpt-test"
    assert b'"gpt-demo"' not in client.body


async def test_a_stored_response_is_found_again_by_its_route() -> None:
    """O1: the body's id."""
    w = world(A.answer())
    await ask(w, store=True)
    assert await w.records.origin("main", "resp_of_a") == Origin("main", "resp_of_a", "a", MODEL, w.maker("a").place)


# --- money ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "money"),
    [([], "voided unmetered"), ([MESSAGE], f"settled {cost(1, 3)} estimated")],
)
async def test_a_body_without_usage_is_estimated_by_its_text(output: Any, money: str) -> None:
    """B3, B4: eight bytes of text are three tokens; without output it is void."""
    w = world(A.reply(A.created, A.ending("completed", None, output=output)))
    await ask(w)
    assert w.money == [money]


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (A.reply(Break()), "stream_read_error"),
        (A.reply(), "stream_read_error"),
        (A.reply(A.failed()), "server_error"),
        (A.reply(A.created, A.error(), A.failed()), "server_error"),
        (A.status(503, "server_is_overloaded"), "server_is_overloaded"),
        (A.status(401), "upstream_auth_error"),
    ],
)
async def test_what_a_stream_is_replayed_for_a_body_is_replayed_for(first: Reply, reason: str) -> None:
    """R15."""
    w = world(first, B.answer())
    client = await ask(w)

    attempts = [f"a {reason} (replay)", "b completed"]
    assert seen(w, client) == Seen(["completed"], ["a", "b"], attempts, [f"settled {cost(5, 1)}"])


async def test_what_was_never_sent_is_replayed() -> None:
    """R15, F2."""
    w = world(Reply(refuses=True), B.answer())
    assert (await ask(w, store=True)).told == ["completed"]
    assert w.attempts == ["a upstream_connect_error (replay)", "b completed"]


async def test_a_replay_can_be_refused() -> None:
    """R10a."""
    w = world(A.reply(Break()), B.answer())
    client = await play(w, "http", headers=(("x-gateway-replay", "never"),), stream=False)
    assert (client.failure, w.attempts) == ((502, "stream_read_error"), ["a stream_read_error (disabled)"])
    assert client.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("fields", "reason"), [({"store": True}, "stored"), ({"previous_response_id": "resp_1"}, "continuation")]
)
async def test_a_stateful_request_is_not_replayed(fields: Any, reason: str) -> None:
    """R10."""
    w = world(A.reply(A.failed()), B.answer(), records=a_made_resp_1())
    client = await ask(w, **fields)
    assert seen(w, client) == Seen(["failed server_error"], ["a"], [f"a server_error ({reason})"], ["voided"])
    assert (client.status, json.loads(client.body)["status"]) == (200, "failed")


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (A.failed("invalid_prompt"), "deterministic"),
        (A.failed("some_code"), "not_retryable"),
        (A.failed("server_error", usage_object(5, 0)), "usage_observed"),
        (A.failed("server_error", output=[MESSAGE]), "result_observed"),
    ],
)
async def test_a_failed_body_is_delivered_where_a_rule_objects(failed: bytes, reason: str) -> None:
    """R4, R8, R8a: a response that failed is a response."""
    w = world(A.reply(failed), B.answer())
    client = await ask(w)
    assert (client.status, w.called) == (200, ["a"])
    assert w.attempts[0].endswith(f"({reason})")
    assert json.loads(client.body)["status"] == "failed"


async def test_an_http_status_of_the_upstream_is_delivered_as_it_is() -> None:
    """X2, R8."""
    w = world(A.status(400, "invalid_value", headers=(("x-should-retry", "true"),)), B.answer())
    client = await ask(w)
    assert (client.failure, client.headers["x-should-retry"]) == ((400, "invalid_value"), "false")
    assert w.attempts == ["a invalid_value (deterministic)"]


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "told"),
    [(599.999, (599.999, "completed")), (600.0, (600.0, "error first_event_timeout"))],
)
async def test_a_response_has_ten_minutes(takes: float, told: tuple[float, str]) -> None:
    """H1, R5: at the limit the clock wins, and nothing is replayed: it may still be generating."""
    w = world(A.reply(takes, A.completed()), B.answer())
    client = await ask(w)
    assert client.times == [told]
    assert w.called == ["a"]


async def test_the_limit_is_the_route_s() -> None:
    """H1: `response_timeout`, a 504 that no SDK repeats."""
    w = world(A.reply(Silence()), B.answer(), route="response_timeout = 3")
    client = await ask(w)
    assert (client.started_at, client.failure) == (3.0, (504, "first_event_timeout"))
    assert client.headers["x-should-retry"] == "false"
    assert seen(w, client) == Seen(
        ["error first_event_timeout"], ["a"], ["a first_event_timeout (first_event_timeout)"], ["voided"]
    )


async def test_the_second_attempt_has_its_own_ten_minutes() -> None:
    """H1: counted from each attempt's start."""
    w = world(A.reply(500.0, A.failed()), B.reply(599.0, B.completed()))
    client = await ask(w)
    assert client.times == [(1099.0, "completed")]


async def test_a_drain_cuts_it() -> None:
    """T7: 503, void."""
    w = world(A.reply(Silence()), server="drain_timeout = 2")
    async with turn(w, "http", stream=False) as client:
        await trio.sleep(1)
        w.gateway.drain()
    assert (client.started_at, client.failure) == (3.0, (503, "server_draining"))
    assert w.money == ["voided"]


async def test_a_client_that_leaves_closes_the_upstream() -> None:
    """H7, R1."""
    w = world(A.reply(A.created, Silence()), B.answer())
    async with turn(w, "http", stream=False) as client:
        await trio.sleep(5)
        client.leave()
    assert w.closed_at[0] is not None
    assert 5.0 <= w.closed_at[0] <= 6.0
    assert w.attempts == ["a client_disconnected (client_disconnected)"]


# --- bodies on the wire: an HTTP upstream alone -----------------------------------------------------------------------


@pytest.mark.over_http
async def test_the_body_is_the_upstreams_own_bytes() -> None:
    """H1, E10."""
    sent = body_of(A)
    w = world(whole(A, *(sent[at : at + 7] for at in range(0, len(sent), 7))))
    client = await ask(w)
    assert client.body == sent
    assert w.money == [f"settled {cost(5, 1)}"]


@pytest.mark.over_http
@pytest.mark.parametrize("steps", [(b'{"id"', 1.0, Break()), (b'{"id"', 1.0, Close(0)), (body_of(A)[:-5],)])
async def test_a_break_behind_the_first_byte_cuts_a_result(steps: tuple[Step, ...]) -> None:
    """H1, R4: it is not replayed."""
    w = world(whole(A, *steps), B.answer())
    client = await ask(w)
    attempts = ["a stream_read_error (result_observed)"]
    assert seen(w, client) == Seen(["error stream_read_error"], ["a"], attempts, ["voided"])
    assert client.failure == (502, "stream_read_error")


@pytest.mark.over_http
@pytest.mark.parametrize("steps", [(1.0, Break()), (1.0,), (b"", 1.0, Break())])
async def test_a_break_before_the_first_byte_is_a_read_error(steps: tuple[Step, ...]) -> None:
    """H1, R15."""
    w = world(whole(A, *steps), B.answer())
    client = await ask(w)
    assert w.attempts == ["a stream_read_error (replay)", "b completed"]
    assert client.times == [(1.0, "completed")]


@pytest.mark.over_http
@pytest.mark.parametrize(
    "reply",
    [
        whole(A, b"<html>overloaded</html>"),
        whole(A, b'{"error":{"code":"invalid_prompt","message":"no"}}'),
        whole(A, b"[]"),
        A.reply(A.created, A.completed(), is_verbatim=True),
        whole(A, b"", status=302),
    ],
    ids=["html", "an error object", "a list", "an event stream", "a redirect"],
)
async def test_what_is_no_response_is_a_bad_one(reply: Reply) -> None:
    """P9: replayed; alone it is told."""
    w = world(reply, B.answer())
    client = await ask(w)
    assert (client.told, w.attempts[0]) == (["completed"], "a upstream_bad_response (replay)")
    assert (await ask(world(reply))).failure == (502, "upstream_bad_response")


@pytest.mark.over_http
@pytest.mark.parametrize(("over", "status"), [(0, 200), (1, 502)])
async def test_a_body_is_bounded(over: int, status: int) -> None:
    """H1, P7, R7: nothing of a larger one leaves, and it would be as large on the next route."""
    body = body_of(A)
    w = world(whole(A, body), B.answer(), limits=f"event_bytes_max = {len(body) - over}")
    client = await ask(w)
    assert (client.status, w.called) == (status, ["a"])
    if over:
        assert client.failure == (502, "upstream_stream_buffer_limit")
        assert w.attempts == ["a upstream_stream_buffer_limit (buffer_overflow)"]


@pytest.mark.over_http
async def test_what_goes_up_is_the_clients_own_request() -> None:
    """H1, H3, P8: no `stream` is set, and no events are asked for."""
    w = world(A.answer())
    await ask(w)
    headers = dict(w.calls[0].headers)
    assert json.loads(w.calls[0].body) == {"model": "gpt-test", "input": "hi", "store": False, "stream": False}
    assert (headers["accept"], headers["accept-encoding"]) == ("application/json", "identity")


@pytest.mark.over_http
async def test_json_to_a_client_that_streams_is_a_bad_answer() -> None:
    """P9: the other way round; R4: unless it shows that a response was made, or metered."""
    for fields, attempts in (
        ({"usage": None, "output": []}, ["a upstream_bad_response (replay)", "b completed"]),
        ({"output": []}, ["a upstream_bad_response (usage_observed)"]),
        ({"usage": None}, ["a upstream_bad_response (result_observed)"]),
    ):
        w = world(whole(A, body_of(A, "completed", **{"output": [{"id": "msg_1"}], **fields})), B.answer())
        await play(w, "http")
        assert w.attempts == attempts
