"""The app driven in memory, as a hardened server would drive it: messages with virtual times, on HTTP and WebSocket.

A client can leave, half-close, stall and resume. A write has one cancel point before it and none within, as on a real
server; after its client has left it takes no time and goes nowhere. The server itself can be made to fail or to stop.
On the fast plane there is a short way past the messages (short_way.py), whose pieces are recorded as messages, too.

`Client.told` reads both doors' answers alike, as a score:

    ["created", "in_progress", "output_text.delta", "failed server_error"]        ["error stream_read_error"]

A failure that came as an HTTP status is `error CODE` too; `Client.failure` has its status.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import trio

from gateway.beside_asgi import DIRECT
from gateway.core.messages import Taken
from gateway.lock.short_way import InMemoryDirect
from gateway.lock.virtual import DEADLOCK_SECONDS

Message = dict[str, Any]
Headers = Sequence[tuple[str, str]]
DEMO_KEY = "demo-key"
AUTHORIZED: Headers = (("authorization", f"Bearer {DEMO_KEY}"), ("content-type", "application/json"))

BLOCK_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
DATA_LINE = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")
LAST_WORDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error")


@dataclass(frozen=True, slots=True)
class Heard:
    """One event as the client got it: when, its payload, and its bytes (SSE block, frame or error body)."""

    at: float
    payload: dict[str, Any]
    data: bytes = field(repr=False)

    @property
    def type(self) -> str:
        """The event's type; a whole response is its terminal event (H1), any other HTTP body an `error`."""
        if str(self.payload.get("object", "")).startswith("response"):
            return f"response.{self.payload.get('status', 'completed')}"
        return str(self.payload.get("type", "error"))

    @property
    def code(self) -> str | None:
        """The error code it names, wherever it stands."""
        response = self.payload.get("response")
        nested = response.get("error") if isinstance(response, dict) else self.payload.get("error")
        code = nested.get("code") if isinstance(nested, dict) else None
        return code or self.payload.get("code")

    @property
    def label(self) -> str:
        """Its type without the prefix, with the code where it tells of a failure."""
        name = self.type.removeprefix("response.")
        return f"{name} {self.code}" if name in ("error", "failed") else name


class Client:
    """One connection's client side. `sent` are the app's messages with the times at which they were taken."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sent: list[tuple[float, Message]] = []
        self.ended_at = math.nan
        self.crash: BaseException | None = None
        self.has_left = False
        self._to_app, self._app_receives = trio.open_memory_channel[Message](math.inf)
        self._reads = trio.Event()
        self._reads.set()
        self._news = trio.Event()
        self._serving = trio.CancelScope()
        self._write_errors: list[BaseException] = []
        self._chokes = False
        self._seen = 0
        self._last_words = 0

    def __repr__(self) -> str:
        return f"<{self.kind} client, told {self.told}>"

    # --- what the client does ---------------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        """A message to the app, now."""
        self._to_app.send_nowait(message)

    def send_text(self, frame: Any) -> None:
        """A WebSocket text frame: an object as JSON, or a string as it is."""
        text = frame if isinstance(frame, str) else json.dumps(frame)
        self.say({"type": "websocket.receive", "text": text, "bytes": None})

    def send_bytes(self, data: bytes) -> None:
        """A WebSocket binary frame."""
        self.say({"type": "websocket.receive", "bytes": data, "text": None})

    def leave(self, code: int = 1006) -> None:
        """Disconnect, now: nothing that is written from now on arrives."""
        self.has_left = True
        self._reads.set()
        self.half_close(code)

    def half_close(self, code: int = 1005) -> None:
        """Close the sending side only: what the app still writes would arrive."""
        self.say({"type": f"{self.kind}.disconnect", "code": code})
        self._tell_news()

    def stall(self) -> None:
        """Stop reading."""
        self._reads = trio.Event()

    def choke(self) -> None:
        """Take a part of what is next written at once, then stop reading."""
        self._chokes = True

    def resume(self) -> None:
        """Read again."""
        self._reads.set()

    def fail_writes(self, *errors: BaseException) -> None:
        """The server's next sends raise these, one each."""
        self._write_errors += errors

    def stop_server(self) -> None:
        """Cancel the task that serves this connection, as a server does that stops at once."""
        self._serving.cancel()

    async def wait_for(self, holds: Callable[[Client], bool]) -> None:
        """Return once `holds` of this client; it is asked again after each message and each change."""
        while not holds(self):
            await self._news.wait()

    # --- what the client got ----------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Heard]:
        """The events the client got, in order, with their times; an HTTP error body counts as one."""
        if self.kind == "websocket":
            return [_heard(at, data, data) for at, data in self.pieces]
        if not self.is_stream:
            return [_heard(at, data, data) for at, data in self.pieces]
        lines = [(at, block, DATA_LINE.findall(block)) for at, block in self.blocks]
        return [_heard(at, b"\n".join(data), block) for at, block, data in lines if data]

    @property
    def comments(self) -> list[tuple[float, bytes]]:
        """The SSE comments the client got, with their times."""
        return [(at, block.strip()) for at, block in self.blocks if block.startswith(b":")]

    @property
    def told(self) -> list[str]:
        """What the client was told, as a score (see the module)."""
        return [heard.label for heard in self.events]

    @property
    def times(self) -> list[tuple[float, str]]:
        """The score with its times."""
        return [(heard.at, heard.label) for heard in self.events]

    @property
    def failure(self) -> tuple[int | None, str | None]:
        """Status and code of the last event, which tells of a failure; the status is HTTP's own if it is one."""
        last = self.events[-1]
        return (last.payload.get("status") if self.status in (0, 200) else self.status), last.code

    @property
    def has_last_word(self) -> bool:
        """Whether a turn's last event came, or nothing can come any more."""
        return self.has_left or self.is_closed or self.last_words > 0

    @property
    def is_closed(self) -> bool:
        """Whether the app closed the WebSocket, or is done with the connection."""
        return self.close_code is not None or not math.isnan(self.ended_at)

    @property
    def is_stream(self) -> bool:
        """Whether the answer is in server-sent events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def has_whole_body(self) -> bool:
        """Whether the HTTP body ended as it should."""
        return not math.isnan(self.body_ended_at)

    @property
    def status(self) -> int:
        """The HTTP status, also of a refused upgrade; 0 if no head came."""
        return next((m["status"] for _, m in self.sent if m["type"].endswith("http.response.start")), 0)

    @property
    def started_at(self) -> float:
        """When the head of the response left; NaN if it has not."""
        return next((at for at, m in self.sent if m["type"].endswith("response.start")), math.nan)

    @property
    def headers(self) -> dict[str, str]:
        """The response's or the upgrade's headers."""
        heads = [m for _, m in self.sent if m["type"].endswith(("response.start", "websocket.accept"))]
        return {name.decode().lower(): value.decode() for name, value in heads[0]["headers"]} if heads else {}

    @property
    def pieces(self) -> list[tuple[float, bytes]]:
        """The body's pieces (HTTP) or the frames (WebSocket), with their times."""
        return [(at, data) for at, message in self.sent if (data := _payload(message))]

    @property
    def body(self) -> bytes:
        """All pieces, joined."""
        return b"".join(data for _, data in self.pieces)

    @property
    def body_ended_at(self) -> float:
        """When the HTTP body ended; NaN if it has not."""
        return next((at for at, m in self.sent if _is_last(m)), math.nan)

    @property
    def close_code(self) -> int | None:
        """With which code the app closed the WebSocket."""
        return next((m.get("code", 1000) for _, m in self.sent if m["type"] == "websocket.close"), None)

    @property
    def closed_at(self) -> float:
        """When the app closed the WebSocket; NaN if it has not."""
        return next((at for at, m in self.sent if m["type"] == "websocket.close"), math.nan)

    @property
    def blocks(self) -> list[tuple[float, bytes]]:
        """The SSE blocks of an HTTP body, each with the time of its last byte; what has no blank line is the last."""
        blocks, pending = [], b""
        for at, piece in self.pieces:
            pending += piece
            while (end := BLOCK_END.search(pending)) is not None:
                blocks.append((at, pending[: end.end()]))
                pending = pending[end.end() :]
        return blocks if not pending else [*blocks, (self.pieces[-1][0], pending)]

    @property
    def last_words(self) -> int:
        """How many last events of turns came. On a WebSocket each frame is looked at once, however often this is
        asked."""
        if self.kind == "http":
            return sum(heard.type in LAST_WORDS for heard in self.events)
        unseen, self._seen = self.sent[self._seen :], len(self.sent)
        words = (_heard(at, payload, payload).type for at, message in unseen if (payload := _payload(message)))
        self._last_words += sum(word in LAST_WORDS for word in words)
        return self._last_words

    # --- what the app sees --------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """ASGI receive."""
        return await self._app_receives.receive()

    async def send(self, message: Message) -> None:
        """ASGI send."""
        await trio.lowlevel.checkpoint()
        if self._write_errors:
            raise self._write_errors.pop(0)
        with trio.CancelScope(shield=True, deadline=DEADLOCK_SECONDS):
            await self._reads.wait()
        self._take(message)
        if _is_last(message):
            self.say({"type": "http.disconnect"})
        self._tell_news()

    def takes_at_once(self, messages: Sequence[Message]) -> Taken:
        """What needs no wait: of a client that has left, does not read, or cannot be written to, nothing."""
        if self.has_left or self._write_errors or not self._reads.is_set():
            return Taken.NOTHING
        if self._chokes:
            self._chokes = False
            self.stall()
            return Taken.PART
        for message in messages:
            self._take(message)
        self._tell_news()
        return Taken.ALL

    def _take(self, message: Message) -> None:
        if not self.has_left:
            self.sent.append((round(trio.current_time(), 6), message))

    async def serve(self, app: Any, scope: Message) -> None:
        """Run the app on this connection; what it raises is kept as `crash`."""
        try:
            with self._serving:
                await app(scope, self.receive, self.send)
        except Exception as error:
            self.crash = error
        finally:
            self.ended_at = trio.current_time()
            self._tell_news()

    def _tell_news(self) -> None:
        self._news.set()
        self._news = trio.Event()


def _is_last(message: Message) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)


def _payload(message: Message) -> bytes:
    if message["type"] == "http.response.body":
        return bytes(message.get("body", b""))
    if message["type"] == "websocket.send":
        text = message.get("text")
        return bytes(message["bytes"]) if text is None else str(text).encode()
    return bytes(message.get("body", b"")) if message["type"] == "websocket.http.response.body" else b""


def _heard(at: float, payload: bytes, data: bytes) -> Heard:
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        value = {}
    return Heard(at, value if isinstance(value, dict) else {}, data)


@asynccontextmanager
async def connect(
    app: Any,
    kind: str,
    path: str = "/v1/responses",
    *,
    method: str = "POST",
    query: str = "",
    headers: Headers = AUTHORIZED,
    body: bytes | None = b"",
    subprotocols: Sequence[str] = (),
    state: Mapping[str, Any] | None = None,
    is_fast: bool = True,
) -> AsyncIterator[Client]:
    """A connection to the app; leaving the block waits for the app to be done with it. On the fast plane it has a short
    way."""
    client = Client(kind)
    short_way = {DIRECT: InMemoryDirect(client)} if is_fast else {}
    scope = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"gateway.test"), *((n.lower().encode(), v.encode("latin-1")) for n, v in headers)],
        "client": ("client.test", 1),
        "server": ("gateway.test", 80),
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}},
        "state": {**short_way, **(state or {})},
    }
    async with trio.open_nursery() as nursery:
        if kind == "websocket":
            client.say({"type": "websocket.connect"})
        elif body is not None:
            client.say({"type": "http.request", "body": body, "more_body": False})
        nursery.start_soon(client.serve, app, scope)  # noqa: ASYNC113 - what is said before it listens is kept for it
        yield client


async def post(app: Any, request: Any, *, headers: Headers = AUTHORIZED) -> Client:
    """One HTTP request, to its end. `request` is an object for the body, or the body's bytes."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    async with connect(app, "http", headers=headers, body=body) as client:
        pass
    return client
