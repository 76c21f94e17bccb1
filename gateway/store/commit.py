"""A batch of operations as one transaction: the money first, then the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from gateway.core.ledger import Operation
from gateway.core.money import Result
from gateway.store.database import Conflict, Database, Params, Session, StoreAway, StoreUnusable
from gateway.store.money import carry_out
from gateway.store.records import STATEMENTS, RecordWrite, storable

Work = Operation | RecordWrite
Answer = Result | None | Exception
"""A ledger operation's word; None for a record; the exception that this one alone ran into."""

CONFLICTS_MAX: Final = 5
"""After so many in a row a batch is taken apart: what clashes is in it twice, or is a bug."""

ORDER: Final = {name: number for number, name in enumerate(STATEMENTS)}
"""In which a batch runs the statements of its records."""

T = TypeVar("T")


def commit(database: Database, batch: Sequence[Work]) -> list[Answer]:
    """Make the batch durable. One that cannot be made as a whole is made in halves, so that an operation that fails
    fails alone. Raises StoreAway or StoreUnusable: then nothing is known of any of it, and all may be asked again."""
    try:
        return transact(database, partial(_carry_out_all, batch))
    except (StoreAway, StoreUnusable):
        raise
    except Exception as error:
        if len(batch) == 1:
            return [error]
    half = len(batch) // 2
    return [*commit(database, batch[:half]), *commit(database, batch[half:])]


def transact(database: Database, what: Callable[[Session], T]) -> T:
    """Do it in one transaction, and again if another writer was in the way. Raises Conflict if one always is."""
    tries = 0
    while True:
        tries += 1
        try:
            with database.transaction() as session:
                return what(session)
        except Conflict:
            if tries == CONFLICTS_MAX:
                raise


def _carry_out_all(batch: Sequence[Work], session: Session) -> list[Answer]:
    now = session.now()
    operations = [work for work in batch if not isinstance(work, RecordWrite)]
    words = iter(carry_out(session, operations, now) if operations else [])
    _write_records(session, [work for work in batch if isinstance(work, RecordWrite)], now)
    return [None if isinstance(work, RecordWrite) else next(words) for work in batch]


def _write_records(session: Session, writes: Sequence[RecordWrite], now: float) -> None:
    by_name: dict[str, list[Params]] = {}
    for write in writes:
        by_name.setdefault(write.name, []).append({**storable(write.params), "now": now})
    for name in sorted(by_name, key=ORDER.__getitem__):
        session.run_each(STATEMENTS[name], by_name[name])
