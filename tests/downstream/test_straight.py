"""A turn's request is spared Quart's ceremony, and notices no difference."""

from typing import Any

import pytest
import trio
from quart import Response, request
from quart.globals import _cv_request
from quart_trio import QuartTrio
from werkzeug.exceptions import RequestEntityTooLarge

from gateway.downstream.connections import HTTPConnection, TurnResponse, Wire
from gateway.downstream.straight import StraightApp
from gateway.lock.virtual import virtual_run

pytestmark = pytest.mark.trio(run=virtual_run)

TURN = ("POST", "/turn")
KINDS = ["straight", "ordinary"]


def app_of(kind: str) -> QuartTrio:
    """The same app, with or without the ceremony."""
    app: QuartTrio = StraightApp("test", {TURN: "turn"} if kind == "straight" else {})
    app.asgi_http_class = HTTPConnection
    app.config["MAX_CONTENT_LENGTH"] = 100

    async def page(error: Exception) -> Response:
        return Response(f"{type(error).__name__} on {request.path}", getattr(error, "code", 500))

    app.register_error_handler(Exception, page)
    return app


async def ask(app: QuartTrio, method: str = "POST", path: str = "/turn", body: bytes = b"{}") -> tuple[int, bytes]:
    """Status and body of the answer."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not messages:
            await trio.sleep_forever()
        return messages.pop()

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"gateway.test"), (b"x-said", b"hello")],
        "client": ("192.0.2.1", 1),
    }
    await app(scope, receive, send)  # type: ignore[arg-type]  # what a server knows besides is of no matter
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_view_sees_its_request_and_its_nursery_may_write(kind: str) -> None:
    app = app_of(kind)

    async def turn() -> Response:
        said = request.headers["x-said"].encode() + await request.get_data(True, False, False)

        async def run(wire: Wire) -> None:
            await wire.start(201, [])
            async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - that there may be one is what is asked
                nursery.start_soon(wire.write, said)
            await wire.end(b"!")

        return TurnResponse(run)

    app.add_url_rule("/turn", "turn", turn, methods=["POST"])
    assert await ask(app) == (201, b"hello{}!")
    assert _cv_request.get(None) is None, "nothing of it is left behind"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [RuntimeError("ours"), RequestEntityTooLarge(), ExceptionGroup("", [KeyError()])])
async def test_a_view_that_fails_has_its_error_page(kind: str, error: Exception) -> None:
    app = app_of(kind)

    async def turn() -> Response:
        await trio.lowlevel.checkpoint()
        raise error

    app.add_url_rule("/turn", "turn", turn, methods=["POST"])
    named = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    assert await ask(app) == (getattr(error, "code", 500), f"{type(named).__name__} on /turn".encode())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_above_the_bound_is_refused(kind: str) -> None:
    app = app_of(kind)

    async def turn() -> Response:
        await request.get_data(True, False, False)
        return Response("")

    app.add_url_rule("/turn", "turn", turn, methods=["POST"])
    assert await ask(app, body=b"x" * 101) == (413, b"RequestEntityTooLarge on /turn")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/turn", 405), ("POST", "/turn/", 404), ("OPTIONS", "/turn", 200)],
)
async def test_whatever_is_not_quite_that_request_goes_the_ordinary_way(
    kind: str, method: str, path: str, status: int
) -> None:
    app = app_of(kind)

    async def turn() -> Response:
        raise AssertionError

    app.add_url_rule("/turn", "turn", turn, methods=["POST"])
    assert (await ask(app, method, path))[0] == status


async def test_hooks_know_nothing_of_it() -> None:
    app = app_of("straight")

    async def turn() -> Response:
        return Response("done")

    async def page() -> Response:
        return Response("page")

    async def hook() -> Response:
        return Response("hooked")

    app.add_url_rule("/turn", "turn", turn, methods=["POST"])
    app.add_url_rule("/page", "page", page)
    app.before_request(hook)
    assert await ask(app) == (200, b"done")
    assert await ask(app, "GET", "/page") == (200, b"hooked")
