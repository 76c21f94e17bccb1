"""What is framed here, read by the protocols' own parsers: the same bytes come out, whatever is sent in what pieces."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import Message, Ping, TextMessage

from gateway.server.hardened.direct import chunk, is_chunked, text_frame

SIZES = st.sampled_from([1, 2, 125, 126, 127, 255, 256, 4095, 4096, 65_535, 65_536, 70_000])
PIECES = st.lists(st.one_of(st.binary(min_size=1, max_size=600), SIZES.map(lambda size: b"x" * size)), max_size=12)
TEXTS = st.lists(st.one_of(st.text(max_size=300), SIZES.map(lambda size: "x" * size)), max_size=12)
CUTS = st.lists(st.integers(0, 100_000), max_size=30)
"""Where the network cuts what is sent."""


def in_parts(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(at)]


def received_by_h11(data: bytes, cuts: list[int], method: str = "POST") -> tuple[bytes, bool]:
    """A body as h11's client reads it, and whether it has ended."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    body, has_ended = b"", False
    for part in in_parts(data, cuts):
        client.receive_data(part)
        while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            body += bytes(event.data) if isinstance(event, h11.Data) else b""
            has_ended = has_ended or isinstance(event, h11.EndOfMessage)
            if has_ended:
                break
    return body, has_ended


@given(PIECES, CUTS)
def test_a_chunked_body_comes_out_of_h11_as_it_went_in(pieces: list[bytes], cuts: list[int]) -> None:
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\n\r\n")
    server.next_event()
    server.next_event()
    head = server.send(h11.Response(status_code=200, headers=[]))
    end = server.send(h11.EndOfMessage())
    sent = (head or b"") + b"".join(map(chunk, pieces)) + (end or b"")
    assert received_by_h11(sent, cuts) == (b"".join(pieces), True)
    assert server.our_state is h11.DONE, "its own state is that of a body which it framed itself"


@given(PIECES)
def test_a_chunk_is_byte_for_byte_what_h11_would_send(pieces: list[bytes]) -> None:
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\n\r\n")
    server.next_event()
    server.next_event()
    server.send(h11.Response(status_code=200, headers=[]))
    assert [chunk(piece) for piece in pieces] == [server.send(h11.Data(data=piece)) for piece in pieces]


@given(TEXTS, CUTS)
def test_text_frames_come_out_of_wsproto_as_they_went_in(texts: list[str], cuts: list[int]) -> None:
    """Pings stand between frames, never within one."""
    server, client = Connection(ConnectionType.SERVER), Connection(ConnectionType.CLIENT)
    sent = b"".join(text_frame(text.encode()) + server.send(Ping(payload=b"p")) for text in texts)
    heard, pings, message = [], 0, ""
    for part in in_parts(sent, cuts):
        client.receive_data(part)
        for event in client.events():
            if isinstance(event, Message):
                assert isinstance(event, TextMessage)
                message += event.data
                if event.message_finished:
                    heard.append(message)
                    message = ""
            pings += isinstance(event, Ping)
    assert (heard, pings) == (texts, len(texts))
    assert client.state is ConnectionState.OPEN


@given(TEXTS)
def test_a_text_frame_is_byte_for_byte_what_wsproto_would_send(texts: list[str]) -> None:
    server = Connection(ConnectionType.SERVER)
    assert [text_frame(text.encode()) for text in texts] == [server.send(TextMessage(data=text)) for text in texts]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 65_537])
def test_a_frame_has_the_shortest_length_at_each_boundary(size: int) -> None:
    """RFC 6455, 5.2."""
    server = Connection(ConnectionType.SERVER)
    assert text_frame(b"x" * size) == server.send(TextMessage(data="x" * size))


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("status", [200, 204, 304, 404])
@pytest.mark.parametrize("headers", [[], [(b"Content-Length", b"0")], [(b"x-y", b"z")]])
def test_it_is_known_which_bodies_h11_sends_in_chunks(
    version: str, method: str, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    server = h11.Connection(h11.SERVER)
    server.receive_data(f"{method} / HTTP/{version}\r\nhost: x\r\n\r\n".encode())
    server.next_event()
    server.next_event()
    head = server.send(h11.Response(status_code=status, headers=headers)) or b""
    sends_chunks = b"transfer-encoding: chunked" in head.lower() and method != "HEAD"
    assert is_chunked(version, method, status, headers) == sends_chunks
