"""What the engine asks of its neighbours: doors, upstreams, the ledger, the records.

Each port has one contract, stated here, and a suite of tests that every adapter passes. A new door, transport or store
is one module that passes its suite, and one line in `app.py`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.core.accounts import SpendLimit
from gateway.core.background import BackgroundTurn, Fingerprint
from gateway.core.continuation import Remembered
from gateway.core.eligibility import StatePolicy
from gateway.core.events import Event
from gateway.core.failures import Failure
from gateway.core.keys import Key
from gateway.core.messages import (
    AttemptReport,
    AttemptStarted,
    Batch,
    Deliver,
    DeliverFailure,
    Door,
    Headers,
    Input,
    Taken,
)
from gateway.core.money import Flag, Price, Resolution, Result
from gateway.core.origin import Maker
from gateway.core.request import CUT_FOR_SSE, CUT_FOR_WEBSOCKET, RESPONSES, TurnRequest
from gateway.core.routing import Listed
from gateway.pending import Pending

Stamped = tuple[Input, float]
"""An input and the time at which it was seen."""


class Inputs(Protocol):
    """Where an attempt's inputs go (turn/passing.py)."""

    def take(self, batch: Batch, at: float) -> bool:
        """Hand a batch over that was seen just now, if that takes no wait; False if it is still to be sent."""

    async def send(self, value: Stamped, /) -> None:
        """Hand one over; returns when the turn, or its client, has taken it. Raises trio.BrokenResourceError when
        nobody listens any more."""


class Downstream(Protocol):
    """One turn's client. `write` and `write_quiet` are called by one task; a client that cannot be written to any more
    need not raise: `watch` tells. Until then a departure crosses `departure_passes` tasks."""

    door: Door
    departure_passes: int

    @property
    def quiet_deadline(self) -> float:
        """When `write_quiet` is due if nothing else is written until then (H6, H9); infinity for never."""

    async def write(self, frames: Deliver | DeliverFailure, *, is_last: bool = False) -> None:
        """Write events or a failure, the `is_last` before an `end`; returns when the transport has taken them."""

    def pass_on(self, events: Sequence[Event], now: float) -> Taken:
        """Write events at once, behind others, if that takes no wait; never called while another write is under way."""

    async def write_rest(self) -> None:
        """Write what `pass_on` had to leave; returns when the transport has taken it."""

    async def write_quiet(self) -> None:
        """Write what tells a waiting client that the gateway lives: headers, a comment."""

    async def end(self) -> None:
        """Nothing follows: close the body (HTTP), or leave the connection to its next turn (WebSocket)."""

    def watch(self, tell: Callable[[str], None]) -> None:
        """Have `tell` called at the instant at which the client leaves, with how; now if it has left before."""

    def unwatch(self, tell: Callable[[str], None]) -> None:
        """It need not be told any more."""


@dataclass(frozen=True, slots=True)
class Order:
    """A request for a turn, admitted by its door: whose it is, and until when it may run, in seconds of the monotonic
    clock. From `connection_limit_at` nothing is replayed (R12); at `cut_at` a running turn is cut (T5)."""

    turn_id: str
    account: str
    request: TurnRequest
    replay_is_disabled: bool = False
    connection_limit_at: float = math.inf
    cut_at: float = math.inf
    client_address: str | None = None
    key: str | None = None
    spend_limits: tuple[SpendLimit, ...] = ()
    policy: StatePolicy = field(default_factory=StatePolicy)
    remembered: Remembered | None = field(default=None, repr=False)
    """W10: what its connection remembers of the response that the request goes on from."""
    may_go_on: Callable[[str], bool] | None = field(default=None, repr=False)
    """W10: whether its client may still go on from a response, by the response's id, on the connection it came on."""

    @property
    def size_bytes(self) -> int:
        """What there may be to work on: the request, and all that it goes on from."""
        return self.request.body.size_bytes + (0 if self.remembered is None else self.remembered.size_bytes)


class Turns(Protocol):
    """What a door asks of the engine."""

    async def run_turn(self, order: Order, client: Downstream) -> None:
        """One turn, from reservation to last frame. Raises Refusal if it may not begin: then nothing was written."""

    async def ask(self, order: Order) -> Deliver | DeliverFailure:
        """A question that is no turn: free, and on no record (H2, B9). Raises Refusal if it cannot be asked."""


class Places(Protocol):
    """How many may be here at once; `key` is a key's name. A place is held for as long as its context lasts."""

    def connection(self, key: str, *, lasts: bool) -> AbstractContextManager[None]:
        """A request or, if it `lasts`, a WebSocket. Raises Refusal `too_many_turns`, and then holds nothing."""

    def turn(self, key: str) -> AbstractContextManager[None]:
        """A turn. Raises Refusal `too_many_turns`, and then holds nothing."""


class NoBounds:
    """Room for everybody (Places), and nobody counts (Inbound)."""

    def connection(self, key: str, *, lasts: bool) -> AbstractContextManager[None]:
        """Always."""
        return nullcontext()

    def turn(self, key: str) -> AbstractContextManager[None]:
        """Always."""
        return nullcontext()

    def take(self, size_bytes: int) -> bool:
        """Always."""
        return True

    def give_back(self, size_bytes: int) -> None:
        """Nothing was taken."""


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """What an attempt sends: the body for this route, the client's forwardable headers, and whose call it is.
    `continues` names the response that the request goes on from, as the client wrote it, and `elsewhere` makes the body
    for a connection that does not hold that response, None if it is the same one (W10). Without `streams` one
    body is asked for (H1); a warm-up is a call that generates nothing (W9). `path` is the endpoint below the base URL;
    a by-id call (H2) has another `method`, too. One that `is_background` may leave a response that goes on (B9).
    `may_go_on` is its order's."""

    turn_id: str
    body: bytes = field(repr=False)
    headers: Headers = field(default=(), repr=False)
    continues: object = None
    streams: bool = True
    generates: bool = True
    path: str = RESPONSES
    method: str = "POST"
    is_background: bool = False
    elsewhere: Callable[[], Awaitable[bytes]] | None = None
    may_go_on: Callable[[str], bool] | None = field(default=None, repr=False)


class Upstream(Protocol):
    """One route's way to its upstream.

    `attempt` sends stamped inputs as they happen: `Opened` once, `Batch`es, and `AttemptEnded` last unless a terminal
    event came; a body that comes whole is one terminal event (core.whole). It maps every error of its library to a
    Failure, and raises only what is a bug. When the receiving end is closed it stops; when it is cancelled it closes
    its connection, bounded.
    """

    def body_of(self, request: TurnRequest, upstream_model: str | None) -> bytes:
        """H3: the bytes that this transport sends for a request."""

    def holds(self, response_id: str, headers: Headers) -> bool:
        """W10: whether a connection that idles, for a client with these headers, completed this response last."""

    async def attempt(self, call: UpstreamCall, inputs: Inputs) -> None:
        """Run one attempt to its end."""


ESCAPED_BYTES_MAX: Final = 12
SPLICED_BYTES_MAX: Final = 256
"""Of one character of the model's name, and of all else that a splice adds (H3)."""
SPLICED: Final = frozenset({*CUT_FOR_SSE, *CUT_FOR_WEBSOCKET, "model", "store"})


@dataclass(frozen=True, slots=True)
class Route:
    """A configured way to run a model. `request_bytes_max` is what its transport carries (C5), None for any size;
    `attempts_max` is how many attempts this process may have on it at once (C6), None for any number; one that is
    draining takes none (C3); `stores_by_default` is what its upstream does with a request that does not say `store`
    (S1); one that `remembers` has a WebSocket below it, whose upstream knows warm-ups and its latest response (W9);
    `fingerprint` says which upstream it is (B9)."""

    name: str
    upstream: Upstream
    terms: AttemptStarted
    price: Price
    upstream_model: str | None = None
    request_bytes_max: int | None = None
    attempts_max: int | None = None
    is_draining: bool = False
    stores_by_default: bool = True
    remembers: bool = False
    fingerprint: Fingerprint | None = None

    @property
    def maker(self) -> Maker:
        """Who has what is made here (O1)."""
        return Maker(self.name, None if self.fingerprint is None else self.fingerprint.place)

    def body(self, request: TurnRequest) -> bytes:
        """H3: what goes up for a request."""
        return self.upstream.body_of(request, self.upstream_model)

    def elsewhere(self, request: TurnRequest) -> Callable[[], bytes] | None:
        """W10: makes what goes up to a connection that does not hold what the request goes on from."""
        make = request.elsewhere
        return None if make is None else lambda: self.body(make())

    def carries(self, request: TurnRequest) -> bool:
        """C5: whether the request, spliced, is small enough; nearly always that is told without splicing megabytes."""
        bytes_max = self.request_bytes_max
        if bytes_max is None:
            return True
        size_bytes, name = request.body.size_bytes, len(self.upstream_model or "")
        if size_bytes + ESCAPED_BYTES_MAX * name + SPLICED_BYTES_MAX <= bytes_max:
            return True
        is_near = size_bytes - request.body.extent_bytes_max(SPLICED) <= bytes_max
        return is_near and len(self.body(request)) <= bytes_max


@dataclass(frozen=True, slots=True)
class Model:
    """A model's routes, each with its place in the list (M1), and the output limit that a reservation assumes if the
    request names none (B6); `table` is the hash of the table it is of (C2)."""

    name: str
    routes: tuple[Route, ...]
    max_output_tokens: int
    listed: tuple[Listed, ...]
    table: str = ""


class Draining(Protocol):
    """Whether the gateway is shutting down (T7)."""

    def is_draining(self) -> bool:
        """It is."""

    async def wait(self) -> None:
        """Return when it begins to."""


class Ledger(Protocol):
    """Accounts and reservations (B). Calls are idempotent on the turn id, begin at once, and are done once durable."""

    def reserve(
        self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()
    ) -> Pending[Result]:
        """CREATED, EXISTS or EXISTS_WITH_DIFFERENT_AMOUNT; INSUFFICIENT_BALANCE, SPEND_LIMIT_REACHED,
        ACCOUNT_NOT_FOUND and ACCOUNT_CLOSED set nothing aside. Open reservations never exceed the balance, nor what is
        spent and open in a window its limit. Raises LedgerUnavailable."""

    def resolve(self, turn_id: str, resolution: Resolution) -> Pending[Result]:
        """SETTLED, SETTLED_OVERDRAWN or VOIDED; BORNE_BY_HOUSE if the lease had ended before (B7). ALREADY_SETTLED,
        ALREADY_VOIDED, ALREADY_EXPIRED and NOT_FOUND change nothing. Done once it is durable, however long the store is
        away: giving up the wait does not withdraw it."""

    def book_house(self, turn_id: str, attempt: int, nanodollars: int) -> Pending[Result]:
        """B2: the house bears the cost of an attempt its client does not pay: CREATED or EXISTS. As durable as
        `resolve`."""


class LedgerUnavailable(Exception):
    """The ledger cannot be reached: no new turn may start."""


class KeyBook(Protocol):
    """Keys that are not the configuration's (B6), by the SHA-256 of their secrets in hexadecimal digits."""

    async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
        """Those of them that are known and not revoked. Raises LedgerUnavailable."""


@dataclass(frozen=True, slots=True)
class TurnOpening:
    """A turn begins (L1). `opened_at` is wall-clock time, seconds since the epoch."""

    turn_id: str
    account: str
    model: str
    door: Door
    reserved_nanodollars: int
    opened_at: float
    client_retry_count: str | None = None
    client_address: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptClosing:
    """An attempt is over (L1)."""

    turn_id: str
    attempt: int
    report: AttemptReport
    upstream_request_id: str | None = None
    house_nanodollars: int = 0


@dataclass(frozen=True, slots=True)
class TurnClosing:
    """A turn is over (L1): outcome by name, the money as it was resolved, the routes of its attempts in order."""

    turn_id: str
    outcome: str
    routes: tuple[str, ...]
    seconds: float
    nanodollars: int | None
    flags: tuple[Flag, ...]
    failure: Failure | None = None
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a response was made (O1), and under which of the client's names for its model (M3), if that is known; by
    which upstream of the route's name (C2), if that is. What `is_stored` nowhere only a socket of its upstream has."""

    account: str
    response_id: str
    route: str
    model: str | None = None
    place: str | None = None
    is_stored: bool = True

    @property
    def maker(self) -> Maker:
        """Who has the response."""
        return Maker(self.route, self.place)


NOT_CALLED: Final = "not_called"
"""The outcome of an attempt whose upstream saw nothing of it."""
Noted = Pending[object]
"""What is on its way into the records: nothing comes of it but that it is there."""


class Records(Protocol):
    """Turns and attempts (L). All that is written begins at once, and is done once it is durable;
    closings are never lost on a normal exit."""

    def open_turn(self, opening: TurnOpening, first: str | None = None) -> Noted:
        """A turn has its reservation. `first` names the route that is to be called next: that may be noted in the same
        step. `open_attempt` is asked all the same, and knows of it; if it never is, the attempt ends with its turn."""

    def open_attempt(self, turn_id: str, attempt: int, route: str) -> Noted:
        """An attempt is about to call its upstream."""

    def close_attempt(self, closing: AttemptClosing) -> Noted:
        """Whatever ended it."""

    def close_turn(self, closing: TurnClosing) -> Noted:
        """Whatever ended it."""

    def learn_origin(self, origin: Origin) -> Noted:
        """O1: a response's route, shared by all workers and nodes; the first one learned for an id stays."""

    async def origin(self, account: str, response_id: str) -> Origin | None:
        """O2: where a response of this account was made, or None: unknown, another account's, or too old. Raises
        LedgerUnavailable."""

    def learn_marks(self, account: str, maker: Maker, marks: Sequence[str]) -> Noted:
        """O3: who made what these marks (core.marks) are of; the first one learned for a mark stays."""

    async def origins_of_marks(self, account: str, marks: Sequence[str]) -> Mapping[str, Maker]:
        """O3: the makers of those marks that are known, as `origin` knows responses. Raises LedgerUnavailable."""

    def keep_background(self, turn: BackgroundTurn) -> Noted:
        """B9: it is to be looked after until it is closed; a second time may change what was delivered."""

    async def background_turns(self) -> Sequence[BackgroundTurn]:
        """B9: those that are not closed, the oldest first; one is due 30 s after it was kept or postponed. Raises
        LedgerUnavailable."""

    async def postpone_background(self, turn_id: str) -> None:
        """B9: somebody asks about it now. Raises LedgerUnavailable."""
