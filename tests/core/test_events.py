"""What an upstream event is (E), and that nothing an upstream sends can raise (E8)."""

import json
import sys
from time import process_time
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.events import (
    CODE_CHARACTERS_MAX,
    ID_CHARACTERS_MAX,
    MESSAGE_CHARACTERS_MAX,
    Event,
    EventClass,
    classify,
    delivered_text_bytes,
    error_code,
    error_message,
    error_status,
    event_sequence_number,
    has_output_items,
    is_marked_retryable,
    parse_object,
    read_event,
    response_id,
    sequence_number,
    usages,
)
from gateway.core.money import read_usage, usage_was_observed
from gateway.limits import INLINE_BODY_BYTES_MAX

JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
READ_NAMES: Final = st.sampled_from(
    [
        "type",
        "error",
        "code",
        "message",
        "response",
        "status",
        "status_code",
        "retryable",
        "usage",
        "id",
        "output",
        "sequence_number",
        "delta",
        "input_tokens",
        "output_tokens",
        "input_tokens_details",
        "cached_tokens",
    ]
)
EVENT_LIKE: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["error", "response.failed"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(READ_NAMES, inner, max_size=6),
    max_leaves=20,
)
SECONDS_MAX: Final = 5.0
"""Of CPU, for work on 32 MiB that takes a tenth of it; work that is not linear takes minutes."""


def event(payload: Any) -> Event:
    """The event of a payload, as an upstream would write it."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    found = read_event(data, b"data: " + data + b"\n\n")
    assert found is not None
    return found


# --- E1 to E5: the classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event_type", "kind"),
    [
        pytest.param("response.created", EventClass.LIFECYCLE, id="E1-created"),
        pytest.param("response.queued", EventClass.LIFECYCLE, id="E1-queued"),
        pytest.param("response.in_progress", EventClass.LIFECYCLE, id="E1-in_progress"),
        pytest.param("keepalive", EventClass.NEUTRAL, id="E2-keepalive"),
        pytest.param("codex.rate_limits", EventClass.NEUTRAL, id="E2-codex"),
        pytest.param("response.metadata", EventClass.NEUTRAL, id="E2-metadata"),
        pytest.param("responses.created", EventClass.NEUTRAL, id="E2-other-prefix"),
        pytest.param("response", EventClass.NEUTRAL, id="E2-prefix-without-its-dot"),
        pytest.param("Response.completed", EventClass.NEUTRAL, id="E2-other-case"),
        pytest.param("errors", EventClass.NEUTRAL, id="E2-not-quite-error"),
        pytest.param("", EventClass.NEUTRAL, id="E2-empty"),
        pytest.param("response.output_item.added", EventClass.OUTPUT, id="E3-item"),
        pytest.param("response.output_text.delta", EventClass.OUTPUT, id="E3-delta"),
        pytest.param("response.reasoning_summary_text.delta", EventClass.OUTPUT, id="E3-reasoning"),
        pytest.param("response.mcp_list_tools.in_progress", EventClass.OUTPUT, id="E3-hosted-tool"),
        pytest.param("response.created.again", EventClass.OUTPUT, id="E3-unknown-longer"),
        pytest.param("response.error", EventClass.OUTPUT, id="E3-unknown-error"),
        pytest.param("response.zß水", EventClass.OUTPUT, id="E3-unknown-not-ascii"),
        pytest.param("response.", EventClass.OUTPUT, id="E3-unknown-empty"),
        pytest.param("response.completed", EventClass.TERMINAL, id="E4-completed"),
        pytest.param("response.incomplete", EventClass.TERMINAL, id="E4-incomplete"),
        pytest.param("response.failed", EventClass.TERMINAL, id="E4-failed"),
        pytest.param("response.cancelled", EventClass.TERMINAL, id="E4-cancelled"),
        pytest.param("error", EventClass.ERROR, id="E5-error"),
    ],
)
def test_a_type_has_one_class_however_its_event_is_read(event_type: str, kind: EventClass) -> None:
    first, later = event({"type": event_type, "n": 1}), event({"n": 1, "type": event_type})

    assert (classify(event_type), first.kind, later.kind, first.type) == (kind, kind, kind, event_type)


@pytest.mark.parametrize(
    ("payload", "kind", "event_type"),
    [
        pytest.param({"error": {"code": "x"}}, EventClass.ERROR, "error", id="E5-no-type"),
        pytest.param({"error": "broken"}, EventClass.ERROR, "error", id="E5-error-is-text"),
        pytest.param({"error": ["broken"]}, EventClass.ERROR, "error", id="E5-error-is-a-list"),
        pytest.param({"type": None, "error": {"code": "x"}}, EventClass.ERROR, "error", id="E5-type-is-null"),
        pytest.param({"type": 7, "error": 1}, EventClass.ERROR, "error", id="E5-type-is-a-number"),
        pytest.param({"type": "ping", "error": {"code": "x"}}, EventClass.NEUTRAL, "ping", id="E5-type-wins"),
        pytest.param({"error": None}, EventClass.NEUTRAL, "", id="E2-error-is-null"),
        pytest.param({"error": {}}, EventClass.NEUTRAL, "", id="E2-error-is-empty"),
        pytest.param({}, EventClass.NEUTRAL, "", id="E2-empty-object"),
        pytest.param({"type": {"type": "error"}}, EventClass.NEUTRAL, "", id="E2-type-is-an-object"),
    ],
)
def test_an_object_without_a_type_is_an_error_if_it_carries_one(
    payload: Any, kind: EventClass, event_type: str
) -> None:
    data = json.dumps(payload).encode()

    assert read_event(data, b"the block") == Event(kind, event_type, data, b"the block", payload)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[DONE]",
        b"null",
        b"3",
        b'"response.created"',
        b'[{"type":"error"}]',
        b"{",
        b'{"type":"response.created"',
        b'{"type":"response.output_text.delta","delta":"a',
        b'{"type":"response.completed"} {"type":"response.completed"}',
        b"{'type':'error'}",
        b"\x0b" + b'{"type":"response.output_text.delta"}',
        b'{"type":"response.output_text.delta"}\x0b',
        b"<html>",
        b"\xff\xfe",
    ],
)
def test_what_is_no_json_object_is_no_event(data: bytes) -> None:
    """E7."""
    assert read_event(data, data) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.output_text.delta","delta":"a"}',
        b' \t\n{ "type" :\r\n"response.output_text.delta" , "delta":"a" } \n',
        b'{"delta":"a","type":"response.output_text.delta"}',
        b'{"t\\u0079pe":"response.output_text.delta"}',
        b'{"type":"response.output_text.del\\u0074a"}',
        b'{"type":"response.created","type":"response.output_text.delta"}',
    ],
    ids=["plain", "spaced", "type-last", "escaped-key", "escaped-type", "type-twice"],
)
def test_output_is_known_by_its_json_type_and_keeps_its_bytes(data: bytes) -> None:
    """E3, E7, E10: output has no parsed body, whether it was parsed or not."""
    found = read_event(data, b"the block")

    assert found == Event(EventClass.OUTPUT, "response.output_text.delta", data, b"the block", None)


def test_of_two_types_an_output_type_in_first_place_decides() -> None:
    """E3: the safe side, for it ends replayability; and no output event is searched for a second type."""
    found = event(b'{"type":"response.output_text.delta","type":"response.created"}')

    assert found.kind is EventClass.OUTPUT


def test_output_is_not_parsed() -> None:
    """E3: what stands behind the type is not read; here it could not be."""
    found = event(b'{"type":"response.output_text.delta","delta":' + b"[" * 100_000 + b"}")

    assert (found.kind, found.body) == (EventClass.OUTPUT, None)


# --- E8: nothing an upstream sends may raise ----------------------------------------------------------------------


def read_everything(found: Event) -> list[object]:
    """All that the gateway reads from an event."""
    body = found.body
    texts = [error_code(body), error_message(body), response_id(body)]
    metered = [(read_usage(usage), usage_was_observed(usage)) for usage in usages(body)]
    numbers = [error_status(body), sequence_number(body), event_sequence_number(found), delivered_text_bytes(found)]
    return [texts, metered, numbers, is_marked_retryable(body), has_output_items(body)]


@given(st.dictionaries(READ_NAMES, EVENT_LIKE, max_size=6))
@settings(max_examples=120, deadline=None)
def test_no_object_can_raise(payload: dict[str, Any]) -> None:
    """E8, with the names that are read and every kind of value under them."""
    assert read_everything(event(payload))


@given(st.binary(max_size=60), st.sampled_from([b"", b'{"type":"response.output_text.delta",', b'{"error":', b"{"]))
@settings(max_examples=150, deadline=None)
def test_no_bytes_can_raise(data: bytes, start: bytes) -> None:
    """E8."""
    found = read_event(start + data + b"}", b"")

    assert found is None or read_everything(found)


@pytest.mark.parametrize("levels", [500, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_nesting_never_overflows_a_stack(opening: bytes, levels: int) -> None:
    """E8: deep payloads are read or are no events; either way nothing raises."""
    closing = b"]" if opening == b"[" else b"}"
    data = b'{"type":"response.failed","response":{"usage":' + opening * levels + b"1" + closing * levels + b"}}"
    found = read_event(data, data)

    assert found is None or read_everything(found)


def test_a_usage_of_any_depth_can_be_looked_through() -> None:
    """R4, E8: newer interpreters parse more levels than a recursion may have."""
    usage: list[object] = [1]
    for _ in range(100_000):
        usage = [usage]

    assert usage_was_observed(usage)


@pytest.mark.parametrize("digits", [399, 400, 5_000, 1_000_000])
def test_integers_of_any_length_are_read(digits: int) -> None:
    """E8: the interpreter itself refuses more than 4,300 digits."""
    data = b'{"type":"response.completed","response":{"usage":{"input_tokens":-' + b"9" * digits + b"}}}"

    assert usage_was_observed(usages(event(data).body)[0])


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_terminal_event_with_a_number_outside_json_is_still_one(constant: str) -> None:
    """E8: a finished answer is not thrown away for it."""
    found = event(b'{"type":"response.completed","n":' + constant.encode() + b"}")

    assert found.kind is EventClass.TERMINAL


def test_bug_9_invalid_utf8_is_read_and_kept() -> None:
    data = b'{"type":"response.completed","response":{"id":"resp_1"},"x":"\xff\xfe"}'
    found = event(data)

    assert (found.data, response_id(found.body)) == (data, "resp_1")


def test_bug_53_lone_surrogates_in_an_event_are_forwarded_and_its_usage_read() -> None:
    data = b'{"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":1},"x":"\\udc00"}}'
    found = event(data)

    assert (found.data, usages(found.body)) == (data, [{"input_tokens": 3, "output_tokens": 1}])


@pytest.mark.parametrize(
    "response",
    [
        None,
        "text",
        [],
        {"output": None, "usage": None, "error": None, "incomplete_details": None},
        {"id": None, "output": 7, "usage": None, "error": []},
    ],
)
def test_bug_16_nulls_and_surprises_in_a_terminal_event_are_legal(response: Any) -> None:
    found = event({"type": "response.completed", "response": response})

    assert (found.kind, usages(found.body), response_id(found.body)) == (EventClass.TERMINAL, [], None)


# --- E8: the error's code, words, status and mark -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"error": {"code": "a", "type": "b"}, "code": "c"}, "a"),
        ({"error": {"code": None, "type": "b"}, "code": "c"}, "b"),
        ({"error": {"code": "", "type": 5}, "code": "c"}, "c"),
        ({"error": {"code": 503}, "code": "c", "response": {"error": {"code": "d"}}}, "c"),
        ({"code": ["c"], "response": {"error": {"code": "d", "type": "e"}}, "status": "f"}, "d"),
        ({"response": {"error": {"code": None, "type": "e"}}, "status": "f"}, "e"),
        ({"response": {"error": None}, "status": "f"}, "f"),
        ({"status": 503}, None),
        ({"error": "a"}, None),
        ({"error": ["a"]}, None),
        ({"error": None, "response": None}, None),
        ({}, None),
        ({"error": {"code": "x" * CODE_CHARACTERS_MAX}}, "x" * CODE_CHARACTERS_MAX),
        ({"error": {"code": "x" * (CODE_CHARACTERS_MAX + 1), "type": "b"}}, "b"),
        ({"error": {"code": "a\nb", "type": "b"}}, "b"),
        ({"error": {"code": "a\0", "type": "b"}}, "b"),
        ({"error": {"code": "\ud800", "type": "b"}}, "b"),
    ],
)
def test_a_code_is_the_first_name_at_the_places_of_e8(payload: Any, code: str | None) -> None:
    assert error_code(payload) == code


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"error": {"message": "a"}, "message": "b"}, "a"),
        ({"error": {"message": None}, "message": "b"}, "b"),
        ({"response": {"error": {"message": "c"}}}, "c"),
        ({"error": "just words"}, "just words"),
        ({"error": {"message": ["a"]}}, None),
        ({"error": {"message": "x" * (MESSAGE_CHARACTERS_MAX + 1)}}, "x" * MESSAGE_CHARACTERS_MAX),
        ({"message": "北\ud83d\0!"}, "北??!"),
    ],
)
def test_a_message_is_the_upstreams_own_words(payload: Any, message: str | None) -> None:
    """E8."""
    assert error_message(payload) == message


@given(st.text(st.characters(), min_size=1))
@example("\ud800")
@example("\0")
@settings(max_examples=100, deadline=None)
def test_what_is_kept_of_an_event_fits_every_store(text: str) -> None:
    """E8: text that cannot be encoded, or has a NUL, raises in a store long after the event."""
    payload = {"error": {"code": text, "message": text}, "response": {"id": text}}
    kept = [found for found in (error_code(payload), error_message(payload), response_id(payload)) if found is not None]

    assert not any(b"\0" in found.encode() for found in kept)


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ({"status": 400}, 400),
        ({"status": "524"}, 524),
        ({"status_code": 429}, 429),
        ({"error": {"status": 503}}, 503),
        ({"error": {"status_code": "504"}}, 504),
        ({"status": "failed", "error": {"status": 503}}, 503),
        ({"status": 99}, None),
        ({"status": 100}, 100),
        ({"status": 599}, 599),
        ({"status": 600}, None),
        ({"status": True}, None),
        ({"status": 503.0}, None),
        ({"status": "²²²"}, None),
        ({"status": "0503"}, None),
        ({"status": None}, None),
        ({}, None),
    ],
)
def test_a_status_is_an_http_status_or_nothing(payload: Any, status: int | None) -> None:
    """E8, F."""
    assert error_status(payload) == status


@pytest.mark.parametrize(
    ("payload", "mark"),
    [
        ({"error": {"retryable": True}, "retryable": False}, True),
        ({"error": {"retryable": "true"}, "retryable": False}, False),
        ({"response": {"error": {"retryable": False}}}, False),
        ({"error": {"retryable": 1}}, None),
        ({"retryable": None}, None),
        ({"error": [True]}, None),
    ],
)
def test_only_a_boolean_marks_a_failure_as_retryable(payload: Any, mark: bool | None) -> None:
    """F, row 4."""
    assert is_marked_retryable(payload) is mark


# --- what else is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("resp_1", "resp_1"),
        ("r" * ID_CHARACTERS_MAX, "r" * ID_CHARACTERS_MAX),
        ("r" * (ID_CHARACTERS_MAX + 1), None),
        ("resp\n1", None),
        ("", None),
        (1, None),
        (None, None),
    ],
)
def test_a_response_id_is_a_name(value: Any, found: str | None) -> None:
    """O1, E8."""
    assert response_id({"response": {"id": value}}) == found


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        ({"type": "response.created", "sequence_number": 0}, 0),
        ({"type": "response.output_text.delta", "sequence_number": 7}, 7),
        ({"type": "response.output_text.delta", "sequence_number": "7"}, None),
        ({"type": "response.created", "sequence_number": True}, None),
        ({"type": "response.created", "sequence_number": 1.0}, None),
        ({"type": "response.created"}, None),
    ],
)
def test_bug_14_an_event_has_a_number_only_if_the_upstream_numbers(payload: Any, number: int | None) -> None:
    """X3."""
    assert event_sequence_number(event(payload)) == number


@pytest.mark.parametrize(
    ("output", "has_items"), [([], False), (None, False), ([{"type": "message"}], True), ("text", True), ({}, False)]
)
def test_a_failure_with_output_items_has_a_result(output: Any, has_items: bool) -> None:
    """R4."""
    assert has_output_items({"response": {"output": output}}) is has_items


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        ({"response": {"usage": {"input_tokens": 1}}, "usage": 2}, [{"input_tokens": 1}, 2]),
        ({"response": {"usage": None}, "usage": None}, []),
        ({"response": {"usage": 0}}, [0]),
        ({"response": "usage", "usage": "x"}, ["x"]),
    ],
)
def test_every_usage_that_is_not_null_is_seen(payload: Any, found: list[object]) -> None:
    """R4."""
    assert usages(payload) == found


@given(st.text(), st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", "\n:\r ")]))
@settings(max_examples=150, deadline=None)
def test_a_deltas_text_is_counted_in_utf8_bytes(text: str, ensure_ascii: bool, separators: tuple[str, str]) -> None:
    """B4: escapes count as what they stand for; a delta inside another member's text is none."""
    payload = {"type": "response.output_text.delta", "item_id": '"delta":"no"', "delta": text, "logprobs": []}
    data = json.dumps(payload, ensure_ascii=ensure_ascii, separators=separators).encode()

    assert delivered_text_bytes(event(data)) == len(text.encode())


@given(st.lists(st.tuples(st.sampled_from(["a.delta", "b.delta", "audio.delta", "done"]), st.text(max_size=3))))
@settings(max_examples=100, deadline=None)
def test_the_text_of_events_is_the_sum_of_theirs(written: list[tuple[str, str]]) -> None:
    """B4: whatever stands between what."""
    events = [event({"type": f"response.{name}", "delta": text}) for name, text in written]
    texts = [text for name, text in written if name in ("a.delta", "b.delta")]

    assert delivered_text_bytes(*events) == len("".join(texts).encode())


def test_bug_53_a_lone_surrogate_in_a_delta_counts_as_three_bytes() -> None:
    """B4."""
    assert delivered_text_bytes(event(b'{"type":"response.output_text.delta","delta":"\\udc00\\n"}')) == 4


def test_a_delta_that_is_no_json_text_counts_as_it_came() -> None:
    """B4, E8."""
    assert delivered_text_bytes(event(b'{"type":"response.output_text.delta","delta":"a\\x"}')) == 3


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "response.audio.delta", "delta": "QUJD"},
        {"type": "response.output_text.done", "delta": "text"},
        {"type": "response.output_text.delta", "delta": None},
        {"type": "response.output_text.delta"},
        {"type": "response.output_text.delta", "delta": ""},
        {"type": "response.output_text.delta", "text": '"delta":"x"'},
    ],
)
def test_what_carries_no_text_counts_nothing(payload: Any) -> None:
    """B4: base64 is never counted as text."""
    assert delivered_text_bytes(event(payload)) == 0


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.function_call_arguments.delta","delta":"' + b"a" * (32 << 20) + b'"}',
        b'{"type":"response.function_call_arguments.delta","delta":"' + b"\\n" * (8 << 20) + b'"}',
        b'{"type":"response.function_call_arguments.delta","delta":"' + b"\\" * (8 << 20) + b"}",
        b'{"type":"response.function_call_arguments.delta",' + b'"delta":"x' * (3 << 20) + b"}",
        b'{"type":"response.completed","x":"' + b"\xf0" * (8 << 20) + b'"}',
    ],
    ids=["plain", "escapes", "backslashes", "unclosed", "invalid-utf8"],
)
def test_bug_10_the_largest_events_are_read_in_linear_time(data: bytes) -> None:
    """P7."""
    started = process_time()
    read_everything(event(data))

    assert process_time() - started < SECONDS_MAX


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4))
@settings(max_examples=100, deadline=None)
def test_parsing_gives_what_json_gives(payload: dict[str, Any]) -> None:
    """E8: lenient, but never different."""
    assert repr(parse_object(json.dumps(payload).encode())) == repr(payload)


@pytest.mark.parametrize("behind", ["", " ", "\n\t"])
def test_an_output_event_is_never_parsed(behind: str) -> None:
    """E3: what stands behind its type is the client's to read, whatever it is."""
    data = f'{{"type":"response.a.delta","delta":oops}}{behind}'.encode()
    read = read_event(data, data)
    assert read is not None
    assert (read.kind, read.type, read.data) == (EventClass.OUTPUT, "response.a.delta", data)


@pytest.mark.parametrize(("digits", "kind"), [(399, int), (400, float), (401, float)])
def test_a_number_that_no_integer_can_be_is_a_number_all_the_same(digits: int, kind: type) -> None:
    """E8: Python refuses an integer of thousands of digits."""
    body = parse_object(b'{"a":' + b"9" * digits + b"}")
    assert body is not None
    assert type(body["a"]) is kind


@pytest.mark.parametrize(("over_bytes", "lets_others_run"), [(-1, False), (0, False), (1, True)])
def test_a_body_that_is_read_beside_the_event_loop_lets_it_run_at_each_object(
    over_bytes: int, lets_others_run: bool
) -> None:
    """P7: a scanner in C holds the interpreter until it is done; what is small is read the quicker way."""
    objects = b'{"a":[' + b",".join([b"{}"] * 1000) + b'],"b":"%s"}'
    data = objects % (b"x" * (INLINE_BODY_BYTES_MAX + over_bytes - len(objects % b"")))
    calls: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _argument: calls.append(event))
    try:
        body = parse_object(data)
    finally:
        sys.setprofile(before)
    assert body is not None
    assert (len(data), len(body["a"])) == (INLINE_BODY_BYTES_MAX + over_bytes, 1000)
    assert (calls.count("call") > 1000) is lets_others_run
