"""Stores that take their time or fail, and are complete otherwise: what a ledger on a disk may do to a turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import trio

from gateway.core.accounts import SpendLimit
from gateway.core.background import BackgroundTurn
from gateway.core.money import Resolution, Result
from gateway.ledger.memory import MemoryLedger
from gateway.pending import Pending, Underway
from gateway.ports import AttemptClosing, LedgerUnavailable, Origin, TurnClosing, TurnOpening
from gateway.records.memory import MemoryRecords

P = ParamSpec("P")
T = TypeVar("T")


def underway(call: Callable[P, Awaitable[T]]) -> Callable[P, Pending[T]]:
    """A store's call that is carried out by whoever waits for it."""

    @wraps(call)
    def begun(*arguments: P.args, **options: P.kwargs) -> Pending[T]:
        return Underway(partial(call, *arguments, **options))

    return begun


class SlowRecords(MemoryRecords):
    """Records whose calls take time: `seconds` by the call's name. What is written is there at once, and the caller
    learns of it later, as with a disk."""

    def __init__(self, **seconds: float | list[float]) -> None:
        super().__init__()
        self._seconds = {name: list(value) if isinstance(value, list) else value for name, value in seconds.items()}

    @underway
    async def open_turn(self, opening: TurnOpening, first: str | None = None) -> None:
        """Takes its time."""
        await super().open_turn(opening)
        await self._take_time("open_turn")

    @underway
    async def open_attempt(self, turn_id: str, attempt: int, route: str) -> None:
        """Takes its time."""
        await super().open_attempt(turn_id, attempt, route)
        await self._take_time("open_attempt")

    @underway
    async def close_attempt(self, closing: AttemptClosing) -> None:
        """Takes its time."""
        await super().close_attempt(closing)
        await self._take_time("close_attempt")

    @underway
    async def close_turn(self, closing: TurnClosing) -> None:
        """Takes its time."""
        await super().close_turn(closing)
        await self._take_time("close_turn")

    async def _take_time(self, call: str) -> None:
        seconds = self._seconds.get(call, 0.0)
        await trio.sleep(seconds.pop(0) if isinstance(seconds, list) else seconds)


class FailingRecords(MemoryRecords):
    """Records one of whose calls raises, once: the `fails_at`-th of that name."""

    def __init__(self, call: str, error: Exception, fails_at: int = 1) -> None:
        super().__init__()
        self._call = call
        self._error = error
        self._calls_left = fails_at

    @underway
    async def open_turn(self, opening: TurnOpening, first: str | None = None) -> None:
        """May raise."""
        self._may_fail("open_turn")
        await super().open_turn(opening)

    @underway
    async def open_attempt(self, turn_id: str, attempt: int, route: str) -> None:
        """May raise."""
        self._may_fail("open_attempt")
        await super().open_attempt(turn_id, attempt, route)

    @underway
    async def close_attempt(self, closing: AttemptClosing) -> None:
        """May raise."""
        self._may_fail("close_attempt")
        await super().close_attempt(closing)

    @underway
    async def close_turn(self, closing: TurnClosing) -> None:
        """May raise."""
        self._may_fail("close_turn")
        await super().close_turn(closing)

    def _may_fail(self, call: str) -> None:
        if call != self._call:
            return
        self._calls_left -= 1
        if self._calls_left == 0:
            raise self._error


class ForgetfulRecords(MemoryRecords):
    """Records that note a turn's beginning, or an attempt's, and then cannot be reached."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call

    @underway
    async def open_turn(self, opening: TurnOpening, first: str | None = None) -> None:
        """May raise LedgerUnavailable."""
        await super().open_turn(opening)
        if self._call == "open_turn":
            raise LedgerUnavailable

    @underway
    async def open_attempt(self, turn_id: str, attempt: int, route: str) -> None:
        """May raise LedgerUnavailable."""
        await super().open_attempt(turn_id, attempt, route)
        if self._call == "open_attempt":
            raise LedgerUnavailable


class LedgerAway(MemoryLedger):
    """A ledger that cannot be reached for reservations."""

    @underway
    async def reserve(self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()) -> Result:
        """Raises LedgerUnavailable."""
        raise LedgerUnavailable


class BrokenLedger(MemoryLedger):
    """A ledger with a bug: its first reservation raises."""

    has_failed = False

    @underway
    async def reserve(self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()) -> Result:
        """The first time raises what nobody expects."""
        if not self.has_failed:
            self.has_failed = True
            raise ValueError("a bug of the ledger")
        return await super().reserve(turn_id, account, nanodollars, limits)


class FlakyLedger(MemoryLedger):
    """A ledger whose first resolution raises and is not written."""

    has_failed = False

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """The first time raises."""
        if not self.has_failed:
            self.has_failed = True
            raise LedgerUnavailable
        return await super().resolve(turn_id, resolution)


class LedgerGone(MemoryLedger):
    """A ledger that cannot be reached any more once there are reservations."""

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Raises LedgerUnavailable."""
        raise LedgerUnavailable


class ForgetfulLedger(MemoryLedger):
    """A ledger whose first resolution raises after it was written, as when a connection is lost at the commit."""

    has_failed = False

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Resolves; the first time nobody learns of it."""
        result = await super().resolve(turn_id, resolution)
        if not self.has_failed:
            self.has_failed = True
            raise LedgerUnavailable
        return result


class HangingLedger(MemoryLedger):
    """A ledger that notes a reservation and never says so."""

    @underway
    async def reserve(self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()) -> Result:
        """Hangs."""
        await super().reserve(turn_id, account, nanodollars, limits)
        await trio.sleep_forever()


class SlowLedger(MemoryLedger):
    """A ledger whose calls take three seconds each."""

    SECONDS = 3.0

    @underway
    async def reserve(self, turn_id: str, account: str, nanodollars: int, limits: Sequence[SpendLimit] = ()) -> Result:
        """Takes its time."""
        return await self._slowly(super().reserve(turn_id, account, nanodollars, limits))

    @underway
    async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
        """Takes its time."""
        return await self._slowly(super().resolve(turn_id, resolution))

    async def _slowly(self, call: Any) -> Result:
        result: Result = await call
        await trio.sleep(self.SECONDS)
        return result


class Reluctant:
    """What stores of one kind share: each call fails the first time that it is made. `tries` are all, and when."""

    def __init__(self) -> None:
        self.tries: list[tuple[float, str]] = []

    async def may_fail(self, call: str) -> None:
        """Raises the first time."""
        await trio.lowlevel.checkpoint()
        is_first = all(name != call for _, name in self.tries)
        self.tries.append((trio.current_time(), call))
        if is_first:
            raise ZeroDivisionError("a bug of ours")


class ReluctantRecords(MemoryRecords):
    """Whatever ends, or goes on, is noted the second time only."""

    def __init__(self, reluctant: Reluctant) -> None:
        super().__init__()
        self._reluctant = reluctant

    @underway
    async def close_attempt(self, closing: AttemptClosing) -> None:
        """The second time."""
        await self._reluctant.may_fail(f"close_attempt {closing.attempt}")
        await super().close_attempt(closing)

    @underway
    async def close_turn(self, closing: TurnClosing) -> None:
        """The second time."""
        await self._reluctant.may_fail("close_turn")
        await super().close_turn(closing)

    @underway
    async def keep_background(self, turn: BackgroundTurn) -> None:
        """The second time."""
        await self._reluctant.may_fail("keep_background")
        await super().keep_background(turn)

    @underway
    async def learn_origin(self, origin: Origin) -> None:
        """The second time."""
        await self._reluctant.may_fail("learn_origin")
        await super().learn_origin(origin)


def reluctant_ledger(reluctant: Reluctant) -> type[MemoryLedger]:
    """A ledger of the same kind."""

    class ReluctantLedger(MemoryLedger):
        @underway
        async def resolve(self, turn_id: str, resolution: Resolution) -> Result:
            await reluctant.may_fail("resolve")
            return await super().resolve(turn_id, resolution)

        @underway
        async def book_house(self, turn_id: str, attempt: int, nanodollars: int) -> Result:
            await reluctant.may_fail("book_house")
            return await super().book_house(turn_id, attempt, nanodollars)

    return ReluctantLedger
