"""Who looks after background turns (B9): each process, for all of them, whoever began them.

every pass    their leases are kept from ending (B7); those that nobody has asked about for 30 s are polled
a by-id call  its answer is looked at, too
seen ended    the money is settled by the usage, and the turn closed; whoever sees it first, for both are idempotent
never seen    24 h after it began, or once its upstream knows it no more, by the estimate
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import structlog
import trio

from gateway import limits
from gateway.core.background import BackgroundTurn, end_seen, end_unseen, names
from gateway.core.events import JsonObject, parse_object
from gateway.core.failures import Failure, UpstreamAnswer
from gateway.core.money import ChargePolicy, Ended, Flag, Price, Resolution, resolve
from gateway.ports import Ledger, LedgerUnavailable, Records, TurnClosing, UpstreamCall
from gateway.turn.homes import Way

logger = structlog.get_logger("gateway.turn")

GONE_STATUSES: Final = frozenset({404, 410})
ABANDONED: Final = "abandoned"
"""The outcome of a background turn whose end nobody saw."""


class BackgroundTurns:
    """All that are open. `adopt` keeps a turn's lease from ending for as long as this process lives."""

    def __init__(
        self,
        ledger: Ledger,
        records: Records,
        ways: Mapping[str, Way],
        prices: Mapping[str, Price],
        policy: ChargePolicy,
        adopt: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._records = records
        self._ways = ways
        self._prices = prices
        self._policy = policy
        self._adopt = adopt
        self._running = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<BackgroundTurns on {', '.join(self._ways)}>"

    async def run(self) -> None:
        """Look after them until `stop`. No poll delays the keeping of leases."""
        with self._running:
            async with trio.open_nursery() as nursery:
                for look in (self.keep, self.look):
                    nursery.start_soon(_for_ever, look)

    def stop(self) -> None:
        """No more passes: others take over."""
        self._running.cancel()

    async def keep(self) -> None:
        """Take over the leases of all (B7): whose process is gone has them here."""
        for turn in await self._open():
            self._adopt(turn.turn_id)

    async def look(self) -> None:
        """Poll those that are due: a route's one by one, for all routes at once."""
        due: dict[str, list[BackgroundTurn]] = {}
        for turn in await self._open():
            if turn.is_due:
                due.setdefault(turn.route, []).append(turn)
        async with trio.open_nursery() as nursery:
            for turns in due.values():
                nursery.start_soon(self._look_at_all, turns)

    async def _open(self) -> Sequence[BackgroundTurn]:
        """None while the records are away: they are asked again."""
        try:
            return await self._records.background_turns()
        except LedgerUnavailable:
            return ()

    async def _look_at_all(self, turns: Sequence[BackgroundTurn]) -> None:
        """Those of one route; if it cannot be heard, the rest of them is left to the next pass."""
        for turn in turns:
            if not await self._look_at(turn):
                return

    async def _look_at(self, turn: BackgroundTurn) -> bool:
        """Whether its route was heard. What goes wrong with one turn keeps no other from its own."""
        try:
            await self._records.postpone_background(turn.turn_id)
            answer = await self._poll(turn)
            seen = self._told(turn, answer)
            if seen is not None:
                await self._settle(turn, *seen)
        except Exception:
            logger.exception("background_not_polled", turn_id=turn.turn_id)
            return True
        return isinstance(answer, UpstreamAnswer) or (answer is not None and answer.answer is not None)

    async def _poll(self, turn: BackgroundTurn) -> UpstreamAnswer | Failure | None:
        """None if no answer came, or there is nobody to ask."""
        way = self._ways.get(turn.route)
        if way is not None:
            call = UpstreamCall(turn.turn_id, b"", method="GET", path=f"/responses/{quote(turn.response_id, safe='')}")
            with trio.move_on_after(limits.BACKGROUND_ANSWER_SECONDS_MAX):
                return await way.by_id.fetch(call)
        return None

    def _told(self, turn: BackgroundTurn, answer: UpstreamAnswer | Failure | None) -> tuple[Ended, str] | None:
        """How the turn ended, and the outcome's name, if it has."""
        seen = self._read(turn, answer.body) if isinstance(answer, UpstreamAnswer) else None
        is_gone = isinstance(answer, Failure) and answer.status in GONE_STATUSES
        is_overdue = turn.age_seconds >= limits.BACKGROUND_SECONDS_MAX
        return seen or ((end_unseen(turn), ABANDONED) if is_gone or is_overdue else None)

    def _read(self, turn: BackgroundTurn, body: bytes) -> tuple[Ended, str] | None:
        response = parse_object(body)
        if response is None or not names(response, turn):
            return None
        ended = end_seen(response, turn.text_bytes)
        return None if ended is None else (ended, str(response["status"]))

    async def saw(self, account: str, response: JsonObject | None) -> None:
        """A by-id call has shown a response."""
        if response is None or response.get("background") is not True or end_seen(response, 0) is None:
            return
        for turn in await self._open():
            ended = end_seen(response, turn.text_bytes)
            if turn.account == account and names(response, turn) and ended is not None:
                await self._settle(turn, ended, str(response["status"]))

    async def _settle(self, turn: BackgroundTurn, ended: Ended, outcome: str) -> None:
        """Once, whoever else does: a second settlement, and a second closing, change nothing."""
        resolution = self._resolution(turn, ended)
        result = await self._ledger.resolve(turn.turn_id, resolution)
        closing = TurnClosing(
            turn_id=turn.turn_id,
            outcome=outcome,
            routes=(turn.route,),
            seconds=turn.age_seconds,
            nanodollars=resolution.nanodollars,
            flags=resolution.flags,
            response_id=turn.response_id,
        )
        await self._records.close_turn(closing)
        logger.info(
            "background_ended",
            turn_id=turn.turn_id,
            account=turn.account,
            outcome=outcome,
            nanodollars=resolution.nanodollars,
            flags=[flag.value for flag in resolution.flags],
            ledger=result.value,
        )

    def _resolution(self, turn: BackgroundTurn, ended: Ended) -> Resolution:
        """B3 by the route's price (M2); a route that is gone has none."""
        price = self._prices.get(turn.route)
        if price is None:
            return Resolution(None, (Flag.UNMETERED,))
        return resolve(ended, price, turn.reserved_nanodollars, turn.input_tokens, self._policy)


async def _for_ever(look: Callable[[], Awaitable[None]]) -> None:
    while True:
        await look()
        await trio.sleep(limits.BACKGROUND_LOOK_SECONDS)
