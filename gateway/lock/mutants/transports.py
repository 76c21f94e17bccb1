"""What a route's transport has of its own (F4, C5, P8): closes, sizes, what is asked of an upstream beside the body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from gateway.config import Config
from gateway.core import failures
from gateway.core.failures import CLOSES, FailureKind
from gateway.core.keys import Key
from gateway.downstream import websocket
from gateway.downstream.websocket import Connection
from gateway.lock.mutants.flips import Mutant, swapped, without
from gateway.ports import Route
from gateway.upstream import sse

SEEN: Final = (1000, 1001, 1005, 1011, 1012, 1013, 4402)
"""The codes of the table that a close frame can have: 1006 and 1015 never stand on a wire."""


def mutants() -> Iterator[Mutant]:
    """All of them."""
    for code in SEEN:
        flip = swapped(failures, "CLOSES", without(CLOSES, code))
        yield Mutant(f"F4: a close with {code} blames the request", ("F4",), flip)
    broken = {**CLOSES, **dict.fromkeys((1002, 1003, 1007, 1008, 1009, 4000), FailureKind.READ_ERROR)}
    for code in (1002, 1003, 1007, 1008, 1009, 4000):
        flip = swapped(failures, "CLOSES", {**CLOSES, code: broken[code]})
        yield Mutant(f"F4: a close with {code} is a read error", ("F4",), flip)
    yield Mutant("C5: a route carries any size", ("C5",), swapped(Route, "carries", lambda _route, _request: True))
    for by in (1, -1):
        word = "more" if by > 0 else "less"
        yield Mutant(f"C5: request_bytes_max is one {word}", ("C5",), change=_size(by), words=("request_bytes_max",))
    for name in sse.ASKED_FOR:
        flip = swapped(sse, "ASKED_FOR", without(sse.ASKED_FOR, name))
        yield Mutant(f"P8: {name} is not asked for", ("P8", "H4"), flip)
    yield Mutant(
        "W1: no subprotocol is accepted", ("W1",), swapped(websocket, "chosen_subprotocol", lambda _offered: None)
    )
    yield Mutant("W4: the key of a socket's first turn serves all", ("W4",), swapped(Connection, "_admit", _once))


def _size(by: int) -> Any:
    def change(config: Config) -> Config:
        routes = {
            name: replace(
                route, request_bytes_max=None if route.request_bytes_max is None else route.request_bytes_max + by
            )
            for name, route in config.routes.items()
        }
        return replace(config, routes=routes)

    return change


_true_admit: Final = Connection._admit


async def _once(connection: Connection) -> Key:
    known: dict[str, Key] = vars(connection).setdefault("_known", {})
    return known.get("key") or known.setdefault("key", await _true_admit(connection))
