"""The player: drives the whole app through one scenario, in memory, on virtual time, through one door.

    scenario --make_world--> gateway on scripted upstreams <--requests, acts--  the client of this module
                                    |
                              four columns (transcript.py)

Over HTTP each request is a connection of its own; over a WebSocket all are made on one. Requests follow each other;
beside them the client's acts and the house's drain happen at their times.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import trio
from structlog.testing import capture_logs

from gateway.core.messages import Headers
from gateway.encodings import zstd
from gateway.lock.driver import Client, connect
from gateway.lock.scenario import BETWEEN_TURNS_SECONDS, DOORS, ByIDCall, ClientAct, DoorName, Scenario, ScenarioError
from gateway.lock.stores import seconds, words_of_records
from gateway.lock.transcript import Columns, Entry, Transcript
from gateway.lock.virtual import CPU_SECONDS_MAX, DEADLOCK_SECONDS, Endless, virtual_run
from gateway.lock.world import Change, World, make_world
from gateway.upstream.scripted import TURN_PATH, Call


class Crashed(Exception):
    """The app raised: no scenario may make it do that."""


def play(scenario: Scenario, name: str, *, order: int = 0, change: Change | None = None) -> Transcript:
    """The scenario through each of its doors. Raises ScenarioError and Crashed."""
    return {
        door: play_door(scenario, name, door, order=order, change=change) for door in DOORS if door in scenario.doors
    }


def play_door(
    scenario: Scenario, name: str, door: DoorName, *, order: int = 0, change: Change | None = None
) -> Columns:
    """The scenario through one door, under the task order that `order` seeds. Raises ScenarioError and Crashed."""
    try:
        with capture_logs():
            world, stage = virtual_run(_perform, scenario, name, door, change, order=order, cpu_seconds=CPU_SECONDS_MAX)
    except ScenarioError:
        raise
    except Endless:
        raise Crashed(f"the gateway did not end on {door}: it was still busy when it was stopped") from None
    except trio.TooSlowError:
        raise Crashed(f"the scenario is not over on {door} after {DEADLOCK_SECONDS:,.0f} s of virtual time") from None
    except (ExceptionGroup, trio.TrioInternalError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise Crashed(f"the gateway crashed on {door}: {_innermost(error)!r}") from error
    crash = next((client.crash for client in stage.clients if client.crash is not None), None)
    if crash is not None:
        raise Crashed(f"the gateway crashed on {door}: {crash!r}") from crash
    return _columns(world, stage, is_whole=scenario.tells_whole_records)


def _innermost(error: BaseException) -> BaseException:
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _perform(scenario: Scenario, name: str, door: DoorName, change: Change | None) -> tuple[World, Stage]:
    world = make_world(scenario, name, change)
    stage = Stage(scenario, world, door)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.act, nursery)
        nursery.start_soon(world.gateway.background.run)
        await (stage.post_requests() if door == "http" else stage.send_requests())
        nursery.cancel_scope.cancel()
    return world, stage


class Stage:
    """One scenario while it is played."""

    def __init__(self, scenario: Scenario, world: World, door: DoorName) -> None:
        self.clients: list[Client] = []
        self._scenario = scenario
        self._world = world
        self._door = door
        self._is_fast = world.gateway.config.server.data_plane == "fast"
        self._headers = self._headers_of(scenario.key)

    def _headers_of(self, key: str | None, own: Mapping[str, str] | None = None) -> Headers:
        """What whoever has that key sends, the scenario's own if it is None."""
        key = self._scenario.key if key is None else key
        return (
            *(() if key == "" else (("authorization", f"Bearer {key}"),)),
            ("content-type", "application/json"),
            *{**self._scenario.headers, **(own or {})}.items(),
        )

    # --- requests -----------------------------------------------------------------------------------------------

    async def post_requests(self) -> None:
        """One connection after the other, each when the one before has had its last word."""
        async with trio.open_nursery() as nursery:
            for number, body in enumerate(self._written({"stream": True})):
                await trio.sleep(self._scenario.pause_before(number))
                client = await nursery.start(self.post_request, body)
                await client.wait_for(_has_last_words(1))
        for call in self._scenario.call:
            await trio.sleep_until(trio.current_time() + BETWEEN_TURNS_SECONDS if call.at is None else call.at)
            await self._call(call)

    async def _call(self, call: ByIDCall) -> None:
        """One by-id call, to its end."""
        path, app = f"/v1/{call.path}", self._world.gateway.app
        headers = self._headers_of(call.key)
        async with connect(app, "http", path, method=call.method, query=call.query, headers=headers) as client:
            self.clients.append(client)

    async def post_request(
        self,
        body: bytes,
        headers: Headers | None = None,
        task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """One connection, to its end; reports its client."""
        scenario, headers = self._scenario, headers or self._headers
        if scenario.encoding is not None:
            body, headers = COMPRESSIONS[scenario.encoding](body), (*headers, ("content-encoding", scenario.encoding))
        app, is_fast = self._world.gateway.app, self._is_fast
        async with connect(
            app, "http", scenario.path, method=scenario.method, headers=headers, body=body, is_fast=is_fast
        ) as client:
            self.clients.append(client)
            task_status.started(client)

    async def open_socket(self, headers: Headers) -> None:
        """Another WebSocket, on which nothing is asked."""
        async with connect(self._world.gateway.app, "websocket", headers=headers, is_fast=self._is_fast) as client:
            self.clients.append(client)
            await client.wait_for(_is_over)
            client.leave()

    async def send_requests(self) -> None:
        """One connection: each create when the one before has had its last word; then the client stays a while."""
        offered = self._scenario.subprotocols
        app, is_fast = self._world.gateway.app, self._is_fast
        async with connect(app, "websocket", headers=self._headers, subprotocols=offered, is_fast=is_fast) as client:
            self.clients.append(client)
            await trio.sleep_until(self._scenario.begins_at)
            for number, body in enumerate(self._written({"type": "response.create"})):
                await trio.sleep(self._scenario.pause_before(number))
                client.send_text(body.decode())
                await client.wait_for(_has_last_words(number + 1))
            with trio.move_on_after(self._scenario.stays_seconds):
                await client.wait_for(_is_over)
            client.leave()

    def _written(self, first: dict[str, Any]) -> list[bytes]:
        """The bodies, the door's own member first: so that both doors send the same bytes upstream."""
        if self._scenario.body is not None:
            return [self._scenario.body.encode()]
        return [_json({**first, **body}) for body in self._scenario.bodies()]

    def _posted(self, act: ClientAct) -> bytes:
        if not act.request:
            return self._written({"stream": True})[0]
        return _json({"stream": True, **self._scenario.bodies()[0], **act.request})

    # --- what happens beside ------------------------------------------------------------------------------------

    async def act(self, nursery: trio.Nursery) -> None:
        """The client's acts and the house's, in the order of their times."""
        happenings: list[tuple[float, Callable[[], None]]] = [
            (act.at, partial(self._do, act, nursery)) for act in self._scenario.client
        ]
        happenings += [(at, partial(self._world.gateway.swap, config)) for at, config in self._world.swaps]
        drains_at = self._scenario.house.drains_at
        if drains_at is not None:
            happenings.append((drains_at, self._world.gateway.drain))
        for at, happening in sorted(happenings, key=lambda happening: happening[0]):
            await trio.sleep_until(at)
            happening()
        await trio.sleep_forever()

    def _do(self, act: ClientAct, nursery: trio.Nursery) -> None:
        for _ in range(act.times):
            headers = self._headers_of(act.key, act.headers)
            if act.does == "posts":
                nursery.start_soon(self.post_request, self._posted(act), headers)
            elif act.does == "connects":
                nursery.start_soon(self.open_socket, headers)
            else:
                ACTS[act.does](self.clients[-1], act)


COMPRESSIONS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _has_last_words(turns: int) -> Callable[[Client], bool]:
    return lambda client: client.last_words >= turns or _is_over(client)


def _is_over(client: Client) -> bool:
    return client.has_left or client.is_closed


def _send(client: Client, act: ClientAct) -> None:
    if act.hex is not None:
        client.send_bytes(bytes.fromhex(act.hex))
    elif act.text is not None:
        client.send_text(act.text)
    else:
        client.send_text(json.dumps({} if act.frame is None else act.frame, separators=(",", ":")))


ACTS: Final[dict[str, Callable[[Client, ClientAct], None]]] = {
    "leaves": lambda client, _act: client.leave(),
    "half-closes": lambda client, _act: client.half_close(),
    "stalls": lambda client, _act: client.stall(),
    "reads": lambda client, _act: client.resume(),
    "sends": _send,
}


# --- columns ----------------------------------------------------------------------------------------------------


def _columns(world: World, stage: Stage, *, is_whole: bool) -> Columns:
    return {
        "client": [entry for client in stage.clients for entry in _frames(client)],
        "upstream": [_call(call) for call in world.calls],
        "money": world.stores.money([turn.opening.turn_id for turn in world.stores.turns]),
        "records": [
            {"turn": number, **words_of_records(turn, is_whole=is_whole)}
            for number, turn in enumerate(world.stores.turns, start=1)
        ],
    }


FRAMING_HEADERS: Final = frozenset(
    {
        "host",
        "content-length",
        "connection",
        "upgrade",
        "sec-websocket-key",
        "sec-websocket-version",
        "sec-websocket-extensions",
    }
)
"""What a call's HTTP client or handshake adds."""
COMMON_HEADERS: Final = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "responses-gateway",
}
"""What every call over HTTP carries, in letters of its own, so that a change shows; a scenario shows what is beside it,
what is otherwise, and what is missing."""
HANDSHAKE: Final = "sec-websocket-key"


def _call(call: Call) -> Entry:
    lowered = {name.lower(): value for name, value in call.headers if name.lower() not in FRAMING_HEADERS}
    headers: Entry = {name: value for name, value in lowered.items() if COMMON_HEADERS.get(name) != value}
    if all(name.lower() != HANDSHAKE for name, _ in call.headers):
        headers |= dict.fromkeys(name for name in COMMON_HEADERS if name not in lowered)
    closed_at = None if call.closed_at is None else seconds(call.closed_at)
    asked = {} if (call.method, call.path) == ("POST", TURN_PATH) else {"method": call.method, "path": call.path}
    return {
        "at": seconds(call.at),
        "route": call.upstream,
        **asked,
        "closed_at": closed_at,
        "headers": headers,
        "body": _text(call.body),
    }


def _frames(client: Client) -> list[Entry]:
    frames = _websocket_frames(client) if client.kind == "websocket" else _http_frames(client)
    return [{"at": seconds(at), **frame} for at, frame in frames]


def _websocket_frames(client: Client) -> list[tuple[float, Entry]]:
    frames: list[tuple[float, Entry]] = []
    for at, message in client.sent:
        kind = message["type"]
        if kind == "websocket.accept":
            chosen = message.get("subprotocol")
            frames.append((at, {"accept": client.headers} | ({} if chosen is None else {"subprotocol": chosen})))
        elif kind == "websocket.send":
            frames.append((at, {"frame": message.get("text") or _text(message.get("bytes") or b"")}))
        elif kind == "websocket.close":
            frames.append((at, {"close": message.get("code", 1000)}))
        elif kind == "websocket.http.response.start":
            frames.append((at, {"status": client.status, "headers": client.headers}))
        elif message.get("body"):
            frames.append((at, {"body": _text(message["body"])}))
    return frames


def _http_frames(client: Client) -> list[tuple[float, Entry]]:
    frames: list[tuple[float, Entry]] = []
    if client.status:
        frames.append((client.started_at, {"status": client.status, "headers": client.headers}))
    if client.is_stream:
        frames += [(at, {_kind(block): _text(block)}) for at, block in client.blocks]
    else:
        frames += [(at, {"body": _text(data)}) for at, data in client.pieces]
    if client.has_whole_body:
        frames.append((client.body_ended_at, {"end": True}))
    return frames


def _kind(block: bytes) -> str:
    return "comment" if block.startswith(b":") else "event"


def _text(data: bytes) -> str:
    """Bytes that are no text are told by their numbers."""
    return data.decode("utf-8", "backslashreplace")
