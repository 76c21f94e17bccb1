"""The part of the ledger's contract that people ask: accounts opened and closed, money moved by hand (B8)."""

from __future__ import annotations

import pytest

from gateway.core.accounts import Kind
from gateway.core.ledger import CloseAccount, OpenAccount, SetUnlimited, Transfer
from gateway.core.money import Resolution, Result
from ledger.adapter import LedgerAdapter
from ledger.books import Account, assert_double_entry


class ByHandContract(LedgerAdapter):
    """What stands in the books after it."""

    async def test_an_account_is_opened_once(self) -> None:
        """B6: as limited or unlimited, and asking for the other is no error but has a name."""
        async with self.opened({}) as ledger:
            assert await self.carry_out(ledger, OpenAccount("main")) is Result.CREATED
            assert await self.carry_out(ledger, OpenAccount("main")) is Result.EXISTS
            assert await self.carry_out(ledger, OpenAccount("main", is_unlimited=True)) is (
                Result.EXISTS_WITH_DIFFERENT_AMOUNT
            )
            assert (await self.books_of(ledger)).accounts == {"main": Account(0, 0)}

    @pytest.mark.parametrize(
        ("kind", "balance"), [(Kind.DEPOSIT, 130), (Kind.CREDIT, 130), (Kind.DEBIT, 70)], ids=lambda value: str(value)
    )
    async def test_money_moved_by_hand_says_whose_hand_it_was(self, kind: Kind, balance: int) -> None:
        """B8: deposits, credits and debits, with reason and actor."""
        async with self.opened({"main": 100}) as ledger:
            moved = Transfer(kind, "main", 30, actor="ada", reason="a reason")
            assert await self.carry_out(ledger, moved) is Result.CREATED

            books = await self.books_of(ledger)
            last = books.entries[-1]
            assert (last.kind, last.nanodollars, last.actor, last.reason) == (kind.value, 30, "ada", "a reason")
            assert books.accounts["main"] == Account(balance, 0)
            assert_double_entry(books)

    @pytest.mark.parametrize(("nanodollars", "result"), [(40, Result.CREATED), (41, Result.INSUFFICIENT_BALANCE)])
    async def test_a_debit_takes_what_is_available(self, nanodollars: int, result: Result) -> None:
        """B6: what running turns have set aside is theirs."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            debit = Transfer(Kind.DEBIT, "main", nanodollars, "ada", "spent elsewhere")

            assert await self.carry_out(ledger, debit) is result
            assert_double_entry(await self.books_of(ledger))

    async def test_a_closed_account_takes_nothing(self) -> None:
        """B6: no turn and no money; its books stay."""
        async with self.opened({"main": 100}) as ledger:
            assert await self.carry_out(ledger, CloseAccount("main")) is Result.CLOSED
            before = await self.books_of(ledger)

            assert await self.carry_out(ledger, CloseAccount("main")) is Result.ACCOUNT_CLOSED
            assert await self.carry_out(ledger, OpenAccount("main")) is Result.ACCOUNT_CLOSED
            assert await self.carry_out(ledger, SetUnlimited("main", is_unlimited=True)) is Result.ACCOUNT_CLOSED
            assert await self.carry_out(ledger, Transfer(Kind.DEPOSIT, "main", 1, "ada")) is Result.ACCOUNT_CLOSED
            assert await ledger.reserve("turn", "main", 1) is Result.ACCOUNT_CLOSED
            assert await self.books_of(ledger) == before

    async def test_turns_that_run_on_an_account_end_after_it_was_closed(self) -> None:
        """B1: a client that always has one running cannot keep its account open."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            assert await self.carry_out(ledger, CloseAccount("main")) is Result.CLOSED
            assert await ledger.reserve("next", "main", 1) is Result.ACCOUNT_CLOSED

            assert await ledger.resolve("turn", Resolution(10)) is Result.SETTLED
            books = await self.books_of(ledger)
            assert books.accounts["main"] == Account(90, 0)
            assert_double_entry(books)

    async def test_an_account_that_is_not_there_is_named(self) -> None:
        """B6."""
        async with self.opened({}) as ledger:
            for asked in (
                CloseAccount("nobody"),
                SetUnlimited("nobody", is_unlimited=True),
                Transfer(Kind.DEPOSIT, "nobody", 1, "ada"),
            ):
                assert await self.carry_out(ledger, asked) is Result.ACCOUNT_NOT_FOUND
            assert (await self.books_of(ledger)).entries == []

    async def test_an_account_becomes_unlimited_and_limited_again(self) -> None:
        """B6: then its balance bounds it again, whatever was spent."""
        async with self.opened({"main": 10}) as ledger:
            assert await self.carry_out(ledger, SetUnlimited("main", is_unlimited=True)) is Result.CREATED
            assert await self.carry_out(ledger, SetUnlimited("main", is_unlimited=True)) is Result.EXISTS
            assert await ledger.reserve("turn", "main", 60) is Result.CREATED
            await ledger.resolve("turn", Resolution(60))

            assert await self.carry_out(ledger, SetUnlimited("main", is_unlimited=False)) is Result.CREATED
            assert await ledger.reserve("next", "main", 1) is Result.INSUFFICIENT_BALANCE
            assert (await self.books_of(ledger)).accounts["main"] == Account(-50, 0)
