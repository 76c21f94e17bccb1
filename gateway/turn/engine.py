"""The engine: admits a turn, opens its books, runs it. One for each process; it knows every turn that runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog

from gateway.aside import Aside
from gateway.core.continuation import Path, Remembered, expanded, is_expandable, path_of, prepared
from gateway.core.eligibility import StatePolicy
from gateway.core.failures import Refusal
from gateway.core.messages import Deliver, DeliverFailure, DrainStarted
from gateway.core.origin import bond_of
from gateway.core.request import TurnRequest
from gateway.core.rules import TurnRules
from gateway.ports import Downstream, Model, Order, Route
from gateway.turn.asking import ask
from gateway.turn.books import BookKeeping, Books
from gateway.turn.opening import open_books
from gateway.turn.running import RunningTurn
from gateway.turn.selection import Chosen, Selection, narrowed, remembering
from gateway.turn.warm_up import answer_warm_up, require_rememberable

logger = structlog.get_logger("gateway.turn")


class Engine:
    """Runs turns."""

    def __init__(
        self,
        selection: Selection,
        keeping: BookKeeping,
        rules: TurnRules,
        write_seconds: float,
        wall_clock: Callable[[], float],
        aside: Aside,
    ) -> None:
        self._aside = aside
        self._selection = selection
        self._keeping = keeping
        self._rules = rules
        self._write_seconds = write_seconds
        self._wall_clock = wall_clock
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
            order, model, first, books = await self._admit(order, client)
            if _is_answered_here(order, first):
                first.place.leave()
                await answer_warm_up(order, client, books, self._wall_clock(), self._write_seconds, self._aside)
                return
            self._selection.turn_began()
            rules = self._rules_of(order)
            patience, aside = self._write_seconds, self._aside
            turn = RunningTurn(order, client, model, first, books, self._selection, rules, patience, aside)
            if self._drain_ends_at is not None:
                turn.signal(DrainStarted(self._drain_ends_at))
            self._running.add(turn)
            try:
                await turn.run()
            finally:
                self._running.discard(turn)

    def _rules_of(self, order: Order) -> TurnRules:
        if order.request.streams and order.connection_limit_at == order.cut_at == math.inf:
            return self._rules
        return replace(
            self._rules,
            connection_limit_at=order.connection_limit_at,
            cut_at=order.cut_at,
            is_whole=not order.request.streams,
        )

    async def ask(self, order: Order) -> Deliver | DeliverFailure:
        """A question that is no turn. Raises Refusal if it cannot be asked; a bug is one, too."""
        try:
            with self._selection.turn():
                order, model, first = await self._choose(self._selection.model(order.request.model), order)
                return await ask(self._selection, order, model, first, self._aside)
        except Refusal:
            raise
        except Exception:
            raise self._bug(order) from None

    async def _admit(self, order: Order, client: Downstream) -> tuple[Order, Model, Chosen, Books]:
        """Choose the first route and open the books. A bug here is a refusal, too: nothing was sent, nothing is left
        open."""
        try:
            model = self._selection.model(order.request.model)
            order, model, first = await self._choose(model, order)
            try:
                is_answered_here = _is_answered_here(order, first)
                if is_answered_here:
                    require_rememberable(order)
                books = await open_books(self._keeping, order, model, client.door, is_answered_here=is_answered_here)
            except BaseException:
                first.place.leave()
                raise
        except Refusal:
            raise
        except Exception:
            raise self._bug(order) from None
        return order, model, first, books

    def _bug(self, order: Order) -> Refusal:
        logger.exception("internal_error", turn_id=order.turn_id)
        return Refusal("internal_error", "the gateway failed; the failure is logged")

    async def _choose(self, model: Model, order: Order) -> tuple[Order, Model, Chosen]:
        """The first route, the model with those that may follow it, and the order as it goes to them: a continuation
        that is remembered may be another request by then (W10). Raises Refusal."""
        order = await self._on_its_way(model, order)
        model, first = await self._placed(model, order)
        if order.request.is_warm_up and first.route.remembers:
            model = remembering(model)
        return order, model, first

    async def _on_its_way(self, model: Model, order: Order) -> Order:
        """W10. What is written anew may be megabytes."""
        held, request = order.remembered, order.request
        if held is None:
            return order
        origin = self._keeping.origins.recent(order.account, held.response_id)
        maker = None if origin is None else origin.maker
        route = next((r for r in model.routes if maker is not None and maker.is_still(r.name, r.fingerprint)), None)
        can_be_expanded = is_expandable(held, stores_by_default=route is None or route.stores_by_default)
        if request.body.get("conversation") is not None:
            return _as_it_came(order, is_known_upstream=origin is not None or not can_be_expanded)
        is_held = route is not None and self._selection.holds(model, request, route.name, held.response_id)
        path = path_of(is_held=is_held, is_expandable=can_be_expanded)
        if path is Path.SOCKET and route is not None and can_be_expanded:
            request = replace(request, elsewhere=partial(_in_full, request, held, order.policy, route))
        elif path is Path.EXPANDED:
            full = await self._aside.run(order.size_bytes, partial(expanded, request, held, order.policy))
            request = full or request
        elif path is Path.ORIGIN:
            request = await self._aside.run(order.size_bytes, partial(prepared, request, held, order.policy))
        return replace(order, request=request)

    async def _placed(self, model: Model, order: Order) -> tuple[Model, Chosen]:
        """Whatever binds a request binds it to one route (O2, O3)."""
        bond = await self._aside.run(order.request.body.size_bytes, partial(bond_of, order.request))
        if bond is None:
            return model, self._selection.first(model, order.request)
        origin = await self._keeping.origins.of_bond(order.account, bond, partial(self._selection.has_left, model))
        if origin is None:
            first = self._selection.by_affinity(model, order.request, order.account, bond.affinity)
        else:
            first = self._selection.only(model, order.request, origin)
        return narrowed(model, first.route), first


def _as_it_came(order: Order, *, is_known_upstream: bool) -> Order:
    """S2: no upstream takes a conversation beside what it goes on from; its own words say so best. What none of them
    knows is refused here: raises Refusal `invalid_request`."""
    if not is_known_upstream:
        text = "'previous_response_id' and 'conversation' exclude each other"
        raise Refusal("invalid_request", text, param="conversation")
    return order


def _in_full(request: TurnRequest, held: Remembered, policy: StatePolicy, route: Route) -> TurnRequest:
    """W10, C5: made when it is needed, which is seldom, and megabytes; as it came where the route cannot carry it."""
    full = expanded(request, held, policy)
    return full if full is not None and route.carries(full) else request


def _is_answered_here(order: Order, first: Chosen) -> bool:
    """W9: HTTP upstreams know no warm-up; they would generate, or refuse it."""
    return order.request.is_warm_up and not first.route.remembers
