"""What goes upstream is the client's own bytes but for the splices of H3 (S1, M1, E10)."""

import json
import re
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.core.eligibility import StatePolicy, makes_store_explicit
from gateway.core.events import insert_members
from gateway.core.request import RequestBody, TurnRequest

WHITESPACE: Final = st.text(" \t\n\r", max_size=3)
NAMES: Final = st.sampled_from(
    ["model", "store", "stream", "type", "event_id", "stream_id", "generate", "input", "x", "é", ""]
)
RAW_VALUES: Final = st.sampled_from(
    [
        "null",
        "true",
        "1.0",
        "1e2",
        "-0",
        "1E400",
        "9" * 500,
        '"\\u00e9 é \\ud83d \\/"',
        '"},{,\\"model\\":"',
        '{ "z" : 1 ,"a":[ ] }',
        "[ 1,2 , 3 ]",
        "{}",
        '"response.create"',
    ]
)


class Written(NamedTuple):
    """A member as its client wrote it: its own text, and what stands before and behind it."""

    name: str
    text: str
    before: str
    behind: str


@st.composite
def written_members(draw: st.DrawFn) -> list[Written]:
    """Members with unusual spacing, spelling and values."""
    members = []
    for name in draw(st.lists(NAMES, unique=True, max_size=7)):
        escaped = draw(st.sampled_from([json.dumps(name), json.dumps(name, ensure_ascii=False), escape_first(name)]))
        gaps = [draw(WHITESPACE) for _ in range(4)]
        text = f"{escaped}{gaps[0]}:{gaps[1]}{draw(RAW_VALUES)}"
        members.append(Written(name, text, gaps[2], gaps[3]))
    return members


def escape_first(name: str) -> str:
    """The name with its first character spelled as an escape."""
    return f'"\\u{ord(name[0]):04x}{name[1:]}"' if name else '""'


def body_text(members: list[Written], inside: str = "") -> str:
    """The body these members make; `inside` is the space of an empty one."""
    return " {" + (",".join(f"{member.before}{member.text}{member.behind}" for member in members) or inside) + "}\n"


def pairs_of(text: str) -> list[tuple[str, Any]]:
    """The members of a body, in order."""
    pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
    return pairs


def as_pairs(value: Any) -> Any:
    """A value as JSON gives it back, with objects as pairs."""
    return json.loads(json.dumps(value), object_pairs_hook=list)


VALUES: Final = st.sampled_from([True, False, None, "gpt-5", 'a"b', "é\ud83d", 7, [1, {"a": 2}]])


@given(written_members(), st.dictionaries(NAMES, VALUES, max_size=4), st.sets(NAMES, max_size=5), WHITESPACE)
@example([], {"stream": True}, set(), " ")
@example([Written("type", '"type":1', " ", " ")], {}, {"type"}, "")
@settings(max_examples=250, deadline=None)
def test_a_splice_changes_the_members_it_names_and_their_order_stays(
    members: list[Written], replaced: dict[str, Any], cut: set[str], inside: str
) -> None:
    """H3: what is new stands in front; what is cut leaves no comma behind."""
    assume(not cut & set(replaced))
    text = body_text(members, inside)
    spliced = RequestBody(text.encode()).spliced(replaced=replaced, cut=cut).decode()
    new = {name: as_pairs(value) for name, value in replaced.items()}
    kept = [(name, new.get(name, value)) for name, value in pairs_of(text) if name not in cut]
    names = {member.name for member in members}

    assert repr(pairs_of(spliced)) == repr([pair for pair in new.items() if pair[0] not in names] + kept)


@given(written_members(), st.dictionaries(NAMES, VALUES, max_size=4), st.sets(NAMES, max_size=5))
@settings(max_examples=120, deadline=None)
def test_a_splice_leaves_every_other_member_byte_for_byte(
    members: list[Written], replaced: dict[str, Any], cut: set[str]
) -> None:
    """H3, bug 51: spelling, spaces and numbers, in their order."""
    spliced = RequestBody(body_text(members).encode()).spliced(replaced=replaced, cut=cut).decode()
    untouched = [member.text for member in members if member.name not in cut and member.name not in replaced]
    found = re.search(".*".join(re.escape(text) for text in untouched), spliced, re.DOTALL)

    assert found is not None


@given(written_members(), WHITESPACE)
@settings(max_examples=100, deadline=None)
def test_without_a_splice_the_bytes_are_the_clients(members: list[Written], inside: str) -> None:
    """H3, bug 51: however they are spaced and spelled."""
    raw = body_text(members, inside).encode()

    assert RequestBody(raw).spliced(replaced={}, cut=()) == raw


@pytest.mark.parametrize(
    ("raw", "replaced", "cut", "spliced"),
    [
        pytest.param('{"a":1,"b":2,"c":3}', {}, ["a"], '{"b":2,"c":3}', id="cut-first"),
        pytest.param('{"a":1,"b":2,"c":3}', {}, ["b"], '{"a":1,"c":3}', id="cut-middle"),
        pytest.param('{"a":1,"b":2,"c":3}', {}, ["c"], '{"a":1,"b":2}', id="cut-last"),
        pytest.param('{"a":1,"b":2,"c":3}', {}, ["a", "c"], '{"b":2}', id="cut-both-ends"),
        pytest.param('{"a":1,"b":2,"c":3}', {}, ["b", "c"], '{"a":1}', id="cut-all-behind"),
        pytest.param('{ "a" : 1 , "b" : 2 }', {}, ["a", "b"], "{  }", id="cut-all"),
        pytest.param('{ "a" : 1 , "b" : 2 }', {"z": 3}, ["a", "b"], '{"z":3  }', id="cut-all-and-add"),
        pytest.param('{ "a" : 1 , "b" : 2 }', {}, ["a"], '{ "b" : 2 }', id="cut-with-spaces"),
        pytest.param('{ "a" : 1 , "b" : 2 }', {"b": "x"}, [], '{ "a" : 1 , "b" : "x" }', id="replace-in-place"),
        pytest.param('{"a":1}', {"z": True, "y": None}, [], '{"z":true,"y":null,"a":1}', id="add-in-front"),
        pytest.param(" { } ", {"z": True}, [], ' {"z":true } ', id="add-to-nothing"),
        pytest.param('{"a":1}', {}, ["z"], '{"a":1}', id="cut-what-is-not-there"),
        pytest.param('{"a":1}', {"a": "é"}, [], '{"a":"\\u00e9"}', id="replace-in-ASCII"),
        pytest.param('{"a":"\\ud83d"}', {"b": 1}, [], '{"b":1,"a":"\\ud83d"}', id="bug-53-surrogates-stay"),
    ],
)
def test_a_splice_byte_by_byte(raw: str, replaced: dict[str, Any], cut: list[str], spliced: str) -> None:
    """H3."""
    assert RequestBody(raw.encode()).spliced(replaced=replaced, cut=cut).decode() == spliced


# --- to an HTTP upstream and to a WebSocket upstream ----------------------------------------------------------------


def request_of(raw: str, *, splices_store: bool = False) -> TurnRequest:
    """The request of a body that names the model `alias`."""
    return TurnRequest(RequestBody(raw.encode()), "alias", (), splices_store=splices_store)


@pytest.mark.parametrize(
    ("raw", "upstream_model", "sent"),
    [
        pytest.param('{"model":"alias","stream":true}', None, '{"model":"alias","stream":true}', id="nothing-to-do"),
        pytest.param('{"model":"alias","stream":true}', "alias", '{"model":"alias","stream":true}', id="same-model"),
        pytest.param('{"model":"alias","stream":true}', "real", '{"model":"real","stream":true}', id="M1-model"),
        pytest.param('{"model":"alias"}', None, '{"stream":true,"model":"alias"}', id="stream-absent"),
        pytest.param('{"stream":false,"model":"alias"}', None, '{"stream":true,"model":"alias"}', id="stream-false"),
        pytest.param('{"stream":1,"model":"alias"}', None, '{"stream":true,"model":"alias"}', id="stream-odd"),
        pytest.param(
            '{"type":"response.create","event_id":"e","stream_id":"s","generate":true,"model":"alias","stream":true}',
            None,
            '{"model":"alias","stream":true}',
            id="members-of-a-frame-are-cut",
        ),
        pytest.param(
            '{"model":"alias","input":[{"type":"message","event_id":1}],"stream":true}',
            None,
            '{"model":"alias","input":[{"type":"message","event_id":1}],"stream":true}',
            id="only-at-the-top",
        ),
        pytest.param(
            '{"model":"alias","stream":true,"unknown":{"b":1.0,"a":1e2}}',
            "real",
            '{"model":"real","stream":true,"unknown":{"b":1.0,"a":1e2}}',
            id="bug-51-the-unknown-passes",
        ),
    ],
)
def test_an_http_upstream_gets_the_body_with_the_splices_of_h3(raw: str, upstream_model: str | None, sent: str) -> None:
    assert request_of(raw).body_for_sse(upstream_model).decode() == sent


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ('{"model":"alias","stream":false}', '{"model":"real","stream":false}'),
        ('{"model":"alias"}', '{"model":"real"}'),
        ('{"type":"x","model":"alias"}', '{"model":"real"}'),
    ],
)
def test_a_request_that_does_not_stream_is_sent_as_such(raw: str, sent: str) -> None:
    """H1, H3."""
    assert replace(request_of(raw), streams=False).body_for_sse("real").decode() == sent


@pytest.mark.parametrize(
    ("raw", "upstream_model", "sent"),
    [
        pytest.param('{"model":"alias","stream":true}', None, '{"type":"response.create","model":"alias"}', id="HTTP"),
        pytest.param(
            '{"type":"response.create","event_id":"e","stream_id":"s","generate":false,"model":"alias","stream":true}',
            "real",
            '{"type":"response.create","generate":false,"model":"real"}',
            id="frame",
        ),
        pytest.param('{"type":"other","model":"alias"}', None, '{"type":"response.create","model":"alias"}', id="type"),
        pytest.param('{"stream":true}', None, '{"type":"response.create"}', id="nothing-left"),
        pytest.param('{"type":"response\\u002ecreate"}', None, '{"type":"response\\u002ecreate"}', id="spelling-stays"),
    ],
)
def test_a_websocket_upstream_gets_a_create(raw: str, upstream_model: str | None, sent: str) -> None:
    """H3."""
    assert request_of(raw).body_for_websocket(upstream_model).decode() == sent


@pytest.mark.parametrize(
    ("raw", "absent_store_is_false", "sent"),
    [
        pytest.param('{"stream":true}', True, '{"store":false,"stream":true}', id="absent-made-explicit"),
        pytest.param('{"store":null,"stream":true}', True, '{"store":false,"stream":true}', id="null-made-explicit"),
        pytest.param('{"stream":true}', False, '{"stream":true}', id="absent-left"),
        pytest.param('{"store":true,"stream":true}', True, '{"store":true,"stream":true}', id="true"),
        pytest.param('{"store":false,"stream":true}', True, '{"store":false,"stream":true}', id="false"),
        pytest.param('{"store":"false","stream":true}', True, '{"store":"false","stream":true}', id="text"),
        pytest.param('{"store":0,"stream":true}', True, '{"store":0,"stream":true}', id="zero"),
        pytest.param('{"background":true,"stream":true}', True, '{"background":true,"stream":true}', id="background"),
        pytest.param('{"background":1,"stream":true}', True, '{"background":1,"stream":true}', id="background-odd"),
        pytest.param(
            '{"background":false,"stream":true}',
            True,
            '{"store":false,"background":false,"stream":true}',
            id="foreground",
        ),
    ],
)
def test_bug_49_store_is_made_explicit_only_where_it_is_absent(
    raw: str, absent_store_is_false: bool, sent: str
) -> None:
    """S1."""
    splices = makes_store_explicit(RequestBody(raw.encode()), StatePolicy(absent_store_is_false))

    assert request_of(raw, splices_store=splices).body_for_sse(None).decode() == sent


def test_bug_51_another_route_gets_the_same_bytes_but_for_the_model() -> None:
    """H3, R15: the replay too is the client's own text."""
    raw = '{ "input" : "\\u00e9 é  x" , "text":{"format":{"schema":{"z":1,"a":1.0,"m":1e2}}}, "model":"alias" }'
    request = request_of(raw, splices_store=True)
    first, second = request.body_for_sse("one"), request.body_for_sse("two")

    assert (first.replace(b'"one"', b'"two"'), first[1:].decode()) == (
        second,
        '"stream":true,"store":false,' + raw[1:].replace("alias", "one"),
    )


# --- into an event --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "members", "spliced"),
    [
        (b'{"type":"error"}', {"status": 500}, b'{"status":500,"type":"error"}'),
        (b'\n { "a":1 }', {"stream_id": "s"}, b'\n {"stream_id":"s", "a":1 }'),
        (b"{}", {"type": "error", "status": 400}, b'{"type":"error","status":400}'),
        (b"{ \n}", {"status": 400}, b'{"status":400 \n}'),
        (b'{"a":1}', {}, b'{"a":1}'),
        (b'{"a":"\xff"}', {"b": "\xe9"}, b'{"b":"\\u00e9","a":"\xff"}'),
        (b'{"a":"}"}', {"b": 1}, b'{"b":1,"a":"}"}'),
    ],
)
def test_members_are_put_in_front_of_an_event_and_its_bytes_stay(
    data: bytes, members: dict[str, Any], spliced: bytes
) -> None:
    """E10, W8."""
    assert insert_members(data, members) == spliced


@given(written_members(), st.dictionaries(st.text(max_size=3), VALUES, max_size=3), WHITESPACE)
@settings(max_examples=150, deadline=None)
def test_an_event_with_members_put_in_is_the_object_it_was_and_they(
    members: list[Written], added: dict[str, Any], inside: str
) -> None:
    """E10."""
    data = body_text(members, inside).encode()
    spliced = insert_members(data, added)

    assert (repr(pairs_of(spliced.decode())), spliced.endswith(data[2:])) == (
        repr([*as_pairs(added), *pairs_of(data.decode())]),
        True,
    )
