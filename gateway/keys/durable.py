"""Keys that last: looked up in the store (ports.KeyBook)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.core.keys import Key
from gateway.keys.rows import FIND, digest_in, stored_key
from gateway.store.database import Session
from gateway.store.store import Store


class DurableKeys:
    """The keys in a database that are not revoked."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<DurableKeys in {self._store!r}>"

    async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
        """Those of them that are known (ports.KeyBook)."""

        def look_up(session: Session) -> Mapping[str, Key]:
            found = session.fetch_each(FIND, [{"digest": digest} for digest in digests])
            return {digest_in(row): stored_key(row).key for rows in found for row in rows}

        return await self._store.read(look_up)
