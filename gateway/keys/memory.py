"""Keys in memory: for tests, and for a store that forgets (ports.KeyBook)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from gateway.core.keys import Key


class MemoryKeys:
    """Keys by the digest of their secrets; they may be changed at any time."""

    def __init__(self, keys: Mapping[str, Key] | None = None) -> None:
        self.keys = dict(keys or {})

    def __repr__(self) -> str:
        return f"<MemoryKeys {', '.join(sorted(key.name for key in self.keys.values()))}>"

    async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
        """Those of them that are known (ports.KeyBook)."""
        await trio.lowlevel.checkpoint()
        return {digest: self.keys[digest] for digest in digests if digest in self.keys}
