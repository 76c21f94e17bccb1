"""What an event is (E): each type in another class, each place of a code, a status, a flag or a usage passed over, and
how a failure of two events is told (E6)."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from gateway.core import attempt, delivery, events
from gateway.core.delivery import Delivery
from gateway.core.events import (
    CODE_CHARACTERS_MAX,
    EVENT_CLASSES,
    FIRST_MEMBER_IS_TYPE,
    PARSED_TYPES,
    Event,
    EventClass,
    classify,
    read_event,
)
from gateway.core.failures import failure_from_events
from gateway.downstream.errors import websocket_event
from gateway.lock.mutants.flips import Flip, Mutant, both, everywhere, swapped, without

WRONG_CLASSES: Final = {
    EventClass.LIFECYCLE: (EventClass.OUTPUT, EventClass.NEUTRAL, EventClass.TERMINAL),
    EventClass.NEUTRAL: (EventClass.OUTPUT, EventClass.LIFECYCLE),
    EventClass.TERMINAL: (EventClass.OUTPUT, EventClass.NEUTRAL),
    EventClass.ERROR: (EventClass.OUTPUT, EventClass.NEUTRAL),
}
RULE_OF_CLASS: Final = {
    EventClass.LIFECYCLE: "E1",
    EventClass.NEUTRAL: "E2",
    EventClass.OUTPUT: "E3",
    EventClass.TERMINAL: "E4",
    EventClass.ERROR: "E5",
}


CODES_EXCHANGED: Final = (
    (("error", "code"), ("error", "type")),
    (("error", "type"), ("code",)),
    (("code",), ("response", "error", "code")),
    (("response", "error", "code"), ("response", "error", "type")),
    (("response", "error", "code"), ("status",)),
)
"""Places of E8 that can both hold a code."""


class _EveryType:
    """All types are read with care, none by its first member alone."""

    def __contains__(self, _name: object) -> bool:
        return True


def mutants() -> Iterator[Mutant]:
    """All of them."""
    yield from _named_types()
    yield from _other_types()
    yield from _places()
    yield from _orders()
    yield from _two_steps()


def _named_types() -> Iterator[Mutant]:
    for name, true in EVENT_CLASSES.items():
        for wrong in WRONG_CLASSES[true]:
            table = {**EVENT_CLASSES, name: wrong}
            flip = everywhere(EVENT_CLASSES, table)
            yield Mutant(f"{RULE_OF_CLASS[true]}: {name} is {wrong.value}", (RULE_OF_CLASS[true],), flip, words=(name,))


def _other_types() -> Iterator[Mutant]:
    def unknown_is_neutral(name: str) -> EventClass:
        kind = classify(name)
        return EventClass.NEUTRAL if kind is EventClass.OUTPUT and name not in _WELL_KNOWN else kind

    def foreign_is_output(name: str) -> EventClass:
        return EVENT_CLASSES.get(name, EventClass.OUTPUT)

    def foreign_is_lifecycle(name: str) -> EventClass:
        kind = classify(name)
        return EventClass.LIFECYCLE if kind is EventClass.NEUTRAL and name not in EVENT_CLASSES else kind

    with_care = everywhere(PARSED_TYPES, _EveryType())
    yield Mutant(
        "E3: an unknown type is neutral", ("E3",), both(with_care, swapped(events, "classify", unknown_is_neutral))
    )
    yield Mutant("E2: a foreign type is output", ("E2",), swapped(events, "classify", foreign_is_output))
    yield Mutant("E7: output that is cut is output", ("E7",), everywhere(read_event, _by_its_beginning))
    yield Mutant("E2: a foreign type is lifecycle", ("E2",), swapped(events, "classify", foreign_is_lifecycle))


def _by_its_beginning(data: bytes, block: bytes) -> Event | None:
    known = FIRST_MEMBER_IS_TYPE.match(data)
    if known is None or known[1] in PARSED_TYPES:
        return read_event(data, block)
    return Event(EventClass.OUTPUT, known[1].decode(), data, block, None)


_WELL_KNOWN: Final = frozenset({"response.output_text.delta"})


def _places() -> Iterator[Mutant]:
    """E8: where things stand in an event."""
    for table, rules in (
        ("CODE_PATHS", ("E8",)),
        ("STATUS_PATHS", ("E8", "F6")),
        ("RETRYABLE_PATHS", ("F6",)),
        ("USAGE_PATHS", ("R4", "B3")),
    ):
        paths: tuple[tuple[str, ...], ...] = getattr(events, table)
        for path in paths:
            flip = swapped(events, table, without(paths, path))
            yield Mutant(f"{rules[0]}: {table.lower()} without {'.'.join(path)}", rules, flip)
    for by in (1, -1):
        flip = swapped(events, "CODE_CHARACTERS_MAX", CODE_CHARACTERS_MAX + by)
        word = "longer" if by > 0 else "shorter"
        yield Mutant(f"E8: a code is a character {word}", ("E8",), flip, words=("x" * CODE_CHARACTERS_MAX,))
    yield Mutant(
        "E8: control characters are a code",
        ("E8",),
        swapped(events, "_is_name", lambda text, characters_max: len(text) <= characters_max),
        words=("\\ncode",),
    )


def _orders() -> Iterator[Mutant]:
    """E8: a place is asked before the one in front of it."""
    for first, second in CODES_EXCHANGED:
        order = {first: second, second: first}
        paths = tuple(order.get(path, path) for path in events.CODE_PATHS)
        name = f"E8: {'.'.join(second)} is asked before {'.'.join(first)}"
        yield Mutant(name, ("E8",), swapped(events, "CODE_PATHS", paths))


def _two_steps() -> Iterator[Mutant]:
    """E6, E9, E10."""
    yield Mutant("E6: no response.failed joins its error", ("E6",), _failing(last_only=False))
    yield Mutant("E6: the error's words decide, not the failed's", ("E6",), _failing(last_only=True))
    yield Mutant(
        "E6: deterministic in one of the two decides nothing", ("E6", "R8"), everywhere(failure_from_events, _unweighed)
    )
    yield Mutant("E6: a WebSocket gets both", ("E6", "X4"), swapped(Delivery, "last_words", _all_words))
    yield Mutant("E6: HTTP waits after output, too", ("E6",), swapped(Delivery, "tells_at_once", property(_never)))
    yield Mutant("E6: a WebSocket does not wait", ("E6",), swapped(Delivery, "tells_at_once", property(_once_begun)))
    yield Mutant(
        "E10: error frames are not completed", ("E10", "X4"), everywhere(websocket_event, lambda event: event.data)
    )
    yield Mutant("E10: no text is text", ("E10",), swapped(delivery, "is_utf8", lambda _data: True))
    yield Mutant("R4: a result is never observed", ("R4",), _blind(attempt, "has_output_items"))
    yield Mutant("X3: the next number is the last one", ("X3",), swapped(Delivery, "_next_number", _last_number))


def _failing(*, last_only: bool) -> Flip:
    def told(found: tuple[Event, ...], codes: frozenset[str]) -> Any:
        true = failure_from_events(found, codes)
        kept = found[:1]
        judged = failure_from_events(kept, codes)
        return (
            judged
            if not last_only
            else type(true)(judged.kind, judged.code, judged.status, judged.message, true.events)
        )

    return everywhere(failure_from_events, told)


def _unweighed(found: tuple[Event, ...], codes: frozenset[str]) -> Any:
    """The last event alone says whose fault it is."""
    true = failure_from_events(found, codes)
    last = failure_from_events(found[-1:], codes)
    return type(true)(last.kind, true.code, true.status, true.message, true.events)


def _all_words(_delivery: Delivery, telling: Any, told: int) -> Any:
    return telling[told:]


def _never(_delivery: Delivery) -> bool:
    return False


def _once_begun(shown: Delivery) -> bool:
    return shown.has_begun


_true_number = Delivery._next_number


def _last_number(shown: Delivery) -> int | None:
    number = _true_number(shown)
    return None if number is None else number - 1


def _blind(module: ModuleType, name: str) -> Flip:
    return swapped(module, name, lambda *_arguments: False)
