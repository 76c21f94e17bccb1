"""A client's body as it was meant: its content encoding undone, within the bound of a body (H3).

What an encoded body will be is known only when it is: so it is decoded piece by piece and cut where it passes the
bound, and the work is done beside the event loop however few bytes came. What came encoded is bounded as any body is.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway import limits
from gateway.aside import Aside
from gateway.beside_asgi import Inbound
from gateway.core.failures import Refusal
from gateway.core.request import RequestBody
from gateway.downstream.bodies import read_body
from gateway.encodings import Decoder, EncodingError, decoder_for

CHUNK_BYTES: Final = 65_536
IN_MEMBERS: Final = frozenset({"gzip", "x-gzip", "zstd"})
"""Formats that may come in several pieces, one behind the other (RFC 1952, 2.2; RFC 8878, 3.1)."""
IDENTITY: Final = frozenset({"", "identity"})


async def receive_body(raw: bytes, encoding: str, aside: Aside, inbound: Inbound, bytes_max: int) -> RequestBody:
    """The body of a request with that content-encoding. Raises Refusal. What it is larger for being decoded is taken
    from the process's room for bodies, too."""
    if encoding in IDENTITY:
        return await aside.run(len(raw), partial(read_body, raw))
    read, size_bytes = await aside.run(limits.BODY_BYTES_MAX, partial(_decode_and_read, raw, encoding, bytes_max))
    if not inbound.take(max(0, size_bytes - len(raw))):
        raise Refusal("too_many_turns", "the gateway holds as many bytes of requests as it may")
    return read


def coding_of(header: str | None) -> str:
    """The one coding of a body. Raises Refusal `unsupported_content_encoding` for others, and for several."""
    if header is None:
        return ""
    encoding = header.strip().lower()
    if decoder_for(encoding) is None:
        raise Refusal(
            "unsupported_content_encoding",
            f"content-encoding {encoding[:NAME_CHARACTERS_MAX]!r} is not supported here: send zstd, gzip or deflate, "
            "one of them, or none",
        )
    return encoding


NAME_CHARACTERS_MAX: Final = 64


def _decode_and_read(raw: bytes, encoding: str, bytes_max: int) -> tuple[RequestBody, int]:
    body = decoded(raw, encoding, bytes_max)
    return read_body(body), len(body)


def decoded(raw: bytes, encoding: str, bytes_max: int) -> bytes:
    """The bytes that a client encoded. Raises Refusal `invalid_request` for what cannot be decoded, `payload_too_large`
    for what is more than `bytes_max`."""
    body = bytearray()
    position = members = 0
    try:
        while not members or (position < len(raw) and encoding in IN_MEMBERS and members < limits.BODY_MEMBERS_MAX):
            position = _decode_member(raw, position, encoding, body, bytes_max)
            members += 1
    except EncodingError as error:
        raise Refusal("invalid_request", f"the body is not what content-encoding {encoding!r} says: {error}") from None
    if position < len(raw):
        raise Refusal("invalid_request", f"bytes stand behind the end of content-encoding {encoding!r}")
    return bytes(body)


def _decode_member(raw: bytes, position: int, encoding: str, body: bytearray, bytes_max: int) -> int:
    """Decode the member that begins at `position` into the body; where it ends."""
    decoder = decoder_for(encoding)
    if decoder is None:
        raise EncodingError("it is not known")
    while position < len(raw) and not decoder.is_over:
        chunk = raw[position : position + CHUNK_BYTES]
        _decode_chunk(decoder, chunk, body, bytes_max)
        position += len(chunk) - len(decoder.unused)
    decoder.end()
    return position


def _decode_chunk(decoder: Decoder, chunk: bytes, body: bytearray, bytes_max: int) -> None:
    for piece in decoder.decode(chunk):
        body += piece
        if len(body) > bytes_max:
            raise Refusal("payload_too_large", f"the decoded body has more than {bytes_max} bytes")
