"""Request heads, vetted on their bytes before they are parsed: what parsers disagree about is refused (RFC 9112).

A bare LF, a folded header and a NUL are read differently by different parsers, and so are ways to smuggle a request
past a proxy. The head is looked at once, as it comes, in linear time. Its size is counted here as well: h11 only bounds
what is still incomplete, so that with reads of 64 KiB a head of 128 KiB may pass.
"""

from __future__ import annotations

import re
from typing import Final

HEAD_END: Final = b"\r\n\r\n"
AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]|\x00")
"""A bare LF, a bare CR, a folded line, a NUL."""
LOOK_BACK: Final = 4
"""How many bytes before a chunk can be a part of what the chunk completes, and one more to look back at."""
BAD_REQUEST: Final = 400
HEADER_SECTION_TOO_LARGE: Final = 431


class HeadGuard:
    """One connection's heads. `vet` is given what comes while a head is expected."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._tail = b""
        self.has_begun = False
        """Whether a part of a head has come and its end has not."""

    def vet(self, data: bytes) -> int | None:
        """The status that refuses these bytes, or None. Behind a head's end the guard is ready for the next one."""
        window = self._tail + data
        end = window.find(HEAD_END)
        head = window if end < 0 else window[: end + len(HEAD_END)]
        size = self._bytes + len(head) - len(self._tail)
        is_ambiguous = AMBIGUOUS.search(head, 1 if len(self._tail) == LOOK_BACK else 0) is not None
        self.has_begun = end < 0 and size > 0
        self._bytes = size if self.has_begun else 0
        self._tail = head[-LOOK_BACK:] if self.has_begun else b""
        if size > self._bytes_max:
            return HEADER_SECTION_TOO_LARGE
        return BAD_REQUEST if is_ambiguous else None
