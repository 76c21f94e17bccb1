"""Who is asking: bearer keys (W1, W4, B6). A key is compared by its digest, so that no comparison takes longer for a
better guess."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from gateway.config import Key
from gateway.core.failures import Refusal

SCHEME = "bearer"


class Keys:
    """The keys that may come in."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._by_digest = {_digest(key.secret): key for key in keys}

    def __repr__(self) -> str:
        return f"<Keys {', '.join(sorted(key.name for key in self._by_digest.values()))}>"

    def admit(self, authorization: str | None) -> Key:
        """The key an `authorization` header shows. Raises Refusal `invalid_api_key`."""
        scheme, _, secret = (authorization or "").strip().partition(" ")
        if not secret.strip() or scheme.lower() != SCHEME:
            raise Refusal("invalid_api_key", "send your key as 'Authorization: Bearer KEY'")
        key = self._by_digest.get(_digest(secret.strip()))
        if key is None:
            raise Refusal("invalid_api_key", "the key is not known here")
        return key


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
