"""What a turn's events tell of their origin, event by event (O1, O3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway import limits
from gateway.core.marks import CONVERSATION, ITEM, SEALED, mark
from gateway.core.messages import Deliver
from gateway.turn.origins import Trace, Traces
from support.machine import COMPLETED, CREATED, DELTA, KEEPALIVE, event, event_of


def done(**item: Any) -> Any:
    return event("response.output_item.done", item=item)


def test_a_response_is_named_once() -> None:
    """O1: by the first event that names it, whatever later ones say."""
    traces = Traces(is_stored=True)
    assert traces.new(Deliver([KEEPALIVE, DELTA], None)) is None
    assert traces.new(Deliver([CREATED, event("response.in_progress", response={"id": "resp_2"})], None)) == Trace(
        "resp_1", ()
    )
    assert traces.new(Deliver([event("response.in_progress", response={"id": "resp_2"}), COMPLETED], None)) is None


def test_what_names_no_response_leaves_it_to_the_next() -> None:
    """O1, E8."""
    traces = Traces(is_stored=False)
    assert traces.new(Deliver([event("response.created", response={})], None)) is None
    assert traces.new(Deliver([CREATED], None)) == Trace("resp_1", ())


def test_marks_are_told_once_and_in_order() -> None:
    """O3: an item that is done, and again in the terminal event's output."""
    traces = Traces(is_stored=True)
    item = {"id": "rs_1", "encrypted_content": "x"}
    assert traces.new(Deliver([done(**item), done(id="msg_1"), done(id="msg_1")], None)) == Trace(
        None, (mark(SEALED, "x"), mark(ITEM, "rs_1"), mark(ITEM, "msg_1"))
    )
    ended = event("response.completed", response={"id": "resp_1", "output": [item, {"id": "msg_2"}]})
    assert traces.new(Deliver([ended], None)) == Trace("resp_1", (mark(ITEM, "msg_2"),))
    assert traces.new(Deliver([ended], None)) is None


def test_a_conversation_is_known_by_its_id() -> None:
    """O2."""
    told = Traces(is_stored=True).new(
        Deliver([event("response.created", response={"id": "r", "conversation": {"id": "c"}})], None)
    )
    assert told == Trace("r", (mark(CONVERSATION, "c"),))


def test_of_what_is_stored_nowhere_only_what_it_sealed_is_known_again() -> None:
    """O3: nobody can resolve its ids later."""
    traces = Traces(is_stored=False)
    assert traces.new(Deliver([done(id="msg_1")], None)) is None
    assert traces.new(Deliver([done(id="rs_1", encrypted_content="x")], None)) == Trace(None, (mark(SEALED, "x"),))


@pytest.mark.parametrize(("more", "is_traced"), [(-1, True), (0, True), (1, False)])
@pytest.mark.parametrize("is_stored", [True, False])
def test_an_item_of_megabytes_is_left_to_the_terminal_event(more: int, is_traced: bool, is_stored: bool) -> None:
    """O3: it holds an image; it is not parsed for a name."""
    item = {"id": "ig_1", "encrypted_content": "x", "result": ""}
    size = len(json.dumps({"type": "response.output_item.done", "item": item}))
    item["result"] = "A" * (limits.TRACED_ITEM_BYTES_MAX + more - size)
    one = done(**item)
    assert len(one.data) == limits.TRACED_ITEM_BYTES_MAX + more
    assert (Traces(is_stored=is_stored).new(Deliver([one], None)) is not None) is is_traced


def test_a_turn_has_so_many_marks_and_no_more() -> None:
    """O3: the first of them."""
    items = [{"id": f"msg_{number}"} for number in range(limits.TURN_MARKS_MAX + 2)]
    traces = Traces(is_stored=True)
    assert traces.new(Deliver([event("response.completed", response={"output": items[:3]})], None)) is not None
    told = traces.new(Deliver([event("response.completed", response={"output": items})], None))
    assert told == Trace(None, tuple(mark(ITEM, item["id"]) for item in items[3 : limits.TURN_MARKS_MAX]))
    assert traces.new(Deliver([done(id="another")], None)) is None


def test_nothing_an_upstream_sends_raises() -> None:
    """E8."""
    odd = [
        event("response.completed", response={"output": "text", "conversation": 5, "id": 7}),
        event("response.completed", response=None),
        event("response.output_item.done", item=["x"]),
        event_of(b'{"type":"response.output_item.done","item":{"id":"\xff"}}'),
    ]
    assert Traces(is_stored=True).new(Deliver([*odd, done(id="msg_1")], None)) is not None
