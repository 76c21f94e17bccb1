"""What was looked up is known for a second: neither a busy key nor a flood of wrong ones reaches the store each time.

Lookups that come while one runs are gathered, and the next one reads them all: a flood of different wrong keys costs a
reading for hundreds of them, and a right key among them waits for two at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import trio

from gateway.core.keys import Key
from gateway.ports import KeyBook, LedgerUnavailable

KEPT_SECONDS: Final = 1.0
"""A revoked key works for as long and no longer; a client that comes back every second costs a reading a second."""
KEPT_KEYS_MAX: Final = 4096
"""Known keys, and as many unknown ones, which cannot push out the known: some 200 bytes each."""
LOOKUP_DIGESTS_MAX: Final = 256
"""Keys of one reading: beyond it the first of them wait for the last."""
LOOKUP_SECONDS_MAX: Final = 5.0
"""How long a request waits for its key: as long as for its reservation."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found, None if there is no such key, and until when that is believed."""

    key: Key | None
    until: float


@dataclass(slots=True)
class Shelf:
    """Findings by digest, the oldest first; a full one lets go of the oldest."""

    found: dict[str, Found] = field(default_factory=dict)

    def put(self, digest: str, found: Found) -> None:
        """Keep it."""
        self.found.pop(digest, None)
        if len(self.found) >= KEPT_KEYS_MAX:
            del self.found[next(iter(self.found))]
        self.found[digest] = found


class KeyCache:
    """A book of keys that is asked as little as possible."""

    def __init__(self, book: KeyBook) -> None:
        self._book = book
        self._known, self._unknown = Shelf(), Shelf()
        self._wanted: dict[str, None] = {}
        self._reading = trio.Lock()
        self._away_until = -math.inf

    def __repr__(self) -> str:
        return f"<KeyCache, {len(self._known.found)} known, {len(self._unknown.found)} unknown>"

    async def find(self, digest: str) -> Key | None:
        """The key with this digest. Raises LedgerUnavailable."""
        found = self._kept(digest)
        if found is None:
            with trio.move_on_after(LOOKUP_SECONDS_MAX):
                found = await self._looked_up(digest)
        if found is None:
            raise LedgerUnavailable(f"no key was read within {LOOKUP_SECONDS_MAX} s")
        return found.key

    def _kept(self, digest: str) -> Found | None:
        found = self._known.found.get(digest) or self._unknown.found.get(digest)
        return found if found is not None and trio.current_time() < found.until else None

    async def _looked_up(self, digest: str) -> Found:
        self._wanted[digest] = None
        async with self._reading:
            return self._kept(digest) or await self._read(digest)

    async def _read(self, digest: str) -> Found:
        """Read it, and whatever else is wanted by now. What could not be read is not tried again by each who waits."""
        if trio.current_time() < self._away_until:
            raise LedgerUnavailable("the keys could not be read a moment ago")
        digests = [digest, *(wanted for wanted in self._wanted if wanted != digest)][:LOOKUP_DIGESTS_MAX]
        for wanted in digests:
            self._wanted.pop(wanted, None)
        try:
            keys = await self._book.find(digests)
        except LedgerUnavailable:
            self._away_until = trio.current_time() + KEPT_SECONDS
            raise
        until = trio.current_time() + KEPT_SECONDS
        for wanted in digests:
            self._put(wanted, Found(keys.get(wanted), until))
        return Found(keys.get(digest), until)

    def _put(self, digest: str, found: Found) -> None:
        """On the one shelf or the other: a key may be revoked, and what was unknown may be created."""
        other, own = (self._known, self._unknown) if found.key is None else (self._unknown, self._known)
        other.found.pop(digest, None)
        own.put(digest, found)
