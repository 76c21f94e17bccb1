"""Mutants (K4): each flips one rule of the gateway, by name, for as long as its context lasts.

decision.py   the rows of the replay decision, their guards, their order
events.py     what an event is, where its code stands, how a failure is told
failures.py   the tables by which a failure is judged, and the codes and statuses that are shown
timing.py     how long, and who wins at the deadline
money.py      the cells of B3, prices, estimates, what a usage is
health.py     which routes are left alone, for how long, how much is replayed
reading.py    how bytes are read, which route is asked, what the house says of itself
requests.py   which requests are stateless, what goes upstream
doors.py      headers, splices, close codes, limits of the doors
transports.py closes of upstreams, sizes that a route carries, what is asked beside the body
whole.py      what comes or goes in one body, compressed bodies
origins.py    what goes on from something, and responses by id
continuations.py  what a WebSocket connection remembers, warm-ups
others.py     what is another client's, and what came before

Every one must break a scenario. Those that cannot yet are in `unreached.toml`, each with its reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources

from gateway.lock.mutants import (
    continuations,
    decision,
    doors,
    events,
    failures,
    health,
    money,
    origins,
    others,
    reading,
    requests,
    timing,
    transports,
    whole,
)
from gateway.lock.mutants.flips import Mutant

__all__ = ["Mutant", "all_mutants", "unreached"]


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by its name. ValueError if two have one name."""
    asked = (requests, reading, origins, continuations, others, health, doors, transports, whole)
    made = [mutant for group in (decision, events, failures, timing, money, *asked) for mutant in group.mutants()]
    by_name = {mutant.name: mutant for mutant in made}
    if len(by_name) != len(made):
        raise ValueError("two mutants have one name")
    return by_name


def unreached() -> Mapping[str, str]:
    """Mutants that no scenario can break yet, each with its reason."""
    table: dict[str, str] = tomllib.loads(
        resources.files("gateway.lock.mutants").joinpath("unreached.toml").read_text(encoding="utf-8")
    )
    return table
