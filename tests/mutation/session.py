"""The pytest plugin that tests mutants: the tests are collected once, and each mutant is a fork that runs those which
come by its function, the ones that found its siblings and the fast ones first, until one fails.

    collect --> run each test, note which functions it comes by --> for each mutant: fork --> its outcome, as a line

What a module calls while it is imported has happened by then: such a function's mutants, if no test finds them, are
each given a new process.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from mutation.registry import ACTIVE, MUTANTS, SEEN, activate

settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # that an example fails is all there is to know: none is shrunk
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutants")  # before any test module asks for its own

CPU_SECONDS: Final = 3.0
CPU_FACTOR: Final = 5.0
"""A test may take so much, and so many times what it takes without a mutant: then the mutant is taken for endless."""
LIKELIEST: Final = 30
"""How many tests are asked first where each mutant costs an import."""
WALL_SECONDS: Final = 60.0
WALL_FACTOR: Final = 60.0
"""The same of all its tests by the clock, for one that waits for ever; other work on the machine makes no mutant
endless."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write, and which mutants."""
    parser.addoption("--mutants", action="store_true", help="test the mutants that there are")
    parser.addoption("--outcomes", type=Path, help="where each mutant's outcome is appended as a line of JSON")
    parser.addoption("--among", type=Path, help="a file with the names of those to test, if it is not all")
    parser.addoption("--children", type=int, default=2, help="how many are tested at once")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What a turn does is the same under every order of tasks and over every transport: a mutant is shown one."""
    if config.getoption("--mutants"):
        items[:] = [item for item in items if is_the_first_of_its_variants(item)]


def is_the_first_of_its_variants(item: pytest.Item) -> bool:
    """By the parameters of tests/support/virtual.py and tests/turn/conftest.py."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    order = parameters.get("order", 0)
    return not (isinstance(order, int) and order > 0) and bool(parameters.get("each_transport", "sse") == "sse")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In the place of pytest's own loop."""
    if not session.config.getoption("--mutants"):
        return None
    trial = Trial(session.items, Reports.of(session.config))
    trial.measure()
    with session.config.getoption("--outcomes").open("a", encoding="utf-8") as outcomes:
        for mutant, outcome, seconds in trial.outcomes(session.config):
            outcomes.write(json.dumps({"mutant": mutant, "outcome": outcome, "seconds": round(seconds, 3)}) + "\n")
            outcomes.flush()
    return True


@dataclass(frozen=True, slots=True)
class Behind:
    """Stands for whatever test comes next: pytest takes down all that one of another folder would not need."""

    session: pytest.Session

    def listchain(self) -> list[pytest.Session]:
        """What stays."""
        return [self.session]


class Reports:
    """Whether anything failed since it was last asked."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    @classmethod
    def of(cls, config: pytest.Config) -> Reports:
        """A plugin that hears of every report."""
        reports = cls()
        config.pluginmanager.register(reports)
        return reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown has ended."""
        if report.failed:
            self.failed.append(report.nodeid)


@dataclass(slots=True)
class Child:
    """A process that tests one mutant."""

    mutant: str
    ends_at: float
    began_at: float
    told: int
    """Where it tells which test has found the mutant."""


@dataclass(slots=True)
class Trial:
    """The tests, what they come by, and how long they take."""

    items: list[pytest.Item]
    reports: Reports
    seconds: dict[int, float] = field(default_factory=dict)
    tests_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    found_by: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    children: dict[int, Child] = field(default_factory=dict)

    # --- without a mutant ---------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Run all. One that fails without a mutant tells nothing of any."""
        for number in range(len(self.items)):
            SEEN.clear()
            began = time.process_time()
            self.run(number)
            self.seconds[number] = time.process_time() - began
            if self.reports.failed:
                sys.stderr.write(f"fails without a mutant: {self.items[number].nodeid}\n")
                self.reports.failed.clear()
                continue
            for function in SEEN:
                self.tests_of[function].append(number)
        sys.stderr.write(f"{len(self.items)} tests take {sum(self.seconds.values()):.1f} s\n")

    def run(self, number: int) -> None:
        """One test; what lives as long as the session goes on living."""
        item = self.items[number]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=Behind(item.session))

    # --- with one -----------------------------------------------------------------------------------------------

    def outcomes(self, config: pytest.Config) -> Iterator[tuple[str, str, float]]:
        """Each mutant's that has none yet: `survived`, `endless`, `untested`, or the test that found it."""
        among = config.getoption("--among")
        chosen = MUTANTS.keys() if among is None else MUTANTS.keys() & among.read_text("utf-8").splitlines()
        done = {json.loads(row)["mutant"] for row in config.getoption("--outcomes").read_text("utf-8").splitlines()}
        names = sorted(chosen - done, key=lambda name: self.cost(function_of(name)))
        gc.collect()
        gc.freeze()
        for name in names:
            while len(self.children) >= config.getoption("--children"):
                yield from self.reaped()
            tests = self.in_order(function_of(name))
            if function_of(name) in AT_IMPORT:
                self.fork(name, partial(self.find_wherever, name, tests, config), sum(self.seconds.values()))
            elif tests:
                self.fork(name, partial(self.find, name, tests), self.cost(function_of(name)))
            else:
                yield name, "untested", 0.0
        while self.children:
            yield from self.reaped()

    def cost(self, function: str) -> float:
        """Of a mutant that survives."""
        return sum(self.seconds[number] for number in self.tests_of[function])

    def in_order(self, function: str) -> list[int]:
        """What found siblings first, the latest before all; then the fast."""
        found = dict.fromkeys(reversed(self.found_by[function]))
        rest = sorted(self.tests_of[function], key=self.seconds.__getitem__)
        return list(dict.fromkeys([*found, *rest]))

    def fork(self, mutant: str, find: Callable[[], str | None], seconds: float) -> None:
        """A process of its own, bounded. `find` gives what found the mutant; without it, its tests take `seconds`."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                found = find()
                os.write(writing, (found or "").encode())
                status = 0 if found is None else 1
            finally:
                os._exit(status)
        os.close(writing)
        now = time.monotonic()
        self.children[child] = Child(mutant, now + WALL_SECONDS + WALL_FACTOR * seconds, now, reading)

    def find(self, mutant: str, tests: list[int]) -> str | None:
        """In the child: run the tests until one fails. Its number."""
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        activate(mutant)
        for number in tests:
            limit = ceil(time.process_time() + CPU_SECONDS + CPU_FACTOR * self.seconds[number])
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            self.run(number)
            if self.reports.failed:
                return str(number)
        return None

    def find_wherever(self, mutant: str, tests: list[int], config: pytest.Config) -> str | None:
        """In the child: what is found without a new process needs none."""
        found = self.find(mutant, tests)
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return found or self.find_in_a_new_process(mutant, config)

    def find_in_a_new_process(self, mutant: str, config: pytest.Config) -> str | None:
        """In the child: the same for a mutant that stands there from the import on; the likeliest tests alone first."""
        arguments = [argument for argument in config.invocation_params.args if argument != "--mutants"]
        likeliest = [self.items[number].nodeid for number in self.in_order(function_of(mutant))[:LIKELIEST]]
        chosen = {*config.args}
        for tests in (likeliest, config.args) if likeliest else (config.args,):
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", *(one for one in arguments if one not in chosen), *tests],
                env={**os.environ, ACTIVE: mutant},
                capture_output=True,
                timeout=(WALL_SECONDS + WALL_FACTOR * sum(self.seconds.values())) / 2,
                check=False,
            )
            if run.returncode != 0:
                return "a new process"
        return None

    def reaped(self) -> Iterator[tuple[str, str, float]]:
        """Wait until one has ended, or has to be ended."""
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended in self.children:
                break
            now = time.monotonic()
            for overdue in [process for process, about in self.children.items() if now >= about.ends_at]:
                os.kill(overdue, signal.SIGKILL)
            time.sleep(0.005)
        child = self.children.pop(ended)
        told = os.read(child.told, 16).decode()
        os.close(child.told)
        if told.isdecimal():
            self.found_by[function_of(child.mutant)].append(int(told))
            told = self.items[int(told)].nodeid
        outcome = outcome_of(os.waitstatus_to_exitcode(status), told or "a crash")
        yield child.mutant, outcome, time.monotonic() - child.began_at


def outcome_of(status: int, test: str) -> str:
    """Of how a process ended."""
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "endless"
    return "survived" if status == 0 else test


def function_of(mutant: str) -> str:
    """What its siblings' names begin with, too."""
    return mutant.rpartition("__mutmut_")[0]


# --- what runs at import ---------------------------------------------------------------------------------------------

AT_IMPORT: Final[set[str]] = set()
"""Functions that are called while modules are imported."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Note what importing calls."""
    if not session.config.getoption("--mutants"):
        return (yield)
    result = yield
    AT_IMPORT.update(SEEN)
    return result
