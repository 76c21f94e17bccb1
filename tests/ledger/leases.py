"""The part of the ledger's contract that keepers and sweepers of leases ask (B7)."""

from __future__ import annotations

import pytest

from gateway.core.accounts import SpendLimit
from gateway.core.ledger import Expire, Renew, Reserve
from gateway.core.money import Resolution, Result
from ledger.adapter import LedgerAdapter
from ledger.books import Account, Line, assert_double_entry

LEASE_SECONDS = 60.0
RESERVE = Reserve("turn", "main", 60, (SpendLimit("day", 100),), LEASE_SECONDS)


class LeasesContract(LedgerAdapter):
    """What stands in the books after a lease has ended."""

    @pytest.mark.parametrize(
        ("seconds", "result"), [(0, Result.LEASE_RUNS), (59.9, Result.LEASE_RUNS), (60, Result.EXPIRED)]
    )
    async def test_a_reservation_expires_when_its_lease_has_ended(self, seconds: float, result: Result) -> None:
        """B7."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(seconds)

            assert await self.carry_out(ledger, Expire("turn")) is result
            open_now = 60 if result is Result.LEASE_RUNS else 0
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, open_now)

    async def test_a_renewed_lease_runs_from_its_renewal(self) -> None:
        """B7."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(40)
            assert await self.carry_out(ledger, Renew("turn", LEASE_SECONDS)) is Result.RENEWED

            self.pass_time(59)
            assert await self.carry_out(ledger, Expire("turn")) is Result.LEASE_RUNS
            self.pass_time(1)
            assert await self.carry_out(ledger, Expire("turn")) is Result.EXPIRED

    async def test_a_renewal_never_shortens_a_lease(self) -> None:
        """B7: a clock that was set back takes nothing from a turn that lives."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(-1000)
            assert await self.carry_out(ledger, Renew("turn", LEASE_SECONDS)) is Result.RENEWED

            self.pass_time(1059)
            assert await self.carry_out(ledger, Expire("turn")) is Result.LEASE_RUNS

    async def test_an_expired_reservation_gives_everything_back(self) -> None:
        """B7: balance, books and spend window, once."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(LEASE_SECONDS)
            await self.carry_out(ledger, Expire("turn"))

            assert await self.carry_out(ledger, Expire("turn")) is Result.ALREADY_EXPIRED
            books = await self.books_of(ledger)
            assert books.entries[-1] == Line("expired", "main", "turn", 60)
            assert await ledger.reserve("next", "main", 100, [SpendLimit("day", 100)]) is Result.CREATED
            assert_double_entry(await self.books_of(ledger))

    async def test_a_settlement_after_its_lease_is_the_house_s_once(self) -> None:
        """B7: the client keeps its refund."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(LEASE_SECONDS)
            await self.carry_out(ledger, Expire("turn"))

            assert await ledger.resolve("turn", Resolution(25)) is Result.BORNE_BY_HOUSE
            assert await ledger.resolve("turn", Resolution(25)) is Result.ALREADY_EXPIRED
            books = await self.books_of(ledger)
            assert books.entries[-1] == Line("late", books.house, "turn", 25)
            assert books.accounts["main"] == Account(100, 0)
            assert_double_entry(books)

    async def test_a_refund_after_its_lease_changes_nothing(self) -> None:
        """B7."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            self.pass_time(LEASE_SECONDS)
            await self.carry_out(ledger, Expire("turn"))
            before = await self.books_of(ledger)

            assert await ledger.resolve("turn", Resolution(None)) is Result.ALREADY_EXPIRED
            assert await self.books_of(ledger) == before

    @pytest.mark.parametrize(
        ("resolution", "word"), [(Resolution(5), Result.ALREADY_SETTLED), (Resolution(None), Result.ALREADY_VOIDED)]
    )
    async def test_what_is_resolved_has_no_lease(self, resolution: Resolution, word: Result) -> None:
        """B7: it neither ends nor is renewed."""
        async with self.opened({"main": 100}) as ledger:
            await self.carry_out(ledger, RESERVE)
            await ledger.resolve("turn", resolution)
            self.pass_time(LEASE_SECONDS)

            assert await self.carry_out(ledger, Expire("turn")) is word
            assert await self.carry_out(ledger, Renew("turn", LEASE_SECONDS)) is Result.NOT_FOUND

    async def test_what_never_was_has_no_lease(self) -> None:
        """B7."""
        async with self.opened({"main": 100}) as ledger:
            assert await self.carry_out(ledger, Expire("turn")) is Result.NOT_FOUND
            assert await self.carry_out(ledger, Renew("turn", LEASE_SECONDS)) is Result.NOT_FOUND
