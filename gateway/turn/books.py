"""A turn's books: its reservation, its attempts, and their closing, once, whatever ends the turn (B, L, T10)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
import trio

from gateway import limits
from gateway.core.failures import Refusal
from gateway.core.messages import AttemptReport, Door, Finish
from gateway.core.money import (
    ChargePolicy,
    PartTokens,
    Resolution,
    Result,
    estimate_input_tokens,
    reservation_nanodollars,
    resolve,
)
from gateway.ports import (
    AttemptClosing,
    Ledger,
    LedgerUnavailable,
    Meter,
    Model,
    NoMeter,
    Order,
    Records,
    Route,
    TurnClosing,
    TurnMeasures,
    TurnOpening,
)

logger = structlog.get_logger("gateway.turn")

OPEN_BOOKS_SECONDS_MAX: Final = 5.0
"""What a store may take to note a beginning, shielded from cancellation: it is noted whole or not at all."""
ASK_AGAIN_SECONDS: Final = 0.25
"""A store that failed is asked again after this while, within the bound of all closing (T10)."""

Step = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class BookKeeping:
    """Where books are kept, by which policy, and who counts."""

    ledger: Ledger
    records: Records
    policy: ChargePolicy
    parts: PartTokens
    meter: Meter = field(default_factory=NoMeter)


class Books:
    """One turn's books. Opened before its first upstream call, closed exactly once."""

    def __init__(self, keeping: BookKeeping, opening: TurnOpening, input_tokens: int) -> None:
        self._keeping = keeping
        self._opening = opening
        self._input_tokens = input_tokens
        self._opened_at = trio.current_time()
        self._routes: list[Route] = []
        self._reports: dict[int, AttemptReport] = {}
        self._running_attempt: int | None = None
        self._result: Result | None = None
        self.are_closed = False

    def __repr__(self) -> str:
        return f"<Books of {self._opening.turn_id}, closed={self.are_closed}>"

    @property
    def turn_id(self) -> str:
        """Whose books they are."""
        return self._opening.turn_id

    # --- opening ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Set the money aside and record the turn. Raises Refusal; nothing is left open then."""
        try:
            with _shielded(OPEN_BOOKS_SECONDS_MAX) as scope:
                await self._reserve()
                await self._keeping.records.open_turn(self._opening)
        except Refusal:
            raise
        except Exception:
            await self._give_back()  # noqa: ASYNC120 - shielded; a cancellation that comes meanwhile is the better reason
            raise
        if scope.cancelled_caught:
            await self._give_back()
            raise _ledger_is_away()

    async def _reserve(self) -> None:
        opening = self._opening
        try:
            result = await self._keeping.ledger.reserve(self.turn_id, opening.account, opening.reserved_nanodollars)
        except LedgerUnavailable:
            raise _ledger_is_away() from None
        if result is Result.INSUFFICIENT_BALANCE:
            raise Refusal("insufficient_balance", "the account's balance does not cover the turn")

    async def _give_back(self) -> None:
        await self._carry_out(partial(self._keeping.ledger.resolve, self.turn_id, Resolution(None)))

    async def open_attempt(self, route: Route) -> None:
        """Durable before the upstream is called (L2). What may have been noted too late will be closed as well."""
        number = len(self._routes) + 1
        with _shielded(OPEN_BOOKS_SECONDS_MAX) as scope:
            await self._keeping.records.open_attempt(self.turn_id, number, route.name)
        self._routes.append(route)
        self._running_attempt = number
        if scope.cancelled_caught:
            raise TimeoutError(f"the records did not note attempt {number} of {self.turn_id} in time")

    # --- closing ------------------------------------------------------------------------------------------------

    def take_attempt(self) -> int:
        """The number of the running attempt: whoever takes it closes it."""
        self._running_attempt = None
        return len(self._routes)

    async def close_discarded(self, number: int, report: AttemptReport, upstream_request_id: str | None) -> None:
        """A replayed attempt: it costs the client nothing; the house bears what it metered (B2)."""
        self._note(number, report)
        await self._carry_out(partial(self._close_attempt, number, report, upstream_request_id, house_pays=True))

    async def close(self, finish: Finish, upstream_request_id: str | None) -> None:
        """Resolve the money and write the record, shielded and bounded. A second call changes nothing."""
        if self.are_closed:
            return
        self.are_closed = True
        resolution = self._resolution(finish)
        closing = self._turn_closing(finish, resolution)
        steps: list[Step] = [partial(self._resolve, resolution), partial(self._keeping.records.close_turn, closing)]
        report = self._last_report(finish)
        if report is not None:
            number, house_pays = self.take_attempt(), resolution.nanodollars is None
            self._note(number, report)
            close = partial(self._close_attempt, number, report, upstream_request_id, house_pays=house_pays)
            steps.append(close)
        await self._carry_out(*steps)
        self._keeping.meter.turn_ended(self._measures(closing, finish))
        self._log(closing, finish)

    def _note(self, number: int, report: AttemptReport) -> None:
        self._reports[number] = report
        self._keeping.meter.attempt_ended(self._routes[number - 1].name, report)

    def _last_report(self, finish: Finish) -> AttemptReport | None:
        """What the turn knows of its last attempt; of one that was opened and came to nothing, that it ended."""
        if finish.report is None and self._running_attempt is not None:
            now = trio.current_time()
            return AttemptReport(finish.outcome, started_at=now, ended_at=now)
        return finish.report

    async def _resolve(self, resolution: Resolution) -> None:
        self._result = await self._keeping.ledger.resolve(self.turn_id, resolution)

    async def _carry_out(self, *steps: Step) -> None:
        """Each step beside the others, so that one store's trouble does not keep another from its part (T10)."""
        with _shielded(limits.CLOSE_BOOKS_SECONDS_MAX) as scope:
            async with trio.open_nursery() as nursery:
                for step in steps:
                    nursery.start_soon(self._insist, step)
        if scope.cancelled_caught:
            logger.error("books_not_closed", turn_id=self.turn_id)

    async def _insist(self, step: Step) -> None:
        """All steps are idempotent: one that failed is taken again."""
        while True:
            try:
                await step()
            except Exception:
                logger.warning("books_asked_again", turn_id=self.turn_id, exc_info=True)
                await trio.sleep(ASK_AGAIN_SECONDS)
            else:
                return

    def _resolution(self, finish: Finish) -> Resolution:
        """B3, by the delivered route's price (M2). A turn that reached no route costs nothing."""
        if finish.report is None or not self._routes:
            return Resolution(None)
        reserved = self._opening.reserved_nanodollars
        return resolve(finish.ended, self._routes[-1].price, reserved, self._input_tokens, self._keeping.policy)

    async def _close_attempt(
        self, number: int, report: AttemptReport, upstream_request_id: str | None, *, house_pays: bool
    ) -> None:
        route = self._routes[number - 1]
        cost = route.price.cost_nanodollars(report.usage) if house_pays and report.usage is not None else 0
        if cost:
            await self._keeping.ledger.book_house(self.turn_id, number, cost)
        await self._keeping.records.close_attempt(
            AttemptClosing(self.turn_id, number, report, upstream_request_id, cost)
        )

    def _turn_closing(self, finish: Finish, resolution: Resolution) -> TurnClosing:
        return TurnClosing(
            turn_id=self.turn_id,
            outcome=finish.outcome,
            routes=tuple(route.name for route in self._routes),
            seconds=trio.current_time() - self._opened_at,
            nanodollars=resolution.nanodollars,
            flags=resolution.flags,
            failure=finish.failure,
            response_id=None if finish.report is None else finish.report.response_id,
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
        """T1: from the turn's first lifecycle event to its first output, to its end, or to the hold's own end."""
        began = [report.first_event_at for report in self._reports.values() if report.first_event_at is not None]
        if last is None or not began:
            return None
        until = last.ended_at if last.first_output_at is None else last.first_output_at
        return min(max(0.0, until - min(began)), limits.HOLD_SECONDS_MAX)

    def _log(self, closing: TurnClosing, finish: Finish) -> None:
        """One line for each turn; never a prompt, an output or a key (L1)."""
        logger.info(
            "turn",
            turn_id=closing.turn_id,
            account=self._opening.account,
            model=self._opening.model,
            door=self._opening.door.value,
            client_address=self._opening.client_address,
            outcome=closing.outcome,
            attempts=[_logged(self._routes[number - 1], report) for number, report in sorted(self._reports.items())],
            seconds=round(closing.seconds, 3),
            nanodollars=closing.nanodollars,
            flags=[flag.value for flag in closing.flags],
            ledger=None if self._result is None else self._result.value,
            response_id=closing.response_id,
            dropped_events=sum(report.dropped_events for report in self._reports.values()),
        )


def _logged(route: Route, report: AttemptReport) -> dict[str, str | None]:
    """An attempt in the turn's line: a replayed turn shows the failed one too (L1)."""
    reason = None if report.verdict is None else report.verdict.reason.value
    return {"route": route.name, "outcome": report.outcome, "reason": reason}


def _shielded(seconds: float) -> trio.CancelScope:
    return trio.CancelScope(shield=True, deadline=trio.current_time() + seconds)


def _ledger_is_away() -> Refusal:
    return Refusal("ledger_unavailable", "no turn can start while the ledger is away")


async def open_books(keeping: BookKeeping, order: Order, model: Model, door: Door) -> Books:
    """Set the money aside and record the turn. Raises Refusal `insufficient_balance` or `ledger_unavailable`."""
    request = order.request
    input_tokens = estimate_input_tokens(request.body.contents.measure, keeping.parts)
    limit = request.max_output_tokens
    prices = tuple(route.price for route in model.routes)
    amount = reservation_nanodollars(input_tokens, model.max_output_tokens if limit is None else limit, prices)
    opening = TurnOpening(
        turn_id=order.turn_id,
        account=order.account,
        model=model.name,
        door=door,
        reserved_nanodollars=amount,
        opened_at=time.time(),
        client_retry_count=request.client_retry_count,
        client_address=order.client_address,
    )
    books = Books(keeping, opening, input_tokens)
    await books.open()
    return books
