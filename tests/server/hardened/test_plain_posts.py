"""What is read and written of a plain POST without h11, held against h11: the same reading, the same bytes, or none."""

import time
from collections.abc import Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.server.hardened.heads import HeadGuard, is_valid_upgrade, refusal_of
from gateway.server.hardened.plain_posts import Post, answer_head, read_post
from server.attacks.mutations import mutated

PATHS = {b"/v1/responses", b"/"}
HEAD_BYTES_MAX = 65_536
LINE = b"POST /v1/responses HTTP/1.1"
PLAIN = (b"Host: gateway.test", b"Content-Length: 2")
USUAL = (b"Authorization: Bearer key", b"User-Agent: x/1 (y; z)", b"accept:*/*", b"X-Empty:", b"Connection: Keep-Alive")
ODD = (
    *(b"x: a  b\t c", b"x:\tv \t", b"x: \x80\xff", b"x: \x01\x7f", b"x : y", b" x: y", b": y", b"x", b"x: a\x00b"),
    *(b"x: a\nb", b"x: a\rb", b"x\x0b: y", b"x: y\x0c", b"x: \x1cz", b"x\xff: y", b"x_y: z", b"x(y: z", b"x: :y:"),
    *(b"content-length: 2", b"Content-Length: +2", b"content-length: 2, 2", b"content-length: 1_0", b"content-length:"),
    *(b"content-length: 99999999999999999999999", b"CONTENT-LENGTH: 02", b"content-length: 2\x85", b"host: b"),
    *(b"host: a b", b"host: user@b", b"host:", b"connection: close", b"connection: Keep-Alive", b"Connection: upgrade"),
    *(b"expect: 100-continue", b"Transfer-Encoding: chunked", b"transfer-encoding: gzip", b"upgrade: websocket"),
    *(b"sec-websocket-key: \xff", b"Sec-WebSocket-Version: 13", b"te: trailers", b"x: y\r\n folded"),
)
LINES = st.sampled_from(
    [
        *[LINE] * 8,
        *(b"POST / HTTP/1.1", b"POST /other HTTP/1.1", b"POST /v1/responses?x=y HTTP/1.1", b"GET / HTTP/1.1"),
        *(b"POST /v1/responses HTTP/1.0", b"POST /v1/responses HTTP/2.0", b"POST  / HTTP/1.1", b"post / HTTP/1.1"),
        *(b"POST http://a/ HTTP/1.1", b"POST /%2f HTTP/1.1", b"POST /\xff HTTP/1.1", b"POST / HTTP/1.1 ", b"POST /"),
    ]
)
FIELDS = st.lists(st.sampled_from([*PLAIN * 6, *USUAL * 2, *ODD]) | st.binary(max_size=30), max_size=8)
ENDS = st.sampled_from([b"\r\n\r\n"] * 8 + [b"\n\n", b"\r\n\n", b"\r\n", b"", b"\r\r\n\r\n"])


def read_by_h11(data: bytes) -> h11.Request | None:
    """What is served today: what the guard lets through, h11 reads, and nobody would read differently."""
    if HeadGuard(HEAD_BYTES_MAX).vet(data) is not None:
        return None
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    server.receive_data(data)
    try:
        event = server.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request) or refusal_of(event) is not None or is_valid_upgrade(event):
        return None
    assert not server.they_are_waiting_for_100_continue or b"expect" in dict(event.headers)
    return event


def agree(data: bytes) -> Post | None:
    """What is read of it, which h11 would read too."""
    post = read_post(data, PATHS, HEAD_BYTES_MAX)
    if post is not None:
        request = read_by_h11(data)
        assert request is not None
        assert (request.method, request.target, request.http_version) == (b"POST", post.path, b"1.1")
        assert list(request.headers) == post.headers
        known = dict(post.headers)
        assert int(known[b"content-length"]) == post.body_bytes
        assert data[: post.head_bytes].endswith(b"\r\n\r\n")
        assert data.find(b"\r\n\r\n") + 4 == post.head_bytes
        assert {b"expect", b"transfer-encoding", b"upgrade"}.isdisjoint(known)
        assert known.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return post


@given(LINES, FIELDS, ENDS, st.binary(max_size=10))
def test_a_head_is_read_as_h11_reads_it_or_left_to_it(
    line: bytes, fields: list[bytes], end: bytes, behind: bytes
) -> None:
    agree(b"\r\n".join([line, *fields]) + end + behind)


@given(st.lists(st.sampled_from(USUAL), unique=True), st.permutations(PLAIN), st.binary(max_size=10))
def test_a_plain_head_is_read(usual: list[bytes], plain: Sequence[bytes], behind: bytes) -> None:
    assert agree(b"\r\n".join([LINE, *plain, *usual]) + b"\r\n\r\n" + behind) is not None


@pytest.mark.parametrize("odd", ODD)
def test_a_head_with_something_odd_is_read_alike_or_left_to_h11(odd: bytes) -> None:
    agree(b"\r\n".join([LINE, *PLAIN, odd]) + b"\r\n\r\n")


def test_mutations_are_read_alike_or_left_to_h11() -> None:
    posts = [agree(mutated(seed).lstrip(b"\r\n")) for seed in range(20_000)]
    assert sum(post is not None for post in posts) > 300


@pytest.mark.parametrize("at", range(len(LINE) + 40))
def test_a_head_that_is_not_whole_is_none(at: int) -> None:
    whole = b"\r\n".join([LINE, *PLAIN]) + b"\r\n\r\n"
    assert (agree(whole[:at]) is None) == (at < len(whole))


@pytest.mark.parametrize(("size", "is_read"), [(HEAD_BYTES_MAX, True), (HEAD_BYTES_MAX + 1, False)])
def test_a_head_is_read_up_to_its_bound(size: int, is_read: bool) -> None:
    head = b"\r\n".join([LINE, *PLAIN, b"x: "])
    assert (agree(head.ljust(size - 4, b"y") + b"\r\n\r\n" + b"behind") is not None) is is_read


SLOW = [
    LINE + b"\r\n" + b"x: " + b" \t" * 30_000,
    LINE + b"\r\n" + b"x: " + b"a " * 30_000 + b"\x00",
    LINE + b"\r\n" + b"x:y\r\n" * 12_000,
    LINE + b"\r\n" + b"x:y \r\n" * 10_000 + b"\r",
    LINE + b"\r\n" + b"-" * 60_000 + b"\r\n\r\n",
    LINE + b"\r\n" + b"-:\x00" * 20_000 + b"\r\n\r\n",
    LINE + b"\r\n" + b"-\n" * 30_000 + b"\r\n\r\n",
    LINE + b"\r\n" + b"-: -\r" * 12_000 + b"\r\n\r\n",
    b"POST /" + b"/" * 60_000,
    LINE + b"\r\nhost: " + b"a." * 30_000 + b"/\r\ncontent-length: 2\r\n\r\n",
]


@pytest.mark.parametrize("number", range(len(SLOW)))
def test_no_head_takes_long(number: int) -> None:
    begun = time.process_time()
    read_post(SLOW[number], PATHS, HEAD_BYTES_MAX)
    assert time.process_time() - begun < 0.5


# --- answers ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"x-request-id", b"Content-Type", b"content-length", b"connection", b"x", b"date"])
VALUES = st.sampled_from(
    [b"", b"5", b"0", b"close", b"keep-alive, Close", b"x-close", b"text/event-stream; charset=utf-8", b"\xe4", b"a\tb"]
)
UNSENDABLE = [
    *((b"x", b"a\r\nb: c"), (b"x", b"a\nb"), (b"x", b"a\rb"), (b"", b"a"), (b"x: y", b"a"), (b"x\ny", b"z\nz")),
    *((b"x", b"a\0b"), (b":x", b"a"), (b"content-length", b"-1"), (b"transfer-encoding", b"chunked")),
]


def sent_by_h11(status: int, headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bool]:
    """The head, and whether the connection can go on behind it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
    server.next_event()
    server.next_event()
    head = server.send(h11.Response(status_code=status, headers=list(headers))) or b""
    return head, server.their_state is h11.DONE


@given(st.sampled_from([200, 204, 304, 402, 429, 500]), st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_an_answers_head_is_byte_for_byte_h11s(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    try:
        own = answer_head(status, headers)
    except h11.LocalProtocolError:
        sizes = [value for name, value in headers if name == b"content-length"]
        assert len(sizes) > 1 or not sizes[0].isdigit()
        return
    assert (own.data, not own.is_last) == sent_by_h11(status, headers)
    assert answer_head(status, [(b" %b\t" % name, b"\t%b " % value) for name, value in headers]) == own
    assert answer_head(status, [(name, b"\n%b\r\n" % value) for name, value in headers]) == own, "no more than blanks"


@pytest.mark.parametrize("field", UNSENDABLE)
def test_what_cannot_stand_in_a_head_is_not_sent(field: tuple[bytes, bytes]) -> None:
    for headers in ([field], [(b"a", b"b"), field, (b"c", b"d")]):
        with pytest.raises(h11.LocalProtocolError):
            answer_head(200, headers)


def test_a_status_that_ends_no_exchange_is_no_answer() -> None:
    with pytest.raises(h11.LocalProtocolError):
        answer_head(199, [])
