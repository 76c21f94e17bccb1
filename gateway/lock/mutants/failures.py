"""How failures are judged (F) and shown (X): each entry of each table left out or changed, each judgement skipped or
asked too late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gateway.config import Config
from gateway.core import failures, rules, turn
from gateway.core.failures import (
    DETERMINISTIC_CODES,
    FAULT_OF,
    JUDGEMENTS,
    NEVER_RETRYABLE_STATUSES,
    PUBLIC_CODES,
    RETRYABLE_CODES,
    RETRYABLE_STATUSES,
    ROUTE_FAULT_CODES,
    ROUTE_FAULT_STATUSES,
    STATUS_OF_CODE,
    TIMEOUT_CODES,
    TIMEOUT_STATUSES,
    Failure,
    Fault,
    PublicCode,
    clean_retry_after,
    status_of_code,
)
from gateway.core.rules import EXPIRED
from gateway.lock.mutants.flips import Mutant, everywhere, swapped, without
from gateway.lock.world import Change

JUDGED: Final = (
    ("a timeout", ("F1", "R5")),
    ("a route's fault", ("F2",)),
    ("a request at fault", ("F3", "R8")),
    ("marked retryable", ("F6",)),
    ("marked not retryable", ("F6", "R8a")),
    ("a retryable code", ("F6", "R15")),
    ("a retryable status", ("F6", "R15")),
    ("a status of 4xx", ("F6", "R8")),
)
"""The judgements but for the last, which always matches, in their order."""
EXCHANGEABLE: Final = (0, 1, 2, 4, 6)
"""Neighbours that can both match and say different things: this one and the next."""


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _retryable_codes()
    yield from _judgements()
    yield from _entries()
    yield from _public_codes()
    yield from _own_failures()


def _retryable_codes() -> Iterator[Mutant]:
    for code in sorted(RETRYABLE_CODES):
        yield Mutant(f"F6: {code} is not retryable", ("F6", "R15"), change=_without_code(code), words=(code,))


def _without_code(code: str) -> Change:
    def change(config: Config) -> Config:
        routes = {
            name: replace(route, retryable_codes=route.retryable_codes - {code})
            for name, route in config.routes.items()
        }
        return replace(config, routes=routes)

    return change


def _judgements() -> Iterator[Mutant]:
    for place, (name, named) in enumerate(JUDGED):
        kept = (*JUDGEMENTS[:place], *JUDGEMENTS[place + 1 :])
        yield Mutant(f"F: nothing is {name}", named, swapped(failures, "JUDGEMENTS", kept))
    for place in EXCHANGEABLE:
        rows = list(JUDGEMENTS)
        rows[place], rows[place + 1] = rows[place + 1], rows[place]
        name = f"F: {JUDGED[place][0]} is asked one later"
        yield Mutant(name, JUDGED[place][1], swapped(failures, "JUDGEMENTS", tuple(rows)))


def _entries() -> Iterator[Mutant]:
    """One entry less in each table."""
    tables: tuple[tuple[str, frozenset[int] | frozenset[str] | tuple[str, ...], str], ...] = (
        ("DETERMINISTIC_CODES", DETERMINISTIC_CODES, "F3"),
        ("ROUTE_FAULT_CODES", ROUTE_FAULT_CODES, "F2"),
        ("ROUTE_FAULT_STATUSES", ROUTE_FAULT_STATUSES, "F2"),
        ("TIMEOUT_STATUSES", TIMEOUT_STATUSES, "F1"),
        ("TIMEOUT_CODES", TIMEOUT_CODES, "F1"),
        ("RETRYABLE_STATUSES", RETRYABLE_STATUSES, "F6"),
        ("NEVER_RETRYABLE_STATUSES", NEVER_RETRYABLE_STATUSES, "F6"),
    )
    for name, table, rule in tables:
        for entry in sorted(table, key=str):
            word = str(entry).strip("*").strip("_")
            yield Mutant(
                f"{rule}: {name.lower()} without {entry}",
                (rule,),
                everywhere(table, without(table, entry)),
                words=(word,),
            )
    for code in STATUS_OF_CODE:
        flip = everywhere(STATUS_OF_CODE, without(STATUS_OF_CODE, code))
        yield Mutant(f"X4: {code} has no status of its own", ("X4", "E10"), flip, words=(code,))
    never = re.compile(r"(?!)")
    yield Mutant("F3: no request is too large for a rate limit", ("F3",), swapped(failures, "REQUEST_TOO_LARGE", never))
    yield Mutant("F5: any retry-after is kept", ("F5",), everywhere(clean_retry_after, lambda value: value))
    yield Mutant("F5: no retry-after is kept", ("F5",), everywhere(clean_retry_after, lambda _value: None))
    yield Mutant(
        "F5: a retry-after of a day and more is kept", ("F5",), swapped(failures, "RETRY_AFTER_SECONDS_MAX", 99999)
    )
    yield Mutant("X4: a code without a status is a 400", ("X4",), everywhere(status_of_code, lambda _code: 400))
    for kind, fault in FAULT_OF.items():
        wrong = Fault.UPSTREAM if fault is not Fault.UPSTREAM else Fault.GATEWAY
        name = f"F5: {kind.value} is the {wrong.value}'s fault"
        yield Mutant(
            name, ("F5",), swapped(failures, "FAULT_OF", {**FAULT_OF, kind: wrong}), words=(f", {kind.value},",)
        )


def _public_codes() -> Iterator[Mutant]:
    """X: another status, another type, another word about sending again."""
    for code, public in PUBLIC_CODES.items():
        changed = PublicCode(public.status + 20, f"not {public.type}", None if public.is_retryable else 7)
        flip = everywhere(PUBLIC_CODES, {**PUBLIC_CODES, code: changed})
        yield Mutant(f"X2: {code} is shown otherwise", ("X2", "X3", "X4"), flip, words=(code,))


def _own_failures() -> Iterator[Mutant]:
    """X: the failures that the turn's clocks and bounds make."""
    for clock, failure in EXPIRED.items():
        flip = everywhere(EXPIRED, {**EXPIRED, clock: _otherwise(failure)})
        name = f"X: {failure.code} by {clock.name} has another status"
        yield Mutant(name, ("X2", "X3", "X4", clock.name), flip, words=(failure.code,))
    for name, failure in (("HOLD_OVERFLOW", rules.HOLD_OVERFLOW), ("INVALID_TEXT", rules.INVALID_TEXT)):
        flip = swapped(turn, name, _otherwise(failure))
        yield Mutant(f"X: {name.lower()} has another status", ("X4", "E10", "R7"), flip, words=(failure.code,))


def _otherwise(failure: Failure) -> Failure:
    return replace(failure, status=failure.status + 20)
