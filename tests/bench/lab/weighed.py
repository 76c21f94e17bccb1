"""Run a command of the gateway under tracemalloc: `python weighed.py FILE serve --config ...`.

At each SIGUSR1 the bytes that are allocated then, by what is alive, are written to FILE, whole.
"""

from __future__ import annotations

import gc
import signal
import sys
import tracemalloc
from pathlib import Path


def main(file: Path) -> None:
    """Until the command ends."""

    def tell(_number: int, _frame: object) -> None:
        gc.collect()
        allocated, _peak = tracemalloc.get_traced_memory()
        staging = file.with_suffix(".new")
        staging.write_text(str(allocated), encoding="utf-8")
        staging.rename(file)

    signal.signal(signal.SIGUSR1, tell)
    tracemalloc.start()
    from gateway.__main__ import main as gateway

    gateway()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
