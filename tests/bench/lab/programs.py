"""The lab's two programs in C: compiled when they are needed, started, and what the load client says.

upstream.c   a scripted upstream    load.c   turns one after another on many connections
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from bench.lab.placing import ended, on_core

SOURCES: Final = Path(__file__).parent
COMPILE_SECONDS_MAX: Final = 60
FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror")


class CannotMeasure(Exception):
    """What the lab needs is missing, or broke: says what, and what to do."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds; None where nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class Told:
    """What the load client measured within its window."""

    turns: int
    events: int
    failed: int
    seconds: float
    event: Latency
    """Since the upstream sent it."""
    first: Latency
    """Of a turn's first event, since the request."""
    why: str
    """The first failure's reason."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the compiled programs are."""

    upstream: Path
    load: Path


def compile_programs(folder: Path) -> Programs:
    """Compile both into `folder`. Raises CannotMeasure where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("there is no C compiler (cc or gcc) for the bench's upstream and load client; install gcc")
    for name in ("upstream", "load"):
        command = [compiler, *FLAGS, "-o", str(folder / name), str(SOURCES / f"{name}.c")]
        made = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)
        if made.returncode != 0:
            raise CannotMeasure(f"{name}.c does not compile:\n{made.stderr}")
    return Programs(folder / "upstream", folder / "load")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A running scripted upstream."""

    port: int

    def counts(self) -> Mapping[str, int]:
        """`running` turns, and `turns` since it started."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/v1/models")
            said: Mapping[str, int] = json.load(connection.getresponse())
        finally:
            connection.close()
        return said


@contextmanager
def running_upstream(programs: Programs, core: int | None = None) -> Iterator[Upstream]:
    """One on a free port, for the block."""
    with on_core(core):
        process = subprocess.Popen([str(programs.upstream), "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with ended(process):
        yield Upstream(int(process.stdout.readline().split()[1]))


class Load:
    """A running load client. The options are load.c's: port, door, model, connections, seconds or turns, ..."""

    def __init__(self, programs: Programs, options: Mapping[str, object], core: int | None = None) -> None:
        command = [str(programs.load), *(f"{name}={value}" for name, value in options.items())]
        with on_core(core):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_exception: object) -> None:
        with ended(self.process):
            pass

    def result(self, on_begin: Callable[[], Any] = lambda: None, on_end: Callable[[], Any] = lambda: None) -> Told:
        """Wait for its end; the window's edges are told as they come. Raises CannotMeasure if it gave up."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        last = ""
        for line in self.process.stdout:
            last = line
            {"begin": on_begin, "end": on_end}.get(line.strip(), lambda: None)()
        if self.process.wait() != 0:
            raise CannotMeasure(f"the load client gave up: {self.process.stderr.read().strip()}")
        return told(json.loads(last))


def told(said: Mapping[str, Any]) -> Told:
    """The load client's last line."""
    return Told(
        said["turns"],
        said["events"],
        said["failed"],
        said["seconds"],
        Latency(**said["event_ms"]),
        Latency(**said["first_ms"]),
        said["why"],
    )
