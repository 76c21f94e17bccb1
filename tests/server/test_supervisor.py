"""The supervisor with workers that are real processes and serve nobody: what it starts, replaces and ends, and when."""

import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio

from gateway.server import posts
from gateway.server import supervisor as module
from gateway.server.listening import CannotListen
from gateway.server.place import Place
from gateway.server.posts import BACKOFF_SECONDS_MIN, Launch
from gateway.server.reuseport import SharedAddress
from gateway.server.supervisor import Supervisor

pytestmark = pytest.mark.trio(run=trio.run)

PATIENCE_SECONDS = 60.0

WORKER = """
import os, signal, socket, sys, time
place, mode, notes = sys.argv[1:]
number, line, *listeners = map(int, place.split(","))
mode = open(mode).read()

def note(word):
    with open(notes, "a") as file:
        file.write(f"{number} {os.getpid()} {word}\\n")

note("started")
if mode == "unusable": sys.exit(2)
if mode == "crash": sys.exit(3)
if mode == "only 0 serves" and number > 0: time.sleep(0.2), sys.exit(2)
if mode == "stuck": time.sleep(600)
if mode == "slow": time.sleep(0.3)
if mode == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, lambda *_: note("hup"))
line = socket.socket(fileno=line)
if mode != "never ready": line.sendall(b"ready\\nturns 7\\n")
if mode == "nonsense": line.sendall(b"x" * 10000)
for word in line.makefile():
    note(word.strip())
    if word == "routes\\n" and mode == "babbles": line.sendall(b"routes {nonsense\\n")
    if word == "routes\\n" and mode == "serve": line.sendall(b'routes {"table": "t", "routes": {"a": {}}}\\n')
    if word == "routes\\n" and mode == "dies when asked": os._exit(7)
    if word == "drain\\n" and mode not in ("busy", "deaf"): sys.exit(0)
    if word == "cut\\n" and mode != "deaf": sys.exit(1)
note("orphaned")
"""


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETIRE_SECONDS", 0.05)


@dataclass
class House:
    """A supervisor at work, and what its workers have noted."""

    supervisor: Supervisor
    folder: Path
    port: int
    is_ready: trio.Event = field(default_factory=trio.Event)
    code: int | None = None

    def next_workers(self, mode: str) -> None:
        """How workers that start from now on behave."""
        (self.folder / "mode").write_text(mode)

    def notes(self, word: str) -> list[str]:
        """Which workers (number and pid) have noted that."""
        file = self.folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.removesuffix(f" {word}") for line in lines if line.endswith(f" {word}")]

    def is_without(self, pid: int) -> bool:
        return pid not in self.pids()

    def pids(self, state: str = "ready") -> list[int]:
        return [worker["pid"] for worker in self.supervisor.status() if worker["state"] == state]


@asynccontextmanager
async def supervised(
    folder: Path, mode: str = "serve", count: int = 2, drain_seconds: float = 30
) -> AsyncIterator[House]:
    """A supervisor of such workers for the block; at its end what still runs is ended. `code` is its exit code."""

    def launch(place: Place) -> Launch:
        command = [sys.executable, "-SEc", WORKER, str(place), str(folder / "mode"), str(folder / "notes")]
        return Launch(command, os.environ)

    address = await SharedAddress.find("127.0.0.1", 0)
    house = House(Supervisor(launch, address, count, drain_seconds), folder, address.port)
    house.next_workers(mode)
    house.supervisor.open()

    async def run() -> None:
        house.code = await house.supervisor.run(house.is_ready.set)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield house
            if house.code is None and not house.supervisor._stopping.is_set():
                signal.raise_signal(signal.SIGTERM)


async def until(condition: Callable[[], object]) -> None:
    """Processes tell nobody what they note: look again and again."""
    while True:
        if condition():
            return
        await trio.sleep(0.01)


# --- starting ---------------------------------------------------------------------------------------------------


async def test_it_starts_the_workers_and_knows_them(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        await until(lambda: all(worker["turns"] == 7 for worker in house.supervisor.status()))
        workers = house.supervisor.status()
    told = [(worker["number"], worker["state"], worker["restarts"], worker["turns"]) for worker in workers]
    assert told == [(0, "ready", 0, 7), (1, "ready", 0, 7)]
    assert [f"{worker['number']} {worker['pid']}" for worker in workers] == sorted(house.notes("started"))
    assert house.code == 0


async def test_a_configuration_that_no_worker_can_use_ends_it_with_2(tmp_path: Path) -> None:
    async with supervised(tmp_path, "unusable") as house:
        await until(lambda: house.code is not None)
    assert (house.code, house.is_ready.is_set()) == (2, False)


async def test_workers_that_all_fail_to_start_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded number of times, with a code that is not the configuration's."""
    monkeypatch.setattr(module, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(module, "FAILED_STARTS_MAX", 3)
    with structlog.testing.capture_logs() as lines:
        async with supervised(tmp_path, "crash") as house:
            await until(lambda: house.code is not None)
    assert (house.code, house.is_ready.is_set()) == (3, False)
    assert 6 <= len(house.notes("started")) <= 8
    assert [line["log_level"] for line in lines if line["event"] == "given_up"] == ["error"]


async def test_processes_that_cannot_even_be_made_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(module, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(module, "open_process", fails)
    async with supervised(tmp_path) as house:
        await until(lambda: house.code is not None)
    assert house.code == 3


async def test_once_one_was_ready_the_others_are_tried_for_ever_and_told_when_all_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they say that the configuration cannot be used: what serves is worth more."""
    monkeypatch.setattr(module, "BACKOFF_SECONDS_MAX", 0.1)
    monkeypatch.setattr(module, "FAILED_STARTS_MAX", 2)
    async with supervised(tmp_path, "only 0 serves") as house:
        await until(lambda: len([note for note in house.notes("started") if note.startswith("1 ")]) >= 6)
        assert len(house.pids()) == 1
        assert not house.is_ready.is_set()
        house.next_workers("serve")
        await house.is_ready.wait()
        assert len(house.pids()) == 2
    assert house.code == 0


async def test_a_worker_that_never_gets_ready_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_SECONDS_MAX", 0.5)
    async with supervised(tmp_path, "never ready", count=1) as house:
        await until(lambda: house.notes("started"))
        house.next_workers("serve")
        await until(house.pids)
    assert len(house.notes("started")) == 2


async def test_a_worker_that_talks_nonsense_serves_on(tmp_path: Path) -> None:
    async with supervised(tmp_path, "nonsense", count=1) as house:
        await house.is_ready.wait()
        await trio.sleep(0.1)
        assert len(house.pids()) == 1


async def test_every_worker_says_how_its_routes_stand(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        pids = house.pids()
        assert await house.supervisor.live() == [
            {"number": n, "pid": pids[n], "state": "ready", "error": None, "table": "t", "routes": {"a": {}}}
            for n in (0, 1)
        ]


@pytest.mark.parametrize("mode", ["silent", "babbles"])
async def test_one_that_does_not_say_it_in_time_is_named(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts, "LIVE_SECONDS_MAX", 0.2)
    async with supervised(tmp_path, mode) as house:
        await house.is_ready.wait()
        live = await house.supervisor.live()
    assert [(row["number"], row["error"], row["routes"]) for row in live] == [
        (0, "has not answered within 0.2 s", {}),
        (1, "has not answered within 0.2 s", {}),
    ]


async def test_one_that_starts_one_that_ends_and_one_that_is_away_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS_MAX", 30.0)
    async with supervised(tmp_path, "dies when asked", count=1) as house:
        await house.is_ready.wait()
        assert [row["error"] for row in await house.supervisor.live()] == ["has ended"]
        house.next_workers("never ready")
        house.supervisor._posts[0].backoff_seconds = 30.0
        await until(lambda: house.supervisor._posts[0].holder is None)
        (away,) = await house.supervisor.live()
        assert (away["pid"], away["state"], away["error"]) == (None, "away", "has ended, and is started again")
    async with supervised(tmp_path, "never ready", count=1) as house:
        await until(house.supervisor.status)
        assert [row["error"] for row in await house.supervisor.live()] == ["has not started yet"]


async def test_a_port_that_another_program_has_is_refused(tmp_path: Path) -> None:
    """Two gateways of one user could share it without a word."""
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        with pytest.raises(CannotListen, match=f"port {house.port}: Address already in use"):
            await SharedAddress.find("127.0.0.1", house.port)


async def test_a_host_name_without_addresses_is_refused() -> None:
    with pytest.raises(CannotListen, match="choose an address of this machine"):
        await SharedAddress.find("192.0.2.1", 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 on this machine")
async def test_an_ipv6_address_has_a_url() -> None:
    address = await SharedAddress.find("::1", 0)
    (sock,) = address.open()
    with sock:
        assert address.url("https") == f"https://[::1]:{sock.getsockname()[1]}"


# --- dying ------------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_is_started_again_and_its_sibling_is_left_alone(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        victim, sibling = house.pids()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: len(house.pids()) == 2 and victim not in house.pids())
        assert sibling in house.pids()
        assert [worker["restarts"] for worker in house.supervisor.status()] == [1, 0]
    assert house.code == 0


async def test_one_that_dies_again_and_again_is_started_ever_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what its socket would have got goes to the sibling: connections do not wait for it."""
    monkeypatch.setattr(module, "BACKOFF_SECONDS_MAX", 0.4)
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        house.next_workers("crash")
        os.kill(house.pids()[0], signal.SIGKILL)
        began = trio.current_time()
        await until(lambda: len(house.notes("started")) == 2 + 4)
        assert trio.current_time() - began >= 0.1 + 0.2 + 0.4 + 0.4
        house.next_workers("serve")
        await until(lambda: len(house.pids()) == 2)
        assert house.supervisor._posts[0].backoff_seconds == 0.4


async def test_one_that_has_served_for_a_while_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEADY_SECONDS", 0.0)
    async with supervised(tmp_path, count=1) as house:
        for _ in range(3):
            await until(house.pids)
            victim = house.pids()[0]
            os.kill(victim, signal.SIGKILL)
            await until(partial(house.is_without, victim))
        await until(house.pids)
        assert house.supervisor._posts[0].backoff_seconds == 2 * BACKOFF_SECONDS_MIN


# --- replacing --------------------------------------------------------------------------------------------------


async def test_a_restart_replaces_one_after_the_other(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        old = house.pids()
        assert await house.supervisor.roll() is None
        assert len(house.pids()) == 2
        assert set(house.pids()).isdisjoint(old)
        assert house.supervisor.status()[0]["restarts"] == 0
    for word in ("retire", "drain"):
        assert house.notes(word)[:2] == [f"0 {old[0]}", f"1 {old[1]}"]


async def test_sigusr2_is_a_restart_and_only_one_is_under_way_at_a_time(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        old = house.pids()
        signal.raise_signal(signal.SIGUSR2)
        await until(lambda: len(house.notes("started")) == 3)
        assert await house.supervisor.roll() == "a restart is under way"
        await until(lambda: len(house.pids()) == 2 and set(house.pids()).isdisjoint(old))


async def test_a_replacement_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        old = house.pids()
        house.next_workers("unusable")
        problem = await house.supervisor.roll()
        assert problem == "worker 0: its successor ended at once, with code 2; it and those after it are as they were"
        assert house.pids() == old
        assert house.notes("retire") == []


async def test_a_predecessor_that_drains_for_long_is_seen_and_ends(tmp_path: Path) -> None:
    async with supervised(tmp_path, "busy", count=1) as house:
        await house.is_ready.wait()
        (old,) = house.pids()
        house.next_workers("serve")
        signal.raise_signal(signal.SIGUSR2)
        await until(lambda: house.notes("drain"))
        assert house.pids("draining") == [old]
        assert len(house.pids()) == 1
        os.kill(old, signal.SIGKILL)
        await until(lambda: house.pids("draining") == [])
    assert house.code == 0


async def test_sighup_is_told_to_every_worker_also_to_one_that_starts(tmp_path: Path) -> None:
    async with supervised(tmp_path) as house:
        await until(lambda: len(house.supervisor.status()) == 2)
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: len(house.notes("hup")) == 2)
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: len(house.notes("hup")) == 4)
        assert len(house.pids()) == 2


# --- ending -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains_all_and_closes_the_port(tmp_path: Path, number: signal.Signals) -> None:
    async with supervised(tmp_path) as house:
        await house.is_ready.wait()
        signal.raise_signal(number)
        await until(lambda: house.code is not None)
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", house.port)
    assert (len(house.notes("drain")), house.notes("cut"), house.code) == (2, [], 0)


async def test_the_second_signal_cuts_what_runs(tmp_path: Path) -> None:
    async with supervised(tmp_path, "busy") as house:
        await house.is_ready.wait()
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: len(house.notes("drain")) == 2)
        signal.raise_signal(signal.SIGTERM)
    assert (len(house.notes("cut")), house.code) == (2, 1)


async def test_the_third_signal_kills(tmp_path: Path) -> None:
    async with supervised(tmp_path, "deaf") as house:
        await house.is_ready.wait()
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep(0.05)
    assert house.code == 1


async def test_one_that_does_not_end_in_its_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAIN_MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(module, "END_MARGIN_SECONDS", 0.1)
    async with supervised(tmp_path, "deaf", drain_seconds=0) as house:
        await house.is_ready.wait()
        signal.raise_signal(signal.SIGTERM)
    assert house.code == 1


async def test_one_that_starts_when_all_end_is_told_so_as_soon_as_it_is_ready(tmp_path: Path) -> None:
    """Who has connected to its sockets meanwhile gets an answer from it (T7)."""
    async with supervised(tmp_path, "slow") as house:
        await until(lambda: len(house.notes("started")) == 2)
        signal.raise_signal(signal.SIGTERM)
    assert (len(house.notes("drain")), house.code) == (2, 0)


async def test_one_that_does_not_get_ready_when_all_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE_START_SECONDS_MAX", 0.1)
    async with supervised(tmp_path, "stuck") as house:
        await until(lambda: len(house.notes("started")) == 2)
        signal.raise_signal(signal.SIGTERM)
    assert house.code == 0


async def test_a_second_signal_ends_those_that_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_START_SECONDS_MAX", 2 * PATIENCE_SECONDS)
    async with supervised(tmp_path, "stuck") as house:
        await until(lambda: len(house.notes("started")) == 2)
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep(0.05)
    assert house.code == 0
