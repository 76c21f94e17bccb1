"""The `websockets` library against a real gateway process."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from e2e.scenarios import KEY, TEXT, Stage
from support.processes import PATIENCE_SECONDS

TERMINAL = {"response.completed", "response.failed", "response.incomplete", "error"}


@pytest.fixture
def socket(stage: Stage) -> Iterator[Connection]:
    with connect(stage.websocket_url, additional_headers={"Authorization": f"Bearer {KEY}"}, max_size=None) as socket:
        yield socket


def turn(socket: Connection, model: str, **fields: Any) -> list[dict[str, Any]]:
    """Play a turn; its frames."""
    create = {"type": "response.create", "model": model, "input": "hello", "store": False, **fields}
    socket.send(json.dumps(create))
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["type"] not in TERMINAL:
        frames.append(json.loads(socket.recv(PATIENCE_SECONDS)))
    return frames


def text_of(frames: list[dict[str, Any]]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "response.output_text.delta")


def test_turns_follow_each_other_on_one_connection_whatever_happens_to_them(socket: Connection) -> None:
    assert text_of(turn(socket, "plain")) == TEXT
    assert turn(socket, "broken-before-output")[-1]["code"] == "stream_read_error"
    assert turn(socket, "nobody-serves-it")[-1]["error"]["code"] == "model_not_found"
    assert text_of(turn(socket, "replayed")) == TEXT


def test_a_replayed_turn_shows_one_response_only(socket: Connection) -> None:
    frames = turn(socket, "replayed", stream_id="lane")
    assert {frame["response"]["id"] for frame in frames if "response" in frame} == {"resp_answer"}
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert {frame["stream_id"] for frame in frames} == {"lane"}


def test_a_warm_up_and_what_goes_on_from_it(socket: Connection, stage: Stage) -> None:
    """W9, W10: megabytes, read beside the loop, go up with each turn that goes on from them; the first word is free."""
    calls = stage.scripts["plain-1"].calls
    before = len(calls)
    prepared = {"type": "message", "role": "user", "content": "x" * 3_000_000}
    warmed = turn(socket, "plain", generate=False, input=[prepared], instructions="be brief")
    assert [frame["type"] for frame in warmed] == ["response.created", "response.completed"]
    assert warmed[-1]["response"]["usage"]["total_tokens"] == 0
    assert len(calls) == before

    first = turn(socket, "plain", previous_response_id=warmed[-1]["response"]["id"], input="one")
    second = turn(socket, "plain", previous_response_id=first[-1]["response"]["id"], input="two")
    assert [text_of(frames) for frames in (first, second)] == [TEXT, TEXT]
    user = [{"type": "message", "role": "user", "content": text} for text in ("one", "two")]
    assert calls[before].fields["input"] == [prepared, user[0]]
    assert calls[before + 1].fields["input"] == [prepared, user[0], *first[-1]["response"]["output"], user[1]]
    assert calls[before + 1].fields["instructions"] == "be brief"


def test_what_is_remembered_goes_with_the_connection(socket: Connection, stage: Stage) -> None:
    """W10, O2: agents send everything again, which is a new turn."""
    answered = turn(socket, "plain")
    headers = {"Authorization": f"Bearer {KEY}"}
    with connect(stage.websocket_url, additional_headers=headers) as other:
        refused = turn(other, "plain", previous_response_id=answered[-1]["response"]["id"])
        assert (refused[-1]["status"], refused[-1]["error"]["code"]) == (400, "previous_response_not_found")
        assert text_of(turn(other, "plain")) == TEXT


def test_a_create_in_fragments_is_one_message(socket: Connection) -> None:
    """W1: with pings between them."""
    create = json.dumps({"type": "response.create", "model": "plain", "input": "é" * 100_000, "store": False})

    def fragments() -> Iterator[str]:
        for start in range(0, len(create), 9_999):
            socket.ping()
            yield create[start : start + 9_999]

    socket.send(fragments())
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["type"] not in TERMINAL:
        frames.append(json.loads(socket.recv(PATIENCE_SECONDS)))
    assert text_of(frames) == TEXT


def test_pings_are_answered(socket: Connection) -> None:
    """W7."""
    assert socket.ping().wait(PATIENCE_SECONDS)


def test_a_bad_key_is_refused_before_the_upgrade(stage: Stage) -> None:
    """W1."""
    with pytest.raises(InvalidStatus) as raised:
        connect(stage.websocket_url, additional_headers={"Authorization": "Bearer nobody"})
    assert raised.value.response.status_code == 401
    assert json.loads(raised.value.response.body)["error"]["code"] == "invalid_api_key"


def test_compression_that_a_client_offers_does_no_harm(stage: Stage) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with connect(stage.websocket_url, additional_headers=headers, compression="deflate") as socket:
        assert text_of(turn(socket, "plain", metadata={"padding": "x" * 100_000})) == TEXT
