"""The schema's version: brought up to date as a gateway starts, by one process at a time, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gateway.store.database import SCHEMA, StoreUnusable
from gateway.store.money import LOAD_ACCOUNT
from gateway.store.sqlite import SQLiteDatabase

if TYPE_CHECKING:
    import sqlalchemy

    from gateway.store.postgres import PostgresDatabase

AnyDatabase: TypeAlias = "SQLiteDatabase | PostgresDatabase"
"""By its name alone: the driver of the one is a tenth of a start, and most do not use it."""

VERSION_TABLE: Final = "gateway_schema"
VERSIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
"""All that there ever were, oldest first; the last is what this program reads and writes."""
MIGRATION_LOCK: Final = 0x67776179
"""The advisory lock that a PostgreSQL client holds while it migrates: the letters `gway`."""
MIGRATION_SECONDS_MAX: Final = 60
"""How long a start waits for another's migration."""

HAS_TABLES: Final = {
    # how many tables there are, and whether the version's is among them
    "sqlite": "select count(*), sum(name = :version) from sqlite_master where type = 'table'",
    "postgres": (
        "select count(*), count(*) filter (where tablename = :version) from pg_tables where schemaname = :schema"
    ),
}
LOCK: Final = {
    "sqlite": ("begin immediate",),
    "postgres": (
        # those that start beside it wait for all of the migration, which takes the time it takes
        f"set local statement_timeout = 0; set local lock_timeout = '{MIGRATION_SECONDS_MAX}s'",
        f"select pg_advisory_xact_lock({MIGRATION_LOCK})",
        "set local lock_timeout = '5s'",
    ),
}
MAKE_SCHEMA: Final = {
    "sqlite": (),
    # asked first: where an administrator has made it, the role needs no right to make one
    "postgres": (f"do $$ begin if to_regnamespace('{SCHEMA}') is null then create schema {SCHEMA}; end if; end $$",),
}


def prepare(database: AnyDatabase) -> None:
    """Bring the schema up to date, and see that it can be written to. Raises StoreAway, or StoreUnusable if it is not
    ours to use."""
    if _version_in(database) != VERSIONS[-1]:
        with database.errors_named():
            _migrate(database)
        database.close()  # what it prepared was prepared for the old schema
    if isinstance(database, SQLiteDatabase):
        database.use_wal()
    with database.transaction() as session:
        session.fetch(LOAD_ACCOUNT, {"name": ""})  # its row lock is refused where nothing can be written


def check_version(database: AnyDatabase) -> None:
    """For whoever only reads: waits for no writer, and changes nothing. Raises StoreAway, or StoreUnusable if there are
    no books, or those of another version."""
    version = _version_in(database)
    if version is None:
        raise StoreUnusable(f"{database.name} holds no books; `gateway serve` makes them at its first start")
    if version != VERSIONS[-1]:
        raise StoreUnusable(
            f"{database.name} has schema {version}, this gateway reads {VERSIONS[-1]}: start the gateway once, which"
            " brings it up to date"
        )


def _version_in(database: AnyDatabase) -> str | None:
    with database.snapshot() as session:
        return _version(database, session.fetch)


def _version(database: AnyDatabase, fetch: Callable[[str, dict[str, str]], Any]) -> str | None:
    """The version that is there; None where nothing is. Raises StoreUnusable."""
    ((tables, is_ours),) = fetch(HAS_TABLES[database.dialect], {"version": VERSION_TABLE, "schema": SCHEMA})
    if not tables:
        return None
    if not is_ours:
        raise StoreUnusable(f"{database.name} holds the tables of something else; name another database")
    versions = [version for (version,) in fetch(f"select version_num from {VERSION_TABLE}", {})]
    if len(versions) != 1 or versions[0] not in VERSIONS:
        raise StoreUnusable(
            f"{database.name} has schema {' and '.join(versions) or 'of no version'};"
            f" this gateway knows {VERSIONS[-1]} at most: upgrade the gateway, or name another database"
        )
    return str(versions[0])


def _migrate(database: AnyDatabase) -> None:
    """Run the steps that are missing in one transaction, which only one process can be in. The libraries are imported
    here: a start that finds everything in place has no use for them."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        {"sqlite": "sqlite://", "postgres": "postgresql+psycopg://"}[database.dialect],
        creator=database.new_connection,
        poolclass=sqlalchemy.pool.NullPool,
    )
    try:
        with engine.connect() as connection:
            _migrate_on(database, connection)
    except sqlalchemy.exc.DBAPIError as error:
        if error.orig is None:
            raise
        raise error.orig from error  # in the words of the database's own library, as everywhere


def _migrate_on(database: AnyDatabase, connection: sqlalchemy.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    for statement in LOCK[database.dialect]:
        connection.exec_driver_sql(statement)
    if _version(database, lambda text, params: _fetch(connection, text, params)) != VERSIONS[-1]:
        for statement in MAKE_SCHEMA[database.dialect]:
            connection.exec_driver_sql(statement)
        config = Config()
        folder = str(files("gateway.store") / "migrations")
        config.set_main_option("script_location", folder.replace("%", "%%"))  # a percent sign would be a reference
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    connection.commit()


def _fetch(connection: sqlalchemy.Connection, statement: str, params: dict[str, str]) -> Any:
    import sqlalchemy

    return connection.execute(sqlalchemy.text(statement), params).fetchall()
