"""Public bug reports about bytes and shapes (shared/bug-cases.md), by number: 7, 9, 10, 11, 12, 14, 16, 53.

What an upstream sends is forwarded as it came, through both doors, and read all the same.
"""

import json

import pytest

from gateway.lock.driver import Client, connect
from gateway.upstream.scripted import Break, Silence, Step
from gateway.upstream.scripts import usage_object
from support.gateways import Seen, create_frame, play, seen, words_of_failure, world
from support.virtual import in_every_order
from support.voices import ANSWERED, A, B, C, repeat

HELD = ["created", "in_progress"]
OUT = [*HELD, "output_text.delta"]
MIB = 1024 * 1024
TOO_LARGE = "upstream_stream_buffer_limit"


def payload_of(block: bytes) -> bytes:
    """The data of a block with one data line."""
    return block.split(b"data: ", 1)[1].rstrip(b"\r\n")


def got(client: Client) -> list[bytes]:
    """What the client got of each event: blocks (HTTP) or payloads (WebSocket)."""
    return [heard.data for heard in client.events]


def expected(door: str, *blocks: bytes) -> list[bytes]:
    """The same of what the upstream sent."""
    return list(blocks) if door == "http" else [payload_of(block) for block in blocks]


# --- case 7 -----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_7_only_cr_and_lf_end_lines(door: str) -> None:
    """Case 7, P1: U+2028, U+2029, U+0085, VT and FF stand in strings; byte for byte, and the usage is read."""
    delta = 'data: {"type":"response.output_text.delta","delta":"a\u2028b\x85c\x0bd\x0ce\u2029"}\n\n'.encode()
    done = A.ending("completed", usage_object(7, 3), text="x\u2029y\u2028z\x85")
    w = world(A.reply(A.prelude, delta, done))
    client = await play(w, door)
    assert got(client)[2:] == expected(door, delta, done)
    assert w.money == ["settled 13000"]


# --- case 9 -----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_9_a_character_may_be_cut_anywhere(door: str) -> None:
    """Case 9, P2: one byte in each chunk, a millisecond apart; no U+FFFD."""
    delta = A.delta("北🙂")
    steps = [part for at in range(len(delta)) for part in (delta[at : at + 1], 0.001)]
    client = await play(world(A.reply(A.prelude, *steps, A.completed())), door)
    assert got(client)[2:] == expected(door, delta, A.completed())
    assert "\ufffd".encode() not in client.body


INVALID = A.delta().replace(b"hi", b"\xff\xfe")


@in_every_order
async def test_case_9_invalid_utf_8_goes_through_on_http() -> None:
    """Case 9, E10: bytes are bytes, before output and behind it."""
    w = world(A.reply(A.prelude, INVALID, INVALID, A.completed()))
    client = await play(w, "http")
    assert client.body == A.prelude + INVALID + INVALID + A.completed()
    assert w.money == ["settled 7000"]


@in_every_order
async def test_case_9_invalid_utf_8_is_a_read_error_on_a_websocket() -> None:
    """Case 9, E10: behind output it ends the turn, and the socket stays open for the next one."""
    w = world([A.reply(A.prelude, A.delta(), INVALID, Silence()), C.answer()], B.answer())
    async with connect(w.app, "websocket") as client:
        client.send_text(create_frame())
        await client.wait_for(lambda client: client.has_last_word)
        client.send_text(create_frame())
        await client.wait_for(lambda client: "completed" in client.told)
        client.leave()
    assert client.told == [*OUT, "error stream_read_error", *ANSWERED]
    assert w.attempts[0] == "a stream_read_error (output_delivered)"


@pytest.mark.parametrize(
    ("before", "reason"), [([], "replay"), ([A.prelude], "read_error_after_first_event")], ids=["first", "behind held"]
)
@in_every_order
async def test_case_9_before_output_it_is_judged_as_any_read_error(before: list[Step], reason: str) -> None:
    """Case 9, R9, R15."""
    w = world(A.reply(*before, INVALID, Silence()), B.answer())
    await play(w, "websocket")
    assert w.attempts[0] == f"a stream_read_error ({reason})"


# --- case 10 ----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_10_a_large_event_is_delivered_whole(door: str) -> None:
    """Case 10a: 4 MiB of base64 as the first output event."""
    image = A.output("response.image_generation_call.partial_image", partial_image_b64="A" * (4 * MIB))
    w = world(A.reply(A.prelude, image[:MIB], image[MIB:], A.completed()))
    client = await play(w, door)
    assert [len(data) for data in got(client)] == [
        len(data) for data in expected(door, A.created, A.in_progress, image, A.completed())
    ]
    assert w.money == ["settled 7000"]


@pytest.mark.parametrize(
    ("before", "reason", "money"),
    [
        ([A.prelude], "buffer_overflow", "voided"),
        ([A.prelude, A.delta()], "output_delivered", "settled 3000 estimated"),
    ],
    ids=["before output", "behind output"],
)
@in_every_order
async def test_case_10_an_endless_event_ends_at_the_limit(
    door: str, before: list[Step], reason: str, money: str
) -> None:
    """Case 10b, P7, R7: a mebibyte a second without a line end; the upstream is closed when the limit is passed."""
    endless: list[Step] = [b"data: ", *repeat(30, b"a" * MIB, 1.0)]
    w = world(A.reply(*before, *endless), B.answer(), limits=f"event_bytes_max = {4 * MIB}")
    client = await play(w, door)
    told = [*(HELD if len(before) == 1 else OUT), *words_of_failure(door, TOO_LARGE)]
    assert seen(w, client) == Seen(told, ["a"], [f"a {TOO_LARGE} ({reason})"], [money])
    assert w.closed_at == [3.0]


@in_every_order
async def test_case_10_too_many_small_events_before_output(door: str) -> None:
    """Case 10c, R7: twenty thousand of them; not replayed."""
    w = world(A.reply(A.created, *[A.in_progress * 1000] * 20, Silence()), B.answer())
    client = await play(w, door)
    words = words_of_failure(door, TOO_LARGE)
    assert (w.called, w.attempts, w.money) == (["a"], [f"a {TOO_LARGE} (buffer_overflow)"], ["voided"])
    assert client.told[-len(words) :] == words
    assert client.told.count("in_progress") == 1024


# --- case 11 ----------------------------------------------------------------------------------------------------

LAST = A.completed(4, 1)


@pytest.mark.parametrize("cut", [LAST[:-2], LAST[:-1]], ids=["no line end", "one line end"])
@in_every_order
async def test_case_11_a_last_event_without_its_blank_line_counts(door: str, cut: bytes) -> None:
    """Case 11, P6: and is sent on with what it lacks."""
    w = world(A.reply(A.prelude, A.delta("ok"), cut), B.answer())
    client = await play(w, door)
    assert got(client)[3:] == expected(door, LAST)
    assert (w.attempts, w.money) == (["a completed"], ["settled 6000"])


@pytest.mark.parametrize(
    "steps",
    [[LAST[:-20]], [LAST[:-2], Break()], [LAST[:-1], Break()]],
    ids=["cut in the middle", "reset", "reset later"],
)
@in_every_order
async def test_case_11_half_an_event_and_a_reset_one_do_not(door: str, steps: list[Step]) -> None:
    """Case 11, P6: never a half-parsed terminal, and none is billed."""
    w = world(A.reply(A.prelude, A.delta("ok"), *steps), B.answer())
    client = await play(w, door)
    told = [*OUT, *words_of_failure(door, "stream_read_error")]
    attempts = ["a stream_read_error (output_delivered)"]
    assert seen(w, client) == Seen(told, ["a"], attempts, ["settled 3000 estimated"])


@in_every_order
async def test_case_11_a_last_event_that_is_no_terminal_counts_too(door: str) -> None:
    """Case 11, P6: whatever it is; then the stream has ended without a terminal."""
    w = world(A.reply(A.prelude, A.delta("ok"), A.delta("more", 3)[:-2]), B.answer())
    client = await play(w, door)
    assert client.told == [*OUT, "output_text.delta", *words_of_failure(door, "stream_read_error")]


# --- case 12 ----------------------------------------------------------------------------------------------------


def data_only(block: bytes) -> bytes:
    """Without its `event:` line."""
    return b"data: " + payload_of(block) + b"\n\n"


def named(name: bytes, block: bytes) -> bytes:
    """With another `event:` line."""
    return b"event: " + name + b"\n" + data_only(block)


WHOLE = [A.created, A.in_progress, A.delta("a"), A.completed(3, 1)]
MULTILINE = b'data: {"type":"response.output_text.delta",\ndata: "sequence_number":2,\ndata: "delta":"a"}\n\n'
CASE_12 = {
    "data only": [data_only(block) for block in WHOLE],
    "another name": [named(b"message", block) for block in WHOLE],
    "a lying name": [WHOLE[0], WHOLE[1], named(b"response.completed", WHOLE[2]), WHOLE[3]],
    "more fields": [b"id: 7\nretry: 1000\n" + block for block in WHOLE],
    "no space": [block.replace(b"data: ", b"data:").replace(b"event: ", b"event:") for block in WHOLE],
    "CRLF": [block.replace(b"\n", b"\r\n") for block in WHOLE],
    "CR": [block.replace(b"\n", b"\r") for block in WHOLE],
    "comments between the lines": [b": hey\n" + block for block in WHOLE],
}


@pytest.mark.parametrize("variant", CASE_12)
@in_every_order
async def test_case_12_the_type_is_the_payloads_own(door: str, variant: str) -> None:
    """Case 12, E7, E10: HTTP carries the original lines, a WebSocket the payload."""
    blocks = CASE_12[variant]
    w = world(A.reply(*blocks))
    client = await play(w, door)
    assert (w.attempts, w.money) == (["a completed"], ["settled 5000"])
    assert client.body == b"".join(blocks) if door == "http" else got(client) == [payload_of(b) for b in WHOLE]


@in_every_order
async def test_case_12_data_may_stand_on_several_lines(door: str) -> None:
    """Case 12, P5: as it came on HTTP, joined by line feeds on a WebSocket."""
    w = world(A.reply(WHOLE[0], WHOLE[1], MULTILINE, WHOLE[3]))
    client = await play(w, door)
    joined = b'{"type":"response.output_text.delta",\n"sequence_number":2,\n"delta":"a"}'
    assert (client.told, got(client)[2]) == (ANSWERED, MULTILINE if door == "http" else joined)


@pytest.mark.parametrize(
    "noise", [b"data: [DONE]\n\n", b"data: 7\n\n", b"event: keepalive\n\n", b"data\n\n", b": c\n\n"]
)
@in_every_order
async def test_case_12_what_is_no_event_is_never_forwarded(door: str, noise: bytes) -> None:
    """Case 12, E7: before, between and behind events; it ends nothing."""
    parts = [noise, WHOLE[0], noise, WHOLE[1], noise, WHOLE[2], noise, WHOLE[3], noise]
    w = world(A.reply(*parts))
    client = await play(w, door)
    assert got(client) == expected(door, *WHOLE)
    assert door == "websocket" or client.body == b"".join(WHOLE)


# --- case 14 ----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_14_a_failure_of_the_gateways_continues_the_numbers(door: str) -> None:
    """Case 14, X3: last number + 1, and the delivered response's id."""
    w = world(A.reply(A.prelude, A.delta("a", 2), A.delta("b", 3), Break()))
    client = await play(w, door)
    numbers = [heard.payload["sequence_number"] for heard in client.events]
    assert numbers == ([0, 1, 2, 3, 4, 5] if door == "http" else [0, 1, 2, 3, 4])
    if door == "http":
        assert client.events[-1].payload["response"]["id"] == "resp_of_a"


@in_every_order
async def test_case_14_numbers_of_the_upstreams_are_never_rewritten(door: str) -> None:
    """Case 14: gaps stay."""
    blocks = [A.created, A.in_progress, A.delta("a", 7), A.completed(number=8)]
    client = await play(world(A.reply(*blocks)), door)
    assert got(client) == expected(door, *blocks)


@in_every_order
async def test_case_14_where_the_upstream_does_not_number_nothing_is_numbered(door: str) -> None:
    """Case 14, X3."""
    blocks = [unnumbered(block) for block in (A.created, A.in_progress, A.delta())]
    client = await play(world(A.reply(*blocks, Break())), door)
    assert client.told == [*OUT, *words_of_failure(door, "stream_read_error")]
    assert b"sequence_number" not in client.body


def unnumbered(block: bytes) -> bytes:
    """An upstream's event without its number."""
    payload = json.loads(payload_of(block))
    del payload["sequence_number"]
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


@in_every_order
async def test_case_14_with_nothing_delivered_there_is_one_failure_event(door: str) -> None:
    """Case 14, X3, X4: of a valid shape, without a response that nobody knows."""
    client = await play(world(A.reply(1.0, Break()), server='start = "early"'), door)
    (told,) = client.events
    error = told.payload["error"]
    assert (told.type, error["code"], told.payload["code"]) == ("error", "stream_read_error", "stream_read_error")
    assert (error["message"], error["param"]) == (told.payload["message"], None)
    assert "sequence_number" not in told.payload


# --- case 16 ----------------------------------------------------------------------------------------------------

NULLS = {
    "nulls": A.ending("completed", None, output=None, error=None, incomplete_details=None),
    "half a usage": A.ending("completed", {"input_tokens": 4}),
    "a usage in words": A.ending("completed", {"input_tokens": 4, "output_tokens": "3"}),
    "no response": b'event: response.completed\ndata: {"type":"response.completed","response":null}\n\n',
    "nothing at all": b'data: {"type":"response.completed"}\n\n',
    "a response that is a list": b'data: {"type":"response.completed","response":[1]}\n\n',
}


@pytest.mark.parametrize("variant", NULLS)
@in_every_order
async def test_case_16_nulls_are_legal_anywhere(door: str, variant: str) -> None:
    """Case 16, E8, B5: forwarded unchanged; no usage is not zero-token success."""
    w = world(A.reply(A.prelude, A.delta("a"), NULLS[variant]))
    client = await play(w, door)
    assert got(client)[3:] == expected(door, NULLS[variant])
    assert (w.attempts, w.money) == (["a completed"], ["settled 3000 estimated"])


@in_every_order
async def test_case_16_null_lifecycle_events_are_held_all_the_same(door: str) -> None:
    """Case 16, E8: without a response there is none to end."""
    bare = [b'data: {"type":"response.created","response":null}\n\n', b'data: {"type":"response.in_progress"}\n\n']
    client = await play(world(A.reply(*bare, 3.0, Break())), door)
    assert client.times == [(3.0, "created"), (3.0, "in_progress"), (3.0, "error stream_read_error")]


# --- case 53 ----------------------------------------------------------------------------------------------------


@in_every_order
async def test_case_53_lone_surrogates_pass_both_ways(door: str) -> None:
    """Case 53, H3, E10: as escapes they are ASCII; the upstream decides, and the usage is read."""
    delta = A.delta().replace(b'"hi"', b'"\\udc00"')
    done = A.ending("completed", usage_object(3, 1), text="?").replace(b'"?"', b'"\\ud83d"')
    w = world(A.reply(A.prelude, delta, done))
    client = await play(w, door, input="x \ud83d y")
    assert rb"x \ud83d y" in w.calls[0].body
    assert got(client)[2:] == expected(door, delta, done)
    assert w.money == ["settled 5000"]


@in_every_order
async def test_case_53_an_estimate_counts_them_too(door: str) -> None:
    """Case 53, B4: three bytes each, as they would be in UTF-8."""
    delta = A.delta().replace(b'"hi"', b'"\\udc00\\udc00"')
    w = world(A.reply(A.prelude, delta, Break()))
    await play(w, door, input="\ud83d")
    assert w.money == ["settled 5000 estimated"]
