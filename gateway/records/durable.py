"""Records that last: turns, attempts and origins, written through the store's writer (ports.Records)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import trio

from gateway import limits
from gateway.core.background import BackgroundTurn, Fingerprint
from gateway.core.messages import AttemptReport
from gateway.core.money import Price
from gateway.core.origin import Maker
from gateway.pending import Done
from gateway.ports import NOT_CALLED, AttemptClosing, Noted, Origin, TurnClosing, TurnOpening
from gateway.store.database import Row, Session
from gateway.store.records import BACKGROUND, MARK, ORIGIN, RecordWrite, origin_key
from gateway.store.store import Store

DAY_SECONDS: Final = 86_400
LOOKS_AGAIN_SECONDS: Final = (0.05, 0.2)
"""O1, O3: the pauses before what a request goes on from is looked for once more. It is learned beside the client's
bytes: a client that goes on at once may be served by another process before the write has ended. Where there is no
other, what is not there will not come."""

AHEAD_MAX: Final = 8192
"""First attempts that were noted with their turns and not asked for yet, which is a matter of an instant: more are of
turns that a bug kept from beginning. One that is forgotten is noted again, which changes nothing, or swept (B7)."""

TURN_COLUMNS: Final = 7
"""Of a background turn's row: what is the turn's own; the four of its price follow."""

T = TypeVar("T")


class DurableRecords:
    """Turns, attempts and origins in a database, which other processes write to if it `is_shared`."""

    def __init__(self, store: Store, origin_days: int, *, is_shared: bool = True) -> None:
        self._looks_again = LOOKS_AGAIN_SECONDS if is_shared else ()
        self._store = store
        self._ahead: dict[str, Noted] = {}
        """First attempts that were noted with their turns, and not asked for yet, by the turn."""
        self._origin_seconds = origin_days * DAY_SECONDS

    def __repr__(self) -> str:
        return f"<DurableRecords in {self._store!r}>"

    def open_turn(self, opening: TurnOpening, first: str | None = None) -> Noted:
        """A turn has its reservation (ports.Records). It and the beginning of its first attempt are one batch: that is
        a transaction less."""
        noted = self._ask("open_turn", _opening_row(opening))
        if first is not None:
            self._ahead[opening.turn_id] = self._ask("open_attempt", _beginning_row(opening.turn_id, 1, first))
            if len(self._ahead) > AHEAD_MAX:
                del self._ahead[next(iter(self._ahead))]
        return noted

    def open_attempt(self, turn_id: str, attempt: int, route: str) -> Noted:
        """An attempt is about to call its upstream (ports.Records)."""
        ahead = self._ahead.pop(turn_id, None)
        return self._ask("open_attempt", _beginning_row(turn_id, attempt, route)) if ahead is None else ahead

    def close_attempt(self, closing: AttemptClosing) -> Noted:
        """An attempt is over (ports.Records); the first closing stays."""
        return self._store.writer.insist(RecordWrite("close_attempt", _attempt_row(closing)))

    def close_turn(self, closing: TurnClosing) -> Noted:
        """A turn is over (ports.Records); the first closing stays."""
        if self._ahead.pop(closing.turn_id, None) is not None:
            report = AttemptReport(NOT_CALLED, started_at=0.0, ended_at=0.0)
            ended = AttemptClosing(closing.turn_id, 1, report)
            self._store.writer.insist_later(RecordWrite("close_attempt", _attempt_row(ended)))
        return self._store.writer.insist(RecordWrite("close_turn", _closing_row(closing)))

    def learn_origin(self, origin: Origin) -> Noted:
        """A response's route (ports.Records)."""
        key = origin_key(origin.response_id)
        made = {"route": origin.route, "model": origin.model, "upstream_place": origin.place}
        params = {"account": origin.account, "response_id": key, **made}
        return self._store.writer.insist(RecordWrite("learn_response_place", params))

    async def origin(self, account: str, response_id: str) -> Origin | None:
        """Where a response was made (ports.Records)."""

        def look_up(session: Session) -> Origin | None:
            asked = {"account": account, "response_id": origin_key(response_id), "since": self._since(session)}
            rows = session.fetch(ORIGIN, asked)
            return Origin(account, response_id, *rows[0]) if rows else None

        return await self._look_for(look_up)

    def learn_marks(self, account: str, maker: Maker, marks: Sequence[str]) -> Noted:
        """Where what has these marks was made (ports.Records). The last is durable when all are: they are written in
        the order in which they were given."""
        made = {"account": account, "route": maker.route, "upstream_place": maker.place}
        writes = [RecordWrite("learn_mark_place", {**made, "mark": mark}) for mark in marks]
        for write in writes[:-1]:
            self._store.writer.insist_later(write)
        return self._store.writer.insist(writes[-1]) if writes else Done(None)

    async def origins_of_marks(self, account: str, marks: Sequence[str]) -> Mapping[str, Maker]:
        """Where they were made (ports.Records)."""

        def look_up(session: Session) -> Mapping[str, Maker]:
            since = self._since(session)
            asked = [{"account": account, "mark": mark, "since": since} for mark in marks]
            found = zip(marks, session.fetch_each(MARK, asked), strict=True)
            return {mark: Maker(*rows[0]) for mark, rows in found if rows}

        return await (self._look_for(look_up) if marks else self._store.read(look_up))

    async def _look_for(self, look_up: Callable[[Session], T]) -> T:
        """What is found, at the latest look: another process may be about to write what its client knows already."""
        for pause in self._looks_again:
            found = await self._store.read(look_up)
            if found:
                return found
            await trio.sleep(pause)
        return await self._store.read(look_up)

    # --- background (B9) ----------------------------------------------------------------------------------------

    def keep_background(self, turn: BackgroundTurn) -> Noted:
        """It is to be looked after (ports.Records)."""
        return self._store.writer.insist(RecordWrite("keep_background_turn", _background_row(turn)))

    async def background_turns(self) -> Sequence[BackgroundTurn]:
        """Those that are not closed (ports.Records)."""

        def look_up(session: Session) -> Sequence[BackgroundTurn]:
            now = session.now()
            rows = session.fetch(BACKGROUND, {"limit": limits.BACKGROUND_TURNS_MAX})
            return [_background(row, now) for row in rows]

        return await self._store.read(look_up)

    async def postpone_background(self, turn_id: str) -> None:
        """Somebody asks about it now (ports.Records)."""
        params = {"turn_id": turn_id, "pause_seconds": limits.BACKGROUND_POLL_SECONDS}
        await self._ask("postpone_background", params)

    def _since(self, session: Session) -> float:
        return session.now() - self._origin_seconds

    def _ask(self, name: str, params: Mapping[str, Any]) -> Noted:
        return self._store.writer.ask(RecordWrite(name, params))


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


def _beginning_row(turn_id: str, attempt: int, route: str) -> Mapping[str, Any]:
    return {"turn_id": turn_id, "number": attempt, "route": route}


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


def _background_row(turn: BackgroundTurn) -> Mapping[str, Any]:
    fingerprint, price = turn.fingerprint, turn.price
    return {
        "turn_id": turn.turn_id,
        "account": turn.account,
        "response_id": turn.response_id,
        "route": turn.route,
        "reserved_nanodollars": turn.reserved_nanodollars,
        "input_tokens": turn.input_tokens,
        "text_bytes": turn.text_bytes,
        "upstream_place": None if fingerprint is None else fingerprint.place,
        "upstream_access": None if fingerprint is None else fingerprint.access,
        "input_price": None if price is None else price.input,
        "cached_input_price": None if price is None else price.cached_input,
        "output_price": None if price is None else price.output,
        "reasoning_price": None if price is None else price.reasoning,
        "pause_seconds": limits.BACKGROUND_POLL_SECONDS,
    }


def _background(row: Row, now: float) -> BackgroundTurn:
    *kept, place, access, began_at, due_at = row
    price = kept[TURN_COLUMNS:]
    return replace(
        BackgroundTurn(*kept[:TURN_COLUMNS]),
        fingerprint=None if place is None else Fingerprint(place, access),
        price=None if None in price else Price(*price),
        age_seconds=now - began_at,
        is_due=now >= due_at,
    )
