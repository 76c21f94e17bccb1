"""Turns and refused frames on one WebSocket (W2–W5, W8, X4)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

from gateway.lock.driver import Client, connect
from gateway.lock.virtual import virtual_run
from gateway.upstream.scripted import Break, Reply
from support.gateways import World, create_frame, world
from support.voices import ANSWERED, A, B

pytestmark = pytest.mark.trio(run=virtual_run)

SLOW = A.reply(A.created, 1.0, A.delta(), 1.0, A.delta("more"), 1.0, A.completed())
SLOW_ANSWER = ["created", "output_text.delta", "output_text.delta", "completed"]


@asynccontextmanager
async def socket(w: World) -> AsyncIterator[Client]:
    """A WebSocket that its client leaves at the block's end."""
    async with connect(w.app, "websocket") as client:
        yield client
        await trio.sleep(1.0)
        client.leave()
    assert client.crash is None
    w.assert_at_rest()


async def told(client: Client, *labels: str) -> None:
    """Wait until the client was told just this."""
    await client.wait_for(lambda client: len(client.told) >= len(labels))
    assert client.told == list(labels)


async def one_turn(client: Client, **fields: Any) -> None:
    """A turn to its end: the connection is usable."""
    before = len(client.told)
    client.send_text(create_frame(**fields))
    await client.wait_for(lambda client: len(client.told) == before + len(ANSWERED))
    assert client.told[before:] == ANSWERED


def last(client: Client) -> dict[str, Any]:
    """The last frame."""
    return client.events[-1].payload


# --- frames that become no turn (W5) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("nope", "invalid_json", None),
        ("", "invalid_json", None),
        ("[]", "invalid_json", None),
        ('{"type":"response.create","model":"a","model":"b"}', "invalid_json", None),
        ('{"type":"response.create","x":NaN}', "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        (b"\x00\x01", "invalid_request", None),
        (b"", "invalid_request", None),
        (json.dumps(create_frame()).encode(), "invalid_request", None),
        ({}, "invalid_request", "type"),
        ({"type": 7}, "invalid_request", "type"),
        ({"type": "response.cancel"}, "unsupported_event", "type"),
        ({"type": "response.append"}, "unsupported_event", "type"),
        (create_frame(background=True), "unsupported_parameter", "background"),
        (create_frame(stream_id="a b"), "invalid_stream_id", "stream_id"),
        (create_frame(model=...), "invalid_request", "model"),
        (create_frame(model="gpt-other"), "model_not_found", "model"),
    ],
)
async def test_a_frame_that_becomes_no_turn_is_answered_and_the_connection_goes_on(
    message: Any, code: str, param: str | None
) -> None:
    """W5, W2, X4: one error frame with its status; no upstream call, nothing reserved."""
    w = world(A.answer())
    async with socket(w) as client:
        client.send_bytes(message) if isinstance(message, bytes) else client.send_text(message)
        await told(client, f"error {code}")
        frame = last(client)
        assert (w.calls, w.turns, w.reserved) == ([], [], [])
        await one_turn(client)

    assert frame["error"]["code"] == frame["code"] == code
    assert frame["error"]["param"] == frame["param"] == param
    assert isinstance(frame["status"], int)
    assert isinstance(frame["message"], str)
    assert frame["error"]["request_id"].startswith("req_1")


async def test_a_refused_frame_s_answer_repeats_what_tells_it_apart() -> None:
    """W5: `event_id` and `stream_id`."""
    w = world(A.answer())
    async with socket(w) as client:
        for number, frame in enumerate([{"type": "response.cancel"}, create_frame(model="gpt-other"), {}]):
            client.send_text({**frame, "event_id": f"event-{number}", "stream_id": "main"})
        await client.wait_for(lambda client: len(client.told) == 3)

    assert [(e.payload["event_id"], e.payload["stream_id"]) for e in client.events] == [
        (f"event-{number}", "main") for number in range(3)
    ]


async def test_a_steer_fails_with_its_input_returned() -> None:
    """W2: the client has to send it again."""
    w = world(A.answer())
    steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": [{"role": "user", "content": "é"}]}
    async with socket(w) as client:
        client.send_text({**steer, "event_id": "e", "stream_id": "main"})
        await client.wait_for(lambda client: len(client.events) == 1)
        frame = last(client)
        await one_turn(client)

    assert frame["type"] == "response.steer.failed"
    assert frame["steer"] == {"previous_response_id": "resp_1", "input": steer["input"]}
    assert frame["error"]["code"] == "steering_not_supported"
    assert (frame["event_id"], frame["stream_id"]) == ("e", "main")


@pytest.mark.parametrize("message", ["x" * 1001, b"x" * 1001, "é" * 501])
async def test_a_frame_that_is_too_large_is_told_so_and_the_connection_is_closed(message: str | bytes) -> None:
    """W1: an error frame, then close 1009."""
    w = world(A.answer(), limits="body_bytes_max = 1000")
    async with socket(w) as client:
        client.send_bytes(message) if isinstance(message, bytes) else client.send_text(message)
        await client.wait_for(lambda client: client.close_code is not None)

    assert (client.told, last(client)["status"]) == (["error payload_too_large"], 413)
    assert client.close_code == 1009
    assert w.calls == []


async def test_a_frame_that_is_too_large_waits_for_the_running_turn() -> None:
    """W5: its answer would be taken for the turn's end."""
    w = world(SLOW, limits="body_bytes_max = 1000")
    async with socket(w) as client:
        client.send_text(create_frame())
        await trio.sleep(0.5)
        client.send_text("x" * 1001)
        await client.wait_for(lambda client: client.close_code is not None)

    assert client.told == [*SLOW_ANSWER, "error payload_too_large"]
    assert (client.closed_at, client.close_code) == (3.0, 1009)


async def test_nothing_is_sent_behind_a_close() -> None:
    """W1, T7: frames that wait behind the one that is too large have no answer any more."""
    for drains in (False, True):
        w = world(SLOW, limits="body_bytes_max = 1000")
        async with socket(w) as client:
            client.send_text(create_frame())
            await trio.sleep(0.5)
            for message in ("x" * 1001, "nope", create_frame(), "nope"):
                client.send_text(message)
            if drains:
                w.gateway.drain()
            await client.wait_for(lambda client: client.close_code is not None)

        assert client.told == [*SLOW_ANSWER, "error payload_too_large"]
        assert [message["type"] for _, message in client.sent][-1] == "websocket.close"


# --- ids and splices (W1, W8) ---------------------------------------------------------------------------------------


async def test_turn_n_of_connection_r_is_r_n_on_record_and_in_its_error_frames() -> None:
    """W1: refused frames are the connection's own."""
    w = world([A.answer(), Reply((Break(),)), A.answer()])
    async with socket(w) as client:
        await one_turn(client)
        client.send_text("nope")
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.told[-1] == "error stream_read_error")
        await one_turn(client)

    assert [turn.opening.turn_id for turn in w.turns] == ["req_1.1", "req_1.2", "req_1.3"]
    assert [e.payload["error"]["request_id"] for e in client.events if e.type == "error"] == ["req_1", "req_1.2"]


@pytest.mark.parametrize(
    "reply",
    [
        A.answer(),
        A.reply(A.created, 10.0, A.error()),
        A.reply(A.failed()),
        A.status(400),
        Reply((Break(),)),
        A.reply(A.created, Break()),
    ],
    ids=["an answer", "an error", "a failure", "a status", "no answer", "a break"],
)
async def test_the_stream_id_stands_in_every_frame_of_its_response_and_in_no_other(reply: Reply) -> None:
    """W8: by splice; in the gateway's own failures too."""
    w = world([reply, A.answer()])
    async with socket(w) as client:
        client.send_text(create_frame(stream_id="lane-1"))
        await client.wait_for(lambda client: client.has_last_word)
        first = len(client.events)
        await one_turn(client)

    assert [event.payload.get("stream_id") for event in client.events] == [
        *["lane-1"] * first,
        *[None] * len(ANSWERED),
    ]


async def test_but_for_the_stream_id_a_frame_is_the_upstream_s_payload_to_the_byte() -> None:
    """E10, W8."""
    delta = '{"type" : "response.output_text.delta", "delta":"é\u2028", "n":1.50, "b":1e2 }'
    steps = (A.created, f"data: {delta}\n\n".encode(), A.completed())
    w = world(A.reply(*steps))
    async with socket(w) as client:
        for fields in ({}, {"stream_id": "s"}):
            client.send_text(create_frame(**fields))
        await client.wait_for(lambda client: client.told.count("completed") == 2)

    frames = [data.decode() for _, data in client.pieces]
    assert frames[1] == delta
    assert frames[4] == '{"stream_id":"s",' + delta[1:]


@pytest.mark.parametrize("stream", [True, False, None, "nonsense"])
async def test_a_create_always_streams(stream: Any) -> None:
    """W2: what `stream` says is ignored, and the upstream is asked to stream."""
    w = world(A.answer())
    async with socket(w) as client:
        await one_turn(client, stream=stream)

    assert w.calls[0].fields["stream"] is True


async def test_the_upstream_gets_the_frame_s_bytes_without_what_is_the_socket_s() -> None:
    """H3; case 51: `type`, `event_id`, `stream_id` are cut; the rest as it came, on the replay too."""
    frame = (
        '{"type":"response.create", "stream_id":"s","z":1.0,\n "a" : 1e2,"event_id":"e","model":"gpt-test",'
        '"input":"\\u00e9 é","store":false}'
    )
    body = b'{"stream":true,"z":1.0,\n "a" : 1e2,"model":"gpt-test","input":"\\u00e9 \xc3\xa9","store":false}'
    w = world(A.reply(Break()), B.answer())
    async with socket(w) as client:
        client.send_text(frame)
        await client.wait_for(lambda client: client.has_last_word)

    assert json.loads(w.calls[0].body) == json.loads(body)
    assert w.calls[0].body == w.calls[1].body
    assert w.calls[0].body.replace(b" ", b"").replace(b"\n", b"") == body.replace(b" ", b"").replace(b"\n", b"")
