"""Processes under measurement: which core they run on, what they have used, stopped and ended with all their children.

The processor's time is the kernel's own account of a process, to the nanosecond, all its threads; a system's is that of
its root process and all that descend from it and live.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

KEPT: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""What a measured system sees of the environment: nothing of this machine's proxies, keys and settings."""

END_SECONDS: Final = 5.0
"""What a process gets to end by itself: nothing that it has is needed any more."""


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started within runs on that core alone, its threads and children too."""
    if core is None:
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def two_cores() -> tuple[int, int]:
    """Where the gateway runs, and where everything else does: the same one on a machine that has no second."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[-1], cores[0]


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """It is gone after the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


class Tree:
    """A started process, leader of a session of its own, with all that descend from it."""

    def __init__(self, command: Sequence[str], log: Path, core: int | None = None, **environment: str) -> None:
        self.log = log
        with log.open("wb") as file, on_core(core):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**{name: os.environ[name] for name in KEPT if name in os.environ}, **environment},
                cwd=log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of its root."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether its root is gone."""
        return self._process.poll() is not None

    def pids(self) -> list[int]:
        """The root, and all that descend from it."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError, IndexError):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    children.setdefault(parent, []).append(int(entry.name))
        found = [self.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def cpu_seconds(self) -> float:
        """What all of them have used of the processor."""
        return sum(_cpu_seconds(pid) for pid in self.pids())

    def memory_bytes(self) -> int:
        """What all of them hold in memory now (RSS)."""
        return sum(_memory_bytes(pid) for pid in self.pids())

    def freeze(self) -> None:
        """It uses nothing until it is thawed."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        os.killpg(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Ask it to end, and see to it."""
        with suppress(ProcessLookupError):
            self.thaw()
            os.killpg(self.pid, signal.SIGTERM)
            deadline = time.monotonic() + END_SECONDS
            while not self.has_ended and time.monotonic() < deadline:
                time.sleep(0.02)
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def _cpu_seconds(pid: int) -> float:
    """The clock of another process (clock_getcpuclockid): Python has the call for its own threads only."""
    with suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def _memory_bytes(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
