"""What the rest of the store asks of a database, in the words that SQLite and PostgreSQL have in common.

Statements are written once, with `:name` for parameters; `for update` is PostgreSQL's row lock, and SQLite, which locks
the whole file while it writes, leaves it out. All calls block: they belong into a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from gateway.ports import LedgerUnavailable

Params = Mapping[str, Any]
Row = tuple[Any, ...]

SCHEMA: Final = "gateway"
"""In PostgreSQL all tables are in a schema of their own: the database may hold other things too."""


class StoreAway(LedgerUnavailable):
    """The database cannot be reached or cannot write at the moment: says which, and why. Asking again may help. Where
    it `was_tried`, what was asked may have been written all the same."""

    def __init__(self, why: str, *, was_tried: bool = True) -> None:
        super().__init__(why)
        self.was_tried = was_tried


class StoreUnusable(Exception):
    """The database is not one that this gateway can use: says which, why, and what to do."""


class Conflict(Exception):
    """Two transactions got into each other's way; the same again will do."""


class Session(Protocol):
    """One transaction."""

    def now(self) -> float:
        """The store's clock: seconds since the epoch, the same for all who share the store (B7)."""
        ...

    def fetch(self, statement: str, params: Params) -> list[Row]:
        """The rows of one statement."""
        ...

    def fetch_each(self, statement: str, many: Sequence[Params]) -> list[list[Row]]:
        """The rows of the statement for each of these parameters, in order."""
        ...

    def run_each(self, statement: str, many: Sequence[Params]) -> None:
        """The statement once for each of these parameters, in order."""
        ...


class Database(Protocol):
    """A place where rows last. Used by one thread at a time. `name` says which, without secrets."""

    @property
    def name(self) -> str:
        """File, or host and database."""
        ...

    def transaction(self) -> AbstractContextManager[Session]:
        """All of it or nothing, durable when the block is left. Raises StoreAway or Conflict."""
        ...

    def snapshot(self) -> AbstractContextManager[Session]:
        """A reading of one moment, beside whatever is written. Raises StoreAway."""
        ...

    def another(self) -> Database:
        """The same database, for another thread."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
