"""How many values a JSON text holds, counted before it is parsed: each stands behind a comma, a bracket or a brace.

A parser that makes objects of it would have spent the time and the memory before anybody could count. A text that is no
JSON is counted as well, and by too few only behind the place where a parser stops.
"""

from __future__ import annotations

from typing import Final

STEP_BYTES: Final = 262_144
"""How much is looked at in one go: a millisecond, after which another thread may have the interpreter."""
BEFORE_A_VALUE: Final = (b",", b"[", b"{")


def holds_more_values(text: bytes, most: int) -> bool:
    """Whether there are more than so many, in linear time."""
    if len(text) < most or _marks(text) < most:
        return False
    return _has_marks_outside_strings(text, most)


def _marks(text: bytes) -> int:
    return sum(map(text.count, BEFORE_A_VALUE))


def _has_marks_outside_strings(text: bytes, most: int) -> bool:
    found = position = 0
    is_inside = False
    while position < len(text) and found < most:
        piece = _piece(text, position)
        position += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        found += _marks(b" ".join(parts[is_inside::2]))
        is_inside ^= len(parts) % 2 == 0
    return found >= most


def _piece(text: bytes, position: int) -> bytes:
    """The next bytes, no escape cut in two."""
    piece = text[position : position + STEP_BYTES]
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    return piece if backslashes % 2 == 0 else text[position : position + STEP_BYTES + 1]
