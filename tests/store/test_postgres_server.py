"""The server that the tests bring: tests of what other tests lean on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from support.postgres import PostgresDatabases, PostgresServer
from support.processes import PATIENCE_SECONDS, REPOSITORY, environment


def test_each_test_has_an_empty_database_of_its_own(postgres: PostgresDatabases, fresh_dsn: str) -> None:
    """House."""
    other = postgres.create_database()
    with psycopg.connect(fresh_dsn) as connection:
        connection.execute("create table here (id int)")
        connection.commit()

    assert postgres.run("select count(*) from pg_tables where tablename = 'here'", other) == [(0,)]
    postgres.drop_database(other)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_stopped_server_refuses_and_comes_back_with_its_data(
    postgres_to_stop: PostgresServer, how: signal.Signals
) -> None:
    """House: what outages are made of."""
    name = postgres_to_stop.create_database()
    postgres_to_stop.run("create table kept (id int)", name)

    postgres_to_stop.stop(how)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres_to_stop.dsn(name))

    postgres_to_stop.start()
    assert postgres_to_stop.run("select count(*) from kept", name) == [(0,)]
    postgres_to_stop.drop_database(name)


def test_a_server_ends_with_the_run_that_started_it() -> None:
    """House: a run that is killed leaves no server behind."""
    program = (
        "from support.postgres import PostgresServer; import time;"
        " print(PostgresServer().directory, flush=True); time.sleep(600)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(PYTHONPATH=f"{REPOSITORY}:{REPOSITORY / 'tests'}"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    directory = run.stdout.readline().strip()
    dsn = f"postgresql://postgres@/postgres?host={directory}&port=5432"
    psycopg.connect(dsn).close()

    run.kill()
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Path(directory).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(directory).exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
