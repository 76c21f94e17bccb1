"""The stores of a scenario, and their contents in the lock's own words.

This is the only place that knows how stores are made and put into a gateway, and what a ledger's entries and a record
look like (`words_of_money`, `words_of_records`): transcripts keep their words when a store's insides change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, cast

import trio

from gateway import stores
from gateway.app import Parts
from gateway.config import Config
from gateway.core.accounts import Entry
from gateway.core.failures import Failure
from gateway.ledger.memory import MemoryLedger
from gateway.lock.scenario import Fault
from gateway.pending import Pending, Underway
from gateway.ports import AttemptClosing, Ledger, LedgerUnavailable, Origin, Records
from gateway.records.memory import AttemptRecord, MemoryRecords, TurnRecord


class Stores:
    """A ledger and records in memory, with the faults of a scenario, and the time of each entry."""

    def __init__(self, config: Config, faults: Sequence[Fault], origins: Mapping[str, str] | None = None) -> None:
        self._money = MemoryLedger({name: account.balance_nanodollars for name, account in config.accounts.items()})
        self._kept = MemoryRecords()
        account = next(iter(config.accounts))
        for name, route in (origins or {}).items():
            self._kept.origins[account, name] = Origin(account, name, route)
        self._noted: list[tuple[float, Entry]] = []
        self._seen = 0
        self.ledger = cast(Ledger, _Faulty(self._money, _of(faults, "ledger"), self._note))
        self.records = cast(Records, _Faulty(self._kept, _of(faults, "records"), lambda: None))

    def put_into(self, parts: Parts) -> Parts:
        """The parts of a gateway, with these in the place of its own stores."""
        return replace(parts, stores=stores.Stores(self.ledger, self.records))

    def _note(self) -> None:
        """Entries that are new since the last call, with the time; those that have no word here are passed over."""
        new = self._money.entries[self._seen :]
        self._seen += len(new)
        self._noted += [(trio.current_time(), entry) for entry in new if entry.kind in MONEY_WORDS]

    def money(self, turn_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Each entry: when, of which turn, in words. A turn's entries of one instant are written side by side, and
        stand in the order of their kinds. An entry of a turn that has no record is of turn 0."""
        numbers = {turn_id: number for number, turn_id in enumerate(turn_ids, start=1)}
        noted = [(at, numbers.get(entry.turn_id or "", 0), words_of_money(entry)) for at, entry in self._noted]
        noted.sort(key=lambda one: (one[0], one[1], MONEY_ORDER.index(one[2].split(" ")[0])))
        return [{"at": seconds(at), "turn": turn, "entry": words} for at, turn, words in noted]

    @property
    def turns(self) -> list[TurnRecord]:
        """The turns on record, in order."""
        return list(self._kept.turns.values())


def _of(faults: Sequence[Fault], store: str) -> list[Fault]:
    return [fault for fault in faults if fault.store == store]


class _Faulty:
    """A store whose calls go wrong as a scenario says; `after` is told of each call that came back."""

    def __init__(self, store: object, faults: Sequence[Fault], after: Callable[[], None]) -> None:
        self._store = store
        self._faults = faults
        self._after = after
        self._calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found
        return self._asked(name, found) if iscoroutinefunction(found) else self._begun(name, found)

    def _asked(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def watched(*arguments: Any, **options: Any) -> Any:
            if self._hangs(name):
                await trio.sleep_forever()
            result = await call(*arguments, **options)
            self._after()
            return result

        return watched

    def _begun(self, name: str, call: Callable[..., Pending[Any]]) -> Callable[..., Pending[Any]]:
        @wraps(call)
        def watched(*arguments: Any, **options: Any) -> Pending[Any]:
            if self._hangs(name):
                return Underway(trio.sleep_forever)
            pending = call(*arguments, **options)
            self._after()
            return pending

        return watched

    def _hangs(self, name: str) -> bool:
        """Whether this call never comes back. Raises what it fails with."""
        self._calls[name] += 1
        for fault in self._faults:
            if fault.call == name and fault.on in (0, self._calls[name]):
                if fault.how == "hangs":
                    return True
                raise LedgerUnavailable if fault.how == "unavailable" else RuntimeError("a fault of the scenario")
        return False


# --- in words ---------------------------------------------------------------------------------------------------

MONEY_WORDS: Final[Mapping[str, str]] = {"reserve": "reserve", "settled": "settle", "voided": "void", "house": "house"}
"""By the kind of entry. What was there before the turns, and how a ledger does it inside, is no turn's affair."""
MONEY_ORDER: Final = tuple(MONEY_WORDS.values())


def words_of_money(entry: Entry) -> str:
    """`reserve 12000`, `settle 7000 estimated`, `void unmetered`, `house 3000`: nano-dollars, then the flags."""
    amount = [] if entry.kind == "voided" else [str(entry.nanodollars)]
    return " ".join([MONEY_WORDS[entry.kind], *amount, *(flag.value for flag in entry.flags)])


def words_of_records(turn: TurnRecord, *, is_whole: bool = False) -> dict[str, Any]:
    """A turn as it stands on record (L1); times are seconds of the virtual clock. What is null or empty is left out. If
    it `is_whole`, what other columns tell as well is there, too: who asked, through which door, and the money."""
    closing = turn.closing
    told = {
        "account": turn.opening.account,
        **(_asked_and_paid(turn) if is_whole else {}),
        "model": turn.opening.model,
        "client_retry_count": turn.opening.client_retry_count,
        "outcome": "open" if closing is None else closing.outcome,
        "failure": None if closing is None else _failure(closing.failure),
        "seconds": None if closing is None else seconds(closing.seconds),
        "response_id": None if closing is None else closing.response_id,
        "attempts": [_attempt(attempt, is_whole=is_whole) for attempt in turn.attempts],
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def _asked_and_paid(turn: TurnRecord) -> dict[str, Any]:
    opening, closing = turn.opening, turn.closing
    return {
        "key": opening.key,
        "door": opening.door.value,
        "client": opening.client_address,
        "reserved": opening.reserved_nanodollars,
        "paid": None if closing is None else closing.nanodollars,
        "flags": [] if closing is None else [flag.value for flag in closing.flags],
    }


def _failure(failure: Failure | None) -> str | None:
    return None if failure is None else f"{failure.code}, {failure.kind.value}, {failure.fault.value}'s fault"


def _attempt(attempt: AttemptRecord, *, is_whole: bool) -> dict[str, Any]:
    told = {"route": attempt.route, "opened_at": seconds(attempt.opened_at)}
    closed = {"outcome": "open"} if attempt.closing is None else _closed(attempt.closing, is_whole=is_whole)
    return told | {name: value for name, value in closed.items() if value not in (None, 0)}


def _closed(closing: AttemptClosing, *, is_whole: bool) -> dict[str, Any]:
    report = closing.report
    verdict, usage = report.verdict, report.usage
    return {
        "first_event": _at(report.first_event_at),
        "first_output": _at(report.first_output_at),
        "ended": _at(report.ended_at),
        "outcome": report.outcome,
        "verdict": None if verdict is None else f"{verdict.rule} {verdict.reason.value}",
        "response_id": report.response_id,
        "usage": None if usage is None else f"{usage.input_tokens}/{usage.output_tokens}",
        "parts": f"{usage.cached_tokens}/{usage.reasoning_tokens}" if is_whole and usage is not None else None,
        "house_pays": closing.house_nanodollars,
        "upstream_request_id": closing.upstream_request_id,
        "dropped_events": report.dropped_events,
    }


def _at(at: float | None) -> str | None:
    """A time of zero is one, too."""
    return None if at is None else f"{seconds(at)} s"


def seconds(value: float) -> int | float:
    """Microseconds are as exact as a transcript is; whole seconds are written as such."""
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded
