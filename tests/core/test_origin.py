"""What ties a request to a route (O2, O3), and by what outputs are known again."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.background import Fingerprint
from gateway.core.eligibility import StatePolicy, eligibility
from gateway.core.failures import Refusal
from gateway.core.marks import (
    CONVERSATION,
    ITEM,
    REQUEST_MARKS_MAX,
    SEALED,
    TURN_STATE,
    mark,
    marks_of_input,
    marks_of_item,
)
from gateway.core.origin import Bond, Maker, bond_of
from gateway.core.request import RequestBody, TurnRequest

SEALED_ITEM = {"type": "reasoning", "encrypted_content": "x"}


def asked(headers: tuple[str, ...] = (), **fields: Any) -> TurnRequest:
    body = RequestBody(json.dumps({"model": "m", "input": "hi", "store": False, **fields}).encode())
    return TurnRequest(body, "m", eligibility(body, headers, StatePolicy()), splices_store=False)


@pytest.mark.parametrize(
    "fields",
    [{}, {"store": True}, {"tools": [{"type": "mcp"}]}, {"previous_response_id": ""}, {"conversation": None}],
    ids=json.dumps,
)
def test_what_any_route_can_serve_is_bound_to_none(fields: dict[str, Any]) -> None:
    """O3: stored, and with tools that write: stateful, but nowhere's."""
    assert bond_of(asked(**fields)) is None


def test_a_response_that_is_continued_decides_alone() -> None:
    """O2."""
    request = asked(previous_response_id="resp_1", conversation="conv_1", input=[SEALED_ITEM])
    assert bond_of(request) == Bond("resp_1")


@pytest.mark.parametrize("named", [5, True, ["resp_1"], {"id": "resp_1"}], ids=json.dumps)
def test_what_is_no_text_is_refused_by_name(named: object) -> None:
    """H3."""
    with pytest.raises(Refusal) as refused:
        bond_of(asked(previous_response_id=named))
    assert str(refused.value) == "invalid_request: 'previous_response_id' must be a text"
    assert refused.value.param == "previous_response_id"


@pytest.mark.parametrize("held", ["conv_1", {"id": "conv_1"}], ids=["text", "object"])
def test_a_conversation_is_known_by_its_id_and_then_by_its_items(held: object) -> None:
    """O2, O3: its id is its affinity, too."""
    bond = bond_of(asked(conversation=held, prompt_cache_key="k", input=[SEALED_ITEM]))
    assert bond == Bond(None, (mark(CONVERSATION, "conv_1"), mark(SEALED, "x")), "conv_1")


@pytest.mark.parametrize("held", [5, {}, {"id": None}, {"id": ""}, ""], ids=json.dumps)
def test_a_conversation_without_an_id_is_left_to_the_upstream(held: object) -> None:
    """S2: a continuation it is all the same."""
    assert bond_of(asked(conversation=held)) == Bond(None, (), '"hi"')


def test_a_request_is_known_by_its_newest_items_first() -> None:
    """O3: of an item what it has sealed before its id."""
    items = [{"id": "msg_1", "role": "user", "content": "x"}, {**SEALED_ITEM, "id": "rs_1"}, {"id": "msg_1"}]
    assert bond_of(asked(input=items)) == Bond(
        None, (mark(ITEM, "msg_1"), mark(SEALED, "x"), mark(ITEM, "rs_1")), json.dumps(items[0])
    )


def test_no_more_than_the_newest_marks_are_looked_up() -> None:
    """O3: an agent's input has thousands of items."""
    items = [{"id": f"msg_{number}"} for number in range(1000)]
    assert marks_of_input(items) == tuple(mark(ITEM, f"msg_{999 - number}") for number in range(REQUEST_MARKS_MAX))


@pytest.mark.parametrize(
    ("fields", "affinity"),
    [
        pytest.param({"prompt_cache_key": "k"}, "k", id="the cache key"),
        pytest.param({"prompt_cache_key": ""}, '"hi"', id="an empty one"),
        pytest.param({"prompt_cache_key": 5}, '"hi"', id="one that is no text"),
        pytest.param({"input": []}, "", id="no item"),
        pytest.param({"input": [{"a": [1, {"b": 2}]}, 5]}, '{"a": [1, {"b": 2}]}', id="the first item"),
        pytest.param({"input": ["x"]}, '"x"', id="a first item that is no object"),
        pytest.param({"input": None}, "null", id="an input that is null"),
    ],
)
def test_what_binds_beside_the_input_has_its_affinity(fields: dict[str, Any], affinity: str) -> None:
    """O3: a stored prompt, or a header, may be anybody's."""
    assert bond_of(asked(**{"prompt": {"id": "pmpt_1"}, **fields})) == Bond(None, (), affinity)
    assert bond_of(asked(("x-codex-turn-state",), **fields)) == Bond(None, (), affinity)


def test_a_turn_state_is_known_before_anything_else() -> None:
    """O3: the client holds it for the one route that gave it."""
    request = replace(asked(("x-codex-turn-state",), input=[SEALED_ITEM]), headers=(("x-codex-turn-state", "s"),))
    bond = bond_of(request)
    assert bond is not None
    assert bond.marks == (mark(TURN_STATE, "s"), mark(SEALED, "x"))


def test_without_an_input_there_is_no_affinity() -> None:
    """O3: a stored prompt may bring its own."""
    body = RequestBody(b'{"prompt": {"id": "p"}, "store": false}')
    request = TurnRequest(body, "m", eligibility(body, (), StatePolicy()), splices_store=False)
    assert bond_of(request) == Bond(None, (), "")


def test_an_affinity_is_as_it_is_written_whatever_stands_around_it() -> None:
    """O3."""
    body = RequestBody(b'{"input" : [ \n {"a":  1.0} ], "prompt": {"id": "p"}}')
    request = TurnRequest(body, "m", eligibility(body, (), StatePolicy()), splices_store=False)
    assert bond_of(request) == Bond(None, (), '{"a":  1.0}')


@pytest.mark.parametrize(
    ("item", "stored", "unstored"),
    [
        ({"id": "msg_1"}, (mark(ITEM, "msg_1"),), ()),
        ({"id": "rs_1", "encrypted_content": "x"}, (mark(SEALED, "x"), mark(ITEM, "rs_1")), (mark(SEALED, "x"),)),
        ({"id": "", "encrypted_content": ""}, (), ()),
        ({"id": 5, "encrypted_content": ["x"]}, (), ()),
        ("msg_1", (), ()),
        (None, (), ()),
    ],
    ids=json.dumps,
)
def test_an_item_is_known_by_what_it_sealed_and_by_its_id_if_it_is_stored(
    item: object, stored: tuple[str, ...], unstored: tuple[str, ...]
) -> None:
    """O3: nobody can resolve the id of what is stored nowhere."""
    assert tuple(marks_of_item(item, is_stored=True)) == stored
    assert tuple(marks_of_item(item, is_stored=False)) == unstored


def test_a_mark_is_a_digest_whatever_the_text() -> None:
    """O3: lone surrogates and NUL too; and a name of one kind is none of another."""
    marks = {
        mark(kind, text) for kind in (ITEM, SEALED, CONVERSATION) for text in ("", "x", "\0", "\ud800", "é" * 9999)
    }
    assert len(marks) == 15
    assert {len(one) for one in marks} == {64}


@pytest.mark.parametrize(("length", "is_whole"), [(65_536, True), (65_537, False)])
def test_a_long_first_item_is_hashed_once(length: int, is_whole: bool) -> None:
    """O3: whatever it is, requests that begin with it have one affinity, and others have another."""
    text = "x" * (length - 2)
    bonds = [bond_of(asked(prompt={"id": "p"}, input=one)) for one in (text, text, f"{text[:-1]}y")]
    assert bonds[0] is not None
    assert (bonds[0].affinity == f'"{text}"') is is_whole
    assert bonds[0] == bonds[1] != bonds[2]


@pytest.mark.parametrize(
    ("maker", "route", "now", "is_still"),
    [
        (Maker("a", "here"), "a", Fingerprint("here", "key"), True),
        (Maker("a", "here"), "a", Fingerprint("here", "rotated"), True),
        (Maker("a", "here"), "a", Fingerprint("there", "key"), False),
        (Maker("a", "here"), "b", Fingerprint("here", "key"), False),
        (Maker("a"), "a", Fingerprint("there", "key"), True),
        (Maker("a"), "b", Fingerprint("there", "key"), False),
        (Maker("a", "here"), "a", None, True),
    ],
)
def test_a_route_is_what_its_name_stands_for(maker: Maker, route: str, now: Fingerprint | None, is_still: bool) -> None:
    """O2, C2: of what an earlier version learned the name alone tells."""
    assert maker.is_still(route, now) is is_still


@pytest.mark.parametrize("letter", ["k", "\ud800"], ids=["a letter", "half a letter"])
def test_what_is_long_is_hashed_as_its_digest_whatever_it_is_made_of(letter: str) -> None:
    """O3, E8: and stays apart from what differs at its end."""
    bonds = [bond_of(asked(input=[SEALED_ITEM], prompt_cache_key=letter * 70_000 + end)) for end in ("", "", "x")]
    one, same, other = [bond.affinity for bond in bonds if bond is not None]
    assert (one == same, one == other, len(one)) == (True, False, 64)
