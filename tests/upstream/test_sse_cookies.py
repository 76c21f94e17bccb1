"""H4: an upstream's cookies stay where they came from: the next call may be another account's."""

from __future__ import annotations

from gateway.lock.driver import post
from gateway.upstream.scripted import Reply
from support.gateways import create, world
from support.virtual import in_every_order
from support.voices import A


@in_every_order
async def test_a_cookie_that_an_upstream_sets_is_in_no_later_call() -> None:
    """H4: neither after a stream nor after a failure."""
    answer = A.answer()
    sets = Reply(answer.steps, headers=(*answer.headers, ("set-cookie", "session=one; Path=/")))
    fails = Reply((b"{}",), status=429, headers=(("content-type", "application/json"), ("set-cookie", "b=two")))
    w = world([sets, fails, answer])
    for _ in range(3):
        await post(w.app, create())
    assert [[value for name, value in call.headers if name.lower() == "cookie"] for call in w.calls] == [[], [], []]
