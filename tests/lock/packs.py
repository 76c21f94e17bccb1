"""Packs to be damaged: a folder with two scenarios of the shipped pack, recorded and declared."""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway.lock.declarations import draft, next_file, read_history
from gateway.lock.pack import Pack, shipped

NAMES = ("r9-break-after-created", "r15-break-before-the-first-event")


def small_pack(root: Path) -> Pack:
    """The two, with one declaration each: so there is a history to edit."""
    pack = Pack(root)
    pack.lock.mkdir(parents=True)
    pack.declarations.mkdir()
    for name in NAMES:
        shutil.copy(shipped().scenario(name), pack.lock)
        shutil.copy(shipped().transcript(name), pack.lock)
        declare(pack, f"{name} is recorded")
    return pack


def declare(pack: Pack, why: str) -> Path:
    """The next declaration, written."""
    file = next_file(pack, "a-change")
    file.write_text(draft(pack, read_history(pack), why, "Changed", f"{why}."), encoding="utf-8")
    return file
