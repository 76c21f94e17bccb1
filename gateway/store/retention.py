"""Retention: records, origins and what else has had its time are taken away, a little at a time. Entries stay for ever.

    turns and their attempts    `record_days` after they began, once they are over; the routes of what the house has
                                lost by them stay with its entries
    reservations                `record_days` after they were made, once they are resolved and nothing that counts them
                                or looks for them (a spend window, an open record) is left
    spend windows               once nothing can be spent in them any more
    origins, marks of them      `origin_days` after they were learned

Each chunk is a transaction of its own, with a pause after it: the writer never waits for long. Several gateways may do
it at once: what one has locked the others pass over. What is taken away is not missed by the proof (proof.py).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
import trio

from gateway.store.commit import transact
from gateway.store.database import Conflict, Database, Session, StoreAway, StoreUnusable
from gateway.store.writer import OwnThreads

logger = structlog.get_logger("gateway.store")

CHUNK_ROWS: Final = 200
"""What one transaction takes away: some milliseconds of the database's time (tests/bench has the figure)."""
PAUSE_SECONDS: Final = 0.05
"""Between two chunks: the writer comes first."""
EVERY_SECONDS: Final = 3600.0
START_SECONDS: Final = 60.0
JITTER: Final = 0.1
"""Processes that started together drift apart."""
DAY_SECONDS: Final = 86_400.0
WINDOW_DAYS: Final = 70
"""A spend window is a month at most: one that has not changed for two of them is over, in every time zone."""
WINDOWED_DAYS: Final = WINDOW_DAYS + 40
"""After these a reservation's windows are gone, unless something kept them: no use in looking earlier."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How long what is kept, in days."""

    record_days: float
    origin_days: float

    def cutoffs(self, now: float) -> Mapping[str, float]:
        """The times before which things have had theirs."""
        return {
            "records": now - self.record_days * DAY_SECONDS,
            "origins": now - self.origin_days * DAY_SECONDS,
            "windows": now - WINDOW_DAYS * DAY_SECONDS,
            "windowed": now - max(self.record_days, WINDOWED_DAYS) * DAY_SECONDS,
        }


@dataclass(frozen=True, slots=True)
class Purge:
    """Rows of one kind: where they are, by what they are named, when they go (`:before` is the cutoff of that name),
    and what else goes with them."""

    name: str
    table: str
    key: tuple[str, ...]
    cutoff: str
    age: str
    where: str
    also: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    """What is written down of a row before it goes."""

    @property
    def condition(self) -> str:
        """Which rows go."""
        return f"{self.age} < :before and {self.where}"

    @property
    def find(self) -> str:
        """The oldest of them."""
        return (
            f"select {', '.join(self.key)} from {self.table} where {self.condition}"
            f" order by {self.age} limit :limit for update skip locked"
        )

    @property
    def deletes(self) -> Sequence[str]:
        """What takes a row away."""
        where = " and ".join(f"{column} = :{column}" for column in self.key)
        return [f"delete from {table} where {where}" for table in (*self.also, self.table)]


NOTHING_OPEN: Final = """
 not exists (select 1 from attempt where attempt.turn_id = {0}.turn_id and attempt.outcome is null)
"""
RESOLVED: Final = f"""
state <> 'reserved' and {NOTHING_OPEN.format("reservation")}
 and not exists (select 1 from turn where turn.turn_id = reservation.turn_id and turn.outcome is null)
"""

KEEP_ROUTES_OF_LOSSES: Final = """
insert into loss_route (turn_id, number, route)
select turn_id, number, route from attempt where attempt.turn_id = :turn_id
 and exists (select 1 from entry where entry.turn_id = :turn_id and kind in ('house', 'late'))
on conflict (turn_id, number) do nothing
"""

PURGES: Final = (
    Purge(
        "turns",
        "turn",
        ("turn_id",),
        "records",
        "opened_at",
        f"outcome is not null and {NOTHING_OPEN.format('turn')}",
        also=("attempt", "background"),
        keeps=(KEEP_ROUTES_OF_LOSSES,),
    ),
    Purge("origins", "origin", ("account", "response_id"), "origins", "learned_at", "1 = 1"),
    Purge("marks", "origin_mark", ("account", "mark"), "origins", "learned_at", "1 = 1"),
    Purge(
        "windows",
        "spend",
        ("name",),
        "windows",
        "changed_at",
        "not exists (select 1 from reservation where state = 'reserved' and windows <> '' and reserved_at < :before)",
    ),
    Purge("reservations", "reservation", ("turn_id",), "records", "reserved_at", f"windows = '' and {RESOLVED}"),
)
WINDOWED: Final = Purge(
    "reservations in windows", "reservation", ("turn_id",), "windowed", "reserved_at", f"windows <> '' and {RESOLVED}"
)
"""These go if none of their windows is left."""
WINDOWED_PAGE: Final = f"""
select turn_id, reserved_at, windows from reservation where {WINDOWED.condition}
 and (reserved_at > :at or (reserved_at = :at and turn_id > :turn_id))
order by reserved_at, turn_id limit :limit for update skip locked
"""
WINDOW: Final = "select name from spend where name = :name"

Place = tuple[float, str]
"""How far a walk through reservations has come: made when, of which turn."""
START: Final[Place] = (0.0, "")


def purge(database: Database, keep: Keep) -> Iterator[tuple[str, int]]:
    """Take away what has had its time: after each transaction what it took, and how much. Blocks."""
    for kind in PURGES:
        taken = CHUNK_ROWS
        while taken == CHUNK_ROWS:
            taken = transact(database, partial(_purge_chunk, kind, keep))
            yield kind.name, taken
    place: Place | None = START
    while place is not None:
        place, taken = transact(database, partial(_purge_windowed, keep, place))
        yield WINDOWED.name, taken


def due(session: Session, keep: Keep) -> Mapping[str, int]:
    """How much `purge` would take away now; of reservations in windows at most so much."""
    cutoffs = keep.cutoffs(session.now())
    counts: dict[str, int] = {}
    for kind in (*PURGES, WINDOWED):
        statement = f"select count(*) from {kind.table} where {kind.condition}"
        ((counts[kind.name],),) = session.fetch(statement, {"before": cutoffs[kind.cutoff]})
    return counts


def _purge_chunk(kind: Purge, keep: Keep, session: Session) -> int:
    before = keep.cutoffs(session.now())[kind.cutoff]
    rows = session.fetch(kind.find, {"before": before, "limit": CHUNK_ROWS})
    _delete(session, kind, rows)
    return len(rows)


def _purge_windowed(keep: Keep, place: Place, session: Session) -> tuple[Place | None, int]:
    """A chunk that starts behind `place`: where the next one starts, None if there is none, and how many went."""
    before = keep.cutoffs(session.now())[WINDOWED.cutoff]
    at, turn_id = place
    asked = {"before": before, "at": at, "turn_id": turn_id, "limit": CHUNK_ROWS}
    rows = session.fetch(WINDOWED_PAGE, asked)
    named = sorted({name for *_, windows in rows for name in windows.split()})
    found = {row[0] for each in session.fetch_each(WINDOW, [{"name": name} for name in named]) for row in each}
    gone = [(turn,) for turn, _, windows in rows if found.isdisjoint(windows.split())]
    _delete(session, WINDOWED, gone)
    return ((rows[-1][1], rows[-1][0]) if len(rows) == CHUNK_ROWS else None), len(gone)


def _delete(session: Session, kind: Purge, rows: Sequence[tuple[Any, ...]]) -> None:
    many = [dict(zip(kind.key, row, strict=True)) for row in rows]
    for statement in (*kind.keeps, *kind.deletes):
        session.run_each(statement, many)


# --- beside the leases ------------------------------------------------------------------------------------------


class Retention:
    """Purges for ever, on a connection of its own. `jitter` draws a number between 0 and 1."""

    def __init__(
        self,
        database: Database,
        keep: Keep,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._database = database.another()
        self._keep = keep
        self._run_blocking = run_blocking or OwnThreads(abandons=True)
        self._jitter = jitter
        self._is_purging = False

    def __repr__(self) -> str:
        return f"<Retention of {self._database!r}, {self._keep}>"

    async def run(self) -> None:
        """Soon after the start, then every hour."""
        try:
            await trio.sleep(START_SECONDS * self._jitter())
            while True:
                await self.purge_once()
                await trio.sleep(EVERY_SECONDS * (1 + JITTER * self._jitter()))
        finally:
            if not self._is_purging:  # a chunk that was abandoned in its thread has it still
                self._database.close()

    async def purge_once(self) -> None:
        """All that is due. A store that is away is asked again in an hour; so is one in which this fails."""
        taken: dict[str, int] = {}
        chunks = purge(self._database, self._keep)
        try:
            while (chunk := await self._next(chunks)) is not None:
                taken[chunk[0]] = taken.get(chunk[0], 0) + chunk[1]
                await trio.sleep(PAUSE_SECONDS)
        except (StoreAway, StoreUnusable, Conflict) as error:
            logger.warning("purge_put_off", why=str(error))
        except Exception:
            logger.exception("purge_failed")
        if any(taken.values()):
            logger.info("purged", **{name.replace(" ", "_"): count for name, count in taken.items() if count})

    async def _next(self, chunks: Iterator[tuple[str, int]]) -> tuple[str, int] | None:
        """The end of the process does not wait for a database that hangs."""
        self._is_purging = True
        try:
            chunk: tuple[str, int] | None = await self._run_blocking(partial(next, chunks, None))
        except trio.Cancelled:
            raise
        except BaseException:
            self._is_purging = False
            raise
        self._is_purging = False
        return chunk
