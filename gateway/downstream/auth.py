"""Who is asking, and what their key lets them do: bearer keys (W1, W4, B6).

    the configuration's keys, by digest ---+--> Key --> expired? too often? not this model? what it may spend
    the store's, through a cache ----------+

A key is found by its digest, so that no comparison takes longer for a better guess. The configuration's own keys need
no store; one that only the store can know is refused with `ledger_unavailable` while it is away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

import trio

from gateway.config import StaticKey
from gateway.core.accounts import SpendLimit
from gateway.core.failures import Refusal
from gateway.core.keys import Key
from gateway.keys.cache import KeyCache
from gateway.keys.rates import RequestRates
from gateway.keys.secrets import digest_of, is_secret
from gateway.keys.windows import spend_limits
from gateway.ports import KeyBook, LedgerUnavailable

SCHEME = "bearer"


class Keys:
    """The keys that may come in. `wall_clock` tells seconds since the epoch; of a limit per minute this process takes
    its share of `workers`."""

    def __init__(
        self,
        static: Iterable[StaticKey],
        book: KeyBook | None = None,
        *,
        workers: int = 1,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._static = {digest_of(known.secret): known.key for known in static}
        self._stored = None if book is None else KeyCache(book)
        self._rates = RequestRates(workers)
        self._wall_clock = wall_clock

    def __repr__(self) -> str:
        return f"<Keys {', '.join(sorted(key.name for key in self._static.values()))}, {self._stored}>"

    async def admit(self, authorization: str | None) -> Key:
        """The key an `authorization` header shows. Raises Refusal `invalid_api_key`, `expired_api_key` or
        `ledger_unavailable`."""
        scheme, _, secret = (authorization or "").strip().partition(" ")
        secret = secret.strip()
        if not secret or scheme.lower() != SCHEME:
            raise Refusal("invalid_api_key", "send your key as 'Authorization: Bearer KEY'")
        key = await self._find(secret)
        if key is None:
            raise Refusal("invalid_api_key", "the key is not known here")
        key.require_unexpired(self._wall_clock())
        return key

    async def _find(self, secret: str) -> Key | None:
        """Nothing that was not made here is looked up: a flood of anything else costs a hash each."""
        digest = digest_of(secret)
        key = self._static.get(digest)
        if key is not None or self._stored is None or not is_secret(secret):
            return key
        try:
            return await self._stored.find(digest)
        except LedgerUnavailable:
            raise Refusal("ledger_unavailable", "the key cannot be looked up while the ledger is away") from None

    def count_request(self, key: Key) -> None:
        """A request for a turn. Raises Refusal `rate_limit_exceeded`, and then does not count it."""
        seconds = self._rates.take(key, trio.current_time())
        if seconds > 0:
            most = f"the key {key.name} may make {key.limits.requests_per_minute} requests per minute"
            raise Refusal("rate_limit_exceeded", most, retry_after_seconds=math.ceil(seconds))

    def spend_limits(self, key: Key) -> tuple[SpendLimit, ...]:
        """What the key may spend today and this month, by its own calendar (B6)."""
        return spend_limits(key, self._wall_clock())
