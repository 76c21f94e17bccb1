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
