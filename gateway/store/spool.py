"""The spool: what must not be lost while the store is away, on the local disk, one JSON object a line.

Each process has a file of its own and keeps it locked for as long as it lives. A file that nobody has locked is what a
process left behind: whoever starts next takes it over, writes its lines to the store and removes it. One with a line
that cannot be read or written is put aside, under a name that no start looks for.

The file has room from the start, for the disk that is full under the store is often the spool's too. The room is behind
its end: whoever reads it sees lines only.

    SPOOL/PID-RANDOM.jsonl     {"resolve": {"turn_id": "…", "nanodollars": 1200, "flags": []}}
                               {"close_turn": {…the parameters of the statement of that name…}}
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import structlog

from gateway.core.ledger import BookHouse, Resolve
from gateway.core.money import Flag, Resolution
from gateway.store.commit import Work
from gateway.store.records import STATEMENTS, RecordWrite

logger = structlog.get_logger("gateway.store")

SUFFIX: Final = ".jsonl"
ASIDE_SUFFIX: Final = ".aside"
RESOLVE: Final = "resolve"
BOOK_HOUSE: Final = "book_house"
FALLOC_FL_KEEP_SIZE: Final = 1
"""linux/falloc.h."""
RESERVED_BYTES: Final = 512 * 1024
"""Some 3,000 lines of the usual 150 bytes: the ends of a thousand turns, which is what a process has under way."""


class FileSpool:
    """The spool of this process, in `directory`: made by `reserve`, or when something must be kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path: Path | None = None
        self._file: IO[bytes] | None = None

    def __repr__(self) -> str:
        return f"<FileSpool {self.directory}>"

    def reserve(self) -> None:
        """Take the room while there is some. Without it the spool works as long as its disk does: that is logged."""
        try:
            _reserve(self._own_file())
        except OSError as error:
            logger.warning("spool_not_reserved", folder=str(self.directory), why=str(error))

    def add(self, works: Sequence[Work]) -> None:
        """On the disk when it returns, or not there at all (writer.Spool)."""
        file = self._own_file()
        end = file.seek(0, os.SEEK_END)
        try:
            _write_whole(file, b"".join(_line(work) for work in works))
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # half a line would spoil the next one
                file.truncate(end)
                _reserve(file)  # a cut gives the room back
            raise

    def clear(self) -> None:
        """All of it is in the store (writer.Spool). The file stays, for the next time."""
        if self._file is None:
            return
        self._file.truncate(0)
        self.reserve()

    def close(self) -> None:
        """Leave what is there to whoever starts next, and nothing where nothing is."""
        file, path = self._file, self._path
        self._file, self._path = None, None
        if file is None:
            return
        with suppress(OSError):  # whoever starts next removes it, too
            end = file.seek(0, os.SEEK_END)
            if end == 0 and path is not None:
                path.unlink(missing_ok=True)
            file.truncate(end)
        file.close()

    def _own_file(self) -> IO[bytes]:
        if self._file is None:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path, self._file = _new_file(self.directory)
            weakref.finalize(self, self._file.close)  # one that nobody closes is left behind, as by a process
        return self._file


def _reserve(file: IO[bytes]) -> None:
    """The file's size stays: os.posix_fallocate would let it end in NULs. Raises OSError."""
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        raise OSError(errno.ENOSYS, "this system reserves no room") from None
    if fallocate(file.fileno(), FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(RESERVED_BYTES)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _new_file(directory: Path) -> tuple[Path, IO[bytes]]:
    """A file that is locked before it has the name by which others find it: nobody can take it over in between."""
    path = directory / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
    unnamed = path.with_suffix(".new")
    file = unnamed.open("xb", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        unnamed.rename(path)
        _sync(directory)
    except OSError:
        file.close()
        raise
    return path, file


def _write_whole(file: IO[bytes], data: bytes) -> None:
    """A disk that is nearly full takes a part, and refuses the next."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A file of a process that is gone, locked until it is removed, put aside or released. `is_whole` if every line of
    it could be read, but for a last one that was cut: that one nobody was told to be on the disk."""

    path: Path
    works: Sequence[Work]
    is_whole: bool
    file: IO[bytes]

    def remove(self) -> None:
        """What was in it is in the store."""
        self.path.unlink(missing_ok=True)
        self.file.close()

    def put_aside(self) -> Path:
        """What could not be read or written is for a human to look at: where."""
        aside = self.path.with_suffix(ASIDE_SUFFIX)
        self.path.rename(aside)
        self.file.close()
        return aside

    def release(self) -> None:
        """Leave it to somebody else."""
        self.file.close()


def check(directory: Path) -> None:
    """Raises OSError if nothing could be kept there, and makes nothing: an outage is no time to learn it."""
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(nearest))
    if not os.access(nearest, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, "it may not be written to", str(nearest))


def take_over(directory: Path) -> Iterator[LeftBehind]:
    """The files that nobody has locked, oldest first. Raises OSError if the directory cannot be read."""
    if not directory.is_dir():
        return
    for path in sorted(directory.glob(f"*{SUFFIX}"), key=_age):
        taken = _take(path)
        if taken is not None:
            yield taken


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # somebody was quicker
        return 0.0


def _take(path: Path) -> LeftBehind | None:
    try:
        file = path.open("rb")
    except FileNotFoundError:  # its process, or another that started now, was quicker
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    lines = file.readlines()
    read = [work for number, line in enumerate(lines, 1) if (work := _read_line(path, number, line)) is not None]
    whole = len(lines) - (not lines[-1].endswith(b"\n")) if lines else 0
    return LeftBehind(path, read, len(read) >= whole, file)


# --- lines ------------------------------------------------------------------------------------------------------


def written_line(work: Work) -> str:
    """What a spool would hold of it: turn ids, names and amounts, never what was said."""
    return json.dumps(_written(work), separators=(",", ":"))


def _line(work: Work) -> bytes:
    return written_line(work).encode() + b"\n"


def _written(work: Work) -> dict[str, Any]:
    match work:
        case RecordWrite(name, params):
            return {name: dict(params)}
        case Resolve(turn_id, resolution):
            flags = [flag.value for flag in resolution.flags]
            return {RESOLVE: {"turn_id": turn_id, "nanodollars": resolution.nanodollars, "flags": flags}}
        case BookHouse(turn_id, attempt, nanodollars):
            return {BOOK_HOUSE: {"turn_id": turn_id, "attempt": attempt, "nanodollars": nanodollars}}
    raise TypeError(f"{work!r} is never insisted on")


def _read_line(path: Path, number: int, line: bytes) -> Work | None:
    """A line that cannot be read is logged and passed over."""
    try:
        return _read(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        logger.error("spool_line_unreadable", file=str(path), line=number, why=repr(error))  # noqa: TRY400 - the line is at fault, not the code
        return None


def _read(written: Mapping[str, Any]) -> Work:
    ((name, values),) = written.items()
    if name == RESOLVE:
        flags = tuple(Flag(word) for word in values["flags"])
        return Resolve(values["turn_id"], Resolution(values["nanodollars"], flags))
    if name == BOOK_HOUSE:
        return BookHouse(values["turn_id"], values["attempt"], values["nanodollars"])
    if name not in STATEMENTS:
        raise ValueError(f"{name!r} is no operation")
    return RecordWrite(name, values)


def _sync(directory: Path) -> None:
    """A new file's name is durable only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
