"""The second listener, for whoever runs the gateway: metrics, health, readiness, the log's level.

    GET  /metrics      for Prometheus
    GET  /healthz      200 while the process answers
    GET  /readyz       200 while new turns are taken, 503 once it drains
    POST /log-level    the body is a level's name: what is logged changes at once

It binds to the loopback unless told otherwise, and whatever it binds to, the log's level is changed from this machine
only and by no web page. A port that is taken does not keep the gateway from serving: it is asked for again until it is
free, for in a rolling restart the old worker still has it.
"""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import hypercorn.trio
import structlog
import trio
from hypercorn import Config

from gateway import limits
from gateway.server.listening import PORT_MAX, CannotListen, listen, url_of

logger = structlog.get_logger("gateway.server")

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
CLOSE_SECONDS: Final = 1.0
"""What a scrape may still take when the gateway ends."""

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    body: bytes
    content_type: str = JSON


class AdminApp:
    """The listener's ASGI app. `exposition` makes what /metrics says, `is_ready` tells what /readyz does."""

    def __init__(self, exposition: Callable[[], bytes], is_ready: Callable[[], bool]) -> None:
        self._exposition = exposition
        self._is_ready = is_ready

    def __repr__(self) -> str:
        return f"<AdminApp, ready={self._is_ready()}>"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _http(self, scope: Any, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        headers = [(b"content-type", answer.content_type.encode()), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    async def _answer(self, scope: Any, receive: Receive) -> Answer:
        match scope["method"], scope["path"]:
            case "GET", "/metrics":
                return Answer(200, self._exposition(), EXPOSITION)
            case "GET", "/healthz":
                return _word(200, "status", "ok")
            case "GET", "/readyz":
                return _word(200, "status", "ready") if self._is_ready() else _word(503, "status", "draining")
            case "POST", "/log-level":
                return await _change_level(scope, receive)
        return _word(404, "error", "there are GET /metrics, /healthz, /readyz and POST /log-level")


async def _live(receive: Receive, send: Send) -> None:
    """It has nothing to start and nothing to end."""
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})


async def _change_level(scope: Any, receive: Receive) -> Answer:
    """A browser names its page's origin with every POST: none of them has business here."""
    if not _is_loopback(scope.get("client")) or any(name.lower() == b"origin" for name, _ in scope["headers"]):
        return _word(403, "error", "the level is changed from this machine only")
    body = await _read_body(receive)
    level = body.decode("utf-8", "replace").strip().lower()
    if level not in LEVELS or len(body) > limits.ADMIN_BODY_BYTES_MAX:
        return _word(400, "error", f"send one of {', '.join(LEVELS)}")
    logging.getLogger("gateway").setLevel(level.upper())
    logger.warning("log_level_changed", to=level)
    return _word(200, "level", level)


async def _read_body(receive: Receive) -> bytes:
    """What comes up to the bound: nothing longer is a level."""
    body = b""
    while len(body) <= limits.ADMIN_BODY_BYTES_MAX:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


def _is_loopback(client: Any) -> bool:
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _word(status: int, name: str, word: str) -> Answer:
    return Answer(status, json.dumps({name: word}).encode())


# --- serving ----------------------------------------------------------------------------------------------------


async def serve_admin(  # noqa: ASYNC114 - a rule for those who start it within a context manager of their own
    app: AdminApp, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve it until it is cancelled, as soon as the port is free; reports the URL it is served at."""
    listeners = await _listen_patiently(host, port)
    url = url_of(listeners[0])
    config = Config()
    config.bind = [f"fd://{listener.socket.detach()}" for listener in listeners]
    config.graceful_timeout = CLOSE_SECONDS
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn.error")
    logger.info("admin_listening", url=url)
    task_status.started(url)
    await hypercorn.trio.serve(app, config)


async def _listen_patiently(host: str, port: int) -> Sequence[trio.SocketListener]:
    """The port, once it can be had; that it is not there yet is told once."""
    was_told = False
    while True:
        try:
            return await listen(host, port)
        except CannotListen as error:
            if not was_told:
                logger.warning("admin_cannot_listen", why=str(error), retry_seconds=limits.ADMIN_RETRY_SECONDS)
            was_told = True
        await trio.sleep(limits.ADMIN_RETRY_SECONDS)


def worker_port(port: int, worker: int) -> int:
    """The port of a supervisor's worker, counted from 0: each has its own, so that they are told apart; 0 is any. A
    process without a supervisor is worker 0."""
    return port if port == 0 else min(port + worker, PORT_MAX)


async def probe_loop(tell_lag: Callable[[float], None]) -> None:
    """Measure how late the loop wakes a task, until cancelled."""
    while True:
        due = trio.current_time() + limits.LOOP_LAG_PROBE_SECONDS
        await trio.sleep_until(due)
        tell_lag(max(0.0, trio.current_time() - due))
