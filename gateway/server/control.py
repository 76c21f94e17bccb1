"""The control socket: a Unix socket of a gateway's, for its own user alone. One JSON line in, one JSON line out.

    {"command": "status"}   -->  {"ok": true, "workers": [...]}
    {"command": "dance"}    -->  {"ok": false, "error": "there is no command \"dance\"; there are: restart, status"}

A command is a row of the table that `Control` is given (commands.py). Who connects has `REQUEST_SECONDS_MAX` to say
what it wants in `REQUEST_BYTES_MAX`; what it asks for then takes the time that it takes, and goes on if it hangs up.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from gateway import limits
from gateway.server.lines import LineReader, LineTooLong

logger = structlog.get_logger("gateway.control")

REQUEST_BYTES_MAX: Final = 4 * limits.ROUTES_FILE_BYTES_MAX
"""A routes file of the largest size, as JSON text."""
REQUEST_SECONDS_MAX: Final = 5.0
ANSWER_BYTES_MAX: Final = 64 * 1_048_576
"""Of a table of the largest size, how each of its routes stands in many workers."""
CLIENTS_MAX: Final = 16
"""A person, a monitor and a deployment at once are three."""
PATH_BYTES_MAX: Final = 107
"""What the kernel takes for a Unix socket's path."""

Answer = Mapping[str, Any]
Command = Callable[[Mapping[str, Any]], Awaitable[Answer]]


class CannotControl(Exception):
    """The control socket cannot be opened, or does not answer: says which, why, and what to do."""


# --- where it is ------------------------------------------------------------------------------------------------


def control_folder(environ: Mapping[str, str]) -> Path:
    """Where control sockets lie that nobody has named: in a folder that only this user can enter."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"gateway-{os.getuid()}"


def control_path(environ: Mapping[str, str], port: int) -> Path:
    """The control socket of the gateway at that port."""
    return control_folder(environ) / f"gateway-{port}.sock"


def make_folder(folder: Path) -> None:
    """See that the folder is there, and that it is ours alone: /tmp is everyone's. Raises CannotControl."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise CannotControl(f"{folder} cannot be made: {error.strerror}; name a control socket elsewhere") from None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and found.st_mode & 0o077 == 0
    if not is_ours:
        raise CannotControl(
            f"{folder} is not a folder of this user alone; remove it, or name a control socket elsewhere"
        )


def own_path(named: str | None, environ: Mapping[str, str], port: int) -> Path:
    """Where the configuration says, else where `gateway status` looks. Raises CannotControl."""
    if named is not None:
        return Path(named)
    path = control_path(environ, port)
    make_folder(path.parent)
    return path


# --- the gateway's end ------------------------------------------------------------------------------------------


@asynccontextmanager
async def control_socket(path: Path) -> AsyncIterator[trio.SocketListener]:
    """The listening socket, for the block; a stale one in its place is replaced. Raises CannotControl."""
    await _see_free(path)
    sock = _bound(path)
    inode = _inode(path)
    try:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    finally:
        sock.close()
        _remove(path, inode)


def _inode(path: Path) -> int:
    return path.lstat().st_ino


def _remove(path: Path, inode: int) -> None:
    """A successor's stays."""
    with suppress(OSError):
        if _inode(path) == inode:
            path.unlink()


async def _see_free(path: Path) -> None:
    """Nothing is there, or a socket that nobody answers at any more."""
    if not _socket_lies_at(path):
        return
    try:
        stream = await trio.open_unix_socket(str(path))
    except OSError:
        return
    await stream.aclose()
    raise CannotControl(f"another gateway answers at {path}; stop it, or name a control socket elsewhere")


def _socket_lies_at(path: Path) -> bool:
    """Whether there is one to replace. What is no socket is never replaced."""
    if max(len(os.fsencode(each)) for each in (path, _staging(path))) > PATH_BYTES_MAX:
        raise CannotControl(f"the path {path} is too long for a socket; choose a shorter one")
    if not os.path.lexists(path):
        return False
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise CannotControl(f"{path} is there and is no socket; move it, or name a control socket elsewhere")
    return True


def _staging(path: Path) -> Path:
    return path.with_name(f".{os.getpid()}")


def _bound(path: Path) -> socket.socket:
    """Bound beside its place and moved there, so that it is never open to others and never missing."""
    staging = _staging(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        staging.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            sock.bind(str(staging))
        finally:
            os.umask(mask)
        sock.listen(CLIENTS_MAX)
        staging.rename(path)
    except OSError as error:
        sock.close()
        raise CannotControl(f"the control socket {path} cannot be opened: {error.strerror}; choose another") from None
    return sock


class Control:
    """Answers at a control socket, by its table of commands."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands
        self._places = trio.CapacityLimiter(CLIENTS_MAX)

    def __repr__(self) -> str:
        return f"<Control of {', '.join(sorted(self._commands))}>"

    async def serve(self, listener: trio.SocketListener) -> None:
        """Until it is cancelled."""
        await trio.serve_listeners(self._serve_one, [listener])

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        """One client; whatever it does, it ends nothing but its own connection."""
        async with stream, self._places:
            try:
                answer = await self._answer(await _read_request(stream))
                await stream.send_all(json.dumps(answer).encode() + b"\n")
            except trio.BrokenResourceError:
                logger.info("control_client_left")

    async def _answer(self, request: object) -> Answer:
        if isinstance(request, str):
            return _refusal(request)
        name = request.get("command") if isinstance(request, dict) else None
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None or not isinstance(request, dict):
            known = ", ".join(sorted(self._commands))
            return _refusal(f"there is no command {json.dumps(name)[:100]}; there are: {known}")
        return await command(request)


async def _read_request(stream: trio.SocketStream) -> object:
    """The JSON of the client's line; what is wrong with it, as text."""
    line = None
    try:
        with trio.move_on_after(REQUEST_SECONDS_MAX):
            line = await LineReader(stream, REQUEST_BYTES_MAX).next()
        request = json.loads(line or "")
    except LineTooLong as error:
        return str(error)
    except (ValueError, RecursionError):
        return 'say one JSON object on one line: {"command": "status"}'
    return request if isinstance(request, dict) else {}


def _refusal(error: str) -> Answer:
    return {"ok": False, "error": error}


# --- the client's end -------------------------------------------------------------------------------------------


async def ask(path: Path, request: Mapping[str, Any], seconds_max: float = inf) -> dict[str, Any]:
    """What the gateway whose control socket this is answers. Raises CannotControl, also if that takes too long."""
    try:
        with trio.fail_after(seconds_max):
            line = await _ask(path, request)
    except trio.TooSlowError:
        raise CannotControl(
            f"the gateway at {path} has not answered within {seconds_max:g} s; look at its log, and if it is stopped"
        ) from None
    except (OSError, trio.BrokenResourceError) as error:
        why = getattr(error, "strerror", None) or "it hung up"
        raise CannotControl(f"no gateway answers at {path}: {why}; is it running, and is this its user?") from None
    except LineTooLong as error:
        raise CannotControl(f"the gateway at {path} has answered too much: {error}") from None
    answer = json.loads(line) if line else None
    if not isinstance(answer, dict):
        raise CannotControl(f"the gateway at {path} hung up without an answer; look at its log")
    return answer


async def _ask(path: Path, request: Mapping[str, Any]) -> str | None:
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(json.dumps(request).encode() + b"\n")
        return await LineReader(stream, ANSWER_BYTES_MAX).next()
