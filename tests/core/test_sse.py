"""Server-sent events, byte for byte (P1–P7, E7, E10), against a decoder that knows nothing of chunks."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from time import process_time
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.events import Event, EventClass, classify, parse_object
from gateway.core.sse import BlockTooLarge, SSEParser, block_data, read_block, sse_block

BLOCK_BYTES_MAX: Final = 32 << 20
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
SECONDS_MAX: Final = 10.0
"""Of CPU, for work that takes a tenth of it; work that is not linear takes minutes."""

CREATED: Final = b'{"type":"response.created","response":{"id":"resp_1"}}'
DELTA: Final = b'{"type":"response.output_text.delta","delta":"a"}'
COMPLETED: Final = b'{"type":"response.completed","response":{"usage":{"input_tokens":4,"output_tokens":1}}}'
KEEPALIVE: Final = b'{"type":"keepalive"}'


def parser_of(*chunks: bytes, block_bytes_max: int = BLOCK_BYTES_MAX) -> tuple[SSEParser, list[Event]]:
    """A parser that was fed, and the events it gave so far."""
    parser = SSEParser(block_bytes_max)
    events: list[Event] = []
    for chunk in chunks:
        parser.receive_data(chunk)
        events += iter(parser.next_event, None)
    return parser, events


def events_of(*chunks: bytes, clean: bool = True) -> list[Event]:
    """All events of a stream."""
    parser, events = parser_of(*chunks)
    last = parser.receive_end(clean=clean)
    return events if last is None else [*events, last]


def payloads(*chunks: bytes, clean: bool = True) -> list[bytes]:
    """The payloads of a stream's events."""
    return [event.data for event in events_of(*chunks, clean=clean)]


def cut(stream: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """The stream in chunks of these sizes, over and over."""
    at = 0
    for size in cycle(sizes):
        if at >= len(stream):
            return
        yield stream[at : at + size]
        at += size


def decoded(stream: bytes, *, clean: bool) -> list[bytes]:
    """The payloads of a stream, read as the standard has it: whole lines of the whole stream."""
    *lines, rest = re.split(rb"\r\n|\r|\n", stream.removeprefix(BYTE_ORDER_MARK))
    found: list[bytes] = []
    data: list[bytes] = []
    for line in lines:
        if line == b"":
            found += dispatched(data)
            data = []
        data += field(line)
    pending = dispatched([*data, *field(rest)])
    return found + [payload for payload in pending if clean and parse_object(payload) is not None]


def field(line: bytes) -> list[bytes]:
    """The value of a `data` line."""
    name, _, value = line.partition(b":")
    return [value.removeprefix(b" ")] if name == b"data" else []


def dispatched(data: list[bytes]) -> list[bytes]:
    """The payload of a block, if it is an event."""
    payload = b"\n".join(data)
    return [payload] if read_block(b"data: " + payload.replace(b"\n", b"\ndata: ") + b"\n\n") is not None else []


LINE_ENDS: Final = st.sampled_from([b"\n", b"\r", b"\r\n"])
LINES: Final = st.sampled_from(
    [
        b"",
        b"data: " + DELTA,
        b"data:" + DELTA,
        b"data:  " + DELTA,
        b"data: " + CREATED,
        b"data: " + COMPLETED,
        b"data: " + KEEPALIVE,
        b'data: {"type":',
        b'data: "response.output_text.delta",',
        b'data: "delta":"b"}',
        'data: {"type":"response.x","d":"\u2028\u2029\x85\x0b\x0c北"}'.encode(),
        b'data: {"type":"response.x","d":"\xff\xfe"}',
        b"data: [DONE]",
        b"data: not json",
        b"data:",
        b"data",
        b"data : x",
        b"datax: y",
        b": comment",
        b":",
        b"event: response.output_text.delta",
        b"event:response.failed",
        b"id: 7",
        b"retry: 9",
        BYTE_ORDER_MARK + b"data: " + DELTA,
    ]
)
STREAMS: Final = st.builds(
    lambda mark, lines, rest: mark + b"".join(line + end for line, end in lines) + rest,
    st.sampled_from([b"", b"", BYTE_ORDER_MARK]),
    st.lists(st.tuples(LINES, LINE_ENDS | st.just(b"\n\n") | st.just(b"\r\n\r\n")), max_size=12),
    st.sampled_from([b"", b"", b"data: " + COMPLETED, b'data: {"type":"response.comp', b"\r", b": x"]),
)
EVENTS: Final = st.sampled_from([DELTA, CREATED, KEEPALIVE])
BLANK_LINES: Final = st.sampled_from(
    [(end, blank) for end in (b"\n", b"\r", b"\r\n") for blank in (b"\n", b"\r", b"\r\n") if end + blank != b"\r\n"]
)
"""Two line ends; CR and LF together would be one."""
SIZES: Final = st.lists(st.integers(1, 80), min_size=1, max_size=5)


# --- any bytes, any chunks --------------------------------------------------------------------------------------------


@given(STREAMS, SIZES, st.booleans())
@example(b"data: " + DELTA + b"\r\n\r\n", [1], True)
@example(BYTE_ORDER_MARK + b"data: " + DELTA + b"\r\r\n\n", [1, 2], False)
@settings(max_examples=400, deadline=None)
def test_a_stream_gives_the_same_events_in_any_chunks(stream: bytes, sizes: list[int], clean: bool) -> None:
    """P1, P2, P3, P5, P6."""
    assert payloads(*cut(stream, sizes), clean=clean) == decoded(stream, clean=clean)


@given(STREAMS, SIZES)
@settings(max_examples=120, deadline=None)
def test_events_keep_the_bytes_they_came_in(stream: bytes, sizes: list[int]) -> None:
    """E10: an event's block is a piece of the stream, behind the block before it."""
    _, events = parser_of(*cut(stream, sizes))
    at = 0
    for event in events:
        at = stream.index(event.block, at) + len(event.block)

    assert [block_data(event.block) for event in events] == [event.data for event in events]


@given(st.lists(st.tuples(EVENTS, BLANK_LINES), min_size=1, max_size=8), SIZES)
@settings(max_examples=120, deadline=None)
def test_the_blocks_of_a_stream_of_events_are_the_stream(
    written: list[tuple[bytes, tuple[bytes, bytes]]], sizes: list[int]
) -> None:
    """E10, P1: line ends included, however they were cut; only the LF of a last CRLF may come when all is said."""
    stream = b"".join(b"event: x" + end + b"data: " + data + end + blank for data, (end, blank) in written)
    _, events = parser_of(*cut(stream, sizes))

    assert b"".join(event.block for event in events) in (stream, stream[:-1])


@given(STREAMS, SIZES)
@settings(max_examples=120, deadline=None)
def test_what_is_no_event_is_counted_alike_in_any_chunks(stream: bytes, sizes: list[int]) -> None:
    """E7."""
    cut_up, _ = parser_of(*cut(stream, sizes))
    whole, _ = parser_of(stream)

    assert cut_up.not_events == whole.not_events


@given(STREAMS, SIZES)
@settings(max_examples=120, deadline=None)
def test_events_may_be_asked_for_later(stream: bytes, sizes: list[int]) -> None:
    """P2: a reader that takes its events after several reads misses none."""
    parser = SSEParser(BLOCK_BYTES_MAX)
    for chunk in cut(stream, sizes):
        parser.receive_data(chunk)

    assert [event.data for event in iter(parser.next_event, None)] == [event.data for event in parser_of(stream)[1]]


def found_by_looks(stream: bytes, sizes: list[int], events_max: int) -> list[Event]:
    """The events of the stream in such chunks, which must be those of its bytes one by one: each look finds so many at
    most, and none behind a terminal one."""
    parser = SSEParser(BLOCK_BYTES_MAX)
    looks: list[list[Event]] = []
    for chunk in cut(stream, sizes):
        parser.receive_data(chunk)
        looks += iter(lambda: parser.next_events(events_max), [])
    by_the_byte, expected = parser_of(*cut(stream, [1]))
    found = [event for look in looks for event in look]

    assert [event._replace(block=b"") for event in found] == [event._replace(block=b"") for event in expected]
    assert parser.not_events == by_the_byte.not_events
    assert max(map(len, looks), default=0) <= events_max
    assert EventClass.TERMINAL not in {event.kind for look in looks for event in look[:-1]}
    return found


@given(STREAMS, SIZES | st.just([1 << 16]), st.integers(1, 5))
@example((b"data: " + DELTA + b"\n\n") * 5 + b"data: " + COMPLETED + b"\n\ndata: " + DELTA + b"\n\n", [1 << 16], 5)
@settings(max_examples=300, deadline=None)
def test_a_look_finds_what_is_found_one_by_one_from_bytes_that_come_one_by_one(
    stream: bytes, sizes: list[int], events_max: int
) -> None:
    """P2, E9: blocks that are read in one run are read as any block is; none behind a terminal event."""
    found_by_looks(stream, sizes, events_max)


LONG_DELTAS: Final = st.builds(
    lambda name, size: b'event: x\ndata: {"type":"response.' + name + b'","delta":"' + b"x" * size + b'"}\n\n',
    st.sampled_from([b"a.delta", b"b.delta", b"output_item.done"]),
    st.integers(0, 1500),
)
LONG_STREAMS: Final = st.lists(
    st.lists(LONG_DELTAS, min_size=4, max_size=20).map(b"".join)
    | st.builds(lambda odd, rest: odd + rest, LINES, st.sampled_from([b"\n\n", b"\n", b"\r\n\r\n", b"}\n\n", b""]))
    | st.sampled_from([b"data: " + COMPLETED + b"\n\n", b"data: " + CREATED + b"\n\n", b"\n"]),
    min_size=1,
    max_size=6,
).map(b"".join)


@given(LONG_STREAMS, st.lists(st.integers(1500, 9000), min_size=1, max_size=4), st.sampled_from([1, 3, 7, 256]))
@settings(max_examples=300, deadline=None)
def test_chunks_of_many_events_give_what_bytes_that_come_one_by_one_give(
    stream: bytes, sizes: list[int], events_max: int
) -> None:
    """P2, P4, E9, E10: events that are found by one look at a chunk are those that each look by itself finds."""
    assert all(event.block in stream for event in found_by_looks(stream, sizes, events_max))


@pytest.mark.parametrize("excess", [0, 1], ids=["at-the-limit", "above-it"])
def test_a_block_above_the_limit_is_refused_in_a_chunk_of_many_events(excess: int) -> None:
    """P7: the events before it are given; one of just the limit is an event."""
    block = b"data: " + DELTA + b"\n\n"
    long = b'data: {"type":"response.x","a":"' + b"x" * (1000 - 36 + excess) + b'"}\n\n'
    assert len(long) == 1000 + excess
    parser = SSEParser(1000)
    parser.receive_data(block * 60 + long + block)
    if not excess:
        assert [event.block for event in parser.next_events(99)] == [*[block] * 60, long, block]
        return
    with pytest.raises(BlockTooLarge) as refused:
        parser.next_events(99)
    assert [event.block for event in refused.value.events] == [block] * 60


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
def test_an_event_is_there_with_its_blank_line_and_no_byte_later(line_end: bytes) -> None:
    """P2: a blank line of CR is complete without the LF that may follow it."""
    stream = b"data: " + DELTA + line_end + line_end
    needed = len(stream) - (line_end == b"\r\n")
    _, too_early = parser_of(stream[: needed - 1])
    _, at_once = parser_of(stream[:needed])

    assert ([event.data for event in too_early], [event.data for event in at_once]) == ([], [DELTA])


def test_a_line_feed_that_comes_late_belongs_to_the_carriage_return_before_it() -> None:
    """P1, E10: it leads the next block and ends no line of it."""
    _, events = parser_of(b"data: " + DELTA + b"\r\n\r", b"\n", b"data: " + CREATED + b"\r\n\r")

    assert [event.block for event in events] == [b"data: " + DELTA + b"\r\n\r", b"\ndata: " + CREATED + b"\r\n\r"]


def test_a_late_line_feed_is_half_of_a_line_end_and_not_half_of_a_blank_line() -> None:
    """P1."""
    assert payloads(b"data: " + DELTA + b"\n\r", b"\n", b"data: " + CREATED + b"\n", b"\n") == [DELTA, CREATED]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("marks", [0, 1, 2])
def test_one_byte_order_mark_is_dropped(marks: int, size: int) -> None:
    """P3: a second one makes the first line unreadable, as it does everywhere."""
    stream = BYTE_ORDER_MARK * marks + b"data: " + DELTA + b"\n\ndata: " + CREATED + b"\n\n"

    assert payloads(*cut(stream, [size])) == ([DELTA, CREATED] if marks < 2 else [CREATED])


@pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb", b"\xef\xbb\xbf", b"\xef\xbb\n\n"])
def test_a_stream_of_a_byte_order_mark_or_less_has_no_event(start: bytes) -> None:
    """P3."""
    assert payloads(*cut(start, [1])) == []


# --- what is an event ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block",
    [
        b": comment\n\n",
        b"event: keepalive\n\n",
        b"data:\n\n",
        b"data\n\n",
        b"data: \n\n",
        b"data: [DONE]\n\n",
        b"data: [DONE] \n\n",
        b"data: 1\n\n",
        b"data: {\n\n",
        b"id: 1\nretry: 5\n\n",
        b" \n\n",
        b"data : {}\n\n",
        b"event: a\nxdata: {}\n\n",
        b"xdata: {}\n\n",
        b"DATA: {}\n\n",
        b'event: response.created\nevent: {"type":"response.created"}\n\n',
    ],
)
def test_a_block_without_an_object_is_counted_and_never_an_event(block: bytes) -> None:
    """E7, P4."""
    parser, events = parser_of(block)

    assert (events, parser.not_events) == ([], 1)


@pytest.mark.parametrize("block", [b"X\n\n", b"X\r\rX\n\n", b":\n\n", b"retry: 1\n\n"])
def test_whatever_has_a_letter_is_counted(block: bytes) -> None:
    """E7."""
    assert (parser_of(block)[0].not_events, parser_of(b"\n" + block)[0].not_events) == (block.count(b"X") or 1,) * 2


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_an_output_event_at_the_end_of_its_chunk_leaves_nothing(line_end: bytes) -> None:
    """E10, P2: its payload is its line's, and what comes next begins anew."""
    block = b"event: response.a.delta" + line_end + b'data: {"type":"response.a.delta"}' + line_end * 2
    assert repr(parser_of(block)[0]) == "<SSEParser 0 bytes pending, 0 blocks were no events>"
    parser, events = parser_of(block, block, block[:9], block[9:])
    assert [event.block for event in events] == [block] * 3
    assert {event.data for event in events} == {b'{"type":"response.a.delta"}'}
    assert repr(parser) == repr(SSEParser(1)) == "<SSEParser 0 bytes pending, 0 blocks were no events>"


@pytest.mark.parametrize("name", ["response.created", "response.a.delta", "response.completed", "keepalive"])
def test_an_event_has_the_class_of_its_type(name: str) -> None:
    """E1 to E4: however its block is read."""
    (event,) = events_of(b'data: {"type":"' + name.encode() + b'"}\n\n')
    assert (event.type, event.kind, event.body is None) == (name, classify(name), classify(name) is EventClass.OUTPUT)


def test_blank_lines_at_the_very_beginning_lead_no_event() -> None:
    """P4, E10."""
    block = b'data: {"type":"x"}\n\n'
    assert [event.block for event in events_of(b"\n\n" + block)] == [block]


def test_a_stream_of_two_bytes_is_one_block_that_is_no_event() -> None:
    """P3, E7: what cannot become a byte order mark is not waited with."""
    parser, _ = parser_of(b"a\n")
    assert repr(parser).startswith("<SSEParser 2 bytes")
    assert (parser.receive_end(clean=True), parser.not_events) == (None, 1)


def test_blank_lines_behind_a_block_that_came_in_two_lead_no_event() -> None:
    """P2, E10: each is a block of its own, of nothing."""
    one, other = b'data: {"type":"x"}\n\n', b'data: {"type":"y"}\n\n'
    assert [event.block for event in events_of(one[:9], one[9:] + b"\n\n" + other)] == [one, other]


def test_blank_lines_are_nothing_at_all() -> None:
    """P4: they are not even counted."""
    parser, events = parser_of(b"\n\n\r\n\r\n\r\r\n\n\n")

    assert (events, parser.not_events) == ([], 0)


@pytest.mark.parametrize(
    ("block", "data"),
    [
        pytest.param(b"data: " + DELTA + b"\n\n", DELTA, id="data-only"),
        pytest.param(b"event: message\ndata: " + DELTA + b"\n\n", DELTA, id="generic-event-line"),
        pytest.param(b"event: response.completed\ndata: " + DELTA + b"\n\n", DELTA, id="event-line-lies"),
        pytest.param(b"data: " + DELTA + b"\nevent: error\n\n", DELTA, id="event-line-last"),
        pytest.param(b"id: 3\nretry: 1\ndata: " + DELTA + b"\n\n", DELTA, id="other-fields"),
        pytest.param(b": hi\ndata: " + DELTA + b"\n:\n\n", DELTA, id="comments-inside"),
        pytest.param(b"event: x\nevent: y\ndata: " + DELTA + b"\n\n", DELTA, id="two-event-lines"),
        pytest.param(b"data:" + DELTA + b"\n\n", DELTA, id="no-space"),
        pytest.param(b"data:  " + DELTA + b"\n\n", b" " + DELTA, id="two-spaces"),
        pytest.param(b"data: " + DELTA + b" \n\n", DELTA + b" ", id="space-behind"),
        pytest.param(b"\ndata: " + DELTA + b"\n\n", DELTA, id="blank-line-before"),
        pytest.param(b"data:\ndata: " + DELTA + b"\ndata\n\n", b"\n" + DELTA + b"\n", id="empty-data-lines"),
        pytest.param(
            b'data: {"type":"response.output_text.delta",\ndata:"delta":\rdata: "a"}\r\n\r\n',
            b'{"type":"response.output_text.delta",\n"delta":\n"a"}',
            id="P5-three-data-lines",
        ),
        pytest.param(
            b'data: {"type":"response.output_text.delta",\rdata: "delta":"a"}\n\n',
            b'{"type":"response.output_text.delta",\n"delta":"a"}',
            id="P5-two-data-lines-parted-by-CR",
        ),
        pytest.param(
            b'data: {"type":"response.output_text.delta",\rid: 3\rdata: "delta":"a"}\r\n\r\n',
            b'{"type":"response.output_text.delta",\n"delta":"a"}',
            id="P5-other-lines-between-in-CR",
        ),
    ],
)
def test_bug_12_the_type_is_in_the_data_whatever_other_lines_say(block: bytes, data: bytes) -> None:
    """E7, E10, P5."""
    expected = Event(EventClass.OUTPUT, "response.output_text.delta", data, block, None)

    assert events_of(block) == [expected]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_bug_7_unicode_line_separators_are_not_line_ends(separator: str) -> None:
    """P1: the event is one, its bytes are untouched."""
    text = f"a{separator}b"
    blocks = [
        f'event: response.output_text.delta\ndata: {{"type":"response.output_text.delta","delta":"{text}"}}\n\n',
        f'event: response.completed\ndata: {{"type":"response.completed","x":"{text.replace(separator, "-")}"}}\n\n',
    ]

    assert [event.block.decode() for event in events_of(*"".join(blocks).encode().splitlines(keepends=True))] == blocks


def test_bug_9_a_character_cut_in_two_is_whole_again() -> None:
    block = 'data: {"type":"response.output_text.delta","delta":"北🙂"}\n\n'.encode()

    assert [event.block for event in events_of(*cut(block, [1]))] == [block]


@pytest.mark.parametrize("start", [b'{"type":"response.output_text.delta",', b'{"type":"response.created",'])
def test_bug_9_invalid_utf8_passes_unchanged(start: bytes) -> None:
    """E10: what becomes of it is the door's question."""
    data = start + b'"x":"\xff\xfe"}'

    assert payloads(b"data: " + data + b"\n\n") == [data]


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "clean", "block"),
    [
        pytest.param(b"data: " + COMPLETED, True, b"data: " + COMPLETED + b"\n\n", id="complete-no-newline"),
        pytest.param(b"data: " + COMPLETED + b"\n", True, b"data: " + COMPLETED + b"\n\n", id="complete-one-newline"),
        pytest.param(b"data: " + COMPLETED + b"\r", True, b"data: " + COMPLETED + b"\r\r", id="complete-one-CR"),
        pytest.param(
            b"data: " + COMPLETED + b"\r\n", True, b"data: " + COMPLETED + b"\r\n\r\n", id="complete-one-CRLF"
        ),
        pytest.param(
            b"event: x\r\ndata: " + DELTA, True, b"event: x\r\ndata: " + DELTA + b"\r\n\r\n", id="complete-in-CRLF"
        ),
        pytest.param(b"data: " + DELTA + b"\nda", True, b"data: " + DELTA + b"\nda\n\n", id="complete-and-a-cut-line"),
        pytest.param(b"data: " + COMPLETED[:-1], True, None, id="cut-JSON"),
        pytest.param(b"data: " + COMPLETED[:-1] + b"\n", True, None, id="cut-JSON-one-newline"),
        pytest.param(b'data: {"type":"response.x","item":{"id":"i"}', True, None, id="cut-JSON-that-ends-with-a-brace"),
        pytest.param(b"event: response.completed\n", True, None, id="no-data"),
        pytest.param(b"data: [DONE]", True, None, id="DONE"),
        pytest.param(b"\n", True, None, id="nothing"),
        pytest.param(b"data: " + COMPLETED, False, None, id="reset-no-newline"),
        pytest.param(b"data: " + COMPLETED + b"\n", False, None, id="reset-one-newline"),
    ],
)
def test_bug_11_at_a_clean_end_a_whole_event_counts(rest: bytes, clean: bool, block: bytes | None) -> None:
    """P6: and it is sent on with its missing line ends; after a reset, or cut, it is none."""
    parser, events = parser_of(b"data: " + CREATED + b"\n\n" + rest)
    last = parser.receive_end(clean=clean)

    assert ([event.data for event in events], last and last.block) == ([CREATED], block)


@pytest.mark.parametrize(
    ("rest", "clean", "not_events"),
    [
        (b"data: " + COMPLETED, True, 1),
        (b"data: " + COMPLETED[:-1], True, 2),
        (b": x", True, 2),
        (b"\n", True, 1),
        (b"data: " + COMPLETED[:-1], False, 1),
    ],
)
def test_what_is_no_event_at_the_end_is_counted_too(rest: bytes, clean: bool, not_events: int) -> None:
    """E7, P6: behind one that came before; what a reset cut is nothing."""
    parser, _ = parser_of(b"data: [DONE]\n\n" + rest)
    parser.receive_end(clean=clean)

    assert parser.not_events == not_events


def test_a_stream_ends_once() -> None:
    """P6."""
    parser, _ = parser_of(b"data: " + COMPLETED)
    first = parser.receive_end(clean=True)

    assert (first is None, parser.receive_end(clean=True)) == (False, None)


# --- sizes and speed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1], [7], [64], [1_000]])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("payload", [DELTA, CREATED], ids=["output", "lifecycle"])
def test_a_block_may_have_the_limit_and_not_a_byte_more(payload: bytes, line_end: bytes, sizes: list[int]) -> None:
    """P7, R7."""
    block = b"data: " + payload + line_end * 2
    _, events = parser_of(*cut(block * 3, sizes), block_bytes_max=len(block))

    with pytest.raises(BlockTooLarge):
        parser_of(*cut(block, sizes), block_bytes_max=len(block) - 1 - (line_end == b"\r\n"))
    assert [event.data for event in events] == [payload] * 3


@pytest.mark.parametrize("start", [b"", b"\n"])
def test_what_is_pending_is_refused_with_the_first_byte_above_the_limit(start: bytes) -> None:
    """P7: its end is not waited for; a leading LF may be the rest of a CRLF and does not count."""
    parser, _ = parser_of(start + b"data: {" + b"x" * 3, block_bytes_max=10)
    parser.receive_data(b"y")
    with pytest.raises(BlockTooLarge, match="of more than 10 bytes"):
        parser.next_event()


def test_a_leading_line_feed_does_not_count_wherever_its_block_stands() -> None:
    """P7: in one read with others, and no line feed of theirs is taken for it."""
    small, large = b'data: {"type":"x"}\n\n', b'data: {"type":"y","a":12345}\n\n'
    _, events = parser_of(small + b"\n" + large, block_bytes_max=len(large))
    assert len(events) == 2
    with pytest.raises(BlockTooLarge):
        parser_of(b"\n" + small + large, block_bytes_max=len(large) - 1)


@pytest.mark.parametrize("payload", [DELTA, CREATED], ids=["output", "lifecycle"])
def test_behind_an_event_too_large_there_is_nothing(payload: bytes) -> None:
    """P7: whoever asks again is refused again, while the events before it were given."""
    parser = SSEParser(100)
    parser.receive_data(b"data: " + payload + b"\n\ndata: " + b"a" * 200 + b"\n\ndata: " + payload + b"\n\n")
    first = parser.next_event()
    refusals = 0
    for _ in range(2):
        with pytest.raises(BlockTooLarge):
            parser.next_event()
        refusals += 1

    assert (first and first.data, refusals) == (payload, 2)


@pytest.mark.parametrize("odd", [b"", b"id: 1\n"], ids=["plain", "odd"])
def test_one_look_tells_what_came_before_an_event_too_large(odd: bytes) -> None:
    """P7: and once more that there is nothing behind it."""
    fits, large = (odd + b'data: {"type":"response.x","a":"' + b"x" * size + b'"}\n\n' for size in (10, 200))
    parser = SSEParser(100)
    parser.receive_data(fits * 2 + large + fits)
    told = []
    for _ in range(2):
        with pytest.raises(BlockTooLarge) as refused:
            parser.next_events(9)
        told.append([event.block for event in refused.value.events])

    assert told == [[fits, fits], []]


def test_bug_10_an_endless_line_is_refused_at_the_limit() -> None:
    """P7: with no line end in sight the memory stays bounded."""
    chunks = [b"a" * 1_024] * 1_025
    _, events = parser_of(*chunks[1:], block_bytes_max=1 << 20)

    with pytest.raises(BlockTooLarge):
        parser_of(*chunks, block_bytes_max=1 << 20)
    assert events == []


def flood(unit: bytes, size_bytes: int) -> bytes:
    return unit * (size_bytes // len(unit))


LARGE: Final = (
    b'{"type":"response.image_generation_call.partial_image","partial_image_b64":"' + b"a" * (31 << 20) + b'"}'
)


@pytest.mark.parametrize(
    ("stream", "size"),
    [
        pytest.param(b"data: " + LARGE + b"\n\n", 1 << 10, id="one-event-of-31-MiB-in-1-KiB-reads"),
        pytest.param(b": x\r\n\r\ndata: " + LARGE + b"\r\n\r\n", 1 << 10, id="the-same-in-CRLF"),
        pytest.param(b"data: " + b"a" * (1 << 18) + b"\n\n", 1, id="256-KiB-byte-by-byte"),
        pytest.param(b"data: a\r\n\r\ndata: " + b"a" * (1 << 18), 1, id="256-KiB-byte-by-byte-with-CR"),
        pytest.param(flood(b"\n", 1 << 18), 1 << 16, id="flood-of-LF"),
        pytest.param(flood(b"\n", 1 << 18), 1 << 18, id="flood-of-LF-in-one-read"),
        pytest.param(flood(b"\r", 1 << 18), 1 << 18, id="flood-of-CR-in-one-read"),
        pytest.param(flood(b"\r\n", 1 << 18), 1 << 18, id="flood-of-CRLF-in-one-read"),
        pytest.param(flood(b"\r\n", 1 << 17), 1, id="flood-of-CRLF-byte-by-byte"),
        pytest.param(flood(b":\n\n", 1 << 18), 1 << 18, id="flood-of-comments"),
        pytest.param(flood(b'data: {"type":"response.x",', 1 << 20), 1 << 20, id="beginnings-of-plain-blocks"),
        pytest.param(flood(b'event: x\ndata: {"type":"response.x",\n', 1 << 20), 1 << 20, id="and-in-lines"),
        pytest.param(flood(b":\n", 1 << 21), 1 << 10, id="flood-of-comments-in-one-block"),
        pytest.param(flood(b"data:\n", 1 << 21) + b"\n", 1 << 16, id="flood-of-data-lines"),
        pytest.param(flood(b"data: {}\n\n", 1 << 18), 1 << 18, id="flood-of-tiny-events"),
        pytest.param(flood(b"data: {}\r\r", 1 << 18), 1 << 18, id="flood-of-tiny-events-with-CR"),
        pytest.param(flood(b'data: {"type":"response.x"}\n\n:\n\n', 1 << 21), 1 << 21, id="runs-of-one-event"),
    ],
)
def test_bug_10_any_stream_is_parsed_in_linear_time(stream: bytes, size: int) -> None:
    """P7."""
    started = process_time()
    events_of(*cut(stream, [size]))

    assert process_time() - started < SECONDS_MAX


def test_bug_10_a_large_event_comes_whole() -> None:
    """P7: 4 MiB of image, the first output event, then the end."""
    image = LARGE[: 4 << 20] + b'"}'
    stream = b"data: " + CREATED + b"\n\ndata: " + image + b"\n\ndata: " + COMPLETED + b"\n\n"

    assert payloads(*cut(stream, [1 << 16])) == [CREATED, image, COMPLETED]


def test_a_parser_shows_its_sizes_and_no_content() -> None:
    """L1."""
    parser = SSEParser(BLOCK_BYTES_MAX)
    parser.receive_data(b": x\n\ndata: " + DELTA + b"\n\ndata: secret")
    parser.next_event()
    taken = repr(parser)
    parser.next_event()

    assert (taken, repr(parser)) == ("<SSEParser 12 bytes pending, 1 blocks were no events>",) * 2


@pytest.mark.bench
@pytest.mark.parametrize("size", [270, 1 << 16], ids=["one-event-a-read", "64-KiB-reads"])
def test_an_output_event_costs_less_than_three_microseconds(size: int) -> None:
    """The hot path: a delta of 270 bytes, known by its first member, never parsed."""
    payload = {"type": "response.output_text.delta", "item_id": "m" * 60, "delta": " words", "obfuscation": "x" * 84}
    block = b"event: response.output_text.delta\ndata: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"
    chunks = list(cut(block * 20_000, [size]))

    assert (len(block), min(seconds_to_parse(chunks) for _ in range(10)) < 20_000 * 3e-6) == (270, True)


def seconds_to_parse(chunks: list[bytes]) -> float:
    """CPU for one pass; the events are let go at once, as they are behind the gateway's writer."""
    parser = SSEParser(BLOCK_BYTES_MAX)
    started = process_time()
    for chunk in chunks:
        parser.receive_data(chunk)
        while parser.next_event() is not None:
            pass
    return process_time() - started


@pytest.mark.parametrize(
    ("event_type", "payload", "block"),
    [
        ("response.x", b"{}", b"event: response.x\ndata: {}\n\n"),
        ("a" * 256, b"{}", b"event: " + b"a" * 256 + b"\ndata: {}\n\n"),
        ("a" * 257, b"{}", b"data: {}\n\n"),
        ("not plain", b"{}", b"data: {}\n\n"),
        ("x", b'{"a":\n1}', b'event: x\ndata: {"a":\ndata: 1}\n\n'),
        ("x", b'{"a":\r1}', b'event: x\ndata: {"a":\ndata: 1}\n\n'),
        ("x", b'{"a":\r\n1,\n"b":2}', b'event: x\ndata: {"a":\ndata: 1,\ndata: "b":2}\n\n'),
    ],
)
def test_a_payload_becomes_a_block_with_its_type_and_a_line_for_each_of_its_lines(
    event_type: str, payload: bytes, block: bytes
) -> None:
    """E10, P1: the type only where it is a plain name."""
    assert sse_block(event_type, payload) == block


@pytest.mark.parametrize("name", ["keepalive", "response.created"])
def test_a_long_block_is_left_to_who_asks(name: str) -> None:
    """P7: between others, in its place; one of just the length is read."""
    start = b'data: {"type":"' + name.encode() + b'","a":"'
    short, just, long = (start + b"x" * (size - len(start) - 4) + b'"}\n\n' for size in (50, 100, 101))
    assert (len(just), len(long)) == (100, 101)
    parser = SSEParser(1000, 100)
    parser.receive_data(short + just + long + short)
    heard = [parser.next_event(), parser.next_event(), parser.next_event()]
    assert [event and event.block for event in heard] == [short, just, None]
    assert parser.long_block == long
    parser.long_block = None
    last = parser.next_event()
    assert last is not None
    assert (last.block, parser.long_block, parser.pending_bytes) == (short, None, 0)
