"""Issue 7: what a process loads before it is of use, and no more. Counted, for times are noise on a shared machine;
tests/bench/test_start.py measures them.

Python itself tells of each import (`-X importtime`), so that it is the real command that is looked at.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios import write_configuration
from support.processes import Process, run

TOLD = ("-X", "importtime", "-m", "gateway")

SERVING_MODULES_MAX = 970
"""With the console's colours, which are installed for the tests and load 66 modules; what is there now, and 5 %."""
SUPERVISING_MODULES_MAX = 550
READING_MODULES_MAX = 570
ASKING_MODULES_MAX = 410
READY_CPU_SECONDS_MAX = 15.0
"""It takes less than one; this is for a machine that does other things, and notices what is done twenty times."""

FOR_SOME = {
    "psycopg": "the driver of PostgreSQL: for those who keep their books there",
    "sqlalchemy": "for migrations only",
    "alembic": "for migrations only",
    "genai_prices": "for routes whose prices are taken from its data",
    "httpx2": "for the plain data plane",
    "trio_websocket": "for the plain data plane",
    "httpcore2": "for the plain data plane",
    "gateway.lock": "for the command of this name",
    "gateway.cli.demo": "for the command of this name",
    "gateway.upstream.scripted": "for tests, the lock and the demo",
}
FOR_SERVING = {
    "quart": "the app",
    "flask": "the app",
    "hypercorn": "the server",
    "h2": "the server",
    "prometheus_client": "what is counted while it serves",
    "httpx2": "upstreams",
    "gateway.app": "the app",
    "gateway.turn": "the engine",
    "gateway.downstream": "the doors",
}


def imported(output: str) -> frozenset[str]:
    """The modules that Python has told of so far."""
    return frozenset(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", output, re.MULTILINE))


def astray(modules: frozenset[str], names: dict[str, str]) -> list[str]:
    """Those that are of these packages."""
    return sorted(module for module in modules for name in names if module == name or module.startswith(f"{name}."))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration whose store is there already: to make one takes the migrations."""
    folder = tmp_path_factory.mktemp("start")
    written = write_configuration(folder, {"m-1": "https://127.0.0.1:9", "m-2": "https://127.0.0.1:9"}, ["m"])
    off = written.read_text("utf-8").replace("[server]\n", '[server]\nmetrics_port = "off"\n')
    written.write_text(off, encoding="utf-8")
    done = run(sys.executable, "-m", "gateway", "accounts", "create", "other", "--config", str(written))
    assert done.returncode == 0, done.stderr
    return written


@pytest.fixture(scope="module")
def serving(file: Path) -> Iterator[Process]:
    """`gateway serve`, ready."""
    with started(file) as process:
        yield process


def started(file: Path, *options: str) -> Process:
    """`gateway serve` that tells of its imports, once it listens."""
    process = Process([sys.executable, *TOLD, "serve", "--config", str(file), "--port", "0", *options])
    process.wait_for(r'"event": "listening"')
    return process


def test_a_process_that_serves_loads_no_more_modules_than_it_did(serving: Process) -> None:
    assert 500 < len(imported(serving.output)) <= SERVING_MODULES_MAX


@pytest.mark.parametrize("name", FOR_SOME)
def test_what_only_some_need_is_not_loaded(serving: Process, name: str) -> None:
    assert astray(imported(serving.output), {name: FOR_SOME[name]}) == []


def test_a_supervisor_loads_nothing_of_what_serves(file: Path) -> None:
    """It runs no app: half of the modules, half of the time, and nothing that clients could reach."""
    with started(file, "--workers", "2") as supervisor:
        modules = imported(supervisor.output)
    assert astray(modules, FOR_SERVING) == []
    assert "gateway.server.supervisor" in modules
    assert len(modules) <= SUPERVISING_MODULES_MAX


@pytest.mark.parametrize(
    "command",
    [("keys", "list"), ("accounts", "list"), ("turns", "list"), ("ledger", "verify")],
    ids=" ".join,
)
def test_commands_that_serve_nobody_load_nothing_of_what_serves(file: Path, command: tuple[str, ...]) -> None:
    done = run(sys.executable, *TOLD, *command, "--config", str(file))
    modules = imported(done.stderr)
    assert astray(modules, FOR_SERVING) == []
    assert len(modules) <= READING_MODULES_MAX
    assert done.returncode == 0, done.stdout


def test_who_asks_a_running_gateway_reads_no_configuration(tmp_path: Path) -> None:
    done = run(sys.executable, *TOLD, "status", "--control", str(tmp_path / "nobody"))
    modules = imported(done.stderr)
    assert astray(modules, {**FOR_SERVING, "pydantic": "the configuration", "gateway.config": "the same"}) == []
    assert len(modules) <= ASKING_MODULES_MAX


def test_a_start_takes_no_more_of_a_processor_than_it_may(file: Path) -> None:
    with started(file) as process:
        assert cpu_seconds(process.pid) <= READY_CPU_SECONDS_MAX


def cpu_seconds(pid: int) -> float:
    """What its threads have had so far."""
    ran = [
        int(task.joinpath("schedstat").read_text("ascii").split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return sum(ran) / 1e9
