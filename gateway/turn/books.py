"""A turn's books: its reservation, its attempts, and their closing, once, whatever ends the turn (B, L, T10)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import structlog
import trio

from gateway import limits
from gateway.core.accounts import SpendLimit
from gateway.core.background import BackgroundTurn, goes_on
from gateway.core.failures import Refusal
from gateway.core.messages import AttemptReport, Deliver, Finish
from gateway.core.money import (
    ChargePolicy,
    PartTokens,
    Resolution,
    Result,
    resolve,
)
from gateway.measures import Meter, NoMeter, TurnMeasures
from gateway.pending import Pending
from gateway.ports import (
    NOT_CALLED,
    AttemptClosing,
    Ledger,
    LedgerUnavailable,
    Records,
    Route,
    TurnClosing,
    TurnOpening,
)
from gateway.turn.mishaps import NO_MONEY, STORE_AWAY, ledger_is_away
from gateway.turn.origins import Origins, Trace, Traces
from gateway.turn.steps import Step, Steps

logger = structlog.get_logger("gateway.turn")

OPEN_BOOKS_SECONDS_MAX: Final = 5.0
"""What a store may take to note a beginning, shielded from cancellation: it is noted whole or not at all."""
UNDO_SECONDS_MAX: Final = 0.5
"""How long a refusal waits to see the money given back, which is written all the same (ports.Ledger)."""
T = TypeVar("T")
Tell = Callable[[Mapping[str, object]], None]


class TooLate(Exception):
    """A store has not noted a beginning in time."""


@dataclass(frozen=True, slots=True)
class BookKeeping:
    """Where books are kept, by which policy, and who counts."""

    ledger: Ledger
    records: Records
    origins: Origins
    policy: ChargePolicy
    parts: PartTokens
    meter: Meter = field(default_factory=NoMeter)
    latest: Callable[[], float] = lambda: math.inf
    """When waits for a store end at the latest, once the process drains (T7): it writes on without them, or spools."""


class Books:
    """One turn's books. Opened before its first upstream call, closed exactly once."""

    __slots__ = (
        *("_input_tokens", "_is_background", "_is_stored", "_is_warm_up", "_is_whole", "_keeping", "_may_be_noted"),
        *("_opened_at", "_opening", "_reports", "_routes", "_running_attempt", "_spend_limits", "_table", "_traces"),
        *("are_closed", "turn_id"),
    )

    def __init__(
        self,
        keeping: BookKeeping,
        opening: TurnOpening,
        input_tokens: int,
        spend_limits: tuple[SpendLimit, ...],
        *,
        is_stored: bool,
        is_whole: bool,
        table: str,
        is_background: bool,
        is_warm_up: bool,
    ) -> None:
        self._keeping = keeping
        self._table = table
        self._opening = opening
        self.turn_id = opening.turn_id
        """Whose books they are."""
        self._spend_limits = spend_limits
        self._is_whole = is_whole
        self._is_stored = is_stored
        self._is_background = is_background
        self._is_warm_up = is_warm_up
        self._traces = Traces(is_stored=is_stored)
        self._input_tokens = input_tokens
        self._opened_at = trio.current_time()
        self._routes: list[Route] = []
        self._reports: dict[int, AttemptReport] = {}
        self._running_attempt: int | None = None
        self._may_be_noted = False
        self.are_closed = False

    def __repr__(self) -> str:
        return f"<Books of {self.turn_id}, closed={self.are_closed}>"

    # --- opening ------------------------------------------------------------------------------------------------

    async def open(self, first: str | None = None) -> None:
        """Set the money aside and record the turn, and the `first` route that it is to call, if it calls one. Raises
        Refusal; nothing is left open then."""
        until = self._opened_at + OPEN_BOOKS_SECONDS_MAX
        try:
            await self._reserve(until)
            self._may_be_noted = True
            await _known(self._keeping.records.open_turn(self._opening, first), until)
        except Refusal:
            raise
        except (LedgerUnavailable, TooLate):
            await self._undo()  # noqa: ASYNC120 - shielded; a cancellation that comes meanwhile is the better reason
            raise ledger_is_away() from None
        except Exception:
            self._may_be_noted = False
            await self._undo()  # noqa: ASYNC120 - as above
            raise

    async def _reserve(self, until: float) -> None:
        opening, ledger = self._opening, self._keeping.ledger
        amount = opening.reserved_nanodollars
        try:
            result = await _known(ledger.reserve(self.turn_id, opening.account, amount, self._spend_limits), until)
        except LedgerUnavailable:
            raise ledger_is_away() from None
        if result in NO_MONEY:
            raise Refusal(*NO_MONEY[result])

    async def _undo(self) -> None:
        """Give the money back. A turn that a store has noted, and could not say so, ends as well."""
        steps: dict[str, Step] = {"resolve": partial(self._keeping.ledger.resolve, self.turn_id, Resolution(None))}
        if self._may_be_noted:
            seconds = trio.current_time() - self._opened_at
            closing = TurnClosing(self.turn_id, STORE_AWAY.code, (), seconds, nanodollars=None, flags=())
            steps["close_turn"] = partial(self._keeping.records.close_turn, closing)
        undoing = Steps(self.turn_id, steps)
        if not undoing.are_through:
            await undoing.see_through(UNDO_SECONDS_MAX, self._keeping.latest())

    async def open_attempt(self, route: Route) -> None:
        """Durable before the upstream is called (L2). Raises LedgerUnavailable; what may have been noted all the same
        will be closed as well."""
        number, is_away = len(self._routes) + 1, None
        try:
            noted = self._keeping.records.open_attempt(self.turn_id, number, route.name)
            await _known(noted, trio.current_time() + OPEN_BOOKS_SECONDS_MAX)
        except TooLate:
            is_away = LedgerUnavailable(f"the records did not note attempt {number} of {self.turn_id} in time")
        except LedgerUnavailable as error:
            is_away = error
        self._routes.append(route)
        self._running_attempt = number
        if is_away is not None:
            raise is_away

    def learn(self, delivered: Deliver, nursery: trio.Nursery) -> None:
        """O1, O3: what the client is about to know of its response's origin lasts: whoever serves its next request
        finds the route."""
        told = self._traces.new(delivered)
        if told is not None:
            self._carry_out(self._learned(told), nursery)

    def _learned(self, told: Trace) -> Mapping[str, Step]:
        opening, route = self._opening, self._routes[-1]
        is_stored, is_held = self._is_stored or self._is_background, route.remembers
        learn = self._keeping.origins.learn
        steps = learn(told, opening.account, route.maker, opening.model, is_stored=is_stored, is_held=is_held)
        return steps if told.response_id is None else {**steps, **self._kept(told.response_id)}

    def _kept(self, named: str, text_bytes: int = 0) -> Mapping[str, Step]:
        """B9: whoever looks after background turns knows this one from the moment in which its client may leave it."""
        if not self._is_background:
            return {}
        opening, route = self._opening, self._routes[-1]
        turn = BackgroundTurn(
            turn_id=self.turn_id,
            account=opening.account,
            response_id=named,
            route=route.name,
            reserved_nanodollars=opening.reserved_nanodollars,
            input_tokens=self._input_tokens,
            text_bytes=text_bytes,
            fingerprint=route.fingerprint,
            price=route.price,
        )
        return {"keep_background": partial(self._keeping.records.keep_background, turn)}

    # --- closing ------------------------------------------------------------------------------------------------

    def take_attempt(self) -> int:
        """The number of the running attempt: whoever takes it closes it."""
        self._running_attempt = None
        return len(self._routes)

    def close_discarded(
        self, number: int, report: AttemptReport, upstream_request_id: str | None, nursery: trio.Nursery
    ) -> None:
        """A replayed attempt: it costs the client nothing; the house bears what it metered (B2)."""
        self._note(number, report)
        self._carry_out(self._closing_of_attempt(number, report, upstream_request_id, house_pays=True), nursery)

    def close(self, finish: Finish, upstream_request_id: str | None, nursery: trio.Nursery) -> None:
        """Resolve the money and write the record. A second call changes nothing. What is not done at once is waited for
        in the nursery, shielded and bounded."""
        if self.are_closed:
            return
        self.are_closed = True
        resolution = self._resolution(finish)
        closing = self._turn_closing(finish, resolution)
        going_on = goes_on(finish) if self._is_background else None
        steps: dict[str, Step] = {
            "resolve": partial(self._keeping.ledger.resolve, self.turn_id, resolution),
            "close_turn": partial(self._keeping.records.close_turn, closing),
        }
        if going_on is not None:
            steps = dict(self._kept(going_on, finish.ended.delivered_text_bytes))
            closing = replace(closing, nanodollars=None, flags=())
        report = self._last_report(finish)
        if report is not None:
            number, house_pays = self.take_attempt(), resolution.nanodollars is None
            self._note(number, report)
            steps |= self._closing_of_attempt(number, report, upstream_request_id, house_pays=house_pays)
        self._carry_out(steps, nursery, partial(self._tell, closing, finish))

    def _carry_out(self, steps: Mapping[str, Step], nursery: trio.Nursery, tell: Tell | None = None) -> None:
        """All of them begin now. `tell` is told what came of them, in the end."""
        begun = Steps(self.turn_id, steps)
        if not begun.are_through:
            nursery.start_soon(self._see_through, begun, tell)
        elif tell is not None:
            tell(begun.results)

    async def _see_through(self, begun: Steps, tell: Tell | None) -> None:
        await begun.see_through(limits.CLOSE_BOOKS_SECONDS_MAX, self._keeping.latest())
        if tell is not None:
            tell(begun.results)

    def _tell(self, closing: TurnClosing, finish: Finish, results: Mapping[str, object]) -> None:
        """Whoever counts, and the log."""
        result = results.get("resolve")
        if result is Result.BORNE_BY_HOUSE:
            closing = replace(closing, nanodollars=None)
        self._keeping.meter.turn_ended(self._measures(closing, finish))
        self._log(closing, result.value if isinstance(result, Result) else None)

    def _note(self, number: int, report: AttemptReport) -> None:
        self._reports[number] = report
        self._keeping.meter.attempt_ended(self._routes[number - 1].name, report)

    def _last_report(self, finish: Finish) -> AttemptReport | None:
        """What the turn knows of its last attempt; of one that was noted, or may have been, and never called its
        upstream, just that."""
        if finish.report is None and self._running_attempt is not None:
            now = trio.current_time()
            return AttemptReport(NOT_CALLED, started_at=now, ended_at=now)
        return finish.report

    def _resolution(self, finish: Finish) -> Resolution:
        """B3, by the delivered route's price (M2). What reached no route is free, and so is a warm-up (B9)."""
        if not self._routes or self._is_warm_up:
            return Resolution(None)
        reserved = self._opening.reserved_nanodollars
        return resolve(finish.ended, self._routes[-1].price, reserved, self._input_tokens, self._keeping.policy)

    def _closing_of_attempt(
        self, number: int, report: AttemptReport, upstream_request_id: str | None, *, house_pays: bool
    ) -> dict[str, Step]:
        """Its record, and what it costs the house: neither waits for the other."""
        route, records = self._routes[number - 1], self._keeping.records
        cost = route.price.cost_nanodollars(report.usage) if house_pays and report.usage is not None else 0
        closing = AttemptClosing(self.turn_id, number, report, upstream_request_id, cost)
        steps: dict[str, Step] = {"close_attempt": partial(records.close_attempt, closing)}
        if cost:
            steps["book_house"] = partial(self._keeping.ledger.book_house, self.turn_id, number, cost)
        return steps

    def _turn_closing(self, finish: Finish, resolution: Resolution) -> TurnClosing:
        return TurnClosing(
            turn_id=self.turn_id,
            outcome=finish.outcome,
            routes=tuple([route.name for route in self._routes]),
            seconds=trio.current_time() - self._opened_at,
            nanodollars=resolution.nanodollars,
            flags=resolution.flags,
            failure=finish.failure,
            response_id=finish.own_response_id if finish.report is None else finish.report.response_id,
        )

    def _measures(self, closing: TurnClosing, finish: Finish) -> TurnMeasures:
        verdict = None if finish.report is None else finish.report.verdict
        output_at = None if finish.report is None else finish.report.first_output_at
        return TurnMeasures(
            door=self._opening.door,
            outcome=closing.outcome,
            reason=None if verdict is None else verdict.reason.value,
            seconds=closing.seconds,
            hold_seconds=self._hold_seconds(finish.report),
            first_output_seconds=None if output_at is None else output_at - self._opened_at,
            nanodollars=closing.nanodollars,
        )

    def _hold_seconds(self, last: AttemptReport | None) -> float | None:
        """T1: from the turn's first lifecycle event to its first output, to its end, or to the hold's own end. One body
        is not held (H1)."""
        began = [report.first_event_at for report in self._reports.values() if report.first_event_at is not None]
        if last is None or not began or self._is_whole:
            return None
        until = last.ended_at if last.first_output_at is None else last.first_output_at
        return min(max(0.0, until - min(began)), limits.HOLD_SECONDS_MAX)

    def _log(self, closing: TurnClosing, ledger: str | None) -> None:
        """One line for each turn; never a prompt, an output or a key (L1)."""
        logger.info(
            "turn",
            turn_id=closing.turn_id,
            account=self._opening.account,
            key=self._opening.key,
            model=self._opening.model,
            table=self._table[: limits.TABLE_DIGITS],
            door=self._opening.door.value,
            client_address=self._opening.client_address,
            outcome=closing.outcome,
            attempts=[_logged(self._routes[number - 1], report) for number, report in sorted(self._reports.items())],
            seconds=round(closing.seconds, 3),
            nanodollars=closing.nanodollars,
            flags=[flag.value for flag in closing.flags],
            ledger=ledger,
            response_id=closing.response_id,
            dropped_events=sum([report.dropped_events for report in self._reports.values()]),
        )


def _logged(route: Route, report: AttemptReport) -> dict[str, str | None]:
    """An attempt in the turn's line: a replayed turn shows the failed one too (L1)."""
    reason = None if report.verdict is None else report.verdict.reason.value
    return {"route": route.name, "outcome": report.outcome, "reason": reason}


async def _known(pending: Pending[T], until: float) -> T:
    """What came of it, shielded from cancellation. Raises TooLate if that is not known by then."""
    if pending.is_done:
        return pending.result()
    with trio.CancelScope(shield=True, deadline=until):
        return await pending
    raise TooLate
