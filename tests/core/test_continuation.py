"""What is remembered of a turn, and the full input of what goes on from it (W10): by bytes, and by what they hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.contents import contents_of
from gateway.core.continuation import (
    Heard,
    Path,
    Remembered,
    expanded,
    input_measure,
    is_expandable,
    items_of,
    path_of,
    prepared,
    remembered,
)
from gateway.core.eligibility import TURN_STATE_HEADER, StatePolicy, eligibility, reasons_on
from gateway.core.events import Event, read_event
from gateway.core.money import InputMeasure
from gateway.core.request import RequestBody, TurnRequest
from gateway.upstream.scripts import response_object

POLICY = StatePolicy()
MIB = 1024 * 1024


def request(text: str | bytes) -> TurnRequest:
    body = RequestBody(text if isinstance(text, bytes) else text.encode())
    return TurnRequest(body, "m", eligibility(body, (), POLICY), splices_store=False)


def events(name: str, *items: Any, told: Any = ()) -> list[Event]:
    ended = response_object(name, "completed", output=told)
    payloads: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)
    ]
    written = [
        json.dumps(payload).encode() for payload in [*payloads, {"type": "response.completed", "response": ended}]
    ]
    read = [read_event(data, data) for data in written]
    return [event for event in read if event is not None]


def heard(*given_events: Event, bytes_max: int = MIB) -> Heard:
    ears = Heard(bytes_max)
    ears.note(given_events)
    return ears


def kept(text: str, *items: Any, parent: Remembered | None = None, name: str = "resp_1") -> Remembered:
    made = remembered(request(text), parent, heard(*events(name, *items)), MIB)
    assert made is not None
    return made


# --- the way (W10) --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_held", "can_be_expanded", "path"),
    [
        (True, True, Path.SOCKET),
        (True, False, Path.SOCKET),
        (False, True, Path.EXPANDED),
        (False, False, Path.ORIGIN),
    ],
)
def test_the_socket_comes_first_and_the_route_that_stores_it_last(
    is_held: bool, can_be_expanded: bool, path: Path
) -> None:
    """W10."""
    assert path_of(is_held=is_held, is_expandable=can_be_expanded) is path


@pytest.mark.parametrize(
    ("fields", "stores_by_default", "expected"),
    [
        ('"store":false', True, True),
        ('"store":true', True, False),
        ('"store":true', False, False),
        ('"x":1', True, False),
        ('"x":1', False, True),
        ('"store":null', False, True),
        ('"generate":false,"store":true', True, True),
    ],
)
def test_what_is_stored_is_not_expanded_but_for_a_warm_up(fields: str, stores_by_default: bool, expected: bool) -> None:
    """W10, S1."""
    made = kept(f'{{"model":"m","input":"a",{fields}}}')
    assert is_expandable(made, stores_by_default=stores_by_default) is expected


# --- items ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('{"input": [ {"a":1} , {"b":[2, 3]} ] }', b'{"a":1} , {"b":[2, 3]}'),
        ('{"input":"h\\u00e9\\n"}', b'{"type":"message","role":"user","content":"h\\u00e9\\n"}'),
        ('{"input" : [1,2] }', b"1,2"),
        ('{"input":[]}', b""),
        ('{"input":[ ]}', b""),
        ('{"input":null}', b""),
        ("{}", b""),
        ('{"input":5}', None),
        ('{"input":{"a":1}}', None),
    ],
)
def test_an_input_is_cut_out_as_it_is_written(text: str, items: bytes | None) -> None:
    """W10, H3."""
    assert items_of(RequestBody(text.encode())) == items


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.output_item.done","item":{"a":1,"a":2}}',
        b'{"type":"response.output_item.done","item":{"a":NaN}}',
        b'{"type":"response.output_item.done","item":{"a":"\xff"}}',
        b'{"type":"response.output_item.done","output_index":0}',
        b'{"type":"response.output_item.done","item":{"a":1}} ',
    ],
)
def test_an_item_that_no_request_could_carry_makes_its_response_one_that_is_forgotten(data: bytes) -> None:
    """W10, E8, H3: the last one is sound."""
    event = read_event(data, data)
    assert event is not None
    output = heard(event, *events("resp_1")).output()
    assert (output is not None) == data.endswith(b" ")


def test_no_more_is_kept_of_a_stream_than_may_be_remembered() -> None:
    """W10: what passes the bound is let go at once, not at the end."""
    ears = heard(*events("resp_1", *["x" * 50_000] * 40))
    assert ears.output() is None
    assert "0 items" in repr(ears)


def test_a_turn_that_did_not_complete_is_not_remembered() -> None:
    """W10."""
    for kind in ("response.incomplete", "response.failed", "response.cancelled"):
        data = json.dumps({"type": kind, "response": response_object("resp_1", "x")}).encode()
        event = read_event(data, data)
        assert event is not None
        assert remembered(request('{"input":"a"}'), None, heard(event), MIB) is None


def test_a_response_without_an_id_is_not_remembered() -> None:
    """W10, E8."""
    data = b'{"type":"response.completed","response":null}'
    event = read_event(data, data)
    assert event is not None
    assert remembered(request('{"input":"a"}'), None, heard(event), MIB) is None


@pytest.mark.parametrize(
    ("item", "is_left_out"),
    [
        ({"type": "reasoning", "id": "rs_1"}, True),
        ({"type": "reasoning", "id": "rs_1", "content": [], "encrypted_content": ""}, True),
        ({"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "so"}]}, False),
        ({"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA"}, False),
        ({"type": "message", "id": "msg_1"}, False),
        ({"id": "rs_1"}, False),
        ("reasoning", False),
    ],
)
def test_a_reasoning_item_of_which_nothing_but_its_id_is_there_is_left_out(item: Any, is_left_out: bool) -> None:
    """W10: it refers to what was stored nowhere."""
    output = heard(*events("resp_1", item)).output()
    assert output is not None
    assert output[0] == (b"" if is_left_out else json.dumps(item).encode())


@pytest.mark.parametrize("before", ["", " \t\r\n", "\n\n"])
@pytest.mark.parametrize("between", [",", " , ", "\n,\n\t"])
def test_items_that_are_told_at_the_end_are_cut_out_as_they_are_written(before: str, between: str) -> None:
    """W10, E10: whatever stands around them."""
    items = ['{"id":"a\\u00e9, ]"}', '{"b": [1, [2]]}', '"c"', "4"]
    output = f"[{before}{between.join(items)}{before}]"
    data = f'{{"type":"response.completed","response":{{"id":"resp_1", "output" : {output}}}}}'.encode()
    event = read_event(data, data)
    assert event is not None
    found = heard(event).output()
    assert found is not None
    assert found[0] == ",".join(items).encode()
    assert found[1] == contents_of({"input": [json.loads(item) for item in items]}).of_input


@pytest.mark.parametrize(
    "response", ['{"output":[1],"output":[2]}', '{"id":"resp_1","output":[{"a":1,"a":2}]}', '{"output":[NaN]}']
)
def test_a_response_that_no_request_could_carry_is_forgotten(response: str) -> None:
    """W10, E8, H3."""
    data = f'{{"type":"response.completed","response":{response}}}'.encode()
    event = read_event(data, data)
    assert event is not None
    assert heard(event).output() is None


# --- expanding ------------------------------------------------------------------------------------------------------


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=8,
)
ITEMS = st.lists(
    st.dictionaries(st.sampled_from(["type", "id", "content", "file_id", "tools", "text"]), VALUES), max_size=3
)
INDENTS = st.sampled_from([None, 0, 1])


@given(
    first=ITEMS,
    output=ITEMS,
    own=ITEMS,
    beside=st.dictionaries(st.sampled_from(["tools", "instructions", "metadata", "x"]), VALUES, max_size=3),
    prepared=st.dictionaries(st.sampled_from(["tools", "instructions"]), VALUES),
    places=st.permutations(["model", "previous_response_id", "input", "beside"]),
    indent=INDENTS,
)
def test_the_full_input_is_what_was_and_what_is_new(
    first: list[Any],
    output: list[Any],
    own: list[Any],
    beside: dict[str, Any],
    prepared: dict[str, Any],
    places: list[str],
    indent: int | None,
) -> None:
    """W10: whatever is in it and however it is written; what is known of it is what a reader of the whole would find,
    and its members stand where they are said to stand."""
    before = {"generate": False, "input": first, **prepared}
    parent = kept(json.dumps(before, indent=indent, ensure_ascii=False), *output)
    members: dict[str, Any] = {"model": "m", "previous_response_id": "resp_1", "input": own}
    given_members = {
        name: value
        for place in places
        for name, value in (beside.items() if place == "beside" else [(place, members[place])])
    }
    made = expanded(request(json.dumps(given_members, indent=indent, ensure_ascii=False)), parent, POLICY)
    assert made is not None

    visible = [item for item in output if not (item.get("type") == "reasoning" and not item.get("content"))]
    inherited = {n: value for n, value in prepared.items() if n not in beside and value is not None}
    whole = {**inherited, **given_members, "input": [*first, *visible, *own]}
    del whole["previous_response_id"]
    read = RequestBody(made.body.text.encode())
    assert dict(read.fields) == whole
    assert dict(made.body.fields) == whole
    assert [(n, m[1:4]) for n, m in read.members.items()] == [(n, m[1:4]) for n, m in made.body.members.items()]
    assert made.body.spliced(replaced={"model": "other"}) == read.spliced(replaced={"model": "other"})
    assert made.body.spliced(replaced={}, cut=("input",)) == read.spliced(replaced={}, cut=("input",))
    found, expected = made.body.contents, contents_of(whole)
    assert found.is_origin_bound == expected.is_origin_bound
    assert found.has_side_effect_tool == expected.has_side_effect_tool
    assert found.measure == expected.measure
    assert made.stateful_reasons == eligibility(read, (), POLICY)


def test_what_was_known_of_the_items_is_not_read_again() -> None:
    """W10, B4: megabytes are put behind each other and not parsed."""
    parent = kept('{"input":"a"}', {"type": "message", "content": "b" * 1_000_000})
    made = expanded(request('{"model":"m","input":[],"previous_response_id":"resp_1"}'), parent, POLICY)
    assert made is not None
    assert "json" not in repr(made.body.members["input"].value)
    assert made.body.contents.measure.text_bytes > 1_000_000


WARMED = '{"generate":false,"store":true,"input":"ab","instructions": "cdé","tools":[{"type":"mcp","name":"e"}]}'


def test_a_route_that_stored_the_response_is_told_what_a_warm_up_prepared() -> None:
    """W10, S5, S6: in front, as it was written, and the request is judged with it; what it says itself stands."""
    own = request('{"model":"m","previous_response_id":"resp_1","tools":[],"input":"f"}')
    own = replace(own, headers=((TURN_STATE_HEADER, "s"),), stateful_reasons=("stored", "continuation"))

    made = prepared(own, kept(WARMED), POLICY)

    assert made.body.text == own.body.text.replace("{", '{"instructions":"cdé",', 1)
    assert made.body.contents == contents_of(made.body.fields)
    assert made == replace(own, body=made.body, stateful_reasons=("stored", "continuation", "origin_bound"))


def test_what_a_warm_up_prepared_is_judged_by_the_operators_policy() -> None:
    """S6, W10: its tools write."""
    own = request('{"model":"m","previous_response_id":"resp_1","input":"f"}')
    for policy, reasons in [
        (POLICY, ("stored", "continuation", "side_effect_tool")),
        (StatePolicy(replay_side_effect_tools=True, absent_store_is_false=True), ("continuation",)),
    ]:
        made = prepared(own, kept(WARMED), policy)
        assert made.stateful_reasons == reasons
        assert made.body.contents.has_side_effect_tool


@pytest.mark.parametrize("fields", ['"instructions":"x","tools":null', '"tools":[],"instructions":null'])
def test_a_request_that_says_all_that_was_prepared_goes_as_it_came(fields: str) -> None:
    """W10."""
    own = request(f'{{"model":"m","previous_response_id":"resp_1",{fields}}}')
    assert prepared(own, kept(WARMED), POLICY) is own


@pytest.mark.parametrize(
    ("fields", "measure"),
    [
        ('"previous_response_id":"resp_1"', InputMeasure(1 + 2 + 11 + 7 + 4 + 4, images=1)),
        ('"previous_response_id":"resp_1","instructions":"gh"', InputMeasure(1 + 2 + 11 + 7 + 2 + 4, images=1)),
        ('"previous_response_id":"resp_1","instructions":"","tools":[]', InputMeasure(1 + 2 + 11 + 7, images=1)),
        ('"previous_response_id":""', InputMeasure(1)),
        ('"instructions":"gh"', InputMeasure(1 + 2)),
    ],
)
def test_the_estimate_counts_what_went_before_and_what_was_prepared(fields: str, measure: InputMeasure) -> None:
    """B4, B6, W10: the items' texts and types, the images, the instructions and the tools."""
    parent = kept(WARMED, {"type": "input_image", "image_url": "data:"}, {"text": "output!"})
    own = request(f'{{"model":"m","input":"f",{fields}}}')
    assert input_measure(own, parent) == measure
    assert input_measure(own, None) == own.body.contents.measure


@pytest.mark.parametrize("own", ["5", "true", '{"a":1}'])
def test_an_input_of_no_items_is_not_expanded(own: str) -> None:
    """W10: the upstream says what is wrong with it."""
    parent = kept('{"input":"a"}')
    assert expanded(request(f'{{"model":"m","input":{own},"previous_response_id":"resp_1"}}'), parent, POLICY) is None


# --- R10 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("switched_on", "fields", "reasons"),
    [
        (False, '"store":false', ("continuation",)),
        (True, '"store":false', ()),
        (False, '"store":true', ("stored", "continuation")),
        (True, '"store":true', ("stored",)),
        (False, '"store":false,"tools":[{"type":"mcp"}]', ("continuation", "side_effect_tool")),
        (True, '"store":false,"tools":[{"type":"mcp"}]', ("side_effect_tool",)),
    ],
)
def test_an_expanded_continuation_counts_as_one_unless_the_switch_is_on(
    switched_on: bool, fields: str, reasons: tuple[str, ...]
) -> None:
    """R10, W10: in the order of R10."""
    policy = StatePolicy(replay_expanded_continuations=switched_on)
    made = expanded(request(f'{{"input":[],"previous_response_id":"resp_1",{fields}}}'), kept('{"input":"a"}'), policy)
    assert made is not None
    assert reasons_on(made, stores_by_default=True) == reasons


@pytest.mark.parametrize("place", ["input", "output", "own", "tools"])
def test_what_is_sealed_binds_wherever_in_the_conversation_it_stands(place: str) -> None:
    """S5, W10."""
    sealed = {"type": "reasoning", "encrypted_content": "gAAA"}
    plain = {"type": "message", "role": "user", "content": "a"}
    held = {name: [sealed if name == place else plain] for name in ("input", "output", "own", "tools")}
    first = json.dumps({"generate": False, "input": held["input"], "tools": held["tools"]})
    own = json.dumps({"input": held["own"], "previous_response_id": "resp_1", "store": False})
    policy = StatePolicy(replay_expanded_continuations=True)
    made = expanded(request(own), kept(first, *held["output"]), policy)
    assert made is not None
    assert reasons_on(made, stores_by_default=True) == ("origin_bound",)
    assert len(made.body.contents.marks) == (0 if place == "tools" else 1)
