"""What is heard of a turn, and what is remembered of it (W10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.contents import contents_of
from gateway.core.continuation import AROUND_ITEMS_BYTES, Heard, Remembered, is_self_contained, remembered
from gateway.core.eligibility import StatePolicy, eligibility
from gateway.core.events import Event
from gateway.core.request import RequestBody, TurnRequest
from support.machine import CREATED, DELTA, error, event, event_of, failed

PARENT = Remembered("resp_0", (), contents_of({}).of_input)
MIB = 1024 * 1024


def request(**fields: Any) -> TurnRequest:
    body = RequestBody(json.dumps(fields).encode())
    return TurnRequest(body, "m", eligibility(body, (), StatePolicy()), splices_store=False)


def completed(name: str = "resp_1", **response: Any) -> Event:
    return event("response.completed", response={"id": name, **response})


def done(item: str, place: object = None) -> Event:
    """Its item as it is written."""
    index = "" if place is None else f'"output_index":{json.dumps(place)},'
    return event_of(f'{{"type":"response.output_item.done",{index}"item":{item}}}'.encode())


def heard(*events: Event, bytes_max: int = MIB) -> Heard:
    ears = Heard(bytes_max)
    ears.note(events)
    return ears


def items(*events: Event) -> bytes | None:
    output = heard(*events).output()
    return None if output is None else output[0]


# --- what is heard ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "has_ended", "has_failed"),
    [
        ([], False, False),
        ([CREATED, DELTA], False, False),
        ([CREATED, completed()], True, False),
        ([event("response.incomplete", response={"id": "resp_1"})], False, False),
        ([failed()], False, True),
        ([error()], False, True),
        ([error(), failed()], False, True),
    ],
)
def test_a_turn_is_known_by_its_end(events: list[Event], has_ended: bool, has_failed: bool) -> None:
    """W10: what did not complete is not gone on from, and what failed evicts."""
    ears = heard(*events)
    assert (ears.ending is not None, ears.has_failed) == (has_ended, has_failed)
    assert (ears.output() is not None) == has_ended


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((1, 0), b'{"b": 2},{"a":1}'),
        ((0, 1), b'{"a":1},{"b": 2}'),
        ((1, None), b'{"a":1},{"b": 2}'),
        ((1, "0"), b'{"a":1},{"b": 2}'),
        ((True, 0), b'{"a":1},{"b": 2}'),
    ],
)
def test_items_stand_in_their_places_if_all_tell_them(places: tuple[object, object], expected: bytes) -> None:
    """W10: else as they came."""
    assert items(done('{"a":1}', places[0]), done('{"b": 2}', places[1]), completed()) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [([], b'{"a": 1}'), ([{"a": 1}], b'{"a": 1}'), ([{"a": 1}, {"b": 2}], b'{"a":1},{"b":2}')],
)
def test_of_the_items_that_were_done_and_those_told_at_the_end_the_fuller_count(
    told: list[Any], expected: bytes
) -> None:
    """W10: the first of two that are alike."""
    ended = json.dumps(
        {"type": "response.completed", "response": {"id": "resp_1", "output": told}}, separators=(",", ":")
    )
    assert items(done('{"a": 1}'), event_of(ended.encode())) == expected


@pytest.mark.parametrize("output", [None, "abc", 5, {"a": 1}, []])
def test_an_output_that_is_no_list_tells_of_no_item(output: object) -> None:
    """W10, E8: if there was output, it is not known."""
    assert items(completed(output=output)) == b""
    assert items(DELTA, completed(output=output)) is None
    assert items(done('{"a":1}'), completed(output=output)) == b'{"a":1}'


@pytest.mark.parametrize(("excess", "is_kept"), [(-1, True), (0, True), (1, False)])
def test_items_are_kept_up_to_the_bound(excess: int, is_kept: bool) -> None:
    """W10: a connection's bytes, and what stands around the items in their events."""
    events = [done(json.dumps("x" * 40_000)), done(json.dumps("y" * 40_000)), completed()]
    size_bytes = sum(len(one.data) for one in events[:2])
    ears = heard(*events, bytes_max=size_bytes - AROUND_ITEMS_BYTES - excess)
    assert (ears.output() is not None) == is_kept
    assert ears.size_bytes == size_bytes + len(events[2].data)


# --- what is remembered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "alone", "with_parent"),
    [
        ({}, True, True),
        ({"previous_response_id": "resp_0"}, False, True),
        ({"previous_response_id": ""}, True, True),
        ({"conversation": "conv_1"}, False, False),
        ({"conversation": {"id": "conv_1"}}, False, False),
        ({"conversation": None}, True, True),
        ({"prompt": {"id": "pmpt_1"}}, False, False),
        ({"prompt": {"id": None, "variables": {}}}, True, True),
        ({"prompt": "pmpt_1"}, True, True),
    ],
)
def test_what_goes_on_from_a_state_that_is_elsewhere_is_not_all_here(
    fields: dict[str, Any], alone: bool, with_parent: bool
) -> None:
    """W10: nor is it remembered."""
    asked = request(input="a", **fields)
    for parent, expected in ((None, alone), (PARENT, with_parent)):
        assert is_self_contained(asked, parent) == expected
        assert (remembered(asked, parent, heard(completed()), MIB) is not None) == expected


def test_a_conversation_is_remembered_whole() -> None:
    """W10, S5, B4: in the order in which it was, with what it holds."""
    sealed = {"type": "reasoning", "encrypted_content": "gA"}
    first = remembered(request(input=[sealed]), None, heard(done('{"text":"bc"}'), completed()), MIB)
    asked = request(input="d", previous_response_id="resp_1", store=False)
    second = remembered(asked, first, heard(done('{"text":"efg"}'), completed("resp_2")), MIB)
    assert first is not None
    assert second is not None
    own = b'{"type":"message","role":"user","content":"d"}'
    assert second.items == (json.dumps(sealed).encode(), b'{"text":"bc"}', own, b'{"text":"efg"}')
    assert [(one.response_id, one.is_stored, one.says_store) for one in (first, second)] == [
        ("resp_1", True, False),
        ("resp_2", False, True),
    ]
    assert (first.holds.is_origin_bound, second.holds.is_origin_bound) == (True, True)
    assert second.holds.measure.text_bytes == len("reasoning") + len("bc") + len("d") + len("efg")


@pytest.mark.parametrize("own", [5, True, {"a": 1}])
def test_an_input_of_no_items_is_not_remembered(own: object) -> None:
    """W10."""
    assert remembered(request(input=own), None, heard(completed()), MIB) is None


@pytest.mark.parametrize(("bytes_max", "is_remembered"), [(10, True), (9, False)])
def test_no_more_is_remembered_than_a_connection_may(bytes_max: int, is_remembered: bool) -> None:
    """W10: items, and what a warm-up prepared."""
    asked = request(input=["12"], generate=False, tools=[34])
    made = remembered(asked, None, heard(done("56"), completed()), bytes_max)
    assert (made is not None) == is_remembered
    assert made is None or made.size_bytes == len(b'"12"') + len(b"56") + len("[34]")


def test_what_a_warm_up_prepared_holds_until_a_request_says_otherwise() -> None:
    """W10: its tools and instructions, as they are written; of any other response only the items go on."""
    chain: list[tuple[tuple[str, str], ...]] = []
    parent = None
    for fields in (
        {"generate": False, "tools": [1], "instructions": "a"},
        {"input": "b"},
        {"generate": False, "instructions": "c", "tools": None},
        {"instructions": "d", "tools": [2]},
        {"generate": True, "tools": [3]},
    ):
        parent = remembered(request(**fields), parent, heard(completed()), MIB)
        assert parent is not None
        chain.append(tuple((one.name, one.text) for one in parent.prepared))
    prepared = (("tools", "[1]"), ("instructions", '"a"'))
    assert chain == [prepared, prepared, (("instructions", '"c"'),), (), ()]
