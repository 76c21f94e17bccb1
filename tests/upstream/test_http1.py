"""The answer of an upstream, read byte for byte: held against h11 on answers as they come and as they should not."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import h11
import pytest

from gateway.limits import UPSTREAM_HEAD_BYTES_MAX
from gateway.upstream.http1 import Cut, Malformed, ResponseDecoder

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
Outcome = tuple[str, int, bytes, bool]
"""How it ended, its status, the body until then, and whether the connection may serve again."""


def read(*pieces: bytes, ends: bool = False) -> Outcome:
    """What the decoder makes of these bytes."""
    decoder, body, how = ResponseDecoder(), b"", "more"
    try:
        for piece in pieces:
            decoder.receive(piece)
            body += decoder.take()
        if ends:
            decoder.receive(b"")
        body += decoder.take()
    except Malformed:
        how = "malformed"
    except Cut:
        how = "cut"
    status = 0 if decoder.head is None else decoder.head.status
    return "whole" if decoder.is_complete else how, status, body, decoder.may_serve_again


def read_by_h11(data: bytes, *, ends: bool) -> Outcome:
    """What h11 makes of them: the reference."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=UPSTREAM_HEAD_BYTES_MAX)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        connection.receive_data(data)
        if ends:
            connection.receive_data(b"")
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                may_go_on = connection.their_state is h11.DONE and not connection.trailing_data[0]
                return "whole", status, body, may_go_on
            elif isinstance(event, h11.ConnectionClosed):
                return "cut", status, body, False
    except h11.RemoteProtocolError as error:
        was_cut = "incomplete" in str(error) or "without sending" in str(error)
        return "cut" if was_cut else "malformed", status, body, False
    return "more", status, body, False


ANSWERS = [
    OK + b"content-length: 3\r\n\r\nabc",
    OK + b"content-length: 0\r\n\r\n",
    CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    CHUNKED + b"3;name=value\r\nabc\r\n0\r\ntrailer: x\r\n\r\n",
    OK + b"\r\nuntil the end",
    OK + b"connection: close\r\ncontent-length: 3\r\n\r\nabc",
    b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK + b"content-length: 1\r\n\r\na",
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}",
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("ends", [False, True])
def test_an_answer_is_read_as_h11_reads_it_however_it_is_cut(answer: bytes, ends: bool) -> None:
    """P2, on HTTP's own framing: whole, one byte at a time, and at every place in two."""
    expected = read_by_h11(answer, ends=ends)
    if ends:
        expected = (*expected[:3], False)
    ways: list[Sequence[bytes]] = [[answer], [answer[at : at + 1] for at in range(len(answer))]]
    ways += [[answer[:at], answer[at:]] for at in range(1, len(answer))]
    assert {read(*way, ends=ends) for way in ways} == {expected}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_ends_anywhere_is_cut_where_h11_says_so(answer: bytes) -> None:
    """R15: at a connection's end nothing is taken for whole that is not."""
    for at in range(len(answer)):
        how, *told = read(answer[:at], ends=True)[:3]
        reference, *told_by_h11 = read_by_h11(answer[:at], ends=True)[:3]
        assert (how, reference) in (("whole", "whole"), ("cut", "cut"), ("cut", "malformed"))
        assert told == told_by_h11


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02 this is no HTTP",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 3, 4\r\n\r\nabc",
        OK + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc",
        OK + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"name with space: x\r\n\r\n",
        OK + b"folded: a\r\n b\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"3\r\nabcd\r\n",
        CHUNKED + b"ffffffffffffffffff\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        OK + b"x: " + b"y" * (UPSTREAM_HEAD_BYTES_MAX + 1),
        CHUNKED + b"1;" + b"e" * (UPSTREAM_HEAD_BYTES_MAX + 1),
        CHUNKED + b"0\r\n" + b"t: x\r\n" * (UPSTREAM_HEAD_BYTES_MAX // 6 + 1),
    ],
    ids=lambda answer: repr(answer[:60]),
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    """P9: also where another reader would make something of it, for two readers must not read two answers."""
    assert read(answer)[0] == "malformed"
    assert read(*[answer[at : at + 997] for at in range(0, len(answer), 997)])[0] == "malformed"


def test_well_formed_bytes_before_a_fault_are_told_first() -> None:
    """R9: what came before the stream broke has come."""
    decoder = ResponseDecoder()
    decoder.receive(CHUNKED + b"3\r\nabc\r\nnonsense\r\n")
    assert decoder.take() == b"abc"
    with pytest.raises(Malformed):
        decoder.take()


@pytest.mark.parametrize("behind", [b"H", b"\r\n\r\nH", b"nonsense", OK + b"content-length: 1\r\n\r\nx"])
@pytest.mark.parametrize("is_one_read", [True, False])
def test_bytes_behind_an_answer_spoil_its_connection_and_not_the_answer(behind: bytes, is_one_read: bool) -> None:
    """The answer to a request that was not sent yet would be another client's."""
    answer = OK + b"content-length: 3\r\n\r\nabc"
    pieces = [answer + behind] if is_one_read else [answer, behind]
    assert read(*pieces) == ("whole", 200, b"abc", False)


FAULTS = (
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b":",
    b"0",
    b"f",
    b"\xff",
    b"HTTP/1.1",
    b"chunked",
    b"content-length: 9\r\n",
)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_answer_is_never_read_otherwise_than_by_h11(seed: int) -> None:
    """Either both read it, and read the same, or it is refused. What h11 refuses and llhttp reads may differ in where
    the fault is seen, never in a whole answer that h11 does not see."""
    chance = random.Random(seed)
    for _ in range(250):
        answer = bytearray(chance.choice(ANSWERS))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(answer))
            answer[at : at + chance.randint(0, 3)] = chance.choice(FAULTS)
        data = bytes(answer)
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 4)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if end > start]
        ours, reference = read(*pieces, ends=True), read_by_h11(data, ends=True)
        if ours[0] == "whole" and reference[0] != "malformed":
            assert ours[:3] == reference[:3], data


def test_time_grows_with_the_bytes_and_not_with_their_pieces() -> None:
    """P7 below the events: ten times the bytes, in pieces of one byte, take about ten times as long."""

    def seconds(size: int) -> float:
        decoder, began = ResponseDecoder(), time.process_time()
        decoder.receive(CHUNKED)
        for _ in range(size):
            decoder.receive(b"1\r\nx\r\n")
        assert decoder.take() == b"x" * size
        return time.process_time() - began

    assert seconds(200_000) < 60 * max(seconds(20_000), 0.001)
