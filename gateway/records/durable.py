"""Records that last: turns, attempts and origins, written through the store's writer (ports.Records)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.messages import AttemptReport
from gateway.ports import AttemptClosing, LedgerUnavailable, Origin, TurnClosing, TurnOpening
from gateway.store.database import Session, StoreAway
from gateway.store.records import ORIGIN, RecordWrite, origin_key
from gateway.store.store import Store

DAY_SECONDS: Final = 86_400


class DurableRecords:
    """Turns, attempts and origins in a database."""

    def __init__(self, store: Store, origin_days: int) -> None:
        self._store = store
        self._origin_seconds = origin_days * DAY_SECONDS

    def __repr__(self) -> str:
        return f"<DurableRecords in {self._store!r}>"

    async def open_turn(self, opening: TurnOpening) -> None:
        """A turn has its reservation (ports.Records)."""
        await self._ask("open_turn", _opening_row(opening))

    async def open_attempt(self, turn_id: str, attempt: int, route: str) -> None:
        """An attempt is about to call its upstream (ports.Records)."""
        await self._ask("open_attempt", {"turn_id": turn_id, "number": attempt, "route": route})

    async def close_attempt(self, closing: AttemptClosing) -> None:
        """An attempt is over (ports.Records); the first closing stays."""
        await self._store.writer.insist(RecordWrite("close_attempt", _attempt_row(closing)))

    async def close_turn(self, closing: TurnClosing) -> None:
        """A turn is over (ports.Records); the first closing stays."""
        await self._store.writer.insist(RecordWrite("close_turn", _closing_row(closing)))

    async def learn_origin(self, origin: Origin) -> None:
        """A response's route (ports.Records)."""
        params = {"account": origin.account, "response_id": origin_key(origin.response_id), "route": origin.route}
        await self._store.writer.insist(RecordWrite("learn_origin", params))

    async def origin(self, account: str, response_id: str) -> str | None:
        """Where a response was made (ports.Records)."""

        def look_up(session: Session) -> str | None:
            since = session.now() - self._origin_seconds
            rows = session.fetch(ORIGIN, {"account": account, "response_id": origin_key(response_id), "since": since})
            return rows[0][0] if rows else None

        try:
            return await self._store.read(look_up)
        except StoreAway as error:
            raise LedgerUnavailable(str(error)) from error

    async def _ask(self, name: str, params: Mapping[str, Any]) -> None:
        try:
            await self._store.writer.ask(RecordWrite(name, params))
        except StoreAway as error:
            raise LedgerUnavailable(str(error)) from error


def _opening_row(opening: TurnOpening) -> Mapping[str, Any]:
    return {
        "turn_id": opening.turn_id,
        "account": opening.account,
        "key": opening.key,
        "model": opening.model,
        "door": opening.door.value,
        "reserved_nanodollars": opening.reserved_nanodollars,
        "opened_at": opening.opened_at,
        "client_retry_count": opening.client_retry_count,
        "client_address": opening.client_address,
    }


def _attempt_row(closing: AttemptClosing) -> Mapping[str, Any]:
    """Times are kept as durations since the attempt's start: the monotonic clock means nothing to another process."""
    report, usage = closing.report, closing.report.usage
    return {
        "turn_id": closing.turn_id,
        "number": closing.attempt,
        "outcome": report.outcome,
        "reason": None if report.verdict is None else report.verdict.reason.value,
        "is_replayed": int(report.verdict is not None and report.verdict.replay),
        "seconds": report.ended_at - report.started_at,
        "first_event_seconds": _since_start(report, report.first_event_at),
        "first_output_seconds": _since_start(report, report.first_output_at),
        "response_id": report.response_id,
        "input_tokens": None if usage is None else usage.input_tokens,
        "cached_tokens": None if usage is None else usage.cached_tokens,
        "output_tokens": None if usage is None else usage.output_tokens,
        "reasoning_tokens": None if usage is None else usage.reasoning_tokens,
        "dropped_events": report.dropped_events,
        "upstream_request_id": closing.upstream_request_id,
        "house_nanodollars": closing.house_nanodollars,
    }


def _since_start(report: AttemptReport, at: float | None) -> float | None:
    return None if at is None else at - report.started_at


def _closing_row(closing: TurnClosing) -> Mapping[str, Any]:
    failure = closing.failure
    return {
        "turn_id": closing.turn_id,
        "outcome": closing.outcome,
        "seconds": closing.seconds,
        "nanodollars": closing.nanodollars,
        "flags": " ".join(flag.value for flag in closing.flags),
        "routes": " ".join(closing.routes),
        "failure_code": None if failure is None else failure.code,
        "failure_kind": None if failure is None else failure.kind.value,
        "response_id": closing.response_id,
    }
