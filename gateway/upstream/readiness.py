"""Waiting for many sockets at once, without a wake-up for each of them.

    socket --may be read--> epoll --> one task for all: ready(now)   goes on waiting        while it returns True
                                                                     its own task goes on   when it returns False

A task that waits for its socket is woken for each piece that comes: of a token of 250 bytes that is half the price. So
a stream whose pieces need nobody's wait leaves its socket here, with what is to be done with them. That runs in the one
task that waits for all, between two waits of its own: it must not block, and what it raises is raised where its stream
waits.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import outcome
import trio

from gateway.limits import READY_SOCKETS_MAX

HAS_EPOLL: Final = hasattr(select, "epoll")
Ready = Callable[[float], bool]
"""Given the time at which the socket was seen to be ready; returns whether to call it again."""


def call_while_readable(sock: socket.socket, ready: Ready) -> Awaitable[None]:
    """Call `ready` whenever the socket may be read, until it returns False. Raises what it raises. To be awaited at
    once, by the task that waits. A cancellation loses nothing: what was not read is still there."""
    return _of_this_run().watch(sock, ready) if HAS_EPOLL else _call_by_itself(sock, ready)


async def _call_by_itself(sock: socket.socket, ready: Ready) -> None:
    """Where there is no epoll, a task waits for each socket."""
    goes_on = True
    while goes_on:
        await trio.lowlevel.wait_readable(sock)
        goes_on = ready(trio.current_time())


@dataclass(slots=True, eq=False)
class _Watched:
    """A socket, and who waits."""

    readiness: _Readiness
    descriptor: int
    ready: Ready
    task: trio.lowlevel.Task

    def give_up(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """Its task is cancelled."""
        self.readiness.forget(self.descriptor)
        return trio.lowlevel.Abort.SUCCEEDED


class _Readiness:
    """The sockets of one run of Trio."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}

    def watch(self, sock: socket.socket, ready: Ready) -> Awaitable[None]:
        """To be awaited at once: it lasts until `ready` has returned False."""
        descriptor = sock.fileno()
        self._epoll.register(descriptor, select.EPOLLIN)
        watched = self._watched[descriptor] = _Watched(self, descriptor, ready, trio.lowlevel.current_task())
        return trio.lowlevel.wait_task_rescheduled(watched.give_up)  # noqa: ASYNC105 - by whoever called: a frame less

    async def serve(self) -> None:
        """For as long as Trio runs."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                now = trio.current_time()
                for descriptor, _ in self._epoll.poll(0, READY_SOCKETS_MAX):
                    self._serve_one(descriptor, now)
        finally:
            self._epoll.close()

    def _serve_one(self, descriptor: int, now: float) -> None:
        watched = self._watched.get(descriptor)
        if watched is None:  # what was done for another socket has cancelled this one's task
            return
        told: outcome.Outcome[None] | None = None
        try:
            if watched.ready(now):
                return
        except Exception as error:
            told = outcome.Error(error)
        if descriptor in self._watched:  # as above
            self.forget(descriptor)
            trio.lowlevel.reschedule(watched.task, told or outcome.Value(None))

    def forget(self, descriptor: int) -> None:
        """A socket is closed by whoever waited for it, so never before it is forgotten: its number is nobody else's."""
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)


_readiness: trio.lowlevel.RunVar[_Readiness] = trio.lowlevel.RunVar("readiness")


def _of_this_run() -> _Readiness:
    try:
        return _readiness.get()
    except LookupError:
        readiness = _Readiness()
        _readiness.set(readiness)
        trio.lowlevel.spawn_system_task(readiness.serve)
        return readiness
