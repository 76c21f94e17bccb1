"""What a WebSocket connection remembers and how it is gone on from (W10), warm-ups (W9, B9), and turn states (O3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gateway.config import Config
from gateway.core import continuation, origin
from gateway.core.continuation import Heard, Path, Remembered, input_measure, is_expandable, path_of
from gateway.core.money import InputMeasure
from gateway.core.request import TurnRequest
from gateway.downstream import bodies
from gateway.lock.mutants.flips import Mutant, everywhere, swapped
from gateway.lock.world import Change
from gateway.ports import Model, Order, Origin
from gateway.turn import engine
from gateway.turn.books import Books
from gateway.turn.memory import ConnectionMemory, Lane
from gateway.turn.opening import _output_tokens, open_books
from gateway.turn.origins import Origins, Traces
from gateway.turn.selection import Selection
from gateway.turn.warm_up import require_rememberable
from gateway.upstream import websocket
from gateway.upstream.frame_stream import FrameStream
from gateway.upstream.line import Line

W10 = ("W10",)


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _warm_ups()
    yield from _ways()
    yield from _remembering()
    yield from _switches()
    yield Mutant("O3: no turn state is learned", ("O3",), swapped(Traces, "_marks_of_head", lambda *_: []))
    yield Mutant("O3: no turn state is looked at", ("O3",), swapped(origin, "TURN_STATE_HEADER", "x-nothing"))


def _warm_ups() -> Iterator[Mutant]:
    opened = Books.__init__

    def charging(books: Books, *arguments: Any, **options: Any) -> None:
        opened(books, *arguments, **{**options, "is_warm_up": False})

    opened_here = open_books

    async def setting_aside(*arguments: Any, **_options: Any) -> Books:
        return await opened_here(*arguments, is_answered_here=False)

    def as_any_turn(_request: TurnRequest, model: Model) -> int:
        return model.max_output_tokens

    over_http = everywhere(bodies.refuse_warm_up, lambda _body: None)
    anything = everywhere(require_rememberable, lambda _order: None)
    yield Mutant("W9: a warm-up is taken over HTTP", ("W9", "X2"), over_http)
    yield Mutant("W9: no warm-up is answered here", ("W9",), swapped(engine, "_is_answered_here", lambda *_: False))
    yield Mutant("W9: a warm-up is replayed anywhere", ("W9",), swapped(engine, "remembering", lambda model: model))
    yield Mutant("W9: a warm-up of what is elsewhere is answered", ("W9",), anything)
    yield Mutant("B9: a warm-up is charged", ("B9", "W9"), swapped(Books, "__init__", charging))
    yield Mutant(
        "W9: what a warm-up generates is passed on", ("W9", "B9"), swapped(FrameStream, "_bad_end", lambda *_: None)
    )
    yield Mutant(
        "W9: what a warm-up prepared is lost where turns are stored",
        ("W9",),
        swapped(engine, "prepared", lambda request, *_: request),
    )
    yield Mutant("W9: money is set aside for a warm-up", ("W9", "B6"), everywhere(open_books, setting_aside))
    yield Mutant("B6: a warm-up reserves output", ("B6", "W9"), everywhere(_output_tokens, as_any_turn))
    yield Mutant("W9: what a warm-up prepared is lost", ("W9",), swapped(continuation, "PREPARED", ()))
    for name in continuation.PREPARED:
        rest = tuple(other for other in continuation.PREPARED if other != name)
        yield Mutant(f"W9: a warm-up prepares no {name}", ("W9",), swapped(continuation, "PREPARED", rest))


def _ways() -> Iterator[Mutant]:
    known = Origins.of_response

    async def nowhere(self: Origins, account: str, named: str) -> Origin | None:
        found = await known(self, account, named)
        return None if found is None else replace(found, is_stored=False)

    def not_for_the_route(remembered: Remembered, *, stores_by_default: bool) -> bool:
        return is_expandable(remembered, stores_by_default=stores_by_default or True)

    def expanded_first(*, is_held: bool, is_expandable: bool) -> Path:
        return Path.EXPANDED if is_expandable else path_of(is_held=is_held, is_expandable=False)

    def own_measure(request: TurnRequest, _held: Remembered | None) -> InputMeasure:
        return request.body.contents.measure

    def only_as_it_is(order: Order, *, is_known_upstream: bool) -> Order:
        return as_it_came(order, is_known_upstream=is_known_upstream or True)

    as_it_came = engine._as_it_came
    yield Mutant("W10: conversations share sockets", W10, swapped(Line, "is_awaited", False))
    yield Mutant("W10: what a socket held is there for ever", W10, swapped(Selection, "has_left", lambda *_: False))
    yield Mutant("W10: what is stored goes with its route", ("W10", "O2"), swapped(Origins, "of_response", nowhere))
    yield Mutant("S2: a chain is refused late beside a conversation", ("S2",), everywhere(as_it_came, only_as_it_is))
    yield Mutant("W10: no socket holds anything", W10, swapped(Selection, "holds", lambda *_: False))
    yield Mutant("W10: what can be expanded is expanded", W10, everywhere(path_of, expanded_first))
    yield Mutant("B6: what went before is not reserved", ("B6", "W10"), everywhere(input_measure, own_measure))
    yield Mutant("W10: what is stored is expanded", W10, everywhere(is_expandable, lambda *_, **__: True))
    yield Mutant("W10: nothing is expanded", W10, everywhere(is_expandable, lambda *_, **__: False))
    yield Mutant("W10: no route's default is asked", ("W10", "S1"), everywhere(is_expandable, not_for_the_route))
    yield Mutant(
        "W10: any socket is taken to hold it", W10, swapped(websocket, "_create_on", lambda _, call: call.body)
    )


def _remembering() -> Iterator[Mutant]:
    learned = ConnectionMemory.learn
    made = continuation.remembered

    def evicts_nothing(self: ConnectionMemory, lane: Lane, parent: Any, heard: Heard, made: Any) -> None:
        if heard.ending is not None:
            learned(self, lane, parent, heard, made)

    def evicts_all(self: ConnectionMemory, lane: Lane, parent: Any, heard: Heard, made: Any) -> None:
        learned(self, lane, parent, heard, made)
        if heard.has_failed:
            self.close()

    def in_one_lane(self: ConnectionMemory, _lane: Lane, parent: Any, heard: Heard, made: Any) -> None:
        learned(self, None, parent, heard, made)

    def orphaned(request: Any, _parent: Any, heard: Heard, bytes_max: int) -> Remembered | None:
        return made(request, None, heard, bytes_max)

    yield Mutant("W10: nothing is remembered", W10, swapped(ConnectionMemory, "recall", lambda *_: None))
    yield Mutant("W10: a failure evicts nothing", W10, swapped(ConnectionMemory, "learn", evicts_nothing))
    yield Mutant("W10: any failure evicts everything", W10, swapped(ConnectionMemory, "learn", evicts_all))
    yield Mutant("W10: there is one lane", W10, swapped(ConnectionMemory, "learn", in_one_lane))
    yield Mutant("W10: a chain is forgotten at its second link", W10, everywhere(made, orphaned))
    yield Mutant("W10: a hollow item goes up", W10, swapped(continuation, "_refers_only", lambda _item: False))
    yield Mutant("W10: no item is heard of as it is done", W10, swapped(continuation, "ITEM_DONE", "no.type"))
    yield Mutant("W10: no item is heard of at the end", W10, swapped(continuation, "_told_at_the_end", lambda _: []))


def _switches() -> Iterator[Mutant]:
    for value in (True, False):
        change = _server("replay_expanded_continuations", value)
        yield Mutant(f"R10: replay_expanded_continuations is always {value}", ("R10", "W10"), change=change)
    for by in (1, -1):
        word = "more" if by > 0 else "less"
        change = _limit("remembered_bytes_max", by)
        yield Mutant(f"W10: remembered_bytes_max is one {word}", W10, change=change, words=("remembered_bytes_max",))


def _server(field: str, value: object) -> Change:
    return lambda config: replace(config, server=config.server.model_copy(update={field: value}))


def _limit(field: str, by: int) -> Change:
    def change(config: Config) -> Config:
        bounds = config.limits.model_copy(update={field: getattr(config.limits, field) + by})
        return replace(config, limits=bounds)

    return change
