"""Who looks after background turns (B9): each process, for all of them, whoever began them.

every pass    their leases are kept from ending (B7); those that nobody has asked about for 30 s are polled
a by-id call  its answer is looked at, too; an end that it shows before the turn is on record waits for the next pass
seen ended    the money is settled by the usage, and the turn closed; whoever sees it first, for both are idempotent
never seen    24 h after it began, or once its upstream knows it no more, by the estimate

A turn is asked after at the upstream that it began on, and charged by the price that it began with, whatever its route
is by now (C2). Where that upstream cannot be reached any more, nobody else is asked: the turn ends after its 24 h.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import structlog
import trio

from gateway import limits
from gateway.core.background import BackgroundTurn, Fingerprint, end_seen, end_unseen, may_know, names, would_know
from gateway.core.events import JsonObject, parse_object, response_id
from gateway.core.failures import Failure, UpstreamAnswer
from gateway.core.money import ChargePolicy, Ended, Flag, Resolution, Result, resolve
from gateway.ports import Ledger, LedgerUnavailable, Records, TurnClosing, UpstreamCall
from gateway.turn.homes import Way, WaysBack

logger = structlog.get_logger("gateway.turn")

GONE_STATUSES: Final = frozenset({404, 410})
ABANDONED: Final = "abandoned"
"""The outcome of a background turn whose end nobody saw."""
SETTLED_BEFORE: Final = frozenset({Result.ALREADY_SETTLED, Result.ALREADY_VOIDED, Result.ALREADY_EXPIRED})
"""A ledger's answers to whoever comes second."""
Answered = UpstreamAnswer | Failure | None
"""None if no answer came, or there was nobody to ask."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The end of a response as a by-id call has shown it: when, and who was asked."""

    at: float
    ended: Ended
    outcome: str
    asked: Fingerprint


class BackgroundTurns:
    """All that are open. `adopt` keeps a turn's lease from ending for as long as this process lives."""

    def __init__(
        self,
        ledger: Ledger,
        records: Records,
        ways: WaysBack,
        policy: ChargePolicy,
        adopt: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._records = records
        self._ways = ways
        self._policy = policy
        self._adopt = adopt
        self._running = trio.CancelScope()
        self._unreachable: set[str] = set()
        self._shown: OrderedDict[tuple[str, str], Shown] = OrderedDict()

    def __repr__(self) -> str:
        return f"<BackgroundTurns by {self._ways!r}>"

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
        """Poll those that are due: an upstream's one by one, for all upstreams at once."""
        due: dict[tuple[str, Fingerprint | None], list[BackgroundTurn]] = {}
        turns = await self._open()
        self._unreachable.intersection_update(turn.turn_id for turn in turns)
        for turn in turns:
            if turn.is_due or self._shown_of(turn) is not None:
                due.setdefault((turn.route, turn.fingerprint), []).append(turn)
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
        """Those of one upstream; if it cannot be heard, the rest of them is left to the next pass."""
        for turn in turns:
            if not await self._look_at(turn):
                return

    async def _look_at(self, turn: BackgroundTurn) -> bool:
        """Whether its upstream was heard. What goes wrong with one turn keeps no other from its own."""
        way = self._ways.way_back(turn)
        try:
            shown = self._shown_of(turn)
            if shown is not None:
                await self._settle(turn, *shown)
                return True
            await self._records.postpone_background(turn.turn_id)
            answer = await self._poll(turn, way)
            seen = self._told(turn, way, answer)
            if seen is not None:
                await self._settle(turn, *seen)
        except Exception:
            logger.exception("background_not_polled", turn_id=turn.turn_id)
            return True
        return way is None or isinstance(answer, UpstreamAnswer) or (answer is not None and answer.answer is not None)

    def _note_unreachable(self, turn: BackgroundTurn) -> None:
        """Said once for each turn."""
        if turn.turn_id not in self._unreachable:
            self._unreachable.add(turn.turn_id)
            logger.warning("background_unreachable", turn_id=turn.turn_id, account=turn.account, route=turn.route)

    async def _poll(self, turn: BackgroundTurn, way: Way | None) -> Answered:
        if way is None:
            self._note_unreachable(turn)
            return None
        call = UpstreamCall(turn.turn_id, b"", method="GET", path=f"/responses/{quote(turn.response_id, safe='')}")
        with trio.move_on_after(limits.BACKGROUND_ANSWER_SECONDS_MAX):
            return await way.by_id.fetch(call)
        return None

    def _told(self, turn: BackgroundTurn, way: Way | None, answer: Answered) -> tuple[Ended, str] | None:
        """How the turn ended, and the outcome's name, if it has."""
        seen = self._read(turn, answer.body) if isinstance(answer, UpstreamAnswer) else None
        is_unknown = isinstance(answer, Failure) and answer.status in GONE_STATUSES
        is_gone = is_unknown and way is not None and would_know(way.fingerprint, turn)
        is_overdue = turn.age_seconds >= limits.BACKGROUND_SECONDS_MAX
        return seen or ((end_unseen(turn), ABANDONED) if is_gone or is_overdue else None)

    def _read(self, turn: BackgroundTurn, body: bytes) -> tuple[Ended, str] | None:
        response = parse_object(body)
        if response is None or not names(response, turn):
            return None
        ended = end_seen(response, turn.text_bytes)
        return None if ended is None else (ended, str(response["status"]))

    async def saw(self, account: str, response: JsonObject | None, asked: Fingerprint) -> None:
        """A by-id call has shown a response. What another upstream than the turn's own says of its id is nothing. An
        end whose turn is not on record is remembered: its row may be about to be written."""
        ended = None if response is None else end_seen(response, 0)
        if response is None or ended is None or response.get("background") is not True:
            return
        self._remember(account, response, Shown(trio.current_time(), ended, str(response["status"]), asked))
        for turn in await self._open():
            shown = self._shown_of(turn)
            if shown is not None:
                await self._settle(turn, *shown)

    def _remember(self, account: str, response: JsonObject, shown: Shown) -> None:
        named = response_id({"response": response})
        if named is not None:
            self._shown[account, named] = shown
            self._shown.move_to_end((account, named))
            while len(self._shown) > limits.SHOWN_ENDS_MAX:
                self._shown.popitem(last=False)

    def _shown_of(self, turn: BackgroundTurn) -> tuple[Ended, str] | None:
        """How the turn ended, and the outcome's name, if a by-id call has shown it a moment ago."""
        shown = self._shown.get((turn.account, turn.response_id))
        is_recent = shown is not None and trio.current_time() < shown.at + limits.SHOWN_END_SECONDS
        if shown is None or not is_recent or not may_know(shown.asked, turn):
            return None
        return replace(shown.ended, delivered_text_bytes=turn.text_bytes), shown.outcome

    async def way_to(self, account: str, response_id: str) -> Way | None:
        """The way back to whoever has the response of an open turn (homes.GoingOn)."""
        for turn in await self._open():
            if turn.account == account and turn.response_id == response_id:
                return self._ways.way_back(turn)
        return None

    async def _settle(self, turn: BackgroundTurn, ended: Ended, outcome: str) -> None:
        """Once, whoever else does: a second settlement, and a second closing, change nothing."""
        resolution = self._resolution(turn, ended)
        result = await self._ledger.resolve(turn.turn_id, resolution)
        closing = TurnClosing(
            turn_id=turn.turn_id,
            outcome=outcome,
            routes=(turn.route,),
            seconds=turn.age_seconds,
            nanodollars=None if result is Result.BORNE_BY_HOUSE else resolution.nanodollars,
            flags=resolution.flags,
            response_id=turn.response_id,
        )
        await self._records.close_turn(closing)
        if result not in SETTLED_BEFORE:
            self._log(turn, closing, result)

    def _log(self, turn: BackgroundTurn, closing: TurnClosing, result: Result) -> None:
        """One line for each turn, by whoever settled it."""
        logger.info(
            "background_ended",
            turn_id=turn.turn_id,
            account=turn.account,
            outcome=closing.outcome,
            nanodollars=closing.nanodollars,
            flags=[flag.value for flag in closing.flags],
            ledger=result.value,
        )

    def _resolution(self, turn: BackgroundTurn, ended: Ended) -> Resolution:
        """B3 by the price that the turn began with (M2, C2); of one that was kept without, by its route's."""
        price = turn.price
        if price is None:
            way = self._ways.way_back(turn)
            price = None if way is None else way.price
        if price is None:
            return Resolution(None, (Flag.UNMETERED,))
        return resolve(ended, price, turn.reserved_nanodollars, turn.input_tokens, self._policy)


async def _for_ever(look: Callable[[], Awaitable[None]]) -> None:
    while True:
        await look()
        await trio.sleep(limits.BACKGROUND_LOOK_SECONDS)
