"""What a lookup costs, and for how long its answer is believed (B6, W4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import trio

from gateway.core.keys import Key
from gateway.keys.cache import KEPT_KEYS_MAX, LOOKUP_DIGESTS_MAX, KeyCache
from gateway.keys.memory import MemoryKeys
from gateway.ports import LedgerUnavailable
from support.virtual import in_every_order

CI = Key("ci", "main")


class SlowBook(MemoryKeys):
    """Keys whose readings take time, and may fail; `readings` are what each was asked for."""

    def __init__(self, keys: Mapping[str, Key] | None = None, seconds: float = 0.0) -> None:
        super().__init__(keys)
        self.seconds = seconds
        self.is_away = False
        self.readings: list[Sequence[str]] = []

    async def find(self, digests: Sequence[str]) -> Mapping[str, Key]:
        """After a while, what was there when it was asked."""
        self.readings.append(digests)
        is_away, found = self.is_away, await super().find(digests)
        await trio.sleep(self.seconds)
        if is_away:
            raise LedgerUnavailable("away")
        return found


@in_every_order
async def test_what_was_found_is_believed_for_a_second() -> None:
    """W4: a key that was revoked works no longer than that, one that was made works after that."""
    book = SlowBook({"one": CI})
    cache = KeyCache(book)
    assert [await cache.find("one"), await cache.find("two")] == [CI, None]
    book.keys = {"two": CI}
    await trio.sleep(0.999)
    assert [await cache.find("one"), await cache.find("two")] == [CI, None]
    await trio.sleep(0.001)
    for _ in range(3):
        assert [await cache.find("one"), await cache.find("two")] == [None, CI]
    assert book.readings == [["one"], ["two"], ["one"], ["two"]]


@in_every_order
async def test_lookups_of_one_key_are_one_reading() -> None:
    """B6: a busy key's requests come in crowds."""
    book, found = SlowBook({"one": CI}, seconds=0.5), list[Key | None]()
    cache = KeyCache(book)

    async def find() -> None:
        found.append(await cache.find("one"))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(find)

    assert (found, len(book.readings), trio.current_time()) == ([CI] * 100, 1, 0.5)


@in_every_order
async def test_a_flood_of_wrong_keys_delays_a_right_one_by_two_readings_at_most() -> None:
    """B6: what gathers while one reading runs is read by the next."""
    book = SlowBook({"right": CI}, seconds=0.5)
    cache = KeyCache(book)

    async with trio.open_nursery() as nursery:
        for number in range(LOOKUP_DIGESTS_MAX // 2):
            nursery.start_soon(cache.find, f"wrong-{number}")
        await trio.sleep(0.1)
        assert await cache.find("right") == CI
        assert trio.current_time() == 1.0

    assert len(book.readings) == 2
    assert max(map(len, book.readings)) <= LOOKUP_DIGESTS_MAX


@in_every_order
async def test_no_reading_is_longer_than_its_bound() -> None:
    """B6: a flood larger than one reading takes more of them."""
    book = SlowBook(seconds=0.1)
    cache = KeyCache(book)
    async with trio.open_nursery() as nursery:
        for number in range(2 * LOOKUP_DIGESTS_MAX):
            nursery.start_soon(cache.find, f"wrong-{number}")

    assert max(map(len, book.readings)) <= LOOKUP_DIGESTS_MAX
    assert sorted(digest for reading in book.readings for digest in reading) == sorted(
        f"wrong-{number}" for number in range(2 * LOOKUP_DIGESTS_MAX)
    )


@in_every_order
async def test_one_who_leaves_takes_no_answer_from_the_others() -> None:
    """H7: the lookup of a client that left is nobody else's failure."""
    book = SlowBook({"one": CI}, seconds=0.5)
    cache = KeyCache(book)

    async def leave_early() -> None:
        with trio.move_on_after(0.1):
            await cache.find("one")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_early)
        await trio.sleep(0.05)
        assert await cache.find("one") == CI


@in_every_order
async def test_a_store_that_is_away_is_asked_once_a_second() -> None:
    """B6, X: everybody else is told at once; what is remembered still works for its second."""
    book = SlowBook({"one": CI, "two": CI})
    cache = KeyCache(book)
    assert await cache.find("one") == CI
    book.is_away, book.seconds = True, 0.25
    refused = list[float]()

    async def find() -> None:
        with pytest.raises(LedgerUnavailable):
            await cache.find("two")
        refused.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(find)
    assert (len(book.readings), set(refused)) == (2, {0.25})
    assert await cache.find("one") == CI

    book.is_away = False
    await trio.sleep(1.0)
    assert await cache.find("two") == CI


@in_every_order
async def test_a_store_that_hangs_keeps_nobody_for_longer_than_a_reservation_would() -> None:
    """X: `ledger_unavailable` after five seconds."""
    cache = KeyCache(SlowBook(seconds=3600.0))
    with pytest.raises(LedgerUnavailable):
        await cache.find("one")
    assert trio.current_time() == 5.0


@in_every_order
async def test_what_is_remembered_is_bounded_and_wrong_keys_push_out_no_right_one() -> None:
    """B6: whatever strangers send, memory and the known keys stay."""
    book = SlowBook({"one": CI})
    cache = KeyCache(book)
    await cache.find("one")
    async with trio.open_nursery() as nursery:
        for number in range(KEPT_KEYS_MAX + 500):
            nursery.start_soon(cache.find, f"wrong-{number}")
    readings = len(book.readings)
    assert await cache.find("one") == CI
    assert len(book.readings) == readings
    assert repr(cache) == f"<KeyCache, 1 known, {KEPT_KEYS_MAX} unknown>"
