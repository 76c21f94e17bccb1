"""What an output leaves with its client that only its origin can resolve: ids, sealed content, its state.

They are kept as digests (O3): all of one length, none of them readable, and none that a database's alphabet lacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

ITEM: Final = "item"
SEALED: Final = "sealed"
CONVERSATION: Final = "conversation"
TURN_STATE: Final = "turn_state"

REQUEST_MARKS_MAX: Final = 32
"""Of a request's items the newest that say where they were made: the newest alone decides, if it is known."""


def mark(kind: str, value: str) -> str:
    """The digest by which something is known again."""
    return hashlib.sha256(f"{kind}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()


def marks_of_item(item: object, *, is_stored: bool) -> Iterator[str]:
    """What an item is known by: what it has sealed and, if its upstream stores it, its id."""
    if not isinstance(item, dict):
        return
    sealed, name = item.get("encrypted_content"), item.get("id")
    if isinstance(sealed, str) and sealed:
        yield mark(SEALED, sealed)
    if is_stored and isinstance(name, str) and name:
        yield mark(ITEM, name)


def marks_of_input(items: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a request's items are known by, the newest first."""
    found = (each for item in reversed(items) for each in marks_of_item(item, is_stored=True))
    return tuple(dict.fromkeys(islice(found, REQUEST_MARKS_MAX)))


def conversation_id(held: object) -> str | None:
    """The id of a `conversation` member: a text, or an object with one."""
    name = held.get("id") if type(held) is dict else held
    return name if type(name) is str and name else None
