"""What a gateway that runs under a wrapper of the lab (profiled.py, weighed.py) knows of itself."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from bench.lab.systems import Running

PATIENCE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.01


def asked(running: Running, file: Path) -> str:
    """What it writes to this file when it gets SIGUSR1."""
    file.unlink(missing_ok=True)
    os.kill(running.tree.pid, signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, running.tree.log.read_text(errors="replace")
        time.sleep(LOOK_SECONDS)
    return file.read_text("utf-8")
