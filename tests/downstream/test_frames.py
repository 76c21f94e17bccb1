"""A client's frames, read and sorted, and the line they wait in (W2, W3, W5, W8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway import limits
from gateway.downstream.frames import Create, Frame, Line, Refused, Steer, read_frame

MIB = limits.MIB


def read(frame: Any, size_max: int = 10_000) -> Frame:
    """Sort an object, or a message as it is."""
    return read_frame(frame if isinstance(frame, str | bytes) else json.dumps(frame), size_max)


def refused(frame: Any, size_max: int = 10_000) -> tuple[str, str | None]:
    """The code and param with which it is refused."""
    result = read(frame, size_max)
    assert isinstance(result, Refused), result
    return result.refusal.code, result.refusal.param


# --- sorting (W2, W5) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": True},
        {"stream": False},
        {"stream": "nonsense"},
        {"background": False},
        {"background": None},
        {"generate": True},
        {"generate": None},
        {"generate": False},
        {"stream_id": None},
        {"event_id": 7},
        {"unknown": [1]},
    ],
)
def test_a_create_asks_for_a_turn(fields: dict[str, Any]) -> None:
    """W2: it always streams: what `stream` says is ignored; unknown fields pass (H3)."""
    text = json.dumps({"type": "response.create", "model": "m", **fields})
    frame = read(text)

    assert isinstance(frame, Create)
    assert (frame.stream_id, frame.size_bytes, frame.body.text) == (None, len(text), text)


NO_JSON_OBJECTS = [
    *["", " ", "nope", "{", '{"type":"response.create"', "[]", '"response.create"', "null", "1", '{"type":NaN}'],
    *['{"a":1,"a":2,"type":"response.create"}', '{"type":"response.create"} {}', "\ufeff{}", "[" * 100_000],
]


@pytest.mark.parametrize("message", NO_JSON_OBJECTS)
def test_a_frame_that_is_no_json_object_is_refused(message: str) -> None:
    """W5, H3."""
    assert refused(message, MIB) == ("invalid_json", None)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"type":"response.create"}', b"\xff\xfe"])
def test_a_binary_frame_is_refused(data: bytes) -> None:
    """W5: even where it holds a create."""
    assert refused(data) == ("invalid_request", None)


@pytest.mark.parametrize("frame", [{}, {"type": None}, {"type": ""}, {"type": 7}, {"type": ["response.create"]}])
def test_a_frame_without_a_type_is_refused(frame: dict[str, Any]) -> None:
    """W5."""
    assert refused(frame) == ("invalid_request", "type")


@pytest.mark.parametrize(
    "kind", ["response.cancel", "response.append", "response.processed", "response.inject", "session.update", "x" * 999]
)
def test_an_event_that_is_not_known_is_refused_by_its_name(kind: str) -> None:
    """W2: the answer names it, in bounds."""
    frame = read({"type": kind})

    assert isinstance(frame, Refused)
    assert (frame.refusal.code, frame.refusal.param) == ("unsupported_event", "type")
    assert kind[:100] in frame.refusal.message
    assert len(frame.refusal.message) < 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"background": "yes"}, "background"),
        ({"background": 1}, "background"),
    ],
)
def test_what_later_brings_is_refused_by_its_name_and_never_faked(fields: dict[str, Any], param: str) -> None:
    """W2."""
    assert refused({"type": "response.create", "model": "m", **fields}) == ("unsupported_parameter", param)


@pytest.mark.parametrize("stream_id", ["a", "main", "A-z_0.9", "x" * 256])
def test_a_stream_id_is_kept(stream_id: str) -> None:
    """W8."""
    frame = read({"type": "response.create", "stream_id": stream_id})
    assert isinstance(frame, Create)
    assert frame.stream_id == stream_id


@pytest.mark.parametrize("stream_id", ["", " ", "a b", "a\n", "é", "a/b", "x" * 257, 7, True, ["a"], {}])
def test_a_stream_id_of_another_form_is_refused(stream_id: Any) -> None:
    """W8."""
    assert refused({"type": "response.create", "stream_id": stream_id}) == ("invalid_stream_id", "stream_id")


@pytest.mark.parametrize("kind", ["response.create", "response.cancel", None])
def test_a_refusal_repeats_what_tells_its_frame_apart(kind: str | None) -> None:
    """W5: `event_id` and `stream_id`, where they are text."""
    frame = {"type": kind, "event_id": "e-1", "stream_id": "s", "background": True}
    result = read(frame)

    assert isinstance(result, Refused)
    assert result.echo == {"event_id": "e-1", "stream_id": "s"}


def test_an_id_that_is_no_text_is_not_repeated() -> None:
    """W5: what is not a string could be anything of any size."""
    result = read({"event_id": 1, "stream_id": ["s"]})

    assert isinstance(result, Refused)
    assert result.echo == {}


def test_a_steer_keeps_its_input() -> None:
    """W2: it must be returned."""
    frame = read({"type": "response.steer", "previous_response_id": "resp_1", "input": [{"role": "user"}]})

    assert isinstance(frame, Steer)
    assert frame.body.get("input") == [{"role": "user"}]


@pytest.mark.parametrize(
    "message", ["x" * 101, "é" * 51, b"x" * 101, json.dumps({"type": "response.create"}).ljust(101)]
)
def test_a_frame_above_the_limit_is_refused_whatever_it_holds(message: str | bytes) -> None:
    """W1: in bytes, not in characters."""
    assert refused(message, 100) == ("payload_too_large", None)


@pytest.mark.parametrize("filler", ["x", "é"])
def test_a_frame_of_exactly_the_limit_is_read(filler: str) -> None:
    """W1."""
    text = '{"type":"response.create","input":"' + filler * 50 + '"}'
    size = len(text.encode())

    assert isinstance(read(text, size), Create)
    assert refused(text, size - 1) == ("payload_too_large", None)


# --- the line (W3) --------------------------------------------------------------------------------------------------


def create(number: int = 0, size_bytes: int = 1) -> Create:
    """A create of any size that its line counts."""
    frame = read({"type": "response.create", "event_id": f"e{number}"})
    assert isinstance(frame, Create)
    return Create(frame.body, None, size_bytes)


def line() -> Line:
    """A line with the limits of the specification."""
    return Line(limits.WAITING_CREATES_MAX, limits.WAITING_BYTES_MAX)


def names(held: Line) -> list[str]:
    """What is in the line, first to last; a refused frame by its code."""
    found = []
    while len(held) > 0:
        frame = held.next()
        found.append(frame.refusal.code if isinstance(frame, Refused) else type(frame).__name__)
    return found


@pytest.mark.parametrize(("turn_runs", "taken"), [(True, 16), (False, 17)])
def test_sixteen_creates_may_wait_and_the_next_is_refused_in_its_place(turn_runs: bool, taken: int) -> None:
    """W3: while no turn runs, the first of them does not wait."""
    held = line()
    for number in range(taken + 2):
        held.join(create(number), turn_runs=turn_runs)

    assert names(held) == ["Create"] * taken + ["response_queue_full"] * 2


def test_a_create_that_found_the_line_full_does_not_take_the_place_that_comes_free() -> None:
    """W3: answers keep the order of their frames."""
    held = line()
    for number in range(17):
        held.join(create(number), turn_runs=True)
    first = held.next()
    held.join(create(17), turn_runs=True)

    assert isinstance(first, Create)
    assert names(held) == ["Create"] * 15 + ["response_queue_full", "Create"]


@pytest.mark.parametrize(
    ("sizes", "result"),
    [
        ([32 * MIB, 32 * MIB], ["Create"] * 2),
        ([32 * MIB, 32 * MIB, 1], ["Create"] * 2 + ["response_queue_full"]),
        ([32 * MIB, 32 * MIB - 1, 1], ["Create"] * 3),
        ([32 * MIB, 32 * MIB - 1, 2, 1], ["Create"] * 2 + ["response_queue_full", "Create"]),
        ([65 * MIB, 1], ["Create", "response_queue_full"]),
    ],
)
def test_what_waits_is_bounded_in_bytes(sizes: list[int], result: list[str]) -> None:
    """W3: exactly 64 MiB may wait. One alone is bounded by its own limit only."""
    held = line()
    for number, size in enumerate(sizes):
        held.join(create(number, size), turn_runs=True)

    assert names(held) == result


def test_bytes_come_free_with_their_create() -> None:
    """W3."""
    held = line()
    held.join(create(0, 64 * MIB), turn_runs=True)
    held.next()
    held.join(create(1, 64 * MIB), turn_runs=True)

    assert names(held) == ["Create"]


def test_refusals_and_steers_are_counted_as_unanswered_and_take_no_create_s_place() -> None:
    """W3, W5."""
    held = line()
    for _ in range(16):
        held.join(read("nope"), turn_runs=True)
        held.join(create(), turn_runs=True)
    held.join(read({"type": "response.steer"}), turn_runs=True)
    held.join(create(), turn_runs=True)

    assert held.unanswered == 18
    assert len(held) == 34
    assert repr(held) == "<Line 16 creates, 18 others>"


def test_a_full_line_s_refusal_repeats_what_tells_its_frame_apart() -> None:
    """W5."""
    held = Line(0, limits.WAITING_BYTES_MAX)
    held.join(create(7), turn_runs=True)
    frame = held.next()

    assert isinstance(frame, Refused)
    assert frame.echo == {"event_id": "e7"}
