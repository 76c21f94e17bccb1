"""A request is read once and strictly, and measured for its estimate (H3, B4, B6)."""

import json
from collections.abc import Callable
from contextlib import suppress
from time import process_time
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.contents import contents_of
from gateway.core.money import TOKENS_MAX, InputMeasure
from gateway.core.request import (
    KEPT_CHARACTERS_MAX,
    MEMBERS_MAX,
    REREAD_BRACKETS_MAX,
    REREAD_BYTES_MAX,
    MalformedBody,
    RequestBody,
    TurnRequest,
)

SECONDS_MAX: Final = 10.0
"""Of CPU, for work on 32 MiB that takes a tenth of it; work that is not linear takes minutes."""

JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


# --- H3: what is a body -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param(b"", "not JSON", id="bug-46-empty"),
        pytest.param(b" \n", "not JSON", id="bug-46-blank"),
        pytest.param(b"model=x&input=y", "not JSON", id="bug-46-form"),
        pytest.param('{"a":1}'.encode("utf-16"), "not UTF-8", id="bug-46-utf-16"),
        pytest.param(b"\xef\xbb\xbf{}", "not JSON", id="bug-46-byte-order-mark"),
        pytest.param(
            b'{"a":1}x', "not JSON: something follows the object at character 7", id="bug-46-trailing-garbage"
        ),
        pytest.param(b'{"a":1}{"a":1}', "something follows", id="trailing-object"),
        pytest.param(b"{} \0", "something follows", id="trailing-nul"),
        pytest.param(b"{}}", "something follows", id="trailing-brace"),
        pytest.param(b'{"a":1', "not JSON: expected ',' or '}' at character 6", id="unclosed"),
        pytest.param(b"{", "expected a member name", id="only-opened"),
        pytest.param(b'{"a"', "not JSON: expected ':' at character 4", id="no-colon"),
        pytest.param(b'{"a":', "not JSON", id="no-value"),
        pytest.param(b'{"a":}', "not JSON", id="empty-value"),
        pytest.param(b'{"a":1,}', "expected a member name", id="trailing-comma"),
        pytest.param(b'{,"a":1}', "expected a member name", id="leading-comma"),
        pytest.param(b'{"a":1,,"b":2}', "expected a member name", id="two-commas"),
        pytest.param(b'{"a":1 "b":2}', "expected ',' or '}'", id="no-comma"),
        pytest.param(b'{"a":1]', "expected ',' or '}'", id="wrong-bracket"),
        pytest.param(
            b"{a:1}", "not JSON: expected a member name in double quotes at character 1", id="name-without-quotes"
        ),
        pytest.param(b"{'a':1}", "expected a member name", id="single-quotes"),
        pytest.param(b"{1:1}", "expected a member name", id="name-is-a-number"),
        pytest.param(b'{"a":01}', "expected ',' or '}'", id="leading-zero"),
        pytest.param(b'{"a":"\n"}', "Invalid control character at character 6", id="raw-newline-in-text"),
        pytest.param(b'{"a":"b', "Unterminated string starting at character 5", id="text-without-an-end"),
        pytest.param(b'{"a\t":1}', "control character", id="raw-tab-in-name"),
        pytest.param(b'{"a":"\\x41"}', "not JSON", id="bad-escape"),
        pytest.param(b'\xc2\xa0{"a":1}', "not JSON", id="unicode-space-before"),
        pytest.param(b'{\x0b"a":1}', "expected a member name", id="vertical-tab-between"),
        pytest.param(b'{"a":"\xff"}', "not UTF-8", id="invalid-utf-8"),
        pytest.param(b'{"a":"\xed\xa0\xbd"}', "not UTF-8", id="surrogate-as-utf-8"),
        pytest.param(b"null", "not a JSON object", id="null"),
        pytest.param(b'"{}"', "not a JSON object", id="text"),
        pytest.param(b'[{"a":1}]', "not a JSON object", id="list"),
        pytest.param(b'{"a":NaN}', "NaN is not JSON", id="NaN"),
        pytest.param(b'{"a":[Infinity]}', "Infinity is not JSON", id="Infinity"),
        pytest.param(b'{"a":{"b":-Infinity}}', "-Infinity is not JSON", id="minus-Infinity"),
        pytest.param(b'{"a":1,"a":1}', "'a' stands twice in the body", id="twice"),
        pytest.param(b'{"store":false,"\\u0073tore":true}', "'store' stands twice in the body", id="twice-by-escape"),
        pytest.param(b'{"a":{"b":1,"b":2}}', "'b' stands twice in one object", id="twice-below"),
        pytest.param(b'{"a":[[{"b":[{"d":1,"c":2,"\\u0063":3}]}]]}', "'c' stands twice in one object", id="twice-deep"),
        pytest.param(b'{"a":{"\\ud83d":1,"\\ud83d":2}}', r"'\ud83d' stands twice", id="twice-with-a-surrogate"),
    ],
)
def test_a_body_that_is_not_one_json_object_is_refused(raw: bytes, words: str) -> None:
    """H3: and the message says why."""
    with pytest.raises(MalformedBody) as refused:
        RequestBody(raw)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        (b"{}", {}),
        (b" \t\r\n{ \n} \r\n", {}),
        (b'{"a":1}', {"a": 1}),
        (b' { "a" : [ 1 , { "b" : null } ] , "" : "" } ', {"a": [1, {"b": None}], "": ""}),
        (b'{"a":{"x":1},"b":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (b'{"\\u0061":"\\u00e9"}', {"a": "é"}),
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":1.0,"b":1e2,"c":-0,"d":1E400}', {"a": 1.0, "b": 100.0, "c": 0, "d": float("inf")}),
    ],
)
def test_a_body_is_read_member_by_member(raw: bytes, fields: dict[str, Any]) -> None:
    """H3: unknown members pass."""
    assert RequestBody(raw).fields == fields


def test_a_body_shows_the_names_of_its_members_and_no_content() -> None:
    """L1."""
    body = RequestBody(b'{"model":"m","input":"secret"}')

    assert repr(body) == "<RequestBody 30 characters: model, input>"


def test_what_is_absent_reads_as_null() -> None:
    """S1, S2: the rules treat them alike."""
    body = RequestBody(b'{"store":null}')

    assert (body.get("store"), body.get("model")) == (None, None)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_body_says_what_json_says(fields: dict[str, Any], indent: int | None, ensure_ascii: bool) -> None:
    """H3."""
    raw = json.dumps(fields, indent=indent, ensure_ascii=ensure_ascii).encode()

    assert list(RequestBody(raw).fields.items()) == list(fields.items())


@given(st.text(st.sampled_from('{}[]":,\\ \n0a-.eu1'), max_size=14) | st.binary(max_size=12).map(repr))
@settings(max_examples=250, deadline=None)
def test_a_body_is_refused_exactly_where_json_refuses_it(text: str) -> None:
    """H3: with each key once."""
    assert reads_as_body(text) is reads_as_object(text)


def reads_as_body(text: str) -> bool:
    try:
        RequestBody(text.encode())
    except MalformedBody:
        return False
    return True


def reads_as_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, object_pairs_hook=unique), dict)
    except ValueError:
        return False


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


@pytest.mark.parametrize("levels", [5_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_bug_46_a_body_nested_beyond_reason_is_refused(opening: str, closing: str, levels: int) -> None:
    """H3: 400, never 500; what the interpreter can read is read."""
    raw = ('{"a":' + opening * levels + "1" + closing * levels + "}").encode()
    try:
        told = repr(RequestBody(raw))
    except MalformedBody as refused:
        told = str(refused)

    assert told in ("the body is nested too deeply", f"<RequestBody {len(raw)} characters: a>")


@pytest.mark.parametrize("digits", [399, 400, 5_000, 1_000_000])
def test_integers_of_any_length_pass(digits: int) -> None:
    """H3: they are the upstream's to judge, and the interpreter would refuse them."""
    raw = b'{"n":' + b"9" * digits + b"}"

    assert RequestBody(raw).spliced(replaced={}) == raw


def test_a_body_has_some_hundreds_of_members_at_most() -> None:
    """H3: each is read by itself, so their number is bounded."""
    names = [f"n{number}" for number in range(MEMBERS_MAX + 1)]
    most = RequestBody(json.dumps(dict.fromkeys(names[1:])).encode())

    with pytest.raises(MalformedBody, match=f"more than {MEMBERS_MAX} members"):
        RequestBody(json.dumps(dict.fromkeys(names)).encode())
    assert len(most.members) == MEMBERS_MAX


def test_a_refusal_repeats_no_more_than_a_little_of_the_body() -> None:
    """H3: the message is answered and logged."""
    name = b'"' + b"x" * 100_000 + b'"'
    messages = []
    for raw in (b"{" + name + b":1," + name + b":1}", b'{"a":{' + name + b":1," + name + b":1}}"):
        with pytest.raises(MalformedBody) as refused:
            RequestBody(raw)
        messages.append(str(refused.value))

    assert max(len(message) for message in messages) < 200


SIZE: Final = 32 << 20


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"input":"' + b"a" * SIZE + b'"}', id="one-text"),
        pytest.param(b'{"input":' + b" " * SIZE + b'"a"}', id="white-space"),
        pytest.param(b" " * SIZE, id="nothing-but-white-space"),
        pytest.param(b'{"a":{' + b",".join(b'"%d":1' % n for n in range(50_000)) + b',"49999":1}}', id="late-double"),
        pytest.param(b"{" + b",".join(b'"%d":1' % n for n in range(50_000)) + b"}", id="many-members"),
        pytest.param(b'{"input":[' + b"[]," * (1 << 20) + b"[]]}", id="many-items"),
    ],
)
def test_a_body_is_read_in_linear_time(raw: bytes) -> None:
    """H3: a body of the largest size must not stop the other turns."""
    started = process_time()
    with suppress(MalformedBody):
        _ = RequestBody(raw).contents

    assert process_time() - started < SECONDS_MAX


@pytest.mark.parametrize("item", [b"{}", b"[]", b'{"id":"a"}', b'{"type":"message","content":[{"text":"x"}]}'])
def test_looking_through_a_body_costs_no_more_than_parsing_it(item: bytes) -> None:
    """S5, S6, B4: all that is asked of the values is found in one walk, whatever they are."""
    raw = b'{"input":[' + b",".join([item] * 200_000) + b"]}"
    fields = RequestBody(raw).fields

    assert least_seconds(lambda: contents_of(fields)) < 3 * least_seconds(lambda: json.loads(raw))


def least_seconds(work: Callable[[], object]) -> float:
    """Of five times: what else the machine does makes each longer, and none shorter."""
    taken = []
    for _ in range(5):
        started = process_time()
        work()
        taken.append(process_time() - started)
    return min(taken)


def test_a_value_that_is_large_or_made_of_others_is_not_kept_and_read_again_for_who_asks() -> None:
    """A turn lasts minutes, and a value takes up to ten times its text. What is sent upstream is the text."""
    instructions = "x" * KEPT_CHARACTERS_MAX
    fields = {"model": "mm", "input": [{}], "text": {"a": [1]}, "instructions": instructions, "user": instructions[2:]}
    raw = json.dumps(fields).encode()
    body = RequestBody(raw)
    contents, read = body.contents, body.fields

    body.let_go(kept={"text", "instructions"})

    assert [name for name in fields if body.get(name) is read[name]] == ["model", "text", "user"]
    assert (body.fields, body.contents, body.spliced(replaced={})) == (fields, contents, raw)


def test_a_body_that_is_json_and_no_object_is_said_to_be_none() -> None:
    """H3, X."""
    with pytest.raises(MalformedBody) as refused:
        RequestBody(b" [1]")
    assert str(refused.value) == "the body is not a JSON object"


@pytest.mark.parametrize(
    ("text", "written", "cut", "expected"),
    [
        ("{}", {}, (), "{}"),
        ("{}", {"a": "1"}, (), '{"a":1}'),
        (' { "b" : 2 } ', {"a": "1"}, ("b",), ' { "a":1 } '),
        ('{"b":2}', {"a": "1", "d": "[ 2 ]"}, ("b",), '{"a":1,"d":[ 2 ]}'),
        (' {"b" : 2, "c":3 } ', {"a": "1", "c": "[4]"}, ("b",), ' {"a":1,"c":[4] } '),
        ('{"b" : [2] , "c":3}', {}, ("c",), '{"b" : [2]}'),
    ],
)
def test_a_body_is_written_anew_where_it_is_told_and_nowhere_else(
    text: str, written: dict[str, str], cut: tuple[str, ...], expected: str
) -> None:
    """W10, H3: what stays is not read again, and everything stands where it is said to stand."""
    body = RequestBody(text.encode())
    made = body.rewritten(written, cut, body.contents)
    read = RequestBody(expected.encode())
    assert (made.text, dict(made.fields), made.contents) == (expected, dict(read.fields), body.contents)
    assert [(n, m[1:4]) for n, m in made.members.items()] == [(n, m[1:4]) for n, m in read.members.items()]
    assert all(made.members[name].value is body.members[name].value for name in made.members if name not in written)


# --- B4: what the estimate counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "measure"),
    [
        pytest.param({}, InputMeasure(0), id="nothing"),
        pytest.param({"input": "abc", "instructions": "de"}, InputMeasure(5), id="text"),
        pytest.param({"input": "北🙂"}, InputMeasure(7), id="UTF-8-bytes"),
        pytest.param({"input": "\ud83d"}, InputMeasure(3), id="bug-53-lone-surrogate"),
        pytest.param(
            {"model": "x" * 99, "metadata": {"a": "b"}, "user": "me"}, InputMeasure(0), id="not-read-by-a-model"
        ),
        pytest.param({"input": None, "tools": 7, "text": True}, InputMeasure(0), id="no-text"),
        pytest.param(
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "abc"}]}]},
            InputMeasure(len("user" + "input_text" + "abc")),
            id="text-below",
        ),
        pytest.param(
            {"input": [{"content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 999}]}]},
            InputMeasure(len("input_image"), images=1),
            id="an-image-is-flat",
        ),
        pytest.param(
            {
                "input": [
                    {"type": "input_image"},
                    {"type": "input_file"},
                    {"type": "input_image"},
                    {"type": "input_file"},
                ]
            },
            InputMeasure(len("input_image" * 2 + "input_file" * 2), images=2, files=2),
            id="two-of-each",
        ),
        pytest.param(
            {"input": [{"content": [{"type": "input_file", "file_data": "A" * 999, "filename": "a.pdf"}]}]},
            InputMeasure(len("input_file" + "a.pdf"), files=1),
            id="a-file-is-flat",
        ),
        pytest.param(
            {"input": [{"type": "image_generation_call", "result": "A" * 999}]},
            InputMeasure(len("image_generation_call"), images=1),
            id="a-generated-image-is-flat",
        ),
        pytest.param(
            {"input": [{"content": [{"type": "input_audio", "input_audio": {"data": "A" * 999, "format": "mp3"}}]}]},
            InputMeasure(len("input_audio" + "mp3"), files=1),
            id="audio-is-flat",
        ),
        pytest.param(
            {"input": [{"type": "reasoning", "encrypted_content": "A" * 999, "summary": []}]},
            InputMeasure(len("reasoning")),
            id="ciphertext-is-no-text",
        ),
        pytest.param(
            {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
            InputMeasure(len("function" + "f" + "object")),
            id="tools",
        ),
        pytest.param(
            {"prompt": {"id": "p", "variables": {"x": {"type": "input_image", "image_url": "A" * 9, "detail": "low"}}}},
            InputMeasure(len("p" + "input_image" + "low"), images=1),
            id="an-image-in-a-stored-prompt-is-flat",
        ),
        pytest.param({"input": [{"type": ["input_image"]}]}, InputMeasure(len("input_image")), id="type-is-no-text"),
    ],
)
def test_what_a_model_reads_is_measured(fields: dict[str, Any], measure: InputMeasure) -> None:
    """B4: base64 is never counted as text."""
    assert RequestBody(json.dumps(fields).encode()).contents.measure == measure


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (100, 100),
        (0, 0),
        (TOKENS_MAX, TOKENS_MAX),
        (TOKENS_MAX + 1, TOKENS_MAX),
        (10**300, TOKENS_MAX),
        (-1, None),
        (True, None),
        (16.0, 16),
        (15.5, 16),
        (1e30, TOKENS_MAX),
        ("16", None),
        (None, None),
    ],
)
def test_an_output_limit_is_a_count_that_every_store_can_hold(value: Any, limit: int | None) -> None:
    """B6: what is none is the upstream's to refuse, and reserves what the model may write."""
    body = RequestBody(json.dumps({"max_output_tokens": value}).encode())

    assert TurnRequest(body, "m", (), splices_store=False).max_output_tokens == limit


@pytest.mark.parametrize("text", ["hi", "caf\u00e9 \u20ac \U0001f600"], ids=["ascii", "beyond"])
def test_a_body_knows_how_many_bytes_it_has_also_when_it_is_written_anew(text: str) -> None:
    """C5, W10: without being encoded for it."""
    raw = json.dumps({"input": text}, ensure_ascii=False).encode()
    body = RequestBody(raw)
    again = body.rewritten({"model": '"m"'}, (), body.contents)
    assert (body.size_bytes, again.size_bytes) == (len(raw), len(raw) + len('"model":"m",'))
    assert again.text.encode() == raw.replace(b"{", b'{"model":"m",')


def test_a_member_that_is_looked_for_is_found_as_it_is_written() -> None:
    """H3."""
    body = RequestBody(b'{"a": 1, "b" : [1.50]}')
    assert (body.text_of("b"), body.text_of("c")) == ("[1.50]", None)


def test_what_some_members_take_is_bounded_without_writing_them() -> None:
    """C5: each character by the most bytes that it may have, and one more for each member."""
    body = RequestBody(b'{"a": 1, "b": true, "c": 2}')
    assert body.extent_bytes_max(["b", "c", "d"]) == 4 * len('"b": true, "c": 2') + 2


@pytest.mark.parametrize("written", ["1e999", "1e400", "9" * 400])
def test_an_output_limit_that_no_number_holds_is_none_that_is_less_than_the_most(written: str) -> None:
    """B6: JSON knows it; it is no bug of the gateway's."""
    body = RequestBody(f'{{"max_output_tokens":{written}}}'.encode())
    assert TurnRequest(body, "m", (), splices_store=False).max_output_tokens == TOKENS_MAX


def test_a_body_that_rests_is_read_again_for_who_asks() -> None:
    """H3, R15: a replay sends what the first attempt has sent."""
    raw = b'{"model": "m", "input": [{"role": "user", "content": "hi"}], "stream": true}'
    body, rested = RequestBody(raw), RequestBody(raw)
    rested.rest()
    assert rested.contents == body.contents
    rested.rest()
    assert (rested.get("model"), rested.get("none")) == ("m", None)
    rested.rest()
    assert rested.fields == body.fields
    rested.rest()
    assert rested.spliced(replaced={"model": "n"}) == body.spliced(replaced={"model": "n"})
    rested.rest()
    assert (rested.members, rested.text_of("model")) == (body.members, '"m"')


@pytest.mark.parametrize(("brackets", "is_read_again"), [(REREAD_BRACKETS_MAX, True), (REREAD_BRACKETS_MAX + 1, False)])
def test_a_body_that_may_be_deep_keeps_its_places(brackets: int, is_read_again: bool) -> None:
    """R15: how deep a body may be depends on the stack it is read on; a replay must not fail where the door did not."""
    depth = brackets - 1
    body = RequestBody(b'{"input": ' + b"[" * depth + b"]" * depth + b"}")
    places = body.members
    body.rest()
    assert (body.members is not places) is is_read_again
    assert body.members == places


@pytest.mark.parametrize(("excess", "is_read_again"), [(-1, True), (0, True), (1, False)])
def test_a_body_that_takes_long_to_read_keeps_its_places(excess: int, is_read_again: bool) -> None:
    frame = '{"input": "%s"}'
    body = RequestBody((frame % ("x" * (REREAD_BYTES_MAX + excess - len(frame) + 2))).encode())
    assert body.size_bytes == REREAD_BYTES_MAX + excess
    members = body.members
    body.rest()
    assert (body.members is not members) is is_read_again
