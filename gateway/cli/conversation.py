"""One turn with any gateway, over HTTP or WebSocket, told moment by moment: the probe's side of the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx2
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream

from gateway import limits
from gateway.cli.timeline import Answered, Came, Ended, Moment, Refused
from gateway.cli.unusable import Unusable
from gateway.core.events import EventClass, read_event
from gateway.core.sse import SSEParser

CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0
"""A peer that does not close is left: the turn is over."""
ABNORMAL_CLOSURE: Final = 1006
FRAME_BYTES_MAX: Final = 2 * limits.EVENT_BYTES_MAX
"""A terminal event repeats the whole output; trio-websocket's own limit is 1 MiB."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and where: `url` is the endpoint's, http or https."""

    url: str
    key: str = field(repr=False)
    model: str
    text: str

    @property
    def body(self) -> dict[str, Any]:
        """Stateless, so that the gateway may replay it."""
        return {"model": self.model, "input": self.text, "store": False}

    @property
    def authorization(self) -> str:
        """The header's value."""
        return f"Bearer {self.key}"


Report = Callable[[Moment], None]
Transport = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class Clock:
    """Seconds since the request left."""

    def __init__(self) -> None:
        self._zero = trio.current_time()

    @property
    def seconds(self) -> float:
        """Now."""
        return trio.current_time() - self._zero


def _unreachable(url: str, error: Exception) -> Unusable:
    why = str(error) or str(error.__cause__ or "") or type(error).__name__
    return Unusable(f"cannot reach {url}: {why}; is the gateway running? `gateway demo` starts one")


# --- HTTP -------------------------------------------------------------------------------------------------------


async def converse_over_http(question: Question, report: Report) -> None:
    """Play the turn as a streamed POST. Raises Unusable if the gateway cannot be reached."""
    headers = {"authorization": question.authorization, "accept": "text/event-stream", "accept-encoding": "identity"}
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(timeout=timeout, headers=headers) as client:
        clock = Clock()
        try:
            async with client.stream("POST", question.url, json={**question.body, "stream": True}) as response:
                found = {name.lower(): value for name, value in response.headers.items()}
                report(Answered(clock.seconds, response.status_code, found))
                await _read_answer(response, clock, report)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise _unreachable(question.url, error) from None
        except httpx2.TransportError as error:
            report(Ended(clock.seconds, f"the connection broke ({type(error).__name__})"))


async def _read_answer(response: httpx2.Response, clock: Clock, report: Report) -> None:
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        await _read_stream(response, clock, report)
    else:
        report(Refused(clock.seconds, await response.aread()))


async def _read_stream(response: httpx2.Response, clock: Clock, report: Report) -> None:
    """To the terminal event, or to the end: after an `error` a `response.failed` may follow."""
    parser = SSEParser(limits.EVENT_BYTES_MAX)
    is_over = False
    # The body is read to its end, briefly: httpx2 does not close its inner generators when one stops in between.
    with trio.CancelScope() as reading:
        async for chunk in response.aiter_bytes():
            parser.receive_data(chunk)
            while not is_over and (event := parser.next_event()) is not None:
                report(Came(clock.seconds, event))
                is_over = event.kind is EventClass.TERMINAL
            if is_over:
                reading.deadline = min(reading.deadline, trio.current_time() + CLOSE_SECONDS)
    if not is_over:
        report(Ended(clock.seconds, "the stream ended"))


# --- WebSocket --------------------------------------------------------------------------------------------------


def websocket_url(url: str) -> str:
    """The same endpoint as ws or wss."""
    return "ws" + url.removeprefix("http")


async def converse_over_websocket(question: Question, report: Report) -> None:
    """Play the turn as a `response.create`. Raises Unusable if the gateway cannot be reached."""
    address = urlsplit(websocket_url(question.url))
    rejections: list[ConnectionRejected] = []
    # The stream is opened and closed here: trio-websocket leaves a client's socket open when the server closes first.
    async with await _connect(address) as stream:
        clock = Clock()
        try:
            async with trio.open_nursery() as nursery:
                socket = await _upgrade(nursery, stream, address, question, clock, report)
                if socket is not None:
                    await _play_turn(socket, question, clock, report)
                nursery.cancel_scope.cancel()
        except* ConnectionRejected as group:
            rejections += [error for error in group.exceptions if isinstance(error, ConnectionRejected)]
    for rejection in rejections:
        report(Answered(clock.seconds, rejection.status_code, _decoded(rejection.headers or ())))
        report(Refused(clock.seconds, rejection.body or b""))


async def _connect(address: SplitResult) -> Transport:
    host, is_secure = address.hostname or "", address.scheme == "wss"
    port = address.port or (443 if is_secure else 80)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            if not is_secure:
                return await trio.open_tcp_stream(host, port)
            stream = await trio.open_ssl_over_tcp_stream(host, port, https_compatible=True)
            await stream.do_handshake()
            return stream
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
        raise _unreachable(address.geturl(), error) from None


async def _upgrade(
    nursery: trio.Nursery, stream: Transport, address: SplitResult, question: Question, clock: Clock, report: Report
) -> WebSocketConnection | None:
    with trio.move_on_after(CONNECT_SECONDS):
        socket = await wrap_client_stream(
            nursery,
            stream,
            address.netloc,
            urlunsplit(("", "", address.path, address.query, "")),
            extra_headers=[(b"authorization", question.authorization.encode())],
            max_message_size=FRAME_BYTES_MAX,
        )
        report(Answered(clock.seconds, 101, _decoded(socket.handshake_headers)))
        return socket
    report(Ended(clock.seconds, "the upgrade was not answered"))
    return None


async def _play_turn(socket: WebSocketConnection, question: Question, clock: Clock, report: Report) -> None:
    try:
        await socket.send_message(json.dumps({"type": "response.create", **question.body}))
        await _read_frames(socket, clock, report)
    except ConnectionClosed as closed:
        code = closed.reason.code if closed.reason is not None else ABNORMAL_CLOSURE
        report(Ended(clock.seconds, f"the connection was closed with {code}"))
    with trio.move_on_after(CLOSE_SECONDS):
        await socket.aclose()


async def _read_frames(socket: WebSocketConnection, clock: Clock, report: Report) -> None:
    """To the first terminal event or error: there is exactly one for each turn. Raises ConnectionClosed."""
    while True:
        frame = await socket.get_message()
        data = frame if isinstance(frame, bytes) else frame.encode("utf-8", "surrogatepass")
        event = read_event(data, data)
        if event is None:
            continue
        report(Came(clock.seconds, event))
        if event.kind in (EventClass.TERMINAL, EventClass.ERROR):
            return


def _decoded(headers: Any) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
