"""PostgreSQL, through psycopg 3: any number of gateways on any number of nodes. Statements of a batch are pipelined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from gateway.store.database import SCHEMA, Conflict, Params, Row, StoreAway, StoreUnusable

WAITS: Final = {
    # seconds; a server that hangs must not hang the writer for longer than a turn waits for its reservation
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "10000",
    "options": f"-c search_path={SCHEMA} -c statement_timeout=10s -c lock_timeout=5s -c timezone=UTC",
}

CONFLICTS: Final = ("40", "23505")
"""SQLSTATEs, by how they begin: a transaction that was rolled back for another's sake (deadlock, serialization), a row
that another writer inserted first."""
ASKED_WRONGLY: Final = ("22", "23", "54", "P0")
"""Classes of SQLSTATE that say what was asked is at fault: a value, a rule of the schema, a size, a trigger's word. It
will be refused again, however well the store is; all others are the store's own."""
HINTS: Final = {
    "25006": "the server is read-only, a replica perhaps: name the primary",
    "3D000": "create the database, or name another in [ledger] dsn",
    "42501": f"grant the role what it needs: create on the database, or all on the schema {SCHEMA}",
    "53100": "free space on the server's disk",
    "53300": "raise max_connections, or run fewer gateways",
    "55P03": "another client holds what is asked for",
    "57014": "it took too long",
}

_PORTS: Final = re.compile(r"[0-9,]*")
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")


class PostgresSession:
    """One transaction (database.Session)."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def now(self) -> float:
        """The server's wall clock, which all gateways share."""
        return float(self.fetch("select extract(epoch from clock_timestamp())::float8", {})[0][0])

    def fetch(self, statement: str, params: Params) -> list[Row]:
        """Rows (database.Session)."""
        return self._connection.execute(_in_psycopg(statement), params).fetchall()

    def fetch_each(self, statement: str, many: Sequence[Params]) -> list[list[Row]]:
        """Rows for each (database.Session)."""
        if len(many) <= 1:
            return [self.fetch(statement, params) for params in many]
        with self._connection.cursor() as cursor:
            cursor.executemany(_in_psycopg(statement), many, returning=True)
            found = [cursor.fetchall()]
            while cursor.nextset():
                found.append(cursor.fetchall())
            return found

    def run_each(self, statement: str, many: Sequence[Params]) -> None:
        """Once for each (database.Session)."""
        if many:
            with self._connection.cursor() as cursor:
                cursor.executemany(_in_psycopg(statement), many)


@lru_cache
def _in_psycopg(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement)


class PostgresDatabase:
    """The database that `dsn` names (database.Database). It is connected to as it is first used, and again after the
    connection was lost. Errors name host and database, never the password."""

    dialect: Final = "postgres"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Row] | None = None
        parts = _parts(dsn)
        self._options = f"{parts.get('options') or ''} {WAITS['options']}".strip()
        self.name = f"{parts.get('host') or 'localhost'}/{parts.get('dbname') or parts.get('user') or ''}"

    def __repr__(self) -> str:
        return f"<PostgresDatabase {self.name}>"

    def another(self) -> PostgresDatabase:
        """Another connection to the same database."""
        return PostgresDatabase(self._dsn)

    def serve(self) -> None:
        """Nothing to do: what stands at an address is the server's own affair."""

    @contextmanager
    def transaction(self) -> Iterator[PostgresSession]:
        """A transaction that writes (database.Database)."""
        with self.errors_named(), self.connect() as connection, connection.transaction():
            yield PostgresSession(connection)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSession]:
        """A transaction that reads (database.Database)."""
        with self.errors_named(), self.connect() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read read only")
            yield PostgresSession(connection)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Row]]:
        """The connection itself, for what only PostgreSQL has. One that was lost is not used again."""
        if self._connection is None or self._connection.closed:
            self._connection = self.new_connection()
            self._connection.autocommit = True
        try:
            yield self._connection
        except psycopg.Error as error:
            if not (_is_conflict(error) or _is_about_what_was_asked(error)):
                with suppress(psycopg.Error):
                    self.close()
            raise

    def new_connection(self) -> psycopg.Connection[Row]:
        """A connection of the caller's own; its first statement begins a transaction."""
        return psycopg.connect(make_conninfo(self._dsn, **{**WAITS, "options": self._options}))

    def errors_named(self) -> AbstractContextManager[None]:
        """psycopg's errors in the words of database.py."""
        return _errors_named(self.name)


def _parts(dsn: str) -> dict[str, Any]:
    """The words of a DSN. What libpq says of one that it cannot read would show the password; and so would a host or a
    port that are the rest of a password with an @ or a / in it."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        parts = {"port": "unreadable"}
    shown = [str(parts.get(name) or "") for name in ("host", "port", "dbname")]
    if any("@" in word for word in shown) or not _PORTS.fullmatch(shown[1]):
        raise StoreUnusable(
            "[ledger] dsn is no PostgreSQL address (its text is not shown, it may hold a password):"
            " write postgresql://USER:PASSWORD@HOST/DATABASE, special characters of the password as %XX"
        )
    return parts


@contextmanager
def _errors_named(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if _is_conflict(error):
            raise Conflict(f"PostgreSQL {name}: {_line(error)}") from error
        if _is_about_what_was_asked(error):
            raise
        hint = HINTS.get(error.sqlstate or "")
        raise StoreAway(f"PostgreSQL {name}: {_line(error)}{f'; {hint}' if hint else ''}") from error


def _is_conflict(error: psycopg.Error) -> bool:
    return error.sqlstate is not None and error.sqlstate.startswith(CONFLICTS)


def _is_about_what_was_asked(error: psycopg.Error) -> bool:
    if error.sqlstate is None:  # psycopg's own words: of a value that it cannot send, or of the connection
        return not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(ASKED_WRONGLY)


def _line(error: Exception) -> str:
    """The first line of what the server says: the next ones may show values."""
    return str(error).strip().split("\n", 1)[0]
