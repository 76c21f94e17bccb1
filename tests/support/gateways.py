"""A whole gateway on scripted upstreams, turns played on it through either door, and what a test asks of it afterwards.

world(A.reply(Break()), B.answer())                 two routes, `a` and `b`, the first of which breaks
client = await play(w, "websocket")                 one turn, to its end, and the invariants that hold for any
assert seen(w, client) == Seen(...)                 all columns of the transcript, compared at once
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx2
import trio

from gateway.app import Gateway, Parts
from gateway.aside import RunAside, at_once
from gateway.config import Config, parse
from gateway.core.accounts import Entry
from gateway.core.money import Reserved
from gateway.core.origin import Maker
from gateway.core.rules import TurnRules
from gateway.keys.memory import MemoryKeys
from gateway.ledger.memory import MemoryLedger
from gateway.lock.driver import AUTHORIZED, DEMO_KEY, Client, Headers, connect
from gateway.ports import AttemptClosing, KeyBook
from gateway.records.memory import MemoryRecords, TurnRecord
from gateway.routes import Network
from gateway.stores import Stores
from gateway.turn.house import StandingHouse
from gateway.upstream.scripted import TURN_PATH, Call, Reply, Script, ScriptedTransport
from gateway.upstream.scripted_sockets import ScriptedDial
from gateway.upstream.scripted_websocket import scripted_converse
from support.voices import Voice

MODEL = "gpt-test"
BALANCE_NANODOLLARS = 1_000_000_000_000
AFTERWARDS_SECONDS = 2.0
"""How long a WebSocket client stays after its turn: whatever follows a last word would be seen."""
DOORS = ("http", "websocket")

CONFIGURATION = """
[server]
allow_inline_secrets = true
{server}

[limits]
{limits}

[accounts.main]
balance = "{balance}"

[keys.main]
account = "main"
secret = {{ inline = "{key}" }}
{key_extra}
{routes}
[models."{model}"]
routes = {names}
max_output_tokens = 1000
"""

ROUTE = """
[routes.{name}]
base_url = "http://{name}.test/v1"
credential = {{ inline = "credential-of-{name}" }}
price = {{ input = "1", cached_input = "0.5", output = "2", reasoning = "2" }}
{extra}
"""
INPUT_NANODOLLARS = 1000
CACHED_NANODOLLARS = 500
OUTPUT_NANODOLLARS = 2000
"""What a token costs, by that price."""


@dataclass
class World:
    """A gateway with its scripted upstreams and in-memory stores."""

    gateway: Gateway
    scripts: Mapping[str, Script]
    ledger: MemoryLedger
    records: MemoryRecords
    house: StandingHouse

    @property
    def app(self) -> Any:
        """The ASGI app."""
        return self.gateway.app

    def maker(self, name: str) -> Maker:
        """The route of that name, as what it makes is known by (O1)."""
        return next(route.maker for route in self.gateway.routes.tables.current.routes if route.name == name)

    # --- upstream calls -----------------------------------------------------------------------------------------

    @property
    def calls(self) -> list[Call]:
        """All upstream calls, in order of time."""
        return sorted((call for script in self.scripts.values() for call in script.calls), key=lambda call: call.at)

    @property
    def called(self) -> list[str]:
        """Whom the gateway called, in order."""
        return [call.upstream for call in self.calls]

    @property
    def closed_at(self) -> list[float | None]:
        """When each of those conversations was over."""
        return [call.closed_at if call.closed_at is None else round(call.closed_at, 6) for call in self.calls]

    # --- records ------------------------------------------------------------------------------------------------

    @property
    def turns(self) -> list[TurnRecord]:
        """The turns on record."""
        return list(self.records.turns.values())

    @property
    def closings(self) -> list[AttemptClosing]:
        """How each attempt ended, in order; attempts that have not are left out."""
        return [attempt.closing for turn in self.turns for attempt in turn.attempts if attempt.closing is not None]

    @property
    def attempts(self) -> list[str]:
        """Each attempt on record: its route and outcome, and the reason of the verdict on it in parentheses."""
        return [_attempt_line(attempt.route, attempt.closing) for turn in self.turns for attempt in turn.attempts]

    @property
    def failures(self) -> list[str | None]:
        """Why the turns ended, in the words that their records are given; None where they ended well."""
        closings = [turn.closing for turn in self.turns if turn.closing is not None]
        return [None if closing.failure is None else closing.failure.message for closing in closings]

    @property
    def ended_at(self) -> list[float]:
        """When the turns' books were closed."""
        return [round(turn.closing.seconds, 6) for turn in self.turns if turn.closing is not None]

    # --- money --------------------------------------------------------------------------------------------------

    @property
    def charged(self) -> int:
        """What the account paid, in nano-dollars."""
        return sum(entry.nanodollars for entry in self.resolutions if entry.kind == "settled")

    @property
    def resolutions(self) -> list[Entry]:
        """The entries that ended reservations."""
        return [entry for entry in self.ledger.entries if entry.kind in ("settled", "voided")]

    @property
    def money(self) -> list[str]:
        """How each reservation ended: "voided", "settled 7000 estimated"."""
        return [_money_line(entry) for entry in self.resolutions]

    @property
    def reserved(self) -> list[int]:
        """What the turns set aside."""
        return [entry.nanodollars for entry in self.ledger.entries if entry.kind == "reserve"]

    @property
    def house_paid(self) -> int:
        """What the house bore (B2)."""
        return sum(entry.nanodollars for entry in self.ledger.entries if entry.kind == "house")

    # --- invariants ---------------------------------------------------------------------------------------------

    def assert_at_rest(self) -> None:
        """Whatever happened: every attempt closed and called upstream connection over, one resolution for each
        reservation, nothing open, no turn running."""
        reserved = [entry.turn_id for entry in self.ledger.entries if entry.kind == "reserve"]
        resolved = [entry.turn_id for entry in self.resolutions]
        assert sorted(map(str, reserved)) == sorted(map(str, resolved))
        assert self.ledger.open_reservations("main") == 0
        assert not any(isinstance(self.ledger.state(str(turn_id)), Reserved) for turn_id in reserved)
        assert self.records.open_attempts() == []
        assert all(turn.closing is not None for turn in self.turns)
        assert all(call.closed_at is not None for call in self.calls)
        assert self.gateway.engine.running_turns == 0
        self._assert_two_calls_at_most()

    def assert_no_trace_of_discarded(self, client: Client) -> None:
        """A replay discards the failed attempt whole: no byte, id or header of it reaches the client (R)."""
        discarded = [a.route for t in self.turns for a in t.attempts if a.closing and _was_replayed(a.closing)]
        got = client.body.decode("utf-8", "replace") + str(client.headers)
        assert [route for route in discarded if Voice(route).mark in got] == []

    def _assert_two_calls_at_most(self) -> None:
        """R11, C5: an upstream never sees more than two requests for a turn."""
        assert all(len(turn.attempts) <= 2 for turn in self.turns)
        of_turns = [call for call in self.calls if call.method == "POST" and call.path == TURN_PATH]
        assert len(of_turns) <= sum(len(turn.attempts) for turn in self.turns)


def _attempt_line(route: str, closing: AttemptClosing | None) -> str:
    if closing is None:
        return f"{route} open"
    verdict = closing.report.verdict
    return f"{route} {closing.report.outcome}" + ("" if verdict is None else f" ({verdict.reason.value})")


def _was_replayed(closing: AttemptClosing) -> bool:
    return closing.report.verdict is not None and closing.report.verdict.replay


def _money_line(entry: Entry) -> str:
    amount = [str(entry.nanodollars)] if entry.kind == "settled" else []
    return " ".join([entry.kind, *amount, *(flag.value for flag in entry.flags)])


def cost(input_tokens: int, output_tokens: int) -> int:
    """What so many tokens cost, in nano-dollars."""
    return input_tokens * INPUT_NANODOLLARS + output_tokens * OUTPUT_NANODOLLARS


# --- all columns at once ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What is seen of a turn, column by column: the client's frames, the upstream calls, the attempts on record, the
    money."""

    told: list[str]
    called: list[str]
    attempts: list[str]
    money: list[str]


def seen(world: World, client: Client) -> Seen:
    """The transcript of all turns of this client."""
    return Seen(client.told, world.called, world.attempts, world.money)


def words_of_failure(door: str, code: str) -> list[str]:
    """How a client that knows its response is told of a failure that the gateway makes (X3, X4)."""
    return [f"error {code}", f"failed {code}"] if door == "http" else [f"error {code}"]


class Transports:
    """How the routes of a world are reached, unless it says so itself (tests/turn/conftest.py)."""

    chosen = "sse"
    data_plane = "fast"


# --- making a world ---------------------------------------------------------------------------------------------


def world(
    first: Reply | Sequence[Reply],
    second: Reply | Sequence[Reply] | None = None,
    *,
    server: str = "",
    limits: str = "",
    key: str = "",
    route: str = "",
    balance: str = "1000",
    rules: TurnRules | None = None,
    ledger: type[MemoryLedger] = MemoryLedger,
    records: MemoryRecords | None = None,
    house: StandingHouse | None = None,
    transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None,
    run_aside: RunAside = at_once,
    keys: KeyBook | None = None,
    wall_clock: Callable[[], float] = time.time,
    transport: str | None = None,
    route_extras: Mapping[str, str] | None = None,
    listed: str | None = None,
) -> World:
    """A gateway whose model has one or two routes, `a` and `b`. The strings are extra lines of the configuration;
    `listed` is the model's list; stores, house and networks can be replaced by others that keep their contracts."""
    extras = {name: f"{route}\n{(route_extras or {}).get(name, '')}" for name in ("a", "b")}
    chosen = {name: _transport(extra, transport) for name, extra in extras.items()}
    replies = {"a": first} | ({} if second is None else {"b": second})
    text = CONFIGURATION.format(
        server=server,
        limits=limits,
        balance=balance,
        key=DEMO_KEY,
        key_extra=key,
        routes="".join(ROUTE.format(name=name, extra=f"{extras[name]}\n{chosen[name]}") for name in replies),
        model=MODEL,
        names=json.dumps(list(replies)) if listed is None else listed,
    )
    config = _parsed(text)
    scripts = {name: Script(name, [r] if isinstance(r, Reply) else r) for name, r in replies.items()}
    networks = {name: _network(config, script) for name, script in scripts.items()}
    money = ledger({name: account.balance_nanodollars for name, account in config.accounts.items()})
    records = records or MemoryRecords()
    house = house or StandingHouse(wall_clock=wall_clock)
    parts = Parts(
        transports={**networks, **(transports or {})},
        over_http={name: ScriptedTransport(script) for name, script in scripts.items()},
        stores=Stores(money, records, keys=keys or MemoryKeys()),
        house=house,
        new_request_id=_numbered(),
        run_aside=run_aside,
        wall_clock=wall_clock,
    )
    gateway = Gateway(config, parts if rules is None else replace(parts, rules=rules))
    return World(gateway, scripts, money, records, house)


def _transport(extra: str, transport: str | None) -> str:
    """The line that says so, unless the route's own lines do."""
    return "" if "transport =" in extra else f'transport = "{transport or Transports.chosen}"'


def _network(config: Config, script: Script) -> Network:
    if config.routes[script.name].transport == "websocket":
        return scripted_converse(script, is_plain=Transports.data_plane == "plain")
    return ScriptedDial(script) if Transports.data_plane == "fast" else ScriptedTransport(script)


@lru_cache
def _parsed(text: str) -> Config:
    return parse(text, file="test.toml", environ={}, directory=Path())


def _numbered() -> Any:
    numbers: Iterator[int] = iter(range(1, 1_000_000))
    return lambda: f"req_{next(numbers)}"


# --- playing turns on it ----------------------------------------------------------------------------------------


def create(**fields: Any) -> dict[str, Any]:
    """A stateless streaming request for the HTTP door. A field that is `...` is left out."""
    return _given({"model": MODEL, "input": "hi", "store": False, "stream": True, **fields})


def create_frame(**fields: Any) -> dict[str, Any]:
    """The same as a WebSocket frame."""
    return _given({"type": "response.create", "model": MODEL, "input": "hi", "store": False, **fields})


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not ...}


@asynccontextmanager
async def turn(
    world: World, door: str, *, headers: Headers = (), begins_at: float = 0.0, **fields: Any
) -> AsyncIterator[Client]:
    """One turn, through either door; leaving the block waits for its end. `fields` go into the request. On a WebSocket,
    which is opened now, the turn may begin later."""
    async with turn_beside(world, door, headers=headers, begins_at=begins_at, **fields) as client:
        yield client
    assert_all_is_well(world, client)


@asynccontextmanager
async def turn_beside(
    world: World, door: str, *, headers: Headers = (), begins_at: float = 0.0, **fields: Any
) -> AsyncIterator[Client]:
    """The same, beside others that may still be running afterwards."""
    body = json.dumps(create(**fields)).encode() if door == "http" else None
    is_fast = Transports.data_plane == "fast"
    async with connect(world.app, door, headers=(*AUTHORIZED, *headers), body=body, is_fast=is_fast) as client:
        if door == "websocket":
            await trio.sleep_until(begins_at)
            client.send_text(create_frame(**fields))
        yield client
        if door == "websocket":
            await hang_up(client)


async def hang_up(client: Client) -> None:
    """Stay on a WebSocket until its turn's last word and a while longer, then leave."""
    await client.wait_for(lambda client: client.has_last_word)
    await trio.sleep(AFTERWARDS_SECONDS)
    client.leave()


async def play(world: World, door: str, *, headers: Headers = (), begins_at: float = 0.0, **fields: Any) -> Client:
    """One turn, through either door, to its end."""
    async with turn(world, door, headers=headers, begins_at=begins_at, **fields) as client:
        pass
    return client


def assert_all_is_well(world: World, client: Client) -> None:
    """What holds after any turn, however it went."""
    assert client.crash is None, client.crash
    world.assert_at_rest()
    world.assert_no_trace_of_discarded(client)
