"""The writer: one task through which everything is written, many operations in one transaction (group commit).

    ask       must be answered now: a reservation, an opening. While the store is away it fails at once.
    insist    must not be lost: a resolution, a closing. It is kept until it is durable, however long that takes;
              giving up the wait does not withdraw it.

While the store is away, what must not be lost is also spooled on the local disk, so that no end of the process loses
it; it is tried again every `RETRY_SECONDS`. All operations are idempotent: what was written and not known to be is
written again and changes nothing.

A store whose write hangs (`WRITE_BATCH_SECONDS_MAX`) is away as well. No second write begins before the first has
returned, for they share a connection; its answers count for those who still wait for one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog
import trio

from gateway.core.money import Result
from gateway.limits import WRITE_BATCH_SECONDS_MAX
from gateway.pending import Pending, Underway
from gateway.store.commit import Answer, Work
from gateway.store.database import Conflict, StoreAway, StoreUnusable
from gateway.store.spool import written_line

logger = structlog.get_logger("gateway.store")

BATCH_OPERATIONS_MAX: Final = 256
"""Measured: beyond it a transaction only gets longer; the first of a batch waits for the last."""
WAITING_OPERATIONS_MAX: Final = 8192
"""Operations that wait for the writer; one more is refused like one that finds the store away. What must not be lost is
not counted against it: running turns bound it."""
RETRY_SECONDS: Final = 1.0
"""How often a store that is away is tried again: far below the interval at which leases are renewed."""
CLOSE_SECONDS_MAX: Final = 2.0
"""How long the end of the process waits for the last batch; what it could not write stays in the spool."""
SPOOL_AT_THE_END_SECONDS: Final = 0.5
"""After that what still waits is spooled, before the rest of the wait: whoever kills a process that does not end soon
takes nothing with it."""

NO_ANSWER: Final = f"it has not answered a write for {WRITE_BATCH_SECONDS_MAX:g} s"

OWN_THREADS_MAX: Final = 2
"""A batch and, while it hangs, the spool."""

T = TypeVar("T")
RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]
Commit = Callable[[Sequence[Work]], list[Answer]]
Answered = Result | None
"""An answer that is no exception."""


class Spool(Protocol):
    """Where what must not be lost lasts while the store is away. Calls block."""

    def add(self, works: Sequence[Work]) -> None:
        """On the disk when it returns. Raises OSError."""
        ...

    def clear(self) -> None:
        """All of it is in the store. Raises OSError."""
        ...


class OwnThreads:
    """Runs blocking calls beside the event loop, in threads that nothing else can take: a name server that hangs holds
    a thread for each of its callers, and must not hold the money. With `abandons`, a cancellation does not wait for the
    call: only the end of the process cancels the writer, and does not wait for a database that hangs. Without it the
    call is seen to its end: a connection serves one call at a time."""

    def __init__(self, *, abandons: bool = False) -> None:
        self._abandons = abandons
        self._limiter = trio.CapacityLimiter(OWN_THREADS_MAX)

    async def __call__(self, blocking: Callable[[], T]) -> T:
        """What the call returns."""
        return await trio.to_thread.run_sync(blocking, abandon_on_cancel=self._abandons, limiter=self._limiter)


@dataclass(slots=True, eq=False)
class Waiting:
    """An operation on its way (Pending)."""

    work: Work
    is_insisted: bool
    is_spooled: bool = False
    has_clashed: bool = False
    answer: Answer = None
    is_answered: trio.Event = field(default_factory=trio.Event)

    def resolve(self, answer: Answer) -> None:
        """The answer is there."""
        self.answer = answer
        self.is_answered.set()

    # --- for whoever waits (Pending) ----------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether the answer is there."""
        return self.is_answered.is_set()

    def result(self) -> Answered:
        """The store's word. Raises what the operation ran into."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __await__(self) -> Generator[Any, Any, Answered]:
        yield from self.is_answered.wait().__await__()
        return self.result()


class Writer:
    """Writes to one database, through `commit`, which blocks. `run` must be running."""

    def __init__(
        self,
        commit: Commit,
        spool: Spool,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None,
    ) -> None:
        self._commit = commit
        self._spool = spool
        self._run_blocking = run_blocking or OwnThreads(abandons=True)
        self._queue: deque[Waiting] = deque()
        self._asked = 0
        self._wake = trio.Event()
        self._away: str | None = None
        self._has_spooled = False
        self._spooling = trio.Lock()
        """What is written to the spool and what decides that it can go never overlap."""
        self._is_writing = False
        self._hangs_at = math.inf
        """When the batch that is under way hangs."""
        self._watch = trio.CancelScope()
        self._is_closing = False
        self._is_closed = False
        self.on_answer: Callable[[Work, Answer], None] | None = None
        """Is told every answer of the store, also those that nobody waits for any more."""

    def __repr__(self) -> str:
        return f"<Writer, {len(self._queue)} wait" + (f", away: {self._away}>" if self._away else ">")

    @property
    def is_away(self) -> bool:
        """Whether the last attempt to write found the store away."""
        return self._away is not None

    @property
    def is_writing(self) -> bool:
        """Whether a batch is under way, in a thread that has the database."""
        return self._is_writing

    @property
    def waiting(self) -> int:
        """Operations that are not durable yet."""
        return len(self._queue)

    def ask(self, work: Work) -> Pending[Answered]:
        """Write now. Raises StoreAway, here or where it is waited for."""
        if self._is_closed:
            raise StoreAway("the gateway is ending: nothing is written any more", was_tried=False)
        if self._away is not None:
            raise StoreAway(self._away, was_tried=False)
        if self._asked >= WAITING_OPERATIONS_MAX:
            raise StoreAway(f"{self._asked} operations wait for the store", was_tried=False)
        waiting = Waiting(work, is_insisted=False)
        self._enqueue(waiting)
        return waiting

    def insist(self, work: Work) -> Pending[Answered]:
        """Write, whatever happens. What comes after the end is spooled, and not answered."""
        waiting = Waiting(work, is_insisted=True)
        self._enqueue(waiting)
        return Underway(partial(self._spool_late, waiting)) if self._is_closed else waiting

    def insist_later(self, work: Work) -> None:
        """Write, whatever happens; nobody waits for it."""
        self._enqueue(Waiting(work, is_insisted=True))

    def _enqueue(self, waiting: Waiting) -> None:
        self._queue.append(waiting)
        self._asked += not waiting.is_insisted
        self._wake.set()

    async def _spool_late(self, waiting: Waiting) -> Answered:
        await self._spool_at_the_end([waiting])
        return await waiting

    # --- the task -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until `aclose`. A cancellation ends it too, between two batches."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_the_writes)
            await self._write_all()
            nursery.cancel_scope.cancel()

    async def _write_all(self) -> None:
        while not (self._is_closing and not self._queue):
            if self._away is not None or self._all_clash:
                await self._pause()
            elif not self._queue:
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            await self._write_batch()
            if self._is_closing and (self._away is not None or self._all_clash):
                return

    async def aclose(self) -> None:
        """Write what waits; what cannot be written in time is in the spool when this returns."""
        self._is_closing = True
        self._wake.set()
        began = trio.current_time()
        await self._wait_for_all(began + SPOOL_AT_THE_END_SECONDS)
        with trio.CancelScope(shield=True):
            await self._spool_insisted(list(self._queue))
        if self._away is None:
            await self._wait_for_all(began + CLOSE_SECONDS_MAX)
        self._is_closed = True
        with trio.CancelScope(shield=True):
            await self._spool_at_the_end(list(self._queue))
            async with self._spooling:
                if self._has_spooled and not self._queue:
                    await self._clear_spool()

    async def _wait_for_all(self, deadline: float) -> None:
        with trio.CancelScope(shield=True, deadline=deadline):
            for waiting in list(self._queue):
                await waiting.is_answered.wait()

    @property
    def _all_clash(self) -> bool:
        """Whether nothing waits but what another writer was in the way of."""
        return bool(self._queue) and all(waiting.has_clashed for waiting in self._queue)

    async def _pause(self) -> None:
        """Between two attempts at a store that is away, or at what clashes."""
        with trio.move_on_after(RETRY_SECONDS):
            while not self._is_closing:
                self._wake = trio.Event()
                await self._wake.wait()

    async def _write_batch(self) -> None:
        batch = [self._queue[position] for position in range(min(len(self._queue), BATCH_OPERATIONS_MAX))]
        try:
            answers = await self._run_commit([waiting.work for waiting in batch])
        except (StoreAway, StoreUnusable) as error:
            await self._store_is_away(str(error))
        except Exception as error:
            logger.exception("store_failed")
            await self._store_is_away(repr(error))
        else:
            for waiting, answer in zip(batch, answers, strict=True):
                self._settle(waiting, answer)
            await self._store_is_there()

    async def _run_commit(self, works: Sequence[Work]) -> list[Answer]:
        """One that is abandoned in its thread goes on there: the database stays its own."""
        self._is_writing = True
        self._hangs_at = trio.current_time() + (WRITE_BATCH_SECONDS_MAX if self._away is None else RETRY_SECONDS)
        if self._hangs_at < self._watch.deadline:
            self._watch.deadline = self._hangs_at
        outcome: list[Answer] | Exception
        try:
            outcome = await self._run_blocking(partial(self._commit, works))
        except Exception as error:  # raised below, once it is known that nothing is on its way
            outcome = error
        self._hangs_at = math.inf
        if self._away is not None:
            await self._spooling.acquire()  # what is on its way to the spool gets there
            self._spooling.release()
        self._is_writing = False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _watch_the_writes(self) -> None:
        """One that hangs is a store that is away; what comes while it hangs is spooled like what it holds. A batch that
        does not hang costs no wake-up: the watch looks when the first that it knows of would."""
        while True:
            with trio.CancelScope(deadline=self._hangs_at) as self._watch:
                await trio.sleep_forever()
            hangs_at = self._hangs_at
            if hangs_at <= trio.current_time():
                await self._store_is_away(self._away or NO_ANSWER)
                if self._hangs_at == hangs_at:
                    self._hangs_at = trio.current_time() + RETRY_SECONDS

    def _settle(self, waiting: Waiting, answer: Answer) -> None:
        """The answer of a write that hung may find whoever asked refused already."""
        if not waiting.is_answered.is_set():
            del self._queue[0]
            self._asked -= not waiting.is_insisted
        if isinstance(answer, Conflict) and waiting.is_insisted:
            self._keep(waiting, answer)
            return
        if isinstance(answer, Exception):
            logger.error("operation_failed", operation=repr(waiting.work), exc_info=answer)
        if self.on_answer is not None:
            self.on_answer(waiting.work, answer)
        if not waiting.is_answered.is_set():
            waiting.resolve(answer)

    def _keep(self, waiting: Waiting, clash: Conflict) -> None:
        """What another writer was in the way of is not at fault itself: it is written later, and holds nobody up."""
        if not waiting.has_clashed:
            logger.warning("operation_clashed", operation=repr(waiting.work), why=str(clash))
        waiting.has_clashed = True
        self._queue.append(waiting)

    async def _store_is_away(self, why: str) -> None:
        """Refuse what was asked, keep what is insisted on, on the disk too."""
        if self._away is None:
            logger.error("store_away", why=why)
        self._away = why
        asked = [waiting for waiting in self._queue if not waiting.is_insisted]
        self._queue = deque(waiting for waiting in self._queue if waiting.is_insisted)
        self._asked = 0
        for waiting in asked:
            waiting.resolve(StoreAway(why))
        await self._spool_insisted(list(self._queue))

    async def _store_is_there(self) -> None:
        if self._away is not None:
            logger.warning("store_back", waiting=len(self._queue))
            self._away = None
        if self._has_spooled:
            async with self._spooling:
                await self._clear_spool()

    async def _clear_spool(self) -> None:
        """What stays in it is written again at the next start, and changes nothing."""
        if any(waiting.is_spooled for waiting in self._queue):
            return
        self._has_spooled = False
        try:
            await self._run_blocking(self._spool.clear)
        except OSError as error:
            logger.warning("spool_not_cleared", why=str(error))

    async def _spool_insisted(self, queue: Sequence[Waiting]) -> None:
        async with self._spooling:
            await self._spool_fresh(queue)

    async def _spool_at_the_end(self, queue: Sequence[Waiting]) -> None:
        """What not even the spool takes is said while somebody can: the log is all that is left of it."""
        await self._spool_insisted(queue)
        for waiting in queue:
            if waiting.is_insisted and not waiting.is_spooled and not waiting.is_answered.is_set():
                logger.critical("operation_lost", line=written_line(waiting.work))

    async def _spool_fresh(self, queue: Sequence[Waiting]) -> None:
        """Halves of what does not fit as a whole: a disk that is nearly full takes what it can."""
        fresh = [waiting for waiting in queue if waiting.is_insisted and not waiting.is_spooled]
        count = len(fresh)
        while fresh:
            part = fresh[:count]
            try:
                await self._run_blocking(partial(self._spool.add, [waiting.work for waiting in part]))
            except OSError as error:
                if len(part) == 1:
                    logger.critical("spool_failed", why=str(error), operations=len(fresh))
                    return
                count = len(part) // 2
                continue
            self._has_spooled = True
            for waiting in part:
                waiting.is_spooled = True
            fresh = fresh[count:]
