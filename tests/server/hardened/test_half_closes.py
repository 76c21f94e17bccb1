"""A peer that has said all it wants to, in whatever order that is noticed."""

import pytest
import trio

from gateway.lock.virtual import virtual_run
from server.attacks.wire import request
from server.hardened.stage import answering, connected

GET = request("GET / HTTP/1.1")
HALF_A_POST = request("POST / HTTP/1.1", "content-length: 52", body=b'{"model"')
ORDERS = 60


async def seconds_until_the_end(said: bytes) -> float:
    """How long the connection outlives what its peer said, and the end of it."""
    begun = trio.current_time()
    async with connected(answering) as stage:
        await stage.client.send_all(said)
        await stage.client.send_eof()
        with trio.move_on_after(1000):
            await stage.ended.wait()
    return trio.current_time() - begun


@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("said", [GET * 2 + HALF_A_POST, GET + HALF_A_POST, HALF_A_POST, GET * 3, b""])
def test_nothing_is_begun_behind_the_end_whatever_the_order_of_tasks(said: bytes) -> None:
    """H7. A request that began there would never hear of the end, and wait for its body."""
    late = [order for order in range(ORDERS) if virtual_run(seconds_until_the_end, said, order=order) > 0]
    assert late == []
