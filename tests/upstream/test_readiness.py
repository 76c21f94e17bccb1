"""One task waits for many sockets: what it does for one is nobody else's affair (issue 7)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
import trio
import trio.testing

from gateway.limits import READY_SOCKETS_MAX
from gateway.upstream import readiness
from gateway.upstream.readiness import call_while_readable

pytestmark = pytest.mark.trio(run=trio.run)


async def waiting(sock: socket.socket, ready: readiness.Ready) -> None:
    """A task that waits for its socket."""
    await call_while_readable(sock, ready)


on_any_system = pytest.mark.parametrize("has_epoll", [True, False])

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(autouse=True)
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems have it, or have not; what is about its own ways needs it."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    monkeypatch.setattr(readiness, "HAS_EPOLL", parameters.get("has_epoll", True))


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def pair(sockets: ExitStack) -> Pair:
    """Two ends of a line."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        sockets.enter_context(end)
    return ends


async def settled() -> None:
    """Whatever can happen without anything coming has happened."""
    await trio.testing.wait_all_tasks_blocked(0.01)


@on_any_system
async def test_it_is_called_for_what_comes_until_it_has_enough(has_epoll: bool, sockets: ExitStack) -> None:
    here, there = pair(sockets)
    got: list[bytes] = []

    def ready(_now: float) -> bool:
        got.append(here.recv(100))
        return got[-1] != b"enough"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting, here, ready)
        for piece in (b"one", b"two", b"enough"):
            await settled()
            there.send(piece)
    there.send(b"more")
    await settled()
    assert got == [b"one", b"two", b"enough"]
    assert here.recv(100) == b"more"


@on_any_system
async def test_what_it_raises_is_raised_where_its_socket_is_waited_for(has_epoll: bool, sockets: ExitStack) -> None:
    sound, faulty = pair(sockets), pair(sockets)
    got: list[bytes] = []

    def fail(_now: float) -> bool:
        raise OSError("connection reset by peer")

    def ready(_now: float) -> bool:
        got.append(sound[0].recv(100))
        return len(got) < 2

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting, sound[0], ready)
        sound[1].send(b"before")
        faulty[1].send(b"x")
        with pytest.raises(OSError, match="reset"):
            await call_while_readable(faulty[0], fail)
        await settled()
        sound[1].send(b"after")
    assert got == [b"before", b"after"]


@on_any_system
async def test_a_cancelled_task_s_socket_is_forgotten_and_its_number_is_nobody_s(
    has_epoll: bool, sockets: ExitStack
) -> None:
    """A descriptor's number that is used again must not bring one tenant's bytes to another."""
    here, there = pair(sockets)
    called: list[str] = []

    def ready(who: str, _now: float) -> bool:
        called.append(who)
        return False

    with trio.move_on_after(0.01) as given_up:
        await call_while_readable(here, partial(ready, "first"))
    assert given_up.cancelled_caught
    number = here.fileno()
    here.close()
    other, far = pair(sockets)
    if other.fileno() != number:
        os.dup2(other.fileno(), number)
        other = sockets.enter_context(socket.socket(fileno=number))
    assert other.fileno() == number
    there.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting, other, partial(ready, "second"))
        await settled()
        assert called == []
        far.send(b"x")
    assert called == ["second"]


async def test_a_task_that_another_socket_s_bytes_cancel_is_not_called_any_more(sockets: ExitStack) -> None:
    """Both are ready at once; the first to be served takes the other's task away."""
    pairs = [pair(sockets), pair(sockets)]
    scopes = [trio.CancelScope(), trio.CancelScope()]
    called: list[int] = []

    def ready(number: int, _now: float) -> bool:
        called.append(number)
        scopes[1 - number].cancel()
        return False

    async def wait(number: int) -> None:
        with scopes[number]:
            await call_while_readable(pairs[number][0], partial(ready, number))

    async with trio.open_nursery() as nursery:
        for number in (0, 1):
            nursery.start_soon(wait, number)
        await settled()
        for _, there in pairs:
            there.send(b"x")
    assert len(called) == 1


@on_any_system
async def test_one_that_cancels_its_own_task_is_over(has_epoll: bool, sockets: ExitStack) -> None:
    here, there = pair(sockets)
    there.send(b"x")
    with trio.CancelScope() as scope:

        def ready(_now: float) -> bool:
            here.recv(100)
            scope.cancel()
            return False

        await call_while_readable(here, ready)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_others_have_their_turn_between_many_that_are_ready(sockets: ExitStack) -> None:
    """Bounded work for each pass of the scheduler (limits.READY_SOCKETS_MAX), however many sockets never rest."""
    ends = [pair(sockets) for _ in range(4 * READY_SOCKETS_MAX)]
    served = 0
    most = 0

    def ready(_now: float) -> bool:
        nonlocal served
        served += 1
        return True

    async with trio.open_nursery() as nursery:
        for here, there in ends:
            there.send(b"x")
            nursery.start_soon(waiting, here, ready)
        for _ in range(50):
            before = served
            await trio.lowlevel.checkpoint()
            most = max(most, served - before)
        nursery.cancel_scope.cancel()
    assert READY_SOCKETS_MAX <= most <= 2 * READY_SOCKETS_MAX  # of two passes at most, as the order of tasks has it
