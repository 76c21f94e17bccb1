"""The two doors (H, W, X): headers, splices, close codes, limits, what a client may ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from gateway import limits
from gateway.config import Config
from gateway.core.alias import with_model
from gateway.core.failures import Refusal
from gateway.core.keys import Key
from gateway.core.messages import DeliverFailure
from gateway.downstream import bodies, errors, frames, headers, http, websocket, websocket_client
from gateway.downstream.auth import Keys
from gateway.downstream.http import HTTPClient
from gateway.downstream.websocket import WebSocketDoor
from gateway.downstream.websocket_client import WebSocketClient
from gateway.keys import rates
from gateway.keys.rates import RequestRates
from gateway.lock.mutants.flips import Mutant, everywhere, swapped, without
from gateway.lock.world import Change
from gateway.upstream.answers import Credential

TABLES: Final = (
    (headers, "UP_NAMES", "H4"),
    (headers, "UP_PREFIXES", "H4"),
    (headers, "SECRET_WORDS", "H4"),
    (headers, "DOWN_NAMES", "H5"),
    (headers, "DOWN_PREFIXES", "H5"),
    (http, "EVENT_STREAM", "H5"),
    (frames, "ECHOED", "W5"),
)
CLOSES: Final = (
    ("CLOSE_LIMIT", "W6"),
    ("CLOSE_STALLED", "T6"),
    ("CLOSE_FLOOD", "W5"),
    ("CLOSE_TOO_LARGE", "W1"),
    ("CLOSE_BUG", "X2"),
    ("CLOSE_RESTART", "W6"),
)


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for module, name, rule in TABLES:
        table = getattr(module, name)
        for entry in sorted(table):
            first = entry[0] if isinstance(entry, tuple) else entry
            word = first.decode("ascii") if isinstance(first, bytes) else str(first)
            flip = swapped(module, name, without(table, entry))
            yield Mutant(f"{rule}: {name.lower()} without {word}", (rule,), flip, words=(word,))
    for name, rule in CLOSES:
        yield Mutant(f"{rule}: {name.lower()} has another code", (rule,), swapped(websocket, name, 1000))
    yield from _http()
    yield from _websocket()
    yield from _limits()
    yield from _keys()


def _bearer(credential: Credential) -> dict[str, str]:
    return {"authorization": f"Bearer {credential.secret}"}


def _http() -> Iterator[Mutant]:
    yield Mutant("H4: a credential is always a bearer's", ("H4",), swapped(Credential, "headers", property(_bearer)))
    yield Mutant("H6: another comment", ("H6",), swapped(http, "KEEPALIVE", b": still here\n\n"))
    yield Mutant("X2: a 429 is not told from other errors", ("X2", "F5"), swapped(http, "RATE_LIMITED", 0))
    yield Mutant(
        "X2: a refusal says nothing of sending again", ("X2",), swapped(http, "_refusal_headers", lambda _refusal: {})
    )
    yield Mutant("X2: a failure is never a status", ("X2", "H9"), swapped(HTTPClient, "_write_status", _as_events))
    yield Mutant("H9: start is not asked", ("H9",), change=_server("start", "late"), words=('"early"',))
    yield Mutant("X5: no error object is kept", ("X5",), swapped(errors, "_error_bytes", lambda _body: None))
    yield Mutant("X3: no response is ended", ("X3",), swapped(http, "sse_failure", _error_alone))
    yield Mutant("M3: the route's own name is shown", ("M3",), everywhere(with_model, lambda event, _model: event))
    yield Mutant(
        "H5: no header of the upstream comes down", ("H5", "H4"), everywhere(headers.headers_down, lambda _headers: ())
    )


async def _as_events(client: HTTPClient, failure: Any) -> None:
    await client._start(None)
    await client._wire.write(errors.sse_failure(DeliverFailure(failure, None), client._request_id))


_true_failure: Final = errors.sse_failure


def _error_alone(told: Any, request_id: str) -> bytes:
    return _true_failure(replace(told, response=None), request_id)


def _websocket() -> Iterator[Mutant]:
    yield Mutant(
        "W8: a stream_id is not put in",
        ("W8",),
        swapped(websocket_client, "insert_members", lambda data, _members: data),
    )
    for by in (1, -1):
        word = "longer" if by > 0 else "shorter"
        longest = re.compile(f"[A-Za-z0-9_.-]{{1,{limits.STREAM_ID_CHARACTERS_MAX + by}}}")
        yield Mutant(f"W8: a stream_id may be one {word}", ("W8",), swapped(frames, "STREAM_ID", longest))
    nothing = re.compile(frames.STREAM_ID.pattern.replace("{1,", "{0,"))
    yield Mutant("W8: a stream_id may be empty", ("W8",), swapped(frames, "STREAM_ID", nothing))
    yield Mutant("W8: a stream_id may be any text", ("W8",), swapped(frames, "STREAM_ID", re.compile(".+", re.DOTALL)))
    yield Mutant("W5: an answer repeats nothing", ("W5", "W3"), swapped(websocket, "echo", lambda _body: {}))
    yield Mutant("W2: a steer's input is kept", ("W2",), swapped(websocket, "_steer_refusal", lambda _frame: b"{}"))
    yield Mutant(
        "W2: background is not refused", ("W2", "H3"), everywhere(bodies.refuse_background, lambda _body: None)
    )
    yield Mutant("T6: a socket that was cut off goes on", ("T6",), swapped(WebSocketClient, "end", _still_cut_off))


async def _still_cut_off(client: WebSocketClient) -> None:  # noqa: ASYNC124 - it stands in for one that waits
    client.is_cut_off = True


def _limits() -> Iterator[Mutant]:
    for by in (1, -1):
        word = "more" if by > 0 else "less"
        flip = swapped(limits, "UNANSWERED_REFUSALS_MAX", limits.UNANSWERED_REFUSALS_MAX + by)
        yield Mutant(f"W5: one unanswered frame {word}", ("W5",), flip)
        for field, rule in (
            ("hold_bytes_max", "R7"),
            ("hold_events_max", "R7"),
            ("event_bytes_max", "P7"),
            ("waiting_creates_max", "W3"),
            ("waiting_bytes_max", "W3"),
            ("body_bytes_max", "H3"),
            ("turns_max", "X2"),
            ("turns_per_key_max", "X2"),
        ):
            yield Mutant(f"{rule}: {field} is one {word}", (rule,), change=_limit(field, by), words=(field,))
    yield Mutant("R10a: the key's wish is not asked", ("R10a",), change=_keys_may_replay)
    yield Mutant("R10a: the header is another one", ("R10a",), swapped(bodies, "REPLAY_HEADER", "x-nothing"))


def _keys() -> Iterator[Mutant]:
    """What a key may do (X2, W4); what it may spend is money's."""
    always = swapped(Key, "require_unexpired", lambda _key, _now: None)
    yield Mutant("X2: no key expires", ("X2", "W1"), always, words=("expires",))
    yield Mutant("X2: a key may use any model", ("X2", "W4"), swapped(Key, "require_model", lambda _key, _model: None))
    yield Mutant("X2: a key has no rate", ("X2", "W4"), swapped(RequestRates, "take", lambda *_arguments: 0.0))
    yield Mutant("X2: what is refused counts", ("X2", "W4"), swapped(RequestRates, "take", _counting_all))
    for by in (1.0, -1.0):
        flip = swapped(rates, "MINUTE_SECONDS", rates.MINUTE_SECONDS + by)
        yield Mutant(f"X2: a minute has {rates.MINUTE_SECONDS + by:.0f} s", ("X2", "W4"), flip)
    yield Mutant("X2: nothing is known of when there is room", ("X2", "W4"), swapped(Keys, "count_request", _no_time))
    once = swapped(WebSocketDoor, "_admit", _counting_the_upgrade)
    yield Mutant("W4: an upgrade counts as a request", ("W4",), once, words=("requests_per_minute",))


_true_take: Final = RequestRates.take
_true_count: Final = Keys.count_request
_true_admit: Final = WebSocketDoor._admit


def _counting_all(held: RequestRates, key: Key, now: float) -> float:
    seconds = _true_take(held, key, now)
    if seconds > 0:
        held._taken[key.label].append(now)
    return seconds


def _no_time(keys: Keys, key: Key) -> None:
    try:
        _true_count(keys, key)
    except Refusal as refusal:
        raise Refusal(refusal.code, refusal.message) from None


async def _counting_the_upgrade(door: WebSocketDoor, socket: Any, held: Any) -> None:
    await _true_admit(door, socket, held)
    keys = door._neighbours.keys
    keys.count_request(await keys.admit(socket.headers.get("authorization")))


def _limit(field: str, by: int) -> Change:
    def change(config: Config) -> Config:
        bounds = config.limits.model_copy(update={field: getattr(config.limits, field) + by})
        return replace(config, limits=bounds)

    return change


def _server(field: str, value: object) -> Change:
    return lambda config: replace(config, server=config.server.model_copy(update={field: value}))


def _keys_may_replay(config: Config) -> Config:
    return replace(config, keys=tuple(replace(held, key=replace(held.key, replay_never=False)) for held in config.keys))
