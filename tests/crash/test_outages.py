"""The store is away for longer than a lease, under load: real processes, a PostgreSQL that is stopped and started, a
SQLite file that somebody keeps locked (B7, L2, X, §4's last point).
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from crash.fleets import (
    PRICE,
    Stage,
    StoreSettings,
    ask,
    kill,
    load,
    postgres_store,
    running,
    sqlite_store,
    stage,
    url_of,
    wait_until,
)
from support.postgres import PostgresServer
from support.processes import Process

LEASE_SECONDS = 2.0
AWAY_SECONDS = 7.0
"""Longer than a lease with all that a sweeper waits beyond it."""
SOON_SECONDS = 30.0
"""Far below what a drain may take, far above what a process needs to end on a loaded machine."""


@dataclass(frozen=True)
class Outage:
    """A store, and a way to take it away for as long as a block lasts."""

    store: StoreSettings
    away: Callable[[], AbstractContextManager[None]]


@pytest.fixture
def postgres_outage(postgres_to_stop: PostgresServer) -> Iterator[Outage]:
    """PostgreSQL stops, and starts again."""
    name = postgres_to_stop.create_database()
    yield Outage(postgres_store(postgres_to_stop.dsn(name)), postgres_to_stop.stopped)
    postgres_to_stop.start()
    postgres_to_stop.drop_database(name)


@pytest.fixture
def sqlite_outage(tmp_path: Path) -> Outage:
    """Somebody locks the file, and lets go of it."""

    @contextmanager
    def locked() -> Iterator[None]:
        connection = sqlite3.connect(tmp_path / "gateway.sqlite", isolation_level=None, timeout=60.0)
        connection.execute("begin exclusive")
        try:
            yield
        finally:
            connection.execute("rollback")
            connection.close()

    return Outage(sqlite_store(tmp_path), locked)


@pytest.fixture(params=["postgres", pytest.param("sqlite", marks=pytest.mark.long)])
def outage(request: pytest.FixtureRequest) -> Outage:
    """One, then the other."""
    found: Outage = request.getfixturevalue(f"{request.param}_outage")
    return found


@contextmanager
def outage_stage(outage: Outage, folder: Path) -> Iterator[Stage]:
    with stage(folder, outage.store, LEASE_SECONDS) as s:
        yield s


def outcomes(s: Stage) -> list[tuple[str, str | None]]:
    """Models and outcomes of the turns on record."""
    return sorted((model, outcome) for model, outcome in s.fetch("select model, outcome from turn"))


def test_an_outage_longer_than_a_lease_loses_and_doubles_nothing(outage: Outage, tmp_path: Path) -> None:
    """B7, L2, X: what runs goes on and is charged once; new turns are refused before any call; a second process on the
    same store voids nothing that lives; a replay that cannot be opened ends with its own code."""
    with outage_stage(outage, tmp_path) as s, s.serve() as (process, url), s.serve() as (other, other_url):
        with running(url, "long", "long", "middling", "middling", "replayed-late") as asked:
            with outage.away():
                began = time.monotonic()
                wait_until(lambda: '"store_away"' in process.output)
                before = s.calls("plain")
                refused = [ask(address, "plain") for address in (url, url, other_url)]
                calls = s.calls("plain") - before
                time.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - began)))
            with load(lambda: other_url, ["plain"], 2) as later:
                wait_until(lambda: any(one.is_completed for one in later))
        s.wait_until_at_rest()

    assert calls == 0
    assert [(one.status, one.code) for one in refused] == [(503, "ledger_unavailable")] * 3
    assert [one.headers.get("retry-after") for one in refused] == ["1"] * 3
    by_model = {model: [one for one in asked if one.model == model] for model in ("long", "middling", "replayed-late")}
    assert [one.is_completed for one in by_model["long"] + by_model["middling"]] == [True] * 4
    (late,) = by_model["replayed-late"]
    assert (late.status, late.code) == (500, "route_selection_failed")
    assert s.calls("replayed-late") == 1
    money = s.money()
    assert [money[one.turn_id] for one in by_model["long"] + by_model["middling"]] == [f"settled {PRICE}"] * 4
    assert (money[late.turn_id], "expired" in money.values()) == ("voided", False)
    for one in later:
        assert one.is_completed == (money.get(one.turn_id) == f"settled {PRICE}")
    assert process.output.count('"lease_ended"') + other.output.count('"lease_ended"') == 0
    assert "settled_after_lease" not in process.output
    assert s.spooled() == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_ends_in_an_outage_leaves_its_resolutions_to_the_next(
    outage: Outage, end: signal.Signals, tmp_path: Path
) -> None:
    """L2, B1: in the spool, replayed at the next start, nothing twice; SIGTERM is not held up by the store."""
    with outage_stage(outage, tmp_path) as s:
        with s.serve() as (process, url), running(url, "middling", "middling") as asked, outage.away():
            wait_until(lambda: len(resolved_in(s)) == 2)
            if end is signal.SIGKILL:
                kill(process)
            else:
                process.signal(end)
                assert process.wait(SOON_SECONDS) == 0, process.output
        assert [one.is_completed for one in asked] == [True, True]
        assert sorted(s.money().values()) == ["reserved", "reserved"]
        with s.serve() as (heir, _):
            assert '"spool_replayed"' in heir.output
            s.wait_until_at_rest()
            assert '"lease_ended"' not in heir.output
        assert sorted(s.money().values()) == [f"settled {PRICE}"] * 2
        assert outcomes(s) == [("middling", "completed")] * 2
        assert s.spooled() == []


def resolved_in(s: Stage) -> list[str]:
    """The resolutions in the spool."""
    return [line for line in s.spooled() if line.startswith('{"resolve"')]


@pytest.mark.long
def test_a_process_that_ends_in_an_outage_with_turns_running_closes_them_in_the_spool(
    outage: Outage, tmp_path: Path
) -> None:
    """T7, T10, L2: a second SIGTERM cuts them; their resolutions are not lost."""
    with outage_stage(outage, tmp_path) as s:
        with s.serve() as (process, url), running(url, "silent", "silent") as asked, outage.away():
            process.signal(signal.SIGTERM)
            process.wait_for('"draining"')
            process.signal(signal.SIGTERM)
            assert process.wait(SOON_SECONDS) == 1, process.output
            assert len(resolved_in(s)) == 2
        assert not any(one.is_completed for one in asked)
        with s.serve():
            s.wait_until_at_rest()
        assert sorted(s.money().values()) == ["voided", "voided"]


def test_workers_whose_store_goes_away_before_the_drain_ends_end_in_time_and_spool_what_they_cut(
    sqlite_outage: Outage, tmp_path: Path
) -> None:
    """T7, T10, L2: the first write that meets the outage is that of the cut turns; the store says so after 5 s, the
    supervisor waits for 4.5 s."""
    with stage(tmp_path, sqlite_outage.store) as s:
        s.file.write_text(s.file.read_text().replace("[server]", "[server]\ndrain_timeout = 2.0"))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(s.file), "--port", "0", "--workers", "2"]
        s.file.write_text(s.file.read_text().replace("lease = 1.0", "lease = 60.0"))
        with Process(command) as process:
            url = url_of(process)
            with running(url, "silent", "silent") as asked, sqlite_outage.away():
                process.signal(signal.SIGTERM)
                assert process.wait(SOON_SECONDS) == 0, process.output
                assert len(resolved_in(s)) == 2
            assert '"worker_killed"' not in process.output
        assert not any(one.is_completed for one in asked)
        with s.serve() as (heir, _):
            assert '"spool_replayed"' in heir.output
            s.wait_until_at_rest()
            assert '"lease_ended"' not in heir.output
        assert sorted(s.money().values()) == ["voided", "voided"]
        assert s.spooled() == []
