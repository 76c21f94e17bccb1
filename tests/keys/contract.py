"""What every book of keys promises (ports.KeyBook): a subclass in the adapter's own test opens it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from gateway.core.keys import Key, KeyLimits
from gateway.ports import KeyBook

FULL = Key("ci", "main", True, 1.9e9, KeyLimits(frozenset({"large", "small"}), 60, 0, 10**18, "Asia/Tokyo"))
PLAIN = Key("laptop", "main")


class Opened(Protocol):
    """A book, and what is done to it beside the gateway."""

    @property
    def book(self) -> KeyBook:
        """As the gateway has it."""
        ...

    async def add(self, key: Key) -> str:
        """A key is made; the digest of its secret."""
        ...

    async def revoke(self, digest: str) -> None:
        """A key is taken back."""
        ...


class KeyBookContract(ABC):
    """The tests."""

    @abstractmethod
    def opened(self) -> AbstractAsyncContextManager[Opened]:
        """An empty book; the account `main` is there."""

    async def test_a_key_is_found_by_its_digest_with_all_that_it_may_do(self) -> None:
        """B6."""
        async with self.opened() as opened:
            digests = [await opened.add(FULL), await opened.add(PLAIN)]
            assert await opened.book.find(digests) == {digests[0]: FULL, digests[1]: PLAIN}
            assert await opened.book.find(digests[1:]) == {digests[1]: PLAIN}

    async def test_what_is_not_there_is_left_out(self) -> None:
        """B6."""
        async with self.opened() as opened:
            digest = await opened.add(PLAIN)
            assert await opened.book.find(["0" * 64, digest, "'; drop table api_key; --"]) == {digest: PLAIN}
            assert await opened.book.find(["0" * 64]) == {}
            assert await opened.book.find([]) == {}

    async def test_a_revoked_key_is_not_there(self) -> None:
        """B6: who shows it is told no more than who shows any wrong key."""
        async with self.opened() as opened:
            kept, taken = await opened.add(FULL), await opened.add(PLAIN)
            await opened.revoke(taken)
            assert await opened.book.find([kept, taken]) == {kept: FULL}
