"""A route's idle connections: taken and given back at a cost that does not grow with them."""

from __future__ import annotations

import time

from gateway.limits import UPSTREAM_IDLE_CONNECTIONS_MAX
from gateway.upstream.calls import Take
from gateway.upstream.direct import ConnectionPool


class Quiet:
    """A connection that can always be used."""

    is_quiet = True

    def __init__(self) -> None:
        self.is_closed = False

    async def receive(self) -> bytes:
        raise NotImplementedError

    async def pass_on(self, take: Take) -> None:
        raise NotImplementedError

    async def send_all(self, data: bytes | memoryview) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True


def test_idle_connections_are_bounded_and_the_longest_idle_goes_first() -> None:
    pool, made = ConnectionPool(), [Quiet() for _ in range(UPSTREAM_IDLE_CONNECTIONS_MAX + 2)]
    for connection in made:
        pool.put(connection, 0.0)
    assert [connection.is_closed for connection in made] == [True, True] + [False] * UPSTREAM_IDLE_CONNECTIONS_MAX
    assert pool.take(0.0) is made[-1]


def test_a_connection_that_comes_back_to_a_closed_pool_is_closed() -> None:
    pool, late = ConnectionPool(), Quiet()
    pool.close()
    pool.put(late, 0.0)
    assert late.is_closed


def test_taking_and_giving_back_cost_the_same_with_a_thousand_idle_connections() -> None:
    """Issue 7: a pool that is scanned makes a short turn ten times dearer."""

    def seconds(idle: int) -> float:
        pool = ConnectionPool()
        for _ in range(idle):
            pool.put(Quiet(), 0.0)
        began = time.process_time()
        for _ in range(20_000):
            pool.put(pool.take(1.0) or Quiet(), 1.0)
        return time.process_time() - began

    assert min(seconds(1000) for _ in range(3)) < 3 * min(seconds(1) for _ in range(3)) + 0.005
