"""On either data plane a client gets the same bytes at the same times, whatever becomes of its turn."""

import json
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

from gateway.core.continuation import Heard
from gateway.core.events import Event, EventClass
from gateway.core.messages import Deliver, Taken
from gateway.downstream.connections import Departure, Wire, direct_of
from gateway.downstream.http import HTTPClient
from gateway.downstream.websocket_client import WebSocketClient
from gateway.lock.driver import AUTHORIZED
from gateway.lock.virtual import virtual_run
from gateway.ports import Downstream
from gateway.server.hardened.connection import HardenedServer
from gateway.server.hardened.direct import DirectTexts
from gateway.server.hardened.exchange import Exchange
from gateway.upstream.scripted import Break, Reply, Silence
from server.attacks.websocket_cases import HANDSHAKE
from server.attacks.wire import request, text
from server.hardened.stage import PLANE, connected
from server.hardened.test_direct import told
from server.hardened.test_framing import received_by_h11
from support.gateways import World, create, create_frame, world
from support.voices import A, B

pytestmark = pytest.mark.trio(run=virtual_run)

SETTINGS: Any = {"include_date_header": False, "keep_alive_timeout": 1000.0, "websocket_ping_interval": 9.0}
LONG = "zwölf " * 20_000
TURNS: dict[str, Callable[[], World]] = {
    "an answer": lambda: world(A.answer()),
    "an answer slower than keep-alives": lambda: world(Reply((A.prelude, 40.0, A.delta(), 16.0, A.completed()))),
    "an answer whose events come in one burst": lambda: world(
        Reply((A.prelude + b"".join(A.delta(str(n), n) for n in range(2, 50)) + A.completed(),))
    ),
    "an answer in large events": lambda: world(Reply((A.prelude, A.delta(LONG), 1.0, A.completed()))),
    "a failure before output": lambda: world(Reply((A.created, 3.0, Break())), B.answer()),
    "a failure within output": lambda: world(Reply((A.prelude, A.delta(), 3.0, Break()))),
    "a failure that is a status": lambda: world(A.status(429)),
    "silence within output": lambda: world(Reply((A.prelude, A.delta(), Silence()))),
    "a start that is early": lambda: world(Reply((5.0, A.prelude, A.delta(), A.completed())), server='start = "early"'),
    "a refusal": lambda: world(A.answer(), balance="0"),
}


def asked(door: str, **fields: Any) -> bytes:
    """Two turns of one client: the connection of the first is the second's, too."""
    authorized = [f"{name}: {value}" for name, value in AUTHORIZED]
    if door == "websocket":
        frame = text(json.dumps(create_frame()))
        return request("GET /v1/responses HTTP/1.1", *authorized, *HANDSHAKE) + frame + frame
    body = json.dumps(create(**fields)).encode()
    return 2 * request("POST /v1/responses HTTP/1.1", *authorized, f"content-length: {len(body)}", body=body)


async def heard(make: Callable[[], World], door: str, plane: str, **fields: Any) -> list[tuple[float, bytes]]:
    """What comes, by the second at which it comes."""
    PLANE.is_fast = plane == "fast"
    begun, pieces = trio.current_time(), dict[float, bytes]()
    try:
        async with connected(make().app, **SETTINGS) as stage:
            await stage.client.send_all(asked(door, **fields))
            with trio.move_on_after(300):
                while data := await stage.client.receive_some():
                    at = round(trio.current_time() - begun, 6)
                    pieces[at] = pieces.get(at, b"") + data
    finally:
        PLANE.is_fast = False
    return list(pieces.items())


@pytest.mark.parametrize("door", ["http", "websocket"])
@pytest.mark.parametrize("turn", TURNS)
async def test_the_same_bytes_at_the_same_times(turn: str, door: str) -> None:
    plain = await heard(TURNS[turn], door, "plain")
    assert plain == await heard(TURNS[turn], door, "fast")
    assert plain


@pytest.mark.parametrize("turn", TURNS)
async def test_the_same_whole_bodies_at_the_same_times(turn: str) -> None:
    """H1: without streaming there is one body, of a length that is told."""
    plain = await heard(TURNS[turn], "http", "plain", stream=False)
    assert plain == await heard(TURNS[turn], "http", "fast", stream=False)
    assert all(b"content-length" in data for _, data in plain)


@pytest.mark.parametrize("door", ["http", "websocket"])
@pytest.mark.parametrize(("plane", "writes"), [("plain", 0), ("fast", 4)])
async def test_the_fast_plane_is_the_short_way(
    plane: str, writes: int, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two turns all that is events. A first one waits for its commit with what comes before it; output that comes
    behind it passes the writer, and over HTTP the last one leaves with the end."""
    taken: list[Sequence[bytes]] = []
    passed: list[Sequence[bytes]] = []
    kind: Any = Exchange if door == "http" else DirectTexts
    write, write_at_once = kind.write, kind.write_at_once

    async def noting(self: Any, pieces: Sequence[bytes]) -> None:
        taken.append(pieces)
        await write(self, pieces)

    def noting_at_once(self: Any, pieces: Sequence[bytes]) -> Taken:
        passed.append(pieces)
        done: Taken = write_at_once(self, pieces)
        return done

    monkeypatch.setattr(kind, "write", noting)
    monkeypatch.setattr(kind, "write_at_once", noting_at_once)
    await heard(lambda: world(Reply((A.prelude, A.delta(), 1.0, A.delta(), 1.0, A.completed()))), door, plane)
    assert len(taken) == (writes // 2 if door == "http" else writes)
    assert len(passed) == writes // 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("door", ["http", "websocket"])
async def test_a_client_that_reads_by_fits_and_starts_gets_every_byte_in_its_place(
    door: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E10, W7: what passes is taken whole, in part or not at all, pings stand between; whoever wrote what."""
    taken: list[Taken] = []
    write_at_once = HardenedServer.write_at_once

    def noting(self: HardenedServer, data: bytes) -> Taken:
        taken.append(write_at_once(self, data))
        return taken[-1]

    monkeypatch.setattr(HardenedServer, "write_at_once", noting)
    chance = random.Random(seed)
    texts = [chr(ord("a") + number % 26) * chance.choice([10, 100, 1000, 3000, 20_000]) for number in range(150)]
    steps = [step for text in texts for step in (A.delta(text), chance.choice([0.001, 0.01, 0.1, 1.0]))]
    w = world(Reply((A.prelude, A.delta("begins"), 0.1, *steps, A.completed())), A.answer())
    heard = b""
    PLANE.is_fast = True
    try:
        async with connected(w.app, **SETTINGS) as stage:
            await stage.client.send_all(asked(door))
            with trio.move_on_after(2000):
                while data := await stage.client.receive_some(chance.choice([100, 1000, 10_000, 100_000])):
                    heard += data
                    await trio.sleep(chance.choice([0.0, 0.0, 0.001, 0.1, 0.5]))
    finally:
        PLANE.is_fast = False
    assert deltas_in(door, heard)[: len(texts) + 1] == ["begins", *texts]
    assert heard.count(b'"type":"response.completed"') == 2
    assert set(taken) == set(Taken)


def deltas_in(door: str, heard: bytes) -> list[str]:
    """The text of each delta that came, in order; a torn one would not parse."""
    if door == "http":
        body = received_by_h11(heard, [])[0]
        payloads = [block.partition(b"data: ")[2] for block in body.split(b"\n\n") if block]
    else:
        payloads = [message.encode() for message in told(heard) if isinstance(message, str) and message != "ping"]
    events = [json.loads(payload) for payload in payloads]
    return [event["delta"] for event in events if event["type"] == "response.output_text.delta"]


@pytest.mark.parametrize("write", ["at once", "where it waits"])
async def test_the_last_event_and_the_end_of_an_answer_leave_as_one(write: str) -> None:
    """X1: a short turn's answer is one system call, and an end needs none of its own."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    client = HTTPClient(Wire(send, Departure()), "req", 0.0)
    if write == "where it waits":
        await client.write_quiet()
    await client.write(DELIVERED, is_last=True)
    await client.end()
    *_, last = sent
    assert (last["body"], last["more_body"]) == (DELTA.block, False)
    assert [message.get("more_body", True) for message in sent].count(False) == 1


CALLS_PER_EVENT_MAX = 30
"""Of functions, Python's and C's, from the turn's write to the system call; the plain plane's are 250 and more."""
PASSING_CALLS_PER_EVENT_MAX = 24
EVENTS = 200
DELTA = Event(EventClass.OUTPUT, "response.output_text.delta", b'{"x":"y"}', b"data: x\n\n", None)
DELIVERED = Deliver(events=(DELTA,), head=None)


async def writes(client: Downstream) -> None:
    await client.write(DELIVERED)


async def passes_on(client: Downstream) -> None:
    assert client.pass_on(DELIVERED.events, trio.current_time()) is Taken.ALL


@pytest.mark.parametrize(("write", "most"), [(writes, CALLS_PER_EVENT_MAX), (passes_on, PASSING_CALLS_PER_EVENT_MAX)])
@pytest.mark.parametrize("door", ["http", "websocket"])
async def test_an_event_takes_few_function_calls(
    door: str, write: Callable[[Downstream], Awaitable[None]], most: int
) -> None:
    """A count that a busy machine does not change. No later one loses it unseen."""
    calls: list[int] = []

    def count(_frame: Any, what: str, _argument: Any) -> None:
        calls[-1] += what in ("call", "c_call")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        client = await client_of(scope, send)
        await client.write(DELIVERED)
        for _ in range(EVENTS):
            await trio.sleep(0.01)  # its client reads
            calls.append(0)
            sys.setprofile(count)
            await write(client)
            sys.setprofile(None)
        await client.end()

    opening = request("GET / HTTP/1.1", *(HANDSHAKE if door == "websocket" else ["connection: close"]))
    PLANE.is_fast = True
    try:
        async with connected(app) as stage:
            await stage.client.send_all(opening)
            with trio.move_on_after(10):
                while await stage.client.receive_some():
                    pass
    finally:
        PLANE.is_fast = False
    assert len(calls) == EVENTS
    assert sum(calls) / EVENTS <= most


async def client_of(scope: Any, send: Any) -> Downstream:
    """A turn's client as the doors make it."""
    direct = direct_of(scope)
    assert direct is not None
    if scope["type"] == "http":
        return HTTPClient(Wire(send, Departure(), direct), "req", 0.0)
    await send({"type": "websocket.accept"})

    async def write(*frames: bytes) -> None:
        await direct.write(frames)

    async def was_told(_failure_code: str | None) -> None:
        """The connection stays."""

    return WebSocketClient(write, direct, Departure(), "req", None, Heard(0), was_told)
