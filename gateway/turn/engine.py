"""The engine: admits a turn, opens its books, runs it. One for each process; it knows every turn that runs."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

import structlog

from gateway import limits
from gateway.core.failures import Refusal
from gateway.core.messages import Deliver, DeliverFailure, DrainStarted
from gateway.core.origin import bond_of
from gateway.core.rules import TurnRules
from gateway.ports import Downstream, Model, Order
from gateway.turn.asking import ask
from gateway.turn.books import BookKeeping, Books, open_books
from gateway.turn.running import RunningTurn
from gateway.turn.selection import Chosen, Selection, narrowed

logger = structlog.get_logger("gateway.turn")


class Engine:
    """Runs turns."""

    def __init__(
        self,
        selection: Selection,
        keeping: BookKeeping,
        rules: TurnRules,
        write_seconds: float = limits.WRITE_SECONDS_MAX,
    ) -> None:
        self._selection = selection
        self._keeping = keeping
        self._rules = rules
        self._write_seconds = write_seconds
        self._running: set[RunningTurn] = set()
        self._drain_ends_at: float | None = None

    def __repr__(self) -> str:
        return f"<Engine, {len(self._running)} turns run>"

    @property
    def running_turns(self) -> int:
        """How many turns run now."""
        return len(self._running)

    def drain(self, ends_at: float) -> None:
        """T7: running turns may end by themselves until `ends_at`; those that have not are cut then."""
        self._drain_ends_at = ends_at
        for turn in self._running:
            turn.signal(DrainStarted(ends_at))

    async def run_turn(self, order: Order, client: Downstream) -> None:
        """One turn, from reservation to last frame. Raises Refusal if it may not begin: then nothing was written."""
        with self._selection.turn():
            model, first, books = await self._admit(order, client)
            self._selection.turn_began()
            rules = self._rules_of(order)
            turn = RunningTurn(order, client, model, first, books, self._selection, rules, self._write_seconds)
            if self._drain_ends_at is not None:
                turn.signal(DrainStarted(self._drain_ends_at))
            self._running.add(turn)
            try:
                await turn.run()
            finally:
                self._running.discard(turn)

    def _rules_of(self, order: Order) -> TurnRules:
        return replace(
            self._rules,
            connection_limit_at=order.connection_limit_at,
            cut_at=order.cut_at,
            is_whole=not order.request.streams,
            hold_seconds=self._rules.hold_seconds if order.request.streams else math.inf,
        )

    async def ask(self, order: Order) -> Deliver | DeliverFailure:
        """A question that is no turn. Raises Refusal if it cannot be asked; a bug is one, too."""
        try:
            with self._selection.turn():
                model, first = await self._choose(self._selection.model(order.request.model), order)
                return await ask(self._selection, order, model, first)
        except Refusal:
            raise
        except Exception:
            raise self._bug(order) from None

    async def _admit(self, order: Order, client: Downstream) -> tuple[Model, Chosen, Books]:
        """Choose the first route and open the books. A bug here is a refusal, too: nothing was sent, nothing is left
        open."""
        try:
            model = self._selection.model(order.request.model)
            model, first = await self._choose(model, order)
            with ExitStack() as refused:
                refused.callback(first.place.leave)
                books = await open_books(self._keeping, order, model, client.door)
                refused.pop_all()
        except Refusal:
            raise
        except Exception:
            raise self._bug(order) from None
        return model, first, books

    def _bug(self, order: Order) -> Refusal:
        logger.exception("internal_error", turn_id=order.turn_id)
        return Refusal("internal_error", "the gateway failed; the failure is logged")

    async def _choose(self, model: Model, order: Order) -> tuple[Model, Chosen]:
        """The first route, and the model with those that may follow it: whatever binds a request binds it to one (O2,
        O3). Raises Refusal."""
        bond = bond_of(order.request)
        if bond is None:
            return model, self._selection.first(model, order.request)
        origin = await self._keeping.origins.of_bond(order.account, bond)
        if origin is None:
            first = self._selection.by_affinity(model, order.request, order.account, bond.affinity)
        else:
            first = self._selection.only(model, order.request, origin)
        return narrowed(model, first.route), first
