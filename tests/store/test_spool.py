"""The spool on a real disk: files of processes that live and of those that are gone."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest
import structlog

from gateway.core.ledger import BookHouse, Reserve, Resolve
from gateway.core.money import Flag, Resolution
from gateway.store.commit import Work, commit
from gateway.store.database import StoreAway
from gateway.store.records import RecordWrite
from gateway.store.schema import AnyDatabase
from gateway.store.spool import RESERVED_BYTES, FileSpool, LeftBehind, _write_whole, check, take_over
from gateway.store.store import grant, open_database
from support.durable import accounts_in, unprivileged
from support.processes import REPOSITORY, environment

WORKS: list[Work] = [
    Resolve("turn-1", Resolution(1200, (Flag.ESTIMATED, Flag.OVERDRAWN))),
    Resolve("turn-2", Resolution(None)),
    BookHouse("turn-1", 1, 17),
    RecordWrite("close_turn", {"turn_id": "turn-1", "outcome": "completed", "seconds": 2.5, "response_id": None}),
    RecordWrite("learn_origin", {"account": "main", "response_id": "resp_\ud800\n\0é", "route": "a"}),
]


def left_in(directory: Path) -> list[list[Work]]:
    """What takes over would write, file by file; released again."""
    found: list[list[Work]] = []
    for left in take_over(directory):
        found.append(list(left.works))
        left.release()
    return found


def names(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


def room(directory: Path) -> int:
    """Bytes of the disk that the one file has for itself."""
    (path,) = directory.iterdir()
    return path.stat().st_blocks * 512


def killed(spool: FileSpool) -> None:
    """What `kill -9` does: the lock is gone, the file is as it was."""
    assert spool._file is not None
    spool._file.close()
    spool._file = None


# --- what is written is read ------------------------------------------------------------------------------------


def test_what_a_process_left_is_what_it_added(tmp_path: Path) -> None:
    """B1, L2."""
    spool = FileSpool(tmp_path / "deep" / "spool")
    for work in WORKS:
        spool.add([work])
    spool.close()

    assert left_in(tmp_path / "deep" / "spool") == [WORKS]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_gateway_that_never_lost_its_store_leaves_nothing(
    database: AnyDatabase, tmp_path: Path, *, is_killed: bool
) -> None:
    """L2: room that was not used is gone with its process, or with the next start, which says nothing of it."""
    spool = FileSpool(tmp_path / "spool")
    spool.reserve()
    assert room(tmp_path / "spool") >= RESERVED_BYTES
    if is_killed:
        killed(spool)
        with structlog.testing.capture_logs() as logs:
            open_database(database, tmp_path / "spool")
        assert logs == []
    spool.close()

    assert names(tmp_path / "spool") == []
    assert left_in(tmp_path / "spool") == []


def test_a_spool_that_is_cleared_holds_nothing_and_can_be_used_again(tmp_path: Path) -> None:
    """L2."""
    spool = FileSpool(tmp_path)
    spool.add(WORKS[:2])
    spool.clear()
    spool.close()
    assert names(tmp_path) == []

    spool.add(WORKS[:2])
    spool.clear()
    spool.add(WORKS[2:])
    spool.close()
    assert left_in(tmp_path) == [WORKS[2:]]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """House: turn ids and amounts are nobody's business."""
    spool = FileSpool(tmp_path / "spool")
    spool.add(WORKS)
    spool.close()

    assert (tmp_path / "spool").stat().st_mode & 0o077 == 0


def test_what_is_asked_and_not_insisted_on_is_never_spooled(tmp_path: Path) -> None:
    """B1: a reservation that comes late would be open for nobody."""
    spool = FileSpool(tmp_path)
    with pytest.raises(TypeError, match="never insisted on"):
        spool.add([Reserve("turn", "main", 1)])
    spool.close()


# --- processes ----------------------------------------------------------------------------------------------------

LIVES = """
import sys, time
from pathlib import Path
from gateway.core.ledger import Resolve
from gateway.core.money import Resolution
from gateway.store.spool import FileSpool
spool = FileSpool(Path(sys.argv[1]))
spool.add([Resolve(sys.argv[2], Resolution(None))])
print("spooled", flush=True)
time.sleep(600)
"""


def living(directory: Path, turn_id: str) -> subprocess.Popen[str]:
    """Another process that has spooled a turn and lives on."""
    command = [sys.executable, "-c", LIVES, str(directory), turn_id]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "spooled\n"
    process.stdout.close()
    return process


def test_a_process_that_lives_keeps_its_file_and_one_that_is_killed_leaves_it(tmp_path: Path) -> None:
    """L2: each has a file of its own; after `kill -9` it is whoever's comes first."""
    first, second = living(tmp_path, "turn-1"), living(tmp_path, "turn-2")
    try:
        assert names(tmp_path) == [".jsonl", ".jsonl"]
        assert left_in(tmp_path) == []

        first.send_signal(signal.SIGKILL)
        first.wait()
        assert left_in(tmp_path) == [[Resolve("turn-1", Resolution(None))]]
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert len(left_in(tmp_path)) == 2


def test_what_one_has_taken_over_no_other_takes(tmp_path: Path) -> None:
    """B1: two that start at once write it once."""
    spool = FileSpool(tmp_path)
    spool.add(WORKS)
    spool.close()

    (taken,) = take_over(tmp_path)
    assert left_in(tmp_path) == []
    taken.release()
    (again,) = take_over(tmp_path)
    again.remove()
    assert names(tmp_path) == []


def test_a_file_that_is_being_made_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L2: whoever starts at that instant would remove it under the hands of its process."""
    seen: list[list[list[Work]]] = []
    rename = Path.rename

    def look_before(path: Path, target: Path) -> Path:
        seen.append(left_in(tmp_path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look_before)
    spool = FileSpool(tmp_path)
    spool.add(WORKS)
    seen.append(left_in(tmp_path))
    spool.close()

    assert seen == [[], []]


def test_files_are_taken_oldest_first(tmp_path: Path) -> None:
    """L2: in the order in which the money moved, as far as anybody knows."""
    for number, age in ((1, 300), (2, 100), (3, 200)):
        spool = FileSpool(tmp_path)
        spool.add([Resolve(f"turn-{number}", Resolution(None))])
        spool.close()
        (newest,) = (path for path in tmp_path.iterdir() if path.stat().st_mtime > 1e9)
        os.utime(newest, (1000 - age, 1000 - age))

    turns = [work.turn_id for works in left_in(tmp_path) for work in works if isinstance(work, Resolve)]
    assert turns == ["turn-1", "turn-3", "turn-2"]


# --- damage -------------------------------------------------------------------------------------------------------


def take_the_one(directory: Path) -> LeftBehind:
    (left,) = take_over(directory)
    return left


def spooled(directory: Path, *lines: bytes) -> Path:
    """A file of a process that is gone, with these bytes."""
    spool = FileSpool(directory)
    spool.add(WORKS[:2])
    spool.close()
    (path,) = directory.glob("*.jsonl")
    with path.open("ab") as file:
        file.writelines(lines)
    return path


def test_a_last_line_that_was_cut_loses_nothing_else(tmp_path: Path) -> None:
    """L2: nobody was told that it was on the disk."""
    spooled(tmp_path, b'{"resolve":{"turn_id":"turn-3","nano')
    with structlog.testing.capture_logs() as logs:
        left = take_the_one(tmp_path)
    left.release()

    assert (left.works, left.is_whole) == (WORKS[:2], True)
    assert [(line["event"], line["line"]) for line in logs] == [("spool_line_unreadable", 3)]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b'"resolve"\n',
        b"{}\n",
        b'{"drop_turn":{}}\n',
        b'{"resolve":{"turn_id":"turn-3","nanodollars":1,"flags":["nobody_knows"]}}\n',
        b'{"resolve":{"turn_id":"turn-3"}}\n',
        b'{"resolve":[]}\n',
        b'{"close_turn":{},"open_turn":{}}\n',
        b"\xff\xfe\n",
    ],
)
def test_a_line_that_cannot_be_read_is_passed_over_and_said(tmp_path: Path, line: bytes) -> None:
    """L2: the others count all the same, and the file is kept for a human."""
    path = spooled(tmp_path, line, b'{"book_house":{"turn_id":"turn-1","attempt":1,"nanodollars":17}}\n')
    with structlog.testing.capture_logs() as logs:
        left = take_the_one(tmp_path)
    left.release()

    assert (left.works, left.is_whole) == (WORKS[:3], False)
    assert [(entry["event"], entry["file"], entry["line"]) for entry in logs] == [
        ("spool_line_unreadable", str(path), 3)
    ]


def test_a_disk_that_fills_in_the_middle_of_a_line_leaves_no_half_of_it(tmp_path: Path) -> None:
    """L2: half a line would spoil the next one, which a process was told is on the disk."""
    spool = FileSpool(tmp_path)
    spool.add(WORKS[:1])
    file = spool._file
    assert file is not None
    spool._file = FullDisk(file)  # type: ignore[assignment]  # a disk that takes ten bytes more
    with pytest.raises(OSError, match="No space left"):
        spool.add(WORKS[1:2])
    spool._file = file
    spool.add(WORKS[2:3])
    spool.close()

    left = take_the_one(tmp_path)
    left.release()
    assert (left.works, left.is_whole) == ([WORKS[0], WORKS[2]], True)


class FullDisk:
    """A file that takes ten bytes and then no more."""

    def __init__(self, file: object) -> None:
        self._file = file
        self._left = 10

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, data: memoryview) -> object:
        """As a disk does that is nearly full: a part first."""
        if not self._left:
            raise OSError(28, "No space left on device")
        taken, self._left = data[: self._left], 0
        return self._file.write(taken)  # type: ignore[attr-defined]  # the file that stands behind


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has the disk that is always full")
def test_a_spool_on_a_full_disk_says_so() -> None:
    """L2: the writer then keeps it in memory, and raises the alarm."""
    spool = FileSpool(Path("/dev"))
    with Path("/dev/full").open("wb", buffering=0) as full:
        spool._file = full
        with pytest.raises(OSError, match="No space left"):
            spool.add(WORKS)


def test_what_fits_into_the_reserved_room_is_kept_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: the disk filled up under the store and under the spool; nothing that was reserved is given back."""
    spool = FileSpool(tmp_path)
    spool.reserve()
    add_where_a_disk_is_full(monkeypatch, spool, WORKS)
    many: list[Work] = [Resolve(f"turn-{number}", Resolution(None)) for number in range(RESERVED_BYTES // 50)]
    with pytest.raises(OSError, match="No space left"):
        add_where_a_disk_is_full(monkeypatch, spool, many)
    assert room(tmp_path) >= RESERVED_BYTES

    add_where_a_disk_is_full(monkeypatch, spool, many[:9])
    killed(spool)
    assert left_in(tmp_path) == [[*WORKS, *many[:9]]]


def add_where_a_disk_is_full(monkeypatch: pytest.MonkeyPatch, spool: FileSpool, works: list[Work]) -> None:
    """A file can then be written to as far as it reaches."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVED_BYTES, old[1]))
    try:
        with monkeypatch.context() as patched:
            patched.setattr("gateway.store.spool._write_whole", _refused_as_by_a_full_disk)
            spool.add(works)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def _refused_as_by_a_full_disk(file: IO[bytes], data: bytes) -> None:
    try:
        _write_whole(file, data)
    except OSError as error:  # the limit's own word is another
        raise OSError(errno.ENOSPC, "No space left on device") from error


def test_a_start_on_a_full_disk_says_that_the_spool_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: the gateway starts all the same: its store may be elsewhere."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gateway.store.spool._reserve", full)
    spool = FileSpool(tmp_path)
    with structlog.testing.capture_logs() as logs:
        spool.reserve()
    spool.add(WORKS)
    spool.close()

    assert [line["event"] for line in logs] == ["spool_not_reserved"]
    assert left_in(tmp_path) == [WORKS]


@pytest.mark.parametrize("folder", ["spool", "deep/er/spool", "."])
def test_a_spool_that_can_be_kept_is_not_made_yet(tmp_path: Path, folder: str) -> None:
    """L2."""
    check(tmp_path / folder)
    assert names(tmp_path) == []


def test_a_spool_that_could_not_be_kept_is_seen_at_the_start(database: AnyDatabase, tmp_path: Path) -> None:
    """L2: not in an outage, when it is needed; nothing was written then."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file"):
        open_database(database, tmp_path / "file" / "spool")

    shared = Path(tempfile.mkdtemp())
    shared.chmod(0o555)
    with unprivileged(), pytest.raises(PermissionError, match=re.escape(str(shared))):
        check(shared / "spool")
    shared.rmdir()


# --- at the next start ----------------------------------------------------------------------------------------------


def test_the_next_start_writes_what_was_left_and_removes_it(database: AnyDatabase, tmp_path: Path) -> None:
    """B1, L2: once, also when the store had some of it already."""
    directory = tmp_path / "spool"
    grant(database, {"main": 10_000})
    commit(database, [Reserve("turn-1", "main", 5000), Reserve("turn-2", "main", 5000), WORKS[1]])
    spool = FileSpool(directory)
    spool.add(WORKS[:3])
    spool.close()
    open_database(database, directory)
    open_database(database, directory)

    with database.snapshot() as session:
        assert accounts_in(session) == {"main": (8800, 0)}
    assert names(directory) == []


def test_what_the_store_refuses_is_put_aside(database: AnyDatabase, tmp_path: Path) -> None:
    """B1: the start goes on, the rest is written, and a human finds the file."""
    directory = tmp_path / "spool"
    spool = FileSpool(directory)
    spool.add([BookHouse("turn-1", 1, 2**70), BookHouse("turn-2", 1, 5)])
    spool.close()
    with structlog.testing.capture_logs() as logs:
        open_database(database, directory)

    assert [line["event"] for line in logs] == ["operation_failed", "spool_replayed", "spool_put_aside"]
    assert names(directory) == [".aside"]
    assert left_in(directory) == []
    with database.snapshot() as session:
        assert session.fetch("select turn_id, nanodollars from entry", {}) == [("turn-2", 5)]


def test_a_store_that_goes_away_during_the_replay_leaves_the_file(
    database: AnyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: the start fails, and the next one finds all of it."""
    spool = FileSpool(tmp_path / "spool")
    spool.add(WORKS)
    spool.close()

    def away(*_: object) -> None:
        raise StoreAway("no server")

    monkeypatch.setattr("gateway.store.store.commit", away)
    with pytest.raises(StoreAway):
        open_database(database, tmp_path / "spool")
    assert left_in(tmp_path / "spool") == [WORKS]
