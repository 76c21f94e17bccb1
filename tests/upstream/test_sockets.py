"""What a write to an upstream that failed says: whether a byte may have gone out decides what may follow (§4)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

import pytest
import trio

from gateway.upstream.sockets import RECORD_BYTES_MAX, NothingWritten, UpstreamSocket

RESET = ConnectionResetError("connection reset by peer")


class Scripted(ssl.SSLSocket):
    """A TLS socket whose sends go as they are told."""

    outcomes: list[int | Exception]
    sizes: list[int]

    def send(self, data: memoryview, flags: int = 0) -> int:  # type: ignore[override]  # one kind of bytes is enough
        self.sizes.append(len(data))
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def pending(self) -> int:
        return 0


def scripted(outcomes: Sequence[int | Exception]) -> tuple[UpstreamSocket, Scripted]:
    made = Scripted.__new__(Scripted)
    made.outcomes, made.sizes = list(outcomes), []
    return UpstreamSocket(made), made


async def at_once(_upstream: UpstreamSocket) -> bool:
    await trio.lowlevel.checkpoint()
    return True


@pytest.mark.trio(run=trio.run)
@pytest.mark.parametrize(
    ("outcomes", "raised"),
    [
        ([RESET], NothingWritten),
        ([ssl.SSLWantWriteError(), RESET], ConnectionResetError),
        ([RECORD_BYTES_MAX, RESET], ConnectionResetError),
    ],
    ids=["at its first byte", "after half a record", "after a record"],
)
async def test_a_tls_write_that_may_have_begun_is_not_one_that_never_was(
    outcomes: list[int | Exception], raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15: a request of which something may have been written is never sent again by the transport."""
    upstream, made = scripted(outcomes)
    monkeypatch.setattr(UpstreamSocket, "_wait_for_room", at_once)
    with pytest.raises(raised):
        await upstream.send_all(b"x" * 3 * RECORD_BYTES_MAX)
    assert max(made.sizes) == RECORD_BYTES_MAX
    assert made.outcomes == []


@pytest.mark.trio(run=trio.run)
async def test_a_plain_write_that_found_no_room_has_not_begun() -> None:
    """§4: the peer was gone before it was sent a byte."""
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.close()
        with pytest.raises(NothingWritten):
            await UpstreamSocket(near).send_all(b"x" * 1000)
