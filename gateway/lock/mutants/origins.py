"""Where what goes on from something is sent (O), responses by id (H2), and in the background (B9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import trio

from gateway import limits
from gateway.core import background, marks, origin, turn
from gateway.core.background import BackgroundTurn, Fingerprint, goes_on
from gateway.core.failures import Refusal
from gateway.core.marks import conversation_id, marks_of_input
from gateway.core.money import Ended, Resolution
from gateway.core.origin import Bond, Maker, bond_of
from gateway.core.routing import by_affinity
from gateway.downstream import by_id
from gateway.lock.mutants.flips import Mutant, everywhere, swapped, without
from gateway.turn import background as looking
from gateway.turn.background import BackgroundTurns
from gateway.turn.origins import Origins, Traces
from gateway.upstream.sse import SSEUpstream


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _learning()
    yield from _choosing()
    yield from _by_id()
    yield from _background()


def _learning() -> Iterator[Mutant]:
    yield Mutant("O1: no response is learned", ("O1",), swapped(Origins, "learn", lambda *_, **__: {}))
    for name, what in (("_marks_of_done", "items as they are done"), ("_marks_of_response", "a terminal event")):
        nothing = swapped(Traces, name, lambda _self, _event: iter(()))
        yield Mutant(f"O3: nothing is learned from {what}", ("O3",), nothing)
    learned = marks.marks_of_item

    def all_stored(item: object, *, is_stored: bool) -> Iterator[str]:
        return learned(item, is_stored=is_stored or True)

    yield Mutant("O3: what is stored nowhere is known by its id", ("O3",), everywhere(learned, all_stored))
    yield Mutant(
        "O2: no conversation is known", ("O2", "O3"), everywhere(conversation_id, lambda _held: None), words=("conv_",)
    )


def _choosing() -> Iterator[Mutant]:
    asked = Origins.of_bond

    async def guessed(self: Origins, account: str, bond: Bond, is_gone: Callable[[Maker], bool]) -> Maker | None:
        try:
            return await asked(self, account, bond, is_gone)
        except Refusal:
            return None

    def oldest_first(items: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        return tuple(reversed(marks_of_input(items)))

    yield Mutant("O2: no request is bound", ("O2", "O3"), everywhere(bond_of, lambda _request: None))
    yield Mutant("O2: what is not known is guessed", ("O2",), swapped(Origins, "of_bond", guessed))
    yield Mutant("O2: a route's name is enough", ("O2", "O3"), swapped(Maker, "is_still", _by_name))
    yield Mutant("O3: the oldest item decides", ("O3",), everywhere(marks_of_input, oldest_first))
    yield Mutant("O3: no item decides", ("O3",), everywhere(marks_of_input, lambda _items: ()))
    yield Mutant("O3: the first route takes what is unknown", ("O3",), everywhere(by_affinity, lambda r, *_: list(r)))
    yield Mutant("O3: no first item is looked at", ("O3",), swapped(origin, "_first_item", lambda _body: ""))
    yield Mutant("O3: no cache key is looked at", ("O3",), swapped(origin, "_affinity", lambda body, _: body.text))


def _by_name(maker: Maker, route: str, _now: Fingerprint | None) -> bool:
    return maker.route == route


def _by_id() -> Iterator[Mutant]:
    for name in sorted(by_id.QUERY_NAMES):
        flip = swapped(by_id, "QUERY_NAMES", without(by_id.QUERY_NAMES, name))
        yield Mutant(f"H2: query_names without {name}", ("H2",), flip, words=(name,))
    yield Mutant("H2: the route's own name is shown by id", ("H2", "M3"), swapped(by_id, "_respelled", lambda b, _: b))
    yield Mutant("H2: no response is streamed", ("H2",), swapped(by_id, "_asks_for_stream", lambda: False))


def _background() -> Iterator[Mutant]:
    async def unseen(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    yield Mutant("B9: with its stream a turn ends", ("B9",), everywhere(goes_on, lambda _finish: None))
    yield Mutant("B9: no call by id is looked at", ("B9",), swapped(BackgroundTurns, "saw", unseen))
    yield Mutant("B9: nobody ends what goes on elsewhere", ("B9",), swapped(BackgroundTurns, "way_to", unseen))
    yield Mutant("B9: polled every 20 s", ("B9",), swapped(limits, "BACKGROUND_POLL_SECONDS", 20.0))
    yield Mutant("B9: what is gone is waited for", ("B9",), swapped(looking, "GONE_STATUSES", frozenset()))
    yield Mutant(
        "B9: the newest price is charged", ("B9", "C2"), swapped(BackgroundTurns, "_resolution", _newly_priced)
    )
    yield Mutant("X3: a broken stream is a failed response", ("X3", "B9"), swapped(turn, "BACKGROUND", "nothing"))
    yield Mutant("P9: any success by id is one", ("P9", "H2"), swapped(SSEUpstream, "_no_object", lambda *_: None))
    yield Mutant("H2: an id's own slash is the path's", ("H2",), swapped(by_id, "ENCODED_SLASH", b"%2f%2f"))
    yield Mutant("B9: with its first body a turn ends", ("B9", "H1"), swapped(background, "UNENDED", ()))
    for status in background.ENDINGS:
        flip = swapped(background, "ENDINGS", {k: v for k, v in background.ENDINGS.items() if k != status})
        yield Mutant(f"B9: {status} is no end", ("B9",), flip)


_true_resolution: Final = BackgroundTurns._resolution


def _newly_priced(looking_after: BackgroundTurns, kept: BackgroundTurn, ended: Ended) -> Resolution:
    return _true_resolution(looking_after, replace(kept, price=None), ended)
