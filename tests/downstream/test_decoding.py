"""Compressed request bodies (H3): the same request, bounded by what it decodes to."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from gateway import limits
from gateway.beside_asgi import INBOUND
from gateway.core.failures import Refusal
from gateway.downstream.decoding import decoded
from gateway.encodings import zstd
from gateway.lock.driver import AUTHORIZED, Client, connect
from gateway.lock.virtual import virtual_run
from gateway.server.hardened.inbound import InboundBytes
from support.gateways import World, create, world
from support.voices import A

pytestmark = pytest.mark.trio(run=virtual_run)

Encode = Callable[[bytes], bytes]


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


ENCODED: dict[str, tuple[str, Encode]] = {
    "zstd": ("zstd", zstd.compress),
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "two gzip members": ("gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "two zstd frames": ("zstd", lambda data: zstd.compress(data[:9]) + zstd.compress(data[9:])),
}
each_encoding = pytest.mark.parametrize(("name", "encode"), ENCODED.values(), ids=ENCODED.keys())


async def send(w: World, body: bytes, encoding: str, state: dict[str, Any] | None = None) -> Client:
    headers = (*AUTHORIZED, ("content-encoding", encoding))
    async with connect(w.app, "http", headers=headers, body=body, state=state) as client:
        pass
    return client


def refusal(client: Client) -> tuple[int, str]:
    return client.status, json.loads(client.body)["error"]["code"]


@each_encoding
async def test_a_compressed_request_is_the_same_request(name: str, encode: Encode) -> None:
    """H3; case 46: what goes up is what was compressed, and not compressed."""
    w = world(A.answer())
    body = json.dumps(create(), indent=2).encode()
    client = await send(w, encode(body), name)

    assert (client.status, client.told[-1]) == (200, "completed")
    assert w.calls[0].body == body
    assert "content-encoding" not in dict(w.calls[0].headers)


@each_encoding
@pytest.mark.parametrize(("excess", "status"), [(-1, 200), (0, 200), (1, 413)])
async def test_what_it_decodes_to_is_bounded(name: str, encode: Encode, excess: int, status: int) -> None:
    """H3: to the byte."""
    w = world(A.answer(), limits="body_bytes_max = 2000")
    body = json.dumps(create()).encode()
    client = await send(w, encode(body.ljust(2000 + excess)), name)

    assert client.status == status
    assert len(w.calls) == (status == 200)
    if status == 413:
        assert refusal(client) == (413, "payload_too_large")


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
async def test_a_bomb_is_cut_as_it_decodes(name: str) -> None:
    """H3: some KiB that hold a gigabyte cost what the bound costs."""
    size, filler = 32, b"\0" * limits.MIB
    streams = {"gzip": zlib.compressobj(wbits=31), "deflate": zlib.compressobj(), "zstd": zstd.ZstdCompressor()}
    stream: Any = streams[name]
    bomb = b"".join(stream.compress(filler) for _ in range(size * 8)) + stream.flush()
    with pytest.raises(Refusal) as caught:
        decoded(bomb, name, size * limits.MIB)
    assert caught.value.code == "payload_too_large"
    assert len(bomb) < limits.MIB


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body[: len(body) // 2],
        lambda body: b"\x00" + body,
        lambda body: body + b"{}",
        lambda body: b'{"model":"gpt-test"}',
    ],
    ids=["empty", "cut by one", "cut in half", "shifted", "with more behind", "not encoded"],
)
async def test_what_cannot_be_decoded_is_refused_by_name(name: str, damage: Encode) -> None:
    """H3: before anything is reserved."""
    w = world(A.answer())
    encode = ENCODED[name][1]
    client = await send(w, damage(encode(json.dumps(create()).encode())), name)

    assert refusal(client) == (400, "invalid_request")
    assert f"content-encoding '{name}'" in json.loads(client.body)["error"]["message"]
    assert (w.calls, w.turns) == ([], [])


@pytest.mark.parametrize("name", ["gzip", "zstd"])
async def test_members_are_bounded(name: str) -> None:
    """H3: thousands of empty ones are no body."""
    member = ENCODED[name][1](b"x")
    assert decoded(member * limits.BODY_MEMBERS_MAX, name, 1000) == b"x" * limits.BODY_MEMBERS_MAX
    with pytest.raises(Refusal):
        decoded(member * (limits.BODY_MEMBERS_MAX + 1), name, 1000)


async def test_a_compressed_body_that_is_no_json_is_refused_as_one_that_is_not() -> None:
    """H3: whatever it came in."""
    client = await send(world(A.answer()), gzip.compress(b'{"model":NaN}'), "gzip")
    assert refusal(client) == (400, "invalid_json")


@pytest.mark.parametrize(("room", "status"), [(1000, 200), (999, 503)])
async def test_decoded_bytes_take_their_room(room: int, status: int) -> None:
    """H3: the server counted what came; what a body decodes to is held for as long."""
    w = world(A.answer())
    body = json.dumps(create()).encode().ljust(1500)
    encoded = zstd.compress(body)
    share = InboundBytes(room + 500).share()
    assert share.take(len(encoded))
    client = await send(w, encoded, "zstd", {INBOUND: share})

    assert client.status == status
    if status == 503:
        assert refusal(client) == (503, "too_many_turns")
        assert client.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("name", ["br", "gzip, zstd", "identity, gzip", "gzip, gzip", "nonsense", "x" * 1000])
async def test_another_coding_or_several_are_refused(name: str) -> None:
    """X: 415."""
    client = await send(world(A.answer()), b"{}", name)
    assert refusal(client) == (415, "unsupported_content_encoding")
    assert len(client.body) < 500
