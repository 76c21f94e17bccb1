"""M3: the client reads its own model's name."""

from __future__ import annotations

import json

import pytest

from gateway.core.alias import with_model
from gateway.core.events import Event
from gateway.core.sse import read_block


def _event(block: bytes) -> Event:
    event = read_block(block)
    assert event is not None
    return event


CREATED = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"r", "model" : "up-1","n":1.0}}\n\n'
)


def test_the_name_is_replaced_and_every_other_byte_stays() -> None:
    """M3, E10."""
    event = with_model(_event(CREATED), "mine")
    assert event.block == CREATED.replace(b'"up-1"', b'"mine"')
    assert event.data == CREATED[len(b"event: response.created\ndata: ") : -2].replace(b'"up-1"', b'"mine"')
    assert json.loads(event.data) == event.body


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.output_text.delta","delta":"up-1","response":{"model":"up-1"}}',
        b'{"type":"error","error":{"model":"up-1"},"response":{"model":"up-1"}}',
        b'{"type":"response.completed","response":null}',
        b'{"type":"response.completed","response":{"model":null}}',
        b'{"type":"response.completed","response":{"id":"r"}}',
        b'{"type":"response.completed","model":"up-1"}',
        b'{"type":"response.completed","response":{"model":"mine"}}',
        b'{"type":"response.completed","response":{"model":"m\\u0069ne"}}',
        b'{"type":"response.completed","response":{"model":"up-1","model":"up-2"}}',
        b'{"type":"response.completed","response":{"model":"\xff"}}',
    ],
)
def test_where_there_is_no_name_to_replace_the_event_stays_as_it_came(data: bytes) -> None:
    """M3: nothing else changes."""
    event = _event(b"data: " + data + b"\n\n")
    assert with_model(event, "mine") == event


def test_a_payload_of_several_lines_stays_one_event() -> None:
    """M3, P5."""
    block = b'event: response.created\ndata: {"type" : "response.created",\ndata: "response": {"model":"up-1"}}\n\n'
    event = with_model(_event(block), "mine")
    assert event.block == block.replace(b"up-1", b"mine")
    assert read_block(event.block) == event


def test_only_the_payload_of_a_block_is_respelled() -> None:
    """M3, E10: another field of the block stays as it came, whatever stands in it."""
    payload = b'{"type":"response.created","response":{"model":"up-1"}}'
    block = b"data: " + payload + b"\nid: " + payload + b"\n: " + payload + b"\n\n"
    event = with_model(_event(block), "mine")
    assert event.block == block.replace(b"up-1", b"mine", 1)


@pytest.mark.parametrize("field", [b": ", b"id: ", b"x-data: ", b": data: ", b"id"])
@pytest.mark.parametrize("lead", [b"data: ", b"data:"])
def test_what_repeats_the_payload_before_it_stays_as_it_came(field: bytes, lead: bytes) -> None:
    """M3, E10."""
    payload = b'{"type":"response.created","response":{"model":"up-1"}}'
    before, behind = field + payload + b"\r\n", b"\r\n" + field + payload + b"\n\n"
    event = with_model(_event(before + lead + payload + behind), "mine")
    assert event.block == before + lead + payload.replace(b"up-1", b"mine") + behind
    assert read_block(event.block) == event


@pytest.mark.parametrize("lead", [b"data: ", b"data:", b"data:  "])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_a_payload_of_one_line_is_found_behind_any_line_end(lead: bytes, line_end: bytes) -> None:
    """M3, P1, P5: one space behind the colon is not the payload's, a second one is."""
    payload = b'{"type":"response.created","response":{"model":"up-1"}}'
    for before in (b"", b"event: response.created" + line_end):
        block = before + lead + payload + line_end * 2
        event = with_model(_event(block), "mine")
        assert event.block == block.replace(b"up-1", b"mine")


def test_a_payload_of_several_lines_that_stands_behind_its_field_in_one_piece_stays_one_event() -> None:
    """M3, P5: the piece's second line says nothing."""
    first, second = b'{"type":"response.created",', b'"response":{"model":"up-1"}}'
    block = b"data: " + first + b"\n" + second + b"\ndata: " + second + b"\n\n"
    event = with_model(_event(block), "mine")
    again = read_block(event.block)
    assert again is not None
    assert again.body == event.body == {"type": "response.created", "response": {"model": "mine"}}


def test_a_payload_of_several_lines_that_stands_elsewhere_in_one_piece_stays_one_event() -> None:
    """M3, P5: the second line of the piece is a field that nobody knows, and the payload's two lines lie behind."""
    first, second = b'{"type":"response.created",', b'"response":{"model":"up-1"}}'
    block = b"id: " + first + b"\n" + second + b"\ndata: " + first + b"\ndata: " + second + b"\n\n"
    event = with_model(_event(block), "mine")
    again = read_block(event.block)
    assert again is not None
    assert (again.data, again.body) == (event.data, event.body)
    assert event.data == first + b"\n" + second.replace(b"up-1", b"mine")
