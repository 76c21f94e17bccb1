"""What every ledger promises (ports.Ledger, B): a subclass in the adapter's own test file opens it, and all of it runs.

The adapter says how an empty ledger is opened with balances and how its books are read back; nothing else of it is
known here. What only people and sweepers ask is in by_hand.py and leases.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.accounts import SpendLimit
from gateway.core.money import Flag, Resolution, Result
from ledger.books import (
    BALANCES,
    OPERATIONS,
    Account,
    Line,
    Model,
    Operation,
    account_in,
    assert_balanced,
    at_once,
)
from ledger.by_hand import ByHandContract
from ledger.leases import LeasesContract

OVERDRAWN = (Flag.OVERDRAWN,)
VOID = Resolution(None)


class LedgerContract(ByHandContract, LeasesContract):
    """Inherit as `Test...` and say how the adapter is opened and read (LedgerAdapter)."""

    # --- one reservation (B1) -----------------------------------------------------------------------------------

    async def test_a_reservation_is_set_aside_and_its_settlement_is_charged(self) -> None:
        """B1."""
        async with self.opened({"main": 100}) as ledger:
            assert await ledger.reserve("turn", "main", 60) is Result.CREATED
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 60)

            assert await ledger.resolve("turn", Resolution(25)) is Result.SETTLED
            assert (await self.books_of(ledger)).accounts["main"] == Account(75, 0)

    async def test_a_voided_reservation_costs_nothing(self) -> None:
        """B1."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)

            assert await ledger.resolve("turn", VOID) is Result.VOIDED
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 0)

    async def test_a_settlement_of_nothing_is_a_settlement(self) -> None:
        """B5: zero tokens that were metered are not the same as no usage."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)

            assert await ledger.resolve("turn", Resolution(0)) is Result.SETTLED
            assert await ledger.resolve("turn", VOID) is Result.ALREADY_SETTLED

    async def test_the_flags_of_a_resolution_are_kept_with_its_entry(self) -> None:
        """B3: an estimate says that it is one."""
        async with self.opened({"main": 100}) as ledger:
            for turn_id, resolution in (
                ("settled", Resolution(5, (Flag.ESTIMATED,))),
                ("voided", Resolution(None, (Flag.UNMETERED,))),
            ):
                await ledger.reserve(turn_id, "main", 10)
                await ledger.resolve(turn_id, resolution)

            entries = (await self.books_of(ledger)).entries
            assert {line.kind: line.flags for line in entries if line.kind in ("settled", "voided")} == {
                "settled": (Flag.ESTIMATED,),
                "voided": (Flag.UNMETERED,),
            }

    # --- asked twice (B1: idempotent on the turn id) --------------------------------------------------------------

    async def test_a_reservation_asked_twice_is_made_once(self) -> None:
        """B1."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)

            assert await ledger.reserve("turn", "main", 60) is Result.EXISTS
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 60)

    @pytest.mark.parametrize(("account", "nanodollars"), [("main", 61), ("main", 59), ("other", 60)])
    async def test_a_reservation_asked_twice_for_something_else_is_refused_by_name(
        self, account: str, nanodollars: int
    ) -> None:
        """B1: asking twice is no error, disagreeing is."""
        async with self.opened({"main": 100, "other": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)

            assert await ledger.reserve("turn", account, nanodollars) is Result.EXISTS_WITH_DIFFERENT_AMOUNT
            books = await self.books_of(ledger)
            assert books.accounts == {"main": Account(100, 60), "other": Account(100, 0)}

    @pytest.mark.parametrize("second", [Resolution(7), Resolution(9), VOID])
    async def test_a_settlement_is_final(self, second: Resolution) -> None:
        """B1: exactly once."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            await ledger.resolve("turn", Resolution(7))

            assert await ledger.resolve("turn", second) is Result.ALREADY_SETTLED
            assert (await self.books_of(ledger)).accounts["main"] == Account(93, 0)

    @pytest.mark.parametrize("second", [Resolution(7), VOID])
    async def test_a_refund_is_final(self, second: Resolution) -> None:
        """B1: exactly once."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            await ledger.resolve("turn", VOID)

            assert await ledger.resolve("turn", second) is Result.ALREADY_VOIDED
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 0)

    async def test_a_turn_that_reserved_nothing_cannot_be_resolved(self) -> None:
        """B1."""
        async with self.opened({"main": 100}) as ledger:
            assert await ledger.resolve("turn", Resolution(7)) is Result.NOT_FOUND
            assert await ledger.resolve("turn", VOID) is Result.NOT_FOUND
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 0)

    async def test_a_reservation_of_an_ended_turn_is_not_made_again(self) -> None:
        """B1: the turn id says it all, even after the end."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            await ledger.resolve("turn", Resolution(7))

            assert await ledger.reserve("turn", "main", 60) is Result.EXISTS
            assert (await self.books_of(ledger)).accounts["main"] == Account(93, 0)

    async def test_of_many_resolutions_at_once_one_counts(self) -> None:
        """B1, B7."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            results = await at_once(ledger, [Operation("resolve", "turn", nanodollars=n) for n in (1, 2, 3, 4)])

            assert sorted(result.value for result in results) == ["already_settled"] * 3 + ["settled"]
            charges = [line.nanodollars for line in (await self.books_of(ledger)).entries if line.kind == "settled"]
            assert (await self.books_of(ledger)).accounts["main"] == Account(100 - charges[0], 0)

    # --- balances (B6) --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("nanodollars", "result"), [(39, Result.CREATED), (40, Result.CREATED), (41, Result.INSUFFICIENT_BALANCE)]
    )
    async def test_open_reservations_never_exceed_the_balance(self, nanodollars: int, result: Result) -> None:
        """B6."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("first", "main", 60)

            assert await ledger.reserve("second", "main", nanodollars) is result

    async def test_a_refused_reservation_leaves_no_trace(self) -> None:
        """B6: the same turn may ask again when money is there, and cannot be resolved before."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("first", "main", 100)
            before = await self.books_of(ledger)

            assert await ledger.reserve("second", "main", 1) is Result.INSUFFICIENT_BALANCE
            assert await ledger.resolve("second", Resolution(1)) is Result.NOT_FOUND
            assert await self.books_of(ledger) == before

            await ledger.resolve("first", VOID)
            assert await ledger.reserve("second", "main", 1) is Result.CREATED

    async def test_reservations_at_once_share_one_balance(self) -> None:
        """B6: no two of them see the same money."""
        async with self.opened({"main": 100}) as ledger:
            asked = [Operation("reserve", f"turn-{number}", "main", 30) for number in range(12)]
            results = await at_once(ledger, asked)

            assert results.count(Result.CREATED) == 3
            assert results.count(Result.INSUFFICIENT_BALANCE) == 9
            assert (await self.books_of(ledger)).accounts["main"] == Account(100, 90)

    async def test_an_unlimited_account_is_never_refused_and_its_spending_is_counted(self) -> None:
        """B6: `balance = "unlimited"`."""
        async with self.opened({"main": None}) as ledger:
            assert await ledger.reserve("turn", "main", 10**18) is Result.CREATED
            await ledger.resolve("turn", Resolution(10**17))

            books = await self.books_of(ledger)
            assert books.accounts["main"] == Account(-(10**17), 0)
            assert books.entries[-1] == Line("settled", "main", "turn", 10**17)

    @pytest.mark.parametrize(
        ("charge", "flags", "balance"),
        [
            (60, (), 40),
            (100, (), 0),
            (101, OVERDRAWN, -1),
            (250, OVERDRAWN, -150),
        ],
    )
    async def test_a_settlement_above_its_reservation_may_overdraw_and_says_so(
        self, charge: int, flags: tuple[Flag, ...], balance: int
    ) -> None:
        """B6."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)

            word = Result.SETTLED_OVERDRAWN if flags == OVERDRAWN else Result.SETTLED
            assert await ledger.resolve("turn", Resolution(charge)) is word
            books = await self.books_of(ledger)
            assert books.entries[-1] == Line("settled", "main", "turn", charge, flags)
            assert books.accounts["main"] == Account(balance, 0)

    async def test_a_settlement_that_eats_what_others_reserved_is_overdrawn(self) -> None:
        """B6: the balance less what is open goes below zero, by the excess only."""
        async with self.opened({"main": 100}) as ledger:
            await ledger.reserve("turn", "main", 60)
            await ledger.reserve("other", "main", 40)

            await ledger.resolve("turn", Resolution(61))
            books = await self.books_of(ledger)
            assert books.entries[-1].flags == (Flag.OVERDRAWN,)
            assert books.accounts["main"] == Account(39, 40)
            assert await ledger.reserve("third", "main", 1) is Result.INSUFFICIENT_BALANCE

    async def test_an_unlimited_account_is_never_overdrawn(self) -> None:
        """B6."""
        async with self.opened({"main": None}) as ledger:
            await ledger.reserve("turn", "main", 1)
            await ledger.resolve("turn", Resolution(5))

            assert (await self.books_of(ledger)).entries[-1].flags == ()

    async def test_a_turn_on_an_account_that_does_not_exist_sets_nothing_aside(self) -> None:
        """B6."""
        async with self.opened({"main": 100}) as ledger:
            before = await self.books_of(ledger)

            assert await ledger.reserve("turn", "nobody", 1) is Result.ACCOUNT_NOT_FOUND
            assert await ledger.resolve("turn", Resolution(1)) is Result.NOT_FOUND
            assert await self.books_of(ledger) == before

    # --- what a key may spend (B6) --------------------------------------------------------------------------------

    async def test_what_is_open_and_what_is_spent_count_against_a_limit(self) -> None:
        """B6: a limit is kept whatever the order in which turns end."""
        day = SpendLimit("key:2026-11-30", 100)
        async with self.opened({"main": 1000}) as ledger:
            assert await ledger.reserve("first", "main", 60, [day]) is Result.CREATED
            assert await ledger.reserve("second", "main", 41, [day]) is Result.SPEND_LIMIT_REACHED
            assert await ledger.reserve("third", "main", 40, [day]) is Result.CREATED

            await ledger.resolve("first", Resolution(10))
            await ledger.resolve("third", VOID)
            assert await ledger.reserve("fourth", "main", 91, [day]) is Result.SPEND_LIMIT_REACHED
            assert await ledger.reserve("fifth", "main", 90, [day]) is Result.CREATED

    async def test_a_turn_that_a_limit_refused_leaves_no_trace(self) -> None:
        """B6: in no window of several, and not on the account."""
        day, month = SpendLimit("day", 100), SpendLimit("month", 50)
        async with self.opened({"main": 1000}) as ledger:
            before = await self.books_of(ledger)

            assert await ledger.reserve("turn", "main", 60, [day, month]) is Result.SPEND_LIMIT_REACHED
            assert await self.books_of(ledger) == before
            assert await ledger.reserve("turn", "main", 100, [day]) is Result.CREATED

    async def test_windows_do_not_know_each_other(self) -> None:
        """B6: a new day begins empty."""
        async with self.opened({"main": 1000}) as ledger:
            for window in ("monday", "tuesday"):
                assert await ledger.reserve(window, "main", 80, [SpendLimit(window, 100)]) is Result.CREATED
                assert await ledger.reserve(f"{window} 2", "main", 80, [SpendLimit(window, 100)]) is (
                    Result.SPEND_LIMIT_REACHED
                )

    async def test_turns_at_once_share_one_limit(self) -> None:
        """B6: no two of them see the same rest."""
        async with self.opened({"main": None}) as ledger:
            results: list[Result] = []

            async def reserve(turn_id: str) -> None:
                results.append(await ledger.reserve(turn_id, "main", 30, [SpendLimit("day", 100)]))

            async with trio.open_nursery() as nursery:
                for number in range(12):
                    nursery.start_soon(reserve, f"turn-{number}")

            assert results.count(Result.CREATED) == 3
            assert results.count(Result.SPEND_LIMIT_REACHED) == 9

    # --- the house (B2) -------------------------------------------------------------------------------------------

    async def test_the_house_bears_an_attempt_once(self) -> None:
        """B2."""
        async with self.opened({"main": 100}) as ledger:
            assert await ledger.book_house("turn", 1, 7) is Result.CREATED
            assert await ledger.book_house("turn", 1, 7) is Result.EXISTS
            assert await ledger.book_house("turn", 2, 5) is Result.CREATED

            books = await self.books_of(ledger)
            booked = [line for line in books.entries if line.account == books.house]
            assert booked == [Line("house", books.house, "turn", 7), Line("house", books.house, "turn", 5)]
            assert books.accounts["main"] == Account(100, 0)

    async def test_no_client_can_have_the_house_s_account(self) -> None:
        """B8: else its books would not balance. Account names have no spaces (config.tables.Name)."""
        async with self.opened({}) as ledger:
            assert " " in (await self.books_of(ledger)).house

    # --- the books (B8) -------------------------------------------------------------------------------------------

    async def test_what_was_there_at_the_start_is_a_deposit(self) -> None:
        """B8."""
        async with self.opened({"main": 100, "empty": 0, "rich": None}) as ledger:
            assert list((await self.books_of(ledger)).entries) == [Line("deposit", "main", None, 100)]

    @given(operations=st.lists(OPERATIONS, max_size=30))
    async def test_the_books_balance_whatever_happens(self, operations: list[Operation]) -> None:
        """B8: deposits − settled − open = balance; B6: open reservations never exceed the balance but for what
        settlements took above theirs; each answer is the one the rules give; entries are only ever added."""
        model = Model()
        async with self.opened(BALANCES) as ledger:
            before: Sequence[Line] = (await self.books_of(ledger)).entries
            for operation in operations:
                assert await operation.run(ledger) is model.apply(operation)
                books = await self.books_of(ledger)
                assert list(books.entries[: len(before)]) == list(before)
                assert_balanced(books, model)
                before = list(books.entries)

    @given(operations=st.lists(OPERATIONS, max_size=12))
    async def test_the_books_balance_when_all_happens_at_once(self, operations: list[Operation]) -> None:
        """B8, whatever order the calls are served in."""
        async with self.opened(BALANCES) as ledger:
            results = await at_once(ledger, operations)
            books = await self.books_of(ledger)

            for name in BALANCES:
                assert books.accounts[name] == account_in(books, name)
            assert books.accounts["poor"].open_reservations == 0
            assert len([line for line in books.entries if line.kind == "reserve"]) == sum(
                result is Result.CREATED and asked.name == "reserve"
                for asked, result in zip(operations, results, strict=True)
            )
