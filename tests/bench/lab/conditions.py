"""Under what a run was measured: the machine, the versions, the date, and how busy it was before."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.lab.ours import REPOSITORY
from bench.lab.programs import CannotMeasure

LIBRARIES: Final = ("trio", "hypercorn", "httpx2", "h11", "wsproto")
BUSY_LOAD: Final = 1.0
"""A machine that has that much to do before the run is shared: only what is measured beside each other compares."""


ASK: Final = f"""
from importlib.metadata import version
from platform import python_version
print(python_version())
print(", ".join(f"{{name}} {{version(name)}}" for name in {LIBRARIES}))
"""


def conditions(python: str, server: Mapping[str, str]) -> dict[str, str]:
    """As lines for the page: `python` is what runs the gateway, `server` are further keys of its [server]. Raises
    CannotMeasure where that interpreter has not what the gateway needs."""
    asked = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise CannotMeasure(f"{python} cannot run the gateway: {asked.stderr.strip().rpartition(chr(10))[2]}")
    python_version, libraries = asked.stdout.splitlines()
    load = os.getloadavg()[0]
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release().split('-')[0]}",
        "gateway": f"commit {_commit()}, Python {python_version}",
        "libraries": libraries,
        "load average before": f"{load:.1f}" + (", a busy machine: take ratios only" if load > BUSY_LOAD else ""),
    }
    if server:
        about["[server]"] = ", ".join(f"{name} = {value}" for name, value in server.items())
    return about


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
