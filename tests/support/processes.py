"""Subprocesses of a test: their output read as it comes, their end bounded, each ended by its own pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
"""No wait for a process is longer: far above what any takes, so that a machine under load fails no test."""


_runtime = tempfile.TemporaryDirectory(prefix="gw-")
"""Control sockets of processes that are killed lie here, until the tests have ended."""


def environment(**extra: str) -> dict[str, str]:
    """What a subprocess sees: nothing of this machine's own proxies, keys and settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    own = {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1", "XDG_RUNTIME_DIR": _runtime.name}
    return {**kept, **own, **extra}


class Process:
    """A process that runs beside the test. `output` is what it has written to stdout and stderr so far."""

    def __init__(self, command: Sequence[str], **extra: str) -> None:
        self._popen = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._is_read = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        if self._popen.stdout is not None:
            self._popen.stdout.close()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    @property
    def output(self) -> str:
        """What it has written."""
        with self._news:
            return "".join(self._lines)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code. AssertionError if it does not end in time."""
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {seconds} s:\n{self.output}") from None
        self._reader.join(PATIENCE_SECONDS)
        return code

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in its output, once there is one. AssertionError if it ends or stays silent instead."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._news:
            while (found := re.search(pattern, "".join(self._lines), re.MULTILINE)) is None:
                left = deadline - time.monotonic()
                may_come = left > 0 and not self._is_read
                assert may_come, f"no {pattern!r} in:\n{''.join(self._lines)}"
                self._news.wait(left)
            return found

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._tell(line)
        self._tell(None)

    def _tell(self, line: str | None) -> None:
        with self._news:
            if line is None:
                self._is_read = True
            else:
                self._lines.append(line)
            self._news.notify_all()


@contextmanager
def gateway_process(*arguments: str, **extra: str) -> Iterator[Process]:
    """`python -m gateway ARGUMENTS`."""
    with Process([sys.executable, "-m", "gateway", *arguments], **extra) as process:
        yield process


PATIENT: Final = str(Path(__file__).with_name("patient_gateway.py"))


@contextmanager
def serving_gateway(file: Path, *program: str, **extra: str) -> Iterator[tuple[Process, str]]:
    """`gateway serve` with the configuration in `file` on a free port: the process, and the URL it serves at.
    `program` is another one that takes its arguments."""
    command = [sys.executable, *(program or ("-m", "gateway")), "serve", "--config", str(file), "--port", "0"]
    with Process(command, **extra) as process:
        yield process, process.wait_for(r'"event": "listening".*"url": "(http://[^"]+)"')[1]


def run(*command: str, extra: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(**(extra or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_SECONDS,
        check=False,
    )
