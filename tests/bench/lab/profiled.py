"""Run a command of the gateway under cProfile: `python profiled.py FILE serve --config ...`.

At each SIGUSR1 the number of calls so far, of Python's functions and of C's, is written to FILE, whole.
"""

from __future__ import annotations

import cProfile
import json
import signal
import sys
from pathlib import Path


def main(file: Path) -> None:
    """Until the command ends."""
    profile = cProfile.Profile()

    def tell(_number: int, _frame: object) -> None:
        profile.disable()  # while it counts, its tree moves, and entries would be missed
        calls: dict[str, int] = {}
        for entry in profile.getstats():
            name = entry.code if isinstance(entry.code, str) else f"{entry.code.co_filename}:{entry.code.co_qualname}"
            calls[name] = calls.get(name, 0) + entry.callcount
        staging = file.with_suffix(".new")
        staging.write_text(json.dumps(calls), encoding="utf-8")
        staging.rename(file)
        profile.enable()

    signal.signal(signal.SIGUSR1, tell)
    from gateway.__main__ import main as gateway

    profile.enable()
    gateway()


if __name__ == "__main__":
    main(Path(sys.argv.pop(1)))
