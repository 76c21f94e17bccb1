"""Databases with a book of keys in them, opened without a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.core.keys import Key
from gateway.keys.administration import NewKey, create_key, keys_with_id, revoke_keys
from gateway.keys.durable import DurableKeys
from gateway.keys.secrets import digest_of
from gateway.store.postgres import PostgresDatabase
from gateway.store.schema import AnyDatabase
from gateway.store.spool import FileSpool
from gateway.store.sqlite import SQLiteDatabase
from gateway.store.store import Store, grant, open_database


async def inline(blocking: Callable[[], Any]) -> Any:
    """A blocking call where it stands."""
    return blocking()


class OpenedStore:
    """A store's keys, and the command line's hand on them."""

    def __init__(self, database: AnyDatabase, store: Store) -> None:
        self.database = database
        self.book = DurableKeys(store)
        self._ids: dict[str, str] = {}

    async def add(self, key: Key) -> str:
        """A key is made."""
        with self.database.transaction() as session:
            new = create_key(session, key)
        assert isinstance(new, NewKey)
        digest = digest_of(new.secret)
        self._ids[digest] = new.stored.key_id
        return digest

    async def revoke(self, digest: str) -> None:
        """A key is taken back."""
        with self.database.transaction() as session:
            revoke_keys(session, keys_with_id(session, self._ids[digest], None))


@contextmanager
def opened_store(folder: Path, dsn: str | None = None) -> Iterator[OpenedStore]:
    """SQLite in this folder, or the PostgreSQL that `dsn` names, with the account `main`."""
    database = SQLiteDatabase(folder / "gateway.sqlite") if dsn is None else PostgresDatabase(dsn)
    open_database(database, folder / "spool")
    grant(database, {"main": None})
    store = Store(database, FileSpool(folder / "spool"), run_blocking=inline)
    try:
        yield OpenedStore(database, store)
    finally:
        store._reading.close()
        database.close()
