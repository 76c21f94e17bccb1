"""A turn's request goes straight to its door, past Quart, and notices no difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import trio
from quart import Response, request
from werkzeug.exceptions import RequestEntityTooLarge

from gateway.beside_asgi import LEAVING
from gateway.downstream.asked import Asked
from gateway.downstream.connections import Wire
from gateway.downstream.straight import StraightApp
from gateway.lock.virtual import virtual_run

pytestmark = pytest.mark.trio(run=virtual_run)

KINDS = ["told", "watched"]
"""How the app learns that its client has left: by a call, or by receiving."""
WHOLE = ({"type": "http.request", "body": b"{}", "more_body": False},)
LEFT = {"type": "http.disconnect"}
BODY_SECONDS = 20.0

Serve = Callable[[Asked, Wire], Awaitable[None]]


class Place(AbstractContextManager[None]):
    """What a request holds."""

    def __init__(self, give_back: Callable[[], object]) -> None:
        self._give_back = give_back

    def __exit__(self, *_error: object) -> None:
        self._give_back()


def app_of(serve: Serve) -> StraightApp:
    app = StraightApp("test")
    app.config["MAX_CONTENT_LENGTH"] = 100
    app.config["BODY_TIMEOUT"] = BODY_SECONDS
    app.config["RESPONSE_TIMEOUT"] = None

    async def page(error: Exception) -> Response:
        return Response(f"{type(error).__name__} on {request.path}", getattr(error, "code", 500))

    app.register_error_handler(Exception, page)
    app.add_straight("POST", "/turn", serve)
    return app


class Client:
    """What it sends, one message after the other; it leaves at `leaves_at` if it does."""

    def __init__(self, kind: str = "told", messages: Sequence[Any] = WHOLE, leaves_at: float | None = None) -> None:
        self.sent: list[Any] = []
        self._kind = kind
        self._messages = list(messages)
        self._leaves_at = leaves_at
        self._tell: Callable[[], None] | None = None
        self._has_left = trio.Event()

    async def ask(self, app: StraightApp, method: str = "POST", path: str = "/turn", *headers: Any) -> Any:
        """Status and body of the answer; None if there is none."""
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"gateway.test"), (b"x-said", b"hello"), *headers],
            "client": ("192.0.2.1", 1),
            "state": {LEAVING: self._when_left} if self._kind == "told" else {},
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._leave)
            await app(scope, self._receive, self._send)
            nursery.cancel_scope.cancel()
        body = b"".join(message.get("body", b"") for message in self.sent)
        return (self.sent[0]["status"], body) if self.sent else None

    def _when_left(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    async def _leave(self) -> None:
        if self._leaves_at is None:
            await trio.sleep_forever()
        await trio.sleep_until(self._leaves_at or 0.0)
        self._has_left.set()
        if self._tell is not None:
            self._tell()

    async def _receive(self) -> Any:
        await trio.lowlevel.checkpoint()
        if not self._messages:
            await self._has_left.wait()
            return LEFT
        return self._messages.pop(0)

    async def _send(self, message: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_reads_its_request_and_its_nursery_may_write(kind: str) -> None:
    async def turn(asked: Asked, wire: Wire) -> None:
        said = (asked.header(b"x-said") or "").encode() + await asked.body()
        await wire.start(201, [])
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - that there may be one is what is asked
            nursery.start_soon(wire.write, said)
        await wire.end(b"!")

    assert await Client(kind).ask(app_of(turn)) == (201, b"hello{}!")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [RuntimeError("ours"), RequestEntityTooLarge(), ExceptionGroup("", [KeyError()])])
async def test_a_turn_that_fails_before_its_answer_has_its_error_page(kind: str, error: Exception) -> None:
    async def turn(_asked: Asked, _wire: Wire) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    named = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    expected = (getattr(error, "code", 500), f"{type(named).__name__} on /turn".encode())
    assert await Client(kind).ask(app_of(turn)) == expected


@pytest.mark.parametrize("kind", KINDS)
async def test_behind_the_head_there_is_no_error_page(kind: str) -> None:
    """The server cuts the answer: half of one must not look whole."""

    async def turn(_asked: Asked, wire: Wire) -> None:
        await wire.start(200, [])
        raise KeyError

    with pytest.RaisesGroup(KeyError, allow_unwrapped=True, flatten_subgroups=True):
        await Client(kind).ask(app_of(turn))


async def read(asked: Asked, wire: Wire) -> None:
    body = await asked.body()
    await wire.start(200, [])
    await wire.end(b"%d" % len(body))


def pieces(*sizes: int) -> list[Any]:
    last = len(sizes) - 1
    return [{"type": "http.request", "body": b"x" * n, "more_body": at < last} for at, n in enumerate(sizes)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("messages", "headers", "answer"),
    [
        (pieces(99), [], (200, b"99")),
        (pieces(100), [], (200, b"100")),
        (pieces(60, 40, 0), [], (200, b"100")),
        (pieces(101), [], (413, b"RequestEntityTooLarge on /turn")),
        (pieces(60, 41, 0), [], (413, b"RequestEntityTooLarge on /turn")),
        (pieces(), [(b"content-length", b"101")], (413, b"RequestEntityTooLarge on /turn")),
    ],
)
async def test_a_body_has_its_bound(kind: str, messages: Any, headers: Any, answer: Any) -> None:
    """H3: at the bound it is read, above it refused, by its announcement before it has come."""
    assert await Client(kind, messages).ask(app_of(read), "POST", "/turn", *headers) == answer


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_takes_too_long_is_refused(kind: str) -> None:
    assert await Client(kind, pieces(5, 5)[:1]).ask(app_of(read)) == (408, b"RequestTimeout on /turn")
    assert trio.current_time() == BODY_SECONDS


@pytest.mark.parametrize("kind", KINDS)
async def test_who_leaves_before_its_body_is_whole_has_asked_for_nothing(kind: str) -> None:
    given_back: list[float] = []

    async def turn(asked: Asked, wire: Wire) -> None:
        asked.hold(Place(lambda: given_back.append(trio.current_time())))
        await read(asked, wire)

    assert await Client(kind, pieces(5, 5)[:1], leaves_at=3.0).ask(app_of(turn)) is None
    assert given_back == [3.0]


@pytest.mark.parametrize("kind", KINDS)
async def test_who_leaves_behind_its_body_is_told_of_and_not_cut_off(kind: str) -> None:
    """H7, T10."""
    told: list[tuple[str, float]] = []

    async def turn(asked: Asked, wire: Wire) -> None:
        await asked.body()
        wire.departure.watch(lambda how: told.append((how, trio.current_time())))
        await trio.sleep(5.0)
        await wire.start(200, [])
        await wire.end()

    assert await Client(kind, leaves_at=3.0).ask(app_of(turn)) == (200, b"")
    assert told == [("disconnected", 3.0)]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/turn", 405), ("POST", "/turn/", 404), ("OPTIONS", "/turn", 200)],
)
async def test_whatever_is_not_quite_that_request_goes_the_ordinary_way(method: str, path: str, status: int) -> None:
    async def turn(_asked: Asked, _wire: Wire) -> None:
        raise AssertionError

    assert (await Client().ask(app_of(turn), method, path))[0] == status


async def test_hooks_know_nothing_of_it() -> None:
    app = app_of(read)

    async def page() -> Response:
        return Response("page")

    async def hook() -> Response:
        return Response("hooked")

    app.add_url_rule("/page", "page", page)
    app.before_request(hook)
    assert await Client().ask(app) == (200, b"2")
    assert await Client().ask(app, "GET", "/page") == (200, b"hooked")


@pytest.mark.parametrize("fails", [False, True])
async def test_what_it_holds_is_given_back_once_the_latest_first(fails: bool) -> None:
    given_back: list[str] = []

    async def turn(asked: Asked, wire: Wire) -> None:
        for place in ("connection", "turn"):
            asked.hold(Place(partial(given_back.append, place)))
        await asked.body()
        assert given_back == []
        if fails:
            raise RuntimeError
        await wire.start(200, [])
        await wire.end()

    assert (await Client().ask(app_of(turn)))[0] == (500 if fails else 200)
    assert given_back == ["turn", "connection"]


@pytest.mark.parametrize(("kind", "is_kept"), [("told", None), ("watched", "hello")])
async def test_what_was_read_of_a_request_is_let_go_and_its_failure_still_has_a_page(
    kind: str, is_kept: str | None
) -> None:
    """Not where another server's log may tell of the request afterwards, as that of Hypercorn's own command line."""

    async def turn(asked: Asked, _wire: Wire) -> None:
        assert asked.header(b"x-said") == "hello"
        asked.let_go()
        assert asked.header(b"x-said") == is_kept
        raise RuntimeError

    assert await Client(kind).ask(app_of(turn)) == (500, b"RuntimeError on /turn")
