"""What becomes of a plain POST: apps, what their peers send and when, and what is noticed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import trio

from gateway.server.hardened.http1 import BEHIND_BYTES_MAX
from gateway.server.hardened.inbox import WAITING_BYTES_MAX
from server.attacks.wire import request

LENGTHLESS: Any = {"type": "http.response.start", "status": 200, "headers": [(b"x-y", b"z")]}
END: Any = {"type": "http.response.body", "body": b"", "more_body": False}


def post(body: bytes = b"hello", *headers: str, size: int | None = None) -> bytes:
    length = len(body) if size is None else size
    return request("POST / HTTP/1.1", f"content-length: {length}", *headers, body=body)


def piece(data: bytes, *, more: bool = True) -> Any:
    return {"type": "http.response.body", "body": data, "more_body": more}


@dataclass
class Seen:
    """What was noticed on one plane: by the peer, by whom the server tells of it, and by the app."""

    heard: dict[float, bytes] = field(default_factory=dict)
    cuts: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    app: list[Any] = field(default_factory=list)
    ended_at: float | None = None
    begun_at: float = field(default_factory=trio.current_time, compare=False)

    def now(self) -> float:
        """Seconds since it began."""
        return round(trio.current_time() - self.begun_at, 3)


App = Callable[[Seen, Any, Any, Any], Awaitable[None]]
Step = bytes | float | str
"""Bytes to send, seconds to wait, or how to leave: `half` and `whole`."""


async def whole_body(receive: Any) -> bytes:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += bytes(message["body"])
        if not message["more_body"]:
            return body
    raise EOFError


async def echo(seen: Seen, scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body, in chunks; notes its request."""
    seen.app.append({name: value for name, value in scope.items() if name != "state"})
    try:
        body = await whole_body(receive)
    except EOFError:
        seen.app.append("gone")
        return
    seen.app.append(body)
    await send(LENGTHLESS)
    for at in range(0, len(body), 100_000):
        await send(piece(body[at : at + 100_000]))
    await send(END)


async def measured(_seen: Seen, _scope: Any, receive: Any, send: Any) -> None:
    """Answers with a length, all at once."""
    body = await whole_body(receive)
    length = b"%d" % len(body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send(piece(body, more=False))


async def early(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    """Answers before it has read."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
    await send(piece(b"no", more=False))


async def slow(seen: Seen, scope: Any, receive: Any, send: Any) -> None:
    """Reads after half a minute, then goes on."""
    await trio.sleep(30)
    await echo(seen, scope, receive, send)


async def ticking(_seen: Seen, _scope: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send(LENGTHLESS)
    for _ in range(5):
        await send(piece(b"tick"))
        await trio.sleep(1)
    await send(piece(b"end", more=False))


async def held(seen: Seen, _scope: Any, receive: Any, _send: Any) -> None:
    """Never answers, and waits for the disconnect."""
    try:
        await whole_body(receive)
        seen.app.append((await receive(), seen.now()))
    except EOFError:
        seen.app.append(("gone", seen.now()))
    seen.app.append((await receive())["type"])


async def failing(_seen: Seen, _scope: Any, _receive: Any, _send: Any) -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError


async def failing_in_a_nursery(seen: Seen, scope: Any, receive: Any, send: Any) -> None:
    async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - as a turn has one
        nursery.start_soon(failing, seen, scope, receive, send)


async def failing_behind_its_head(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    await send(LENGTHLESS)
    raise RuntimeError


async def failing_in_its_body(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    await send(LENGTHLESS)
    await send(piece(b"half of"))
    raise RuntimeError


async def silent(_seen: Seen, _scope: Any, _receive: Any, _send: Any) -> None:
    """Ends without an answer."""
    await trio.lowlevel.checkpoint()


async def splitting(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    await send({**LENGTHLESS, "headers": [(b"x", b"a\r\nset-cookie: b")]})


async def short(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    await send({**LENGTHLESS, "headers": [(b"content-length", b"5")]})
    await send(piece(b"four", more=False))


async def long(_seen: Seen, _scope: Any, _receive: Any, send: Any) -> None:
    await send({**LENGTHLESS, "headers": [(b"content-length", b"5")]})
    await send(piece(b"five"))
    await send(piece(b"six", more=False))


async def bodiless(_seen: Seen, _scope: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send({**LENGTHLESS, "status": 204})
    await send(piece(b"nothing of this", more=False))


async def twice(seen: Seen, scope: Any, receive: Any, send: Any) -> None:
    """Begins again behind its answer's end, and in its midst."""
    await send(LENGTHLESS)
    with suppress(Exception):
        await send(LENGTHLESS)
    await send(END)
    await send(LENGTHLESS)
    seen.app.append("over")


async def cancelled_by_the_disconnect(receive: Any, nursery: trio.Nursery) -> None:
    """As Quart-Trio's apps are."""
    while (await receive())["type"] != "http.disconnect":
        pass
    nursery.cancel_scope.cancel()


async def hasty(_seen: Seen, _scope: Any, receive: Any, send: Any) -> None:
    """Is cancelled by the disconnect that comes with the end of its own answer."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled_by_the_disconnect, receive, nursery)
        await trio.sleep(1)
        await send(LENGTHLESS)
        await send(piece(b"done", more=False))
        await trio.sleep_forever()


SLOWLY: list[Step] = [b"x" * 10, 1.0] * 30
AT_ITS_PACE: list[Step] = [b"x" * 200, 1.0] * 25
MUCH = bytes(range(256)) * 1024
CASES: dict[str, tuple[App, list[Step]]] = {
    "one": (echo, [post()]),
    "of no length": (echo, [post(b"")]),
    "one after the other": (echo, [post(), 3.0, post(b"again"), 3.0, post(b"and")]),
    "answers of a length": (measured, [post(), 1.0, post(b"")]),
    "many at once": (echo, [post() + post(b"two") + post(b"three", "connection: close") + post(b"never")]),
    "others between": (echo, [post() + request("GET / HTTP/1.1") + post(b"x", "x: y") + request("GET / HTTP/1.0")]),
    "blank lines between": (echo, [b"\r\n" + post() + b"\r\n\r\n" + post()]),
    "head and body apart": (echo, [post(b"", size=5), 1.0, b"hello", 1.0, post(b"", size=5), b"hel", 1.0, b"lo"]),
    "a head in parts": (echo, [post()[:20], 1.0, post()[20:], 1.0, post()]),
    "a body and the next head": (echo, [post()[:-2], 1.0, post()[-2:] + post()[:30], 1.0, post()[30:]]),
    "a large body": (echo, [post(MUCH)]),
    "a body larger than waits": (slow, [post(bytes(WAITING_BYTES_MAX * 2))]),
    "more behind than waits": (ticking, [post() + b"x" * (BEHIND_BYTES_MAX + 1)]),
    "as much behind as waits": (ticking, [post() + b"x" * BEHIND_BYTES_MAX]),
    "more behind, later": (held, [post(), 1.0, b"x" * (BEHIND_BYTES_MAX + 1)]),
    "an answer in pieces": (ticking, [post(), 7.0, post()]),
    "the next while it is answered": (ticking, [post(), 2.0, post(), 2.5, post()]),
    "an early answer": (early, [post(size=100, body=b"x"), 1.0, b"x" * 99]),
    "an early answer to a whole request": (early, [post(), 1.0, post()]),
    "an early answer, more behind": (early, [post(size=100, body=b"x"), 1.0, b"x" * 200]),
    "no body": (echo, [post(size=5, body=b"")]),
    "a body too slow": (echo, [post(size=5000, body=b"x"), *SLOWLY]),
    "a body at its pace": (echo, [post(size=5000, body=b""), *AT_ITS_PACE]),
    "a body cut": (echo, [post(size=5, body=b"he"), 1.0, "half"]),
    "a body cut, not read": (slow, [post(size=5, body=b"he"), 1.0, "half"]),
    "left in the body": (held, [post(size=5, body=b"he"), 1.0, "whole"]),
    "left while it is held": (held, [post(), 2.0, "whole"]),
    "a half-close while it is held": (held, [post(), 2.0, "half"]),
    "a half-close at once": (held, [post(), "half"]),
    "left at once": (slow, [post(), "whole"]),
    "left in the answer": (ticking, [post(), 2.5, "whole"]),
    "left behind the answer": (echo, [post(), 2.5, "half"]),
    "an idle peer": (echo, [post(), 200.0]),
    "a failure": (failing, [post(), 1.0, post()]),
    "a failure in a nursery": (failing_in_a_nursery, [post(), 1.0, post()]),
    "a failure with a body to come": (failing, [post(size=5, body=b""), 1.0, b"hello"]),
    "a failure behind the head": (failing_behind_its_head, [post()]),
    "a failure in the body": (failing_in_its_body, [post()]),
    "no answer": (silent, [post()]),
    "a header that splits": (splitting, [post()]),
    "less than its length": (short, [post()]),
    "more than its length": (long, [post()]),
    "no content": (bodiless, [post(), 1.0, post()]),
    "two answers": (twice, [post(), 1.0, post()]),
    "cancelled by its own end": (hasty, [post() + post(), 5.0, post()]),
    "nonsense behind": (echo, [post() + b"nonsense\r\n\r\n"]),
    "nonsense later": (echo, [post(), 1.0, b"nonsense\r\n\r\n"]),
    "too large a head behind": (echo, [post(), b"POST / HTTP/1.1\r\nx: " + b"y" * 20_000]),
    "two lengths": (echo, [request("POST / HTTP/1.1", "content-length: 5", "content-length: 6", body=b"hello")]),
    "two hosts": (echo, [post(b"hello", "host: other")]),
    "a length and chunks": (echo, [post(b"5\r\nhello\r\n0\r\n\r\n", "transfer-encoding: chunked")]),
    "asked for its body": (echo, [post(b"", "expect: 100-continue", size=5), 1.0, b"hello"]),
    "to be kept alive": (echo, [post(b"hello", "connection: keep-alive"), 1.0, post()]),
    "to be closed": (echo, [post(b"hello", "connection: close")]),
}
