"""Where a route's transport shows: X5's errors that are a status, requests that are too large for it (C5), mixes."""

from __future__ import annotations

import json

import pytest

from gateway import limits
from gateway.lock.driver import post
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import JSON_BODY, Break, Close, Reply, Step
from gateway.upstream.scripts import response_object, usage_object
from support.gateways import Seen, create, play, seen, words_of_failure, world
from support.virtual import in_every_order
from support.voices import ANSWERED, NEUTRAL, A, B, C

HELD = ["created", "in_progress"]


def frame(status: int, code: str = "some_code") -> bytes:
    """An upstream's refusal on a WebSocket; its error object has spellings of its own."""
    error = f'{{"type" : "t", "code": "{code}",  "message": "caf\\u00e9 of_a", "param": null, "n": 1.50}}'
    return f'event: error\ndata: {{"type":"error","status":{status},"error":{error}}}\n\n'.encode()


def object_of(block: bytes) -> bytes:
    return block[block.index(b'"error":') + 8 : block.rindex(b"}")]


@pytest.mark.parametrize("transport", ["sse", "websocket"])
@in_every_order
async def test_h4_a_client_s_own_headers_go_up_with_its_turn(door: str, transport: str) -> None:
    """H4: with the request or the handshake, and with nothing that is not the upstream's to see."""
    w = world(A.answer(), transport=transport)
    await play(w, door, headers=[("openai-beta", "responses=v1"), ("cookie", "a=b")])
    sent = dict(w.calls[0].headers)
    assert (sent.get("openai-beta"), sent.get("cookie")) == ("responses=v1", None)


# --- X5 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429, 500, 501, 503, 504, 599])
@in_every_order
async def test_x5_an_error_frame_before_any_event_is_its_status_on_http(status: int) -> None:
    """X5: the error object byte for byte, and as an HTTP status it is judged."""
    client = await play(world(A.reply(frame(status)), transport="websocket"), "http")
    assert (client.status, client.body) == (status, b'{"error":' + object_of(frame(status)) + b"}")


@in_every_order
async def test_x5_on_a_websocket_it_is_the_frame_itself() -> None:
    """E10, case 39: byte for byte."""
    block = frame(400, "previous_response_not_found")
    client = await play(world(A.reply(block), B.answer(), transport="websocket"), "websocket")
    assert [data for _, data in client.pieces] == [block.split(b"data: ")[1].strip()]


@pytest.mark.parametrize("status", [401, 402, 403])
@in_every_order
async def test_f2_an_error_frame_that_blames_the_gateways_account_is_not_the_clients(door: str, status: int) -> None:
    """F2, X5: replayed, and in the gateway's own words where it cannot be."""
    w = world(A.reply(frame(status)), B.answer(), transport="websocket")
    assert seen(w, await play(w, door)).attempts == ["a upstream_auth_error (replay)", "b completed"]
    client = await play(world(A.reply(frame(status)), transport="websocket"), door)
    assert client.failure == (502, "upstream_auth_error")


@pytest.mark.parametrize(
    ("status", "reason"),
    [(400, "deterministic"), (429, "replay"), (500, "replay"), (501, "not_retryable"), (504, "first_event_timeout")],
)
@in_every_order
async def test_x5_it_is_judged_as_that_status(door: str, status: int, reason: str) -> None:
    """X5, F: as the same status over HTTP is."""
    for reply, transport in ((A.reply(frame(status)), "websocket"), (A.status(status), "sse")):
        w = world(reply, B.answer(), transport=transport)
        await play(w, door)
        assert w.attempts[0] == f"a some_code ({reason})"


@pytest.mark.parametrize("before", [A.created, NEUTRAL], ids=["lifecycle", "neutral"])
@in_every_order
async def test_x5_behind_another_event_it_is_an_event(before: bytes) -> None:
    """X5: "before any held event"."""
    client = await play(world(A.reply(before, frame(400)), transport="websocket"), "http")
    assert (client.status, client.told[-1]) == (200, "error some_code")


@in_every_order
async def test_x5_behind_headers_it_is_an_event() -> None:
    """X5, H9: headers that left early cannot be taken back."""
    client = await play(world(A.reply(frame(400)), transport="websocket", server='start = "early"'), "http")
    assert (client.status, client.told) == (200, ["error some_code"])
    assert object_of(frame(400)) in client.body


@in_every_order
async def test_x5_a_failed_that_follows_tells_more_than_a_status(door: str) -> None:
    """E6, R4: usage in it is seen, and nothing is replayed."""
    failed = A.failed("server_error", usage_object(7, 0))
    w = world(A.reply(frame(500), failed), B.answer(), transport="websocket")
    client = await play(w, door)
    told = ["error some_code", "failed server_error"] if door == "http" else ["failed server_error"]
    assert (client.told, w.called, w.money) == (told, ["a"], ["settled 7000 failed_metered"])


# --- F4 through the whole app ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 1013, 4402])
@in_every_order
async def test_f4_a_close_that_another_route_may_survive_is_replayed(door: str, code: int) -> None:
    """F4, R15, F2; case 17."""
    w = world(A.reply(Close(code)), B.answer(), transport="websocket")
    outcome = "upstream_bad_response" if code == 4402 else "stream_read_error"
    attempts = [f"a {outcome} (replay)", "b completed"]
    assert seen(w, await play(w, door)) == Seen(ANSWERED, ["a", "b"], attempts, ["settled 7000"])


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 4000])
@in_every_order
async def test_f4_a_close_that_would_come_again_is_told(door: str, code: int) -> None:
    """F4, R8; case 35."""
    w = world(A.reply(Close(code)), B.answer(), transport="websocket")
    client = await play(w, door)
    attempts = ["a upstream_bad_response (deterministic)"]
    assert seen(w, client) == Seen(["error upstream_bad_response"], ["a"], attempts, ["voided"])
    assert client.failure[0] == 502


@pytest.mark.parametrize("steps", [[Close(1000)], [Break()], [Close(1012)]], ids=str)
@in_every_order
async def test_case_17_a_close_in_mid_answer_is_a_failure(door: str, steps: list[Step]) -> None:
    """Case 17, R2."""
    w = world(A.reply(A.prelude, A.delta("half"), *steps), B.answer(), transport="websocket")
    client = await play(w, door)
    assert client.told == [*HELD, "output_text.delta", *words_of_failure(door, "stream_read_error")]


# --- C5 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("excess", "called"), [(0, ["a"]), (1, ["b"])])
@in_every_order
async def test_c5_a_request_that_is_too_large_for_a_route_goes_to_another(
    door: str, excess: int, called: list[str]
) -> None:
    """C5; case 35: measured as it would be sent, to the byte; from the start, without an attempt on the first."""
    probe = world(A.answer(), transport="websocket")
    await play(probe, door, input="北" * 900)
    size = len(probe.calls[0].body)
    mixed = f"request_bytes_max = {size - excess}\n"
    w = world(A.answer(), B.answer(), transport="websocket", route_extras={"a": mixed})
    client = await play(w, door, input="北" * 900)
    assert (w.called, client.told) == (called, ANSWERED)


@in_every_order
async def test_c5_where_no_route_carries_it_the_request_is_refused(door: str) -> None:
    """C5, X: 413 before any reservation, and the next request is served."""
    w = world(A.answer(), B.answer(), transport="websocket", route="request_bytes_max = 1000")
    client = await play(w, door, input="x" * 1000)
    assert (client.failure, w.called, w.reserved) == ((413, "payload_too_large"), [], [])
    assert (await play(w, door)).told == ANSWERED


@in_every_order
async def test_c5_a_replay_goes_to_no_route_that_is_too_small() -> None:
    """C5, R14."""
    w = world(A.reply(Break()), B.answer(), transport="websocket", route_extras={"b": "request_bytes_max = 1000"})
    await play(w, "http", input="x" * 1000)
    assert w.attempts == ["a stream_read_error (no_route_left)"]


async def _sixteen_mebibytes(excess: int) -> tuple[int, list[int]]:
    w = world(A.answer(), transport="websocket")
    empty = len(json.dumps({"type": "response.create", **{k: v for k, v in create(input="").items() if k != "stream"}}))
    client = await post(w.app, create(input="x" * (limits.WEBSOCKET_REQUEST_BYTES_MAX - empty - 8 + excess)))
    return client.status, [len(call.body) for call in w.calls]


@pytest.mark.trio(run=virtual_run)
async def test_c5_a_websocket_carries_sixteen_mebibytes_by_default() -> None:
    """C5: what OpenAI takes, to the byte."""
    within, beyond = await _sixteen_mebibytes(0), await _sixteen_mebibytes(64)
    assert within[0] == 200
    assert limits.WEBSOCKET_REQUEST_BYTES_MAX - 64 < within[1][0] <= limits.WEBSOCKET_REQUEST_BYTES_MAX
    assert beyond == (413, [])


# --- turns that follow each other -----------------------------------------------------------------------------------


@in_every_order
async def test_case_37_a_turn_that_was_left_answers_no_other(door: str) -> None:
    """Case 37: the socket with the unfinished response is closed, and the next turn has one of its own."""
    late: list[Step] = [A.prelude, 5.0, A.delta("late"), A.completed()]
    w = world([Reply(late, headers=A.headers), C.answer()], transport="websocket", route="idle_timeout = 1")
    first = await play(w, door)
    second = await play(w, door)
    assert (first.told[-1].split()[-1], second.told) == ("stream_idle_timeout", ANSWERED)
    assert b"of_a" not in second.body


@in_every_order
async def test_two_routes_of_one_model_may_differ_in_transport(door: str) -> None:
    """C5: any mix; the replay has the body of its own transport."""
    w = world(A.reply(Break()), B.answer(), route_extras={"a": 'transport = "websocket"'})
    client = await play(w, door)
    assert (client.told, w.called) == (ANSWERED, ["a", "b"])
    first, second = (call.fields for call in w.calls)
    assert (first.get("type"), second.get("type"), second.get("stream")) == ("response.create", None, True)


@in_every_order
async def test_a_sockets_first_response_alone_has_the_headers_of_its_handshake() -> None:
    """H5: they speak of the turn that opened it, not of the next."""
    w = world([A.answer(), C.answer()], transport="websocket")
    first, second = [await play(w, "http") for _ in range(2)]
    assert first.headers["x-upstream-request-id"] == "req_of_a"
    assert "x-upstream-request-id" not in second.headers


@in_every_order
async def test_m3_a_frame_shows_the_clients_name_of_the_model(door: str) -> None:
    """M3: by splice, in frames as in blocks."""
    w = world(A.answer(), transport="websocket", route='model = "upstream-name"')
    client = await play(w, door)
    models = {heard.payload["response"]["model"] for heard in client.events if "response" in heard.payload}
    assert (w.calls[0].fields["model"], models) == ("upstream-name", {"gpt-test"})


# --- what a WebSocket cannot run ------------------------------------------------------------------------------------


@in_every_order
async def test_s3_a_background_turn_goes_over_http_to_a_route_whose_turns_do_not() -> None:
    """C5, B9, H3: from the start, as it came; a turn beside it goes up in a frame."""
    w = world([A.answer(), A.answer()], transport="websocket")
    background = await play(w, "http", background=True, store=True)
    await play(w, "http", background=False)
    first, second = w.scripts["a"].calls
    assert (background.status, background.told) == (200, ANSWERED)
    assert first.fields == create(background=True, store=True)
    assert (second.fields["type"], "stream" in second.fields) == ("response.create", False)


@in_every_order
async def test_s3_a_background_turn_without_a_stream_is_one_body_over_http() -> None:
    """C5, B9, H1."""
    queued = response_object("resp_of_a", "queued", background=True)
    w = world(Reply((json.dumps(queued).encode(),), headers=JSON_BODY), transport="websocket")
    client = await post(w.app, {**create(background=True, store=True), "stream": False})
    assert (client.status, json.loads(client.body)) == (200, queued)
    (call,) = w.scripts["a"].calls
    assert (call.fields["background"], call.fields["stream"], "type" in call.fields) == (True, False, False)
