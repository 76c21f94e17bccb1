"""The control socket: who may open it, what it is told, and what it answers."""

import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from gateway.cli import gateway
from gateway.cli.control import table, the_only_socket
from gateway.cli.unusable import Unusable
from gateway.server import control as module
from gateway.server.control import CannotControl, Control, ask, control_path, control_socket, make_folder

on_trio = pytest.mark.trio(run=trio.run)


async def echo(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"ok": True, "echo": request}


@asynccontextmanager
async def answering(path: Path) -> AsyncIterator[None]:
    """A control socket with the one command `echo`, for the block."""
    with trio.fail_after(60):
        async with control_socket(path) as listener, trio.open_nursery() as nursery:
            nursery.start_soon(Control({"echo": echo}).serve, listener)  # noqa: ASYNC113 - the socket listens already
            yield
            nursery.cancel_scope.cancel()


async def said(path: Path, line: bytes) -> dict[str, Any]:
    """The answer to these bytes."""
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(line)
        await stream.send_eof()
        answer = b"".join([chunk async for chunk in stream])
    return dict(json.loads(answer))


# --- what it answers --------------------------------------------------------------------------------------------


@on_trio
async def test_a_command_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with answering(path):
        assert await ask(path, {"command": "echo", "more": 1}) == {"ok": True, "echo": {"command": "echo", "more": 1}}


@on_trio
async def test_a_gateway_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """It may have been stopped, or hang."""
    path = tmp_path / "control.sock"
    async with control_socket(path):
        with pytest.raises(CannotControl, match=r"has not answered within 0\.1 s; look at its log"):
            await ask(path, {"command": "status"}, 0.1)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"command": "dance"}\n', 'there is no command "dance"; there are: echo'),
        (b'{"command": ["echo"]}\n', 'there is no command ["echo"]; there are: echo'),
        (b"{}\n", "there is no command null; there are: echo"),
        (b"[1]\n", "there is no command null; there are: echo"),
        (b"echo\n", 'say one JSON object on one line: {"command": "status"}'),
        (b"[" * 60_000 + b"\n", 'say one JSON object on one line: {"command": "status"}'),
        (b"\xff\xfe\n", 'say one JSON object on one line: {"command": "status"}'),
        (b"", 'say one JSON object on one line: {"command": "status"}'),
        (b'{"command": "echo"}', 'say one JSON object on one line: {"command": "status"}'),
    ],
)
@on_trio
async def test_what_is_no_command_is_told_so(tmp_path: Path, line: bytes, error: str) -> None:
    path = tmp_path / "control.sock"
    async with answering(path):
        assert await said(path, line) == {"ok": False, "error": error}
        assert (await ask(path, {"command": "echo"}))["ok"]


@on_trio
async def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_BYTES_MAX", 65_536)
    path = tmp_path / "control.sock"
    async with answering(path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(b"x" * (module.REQUEST_BYTES_MAX + module.REQUEST_BYTES_MAX // 2))
        answer = await stream.receive_some()
    assert json.loads(answer)["error"] == "a line is longer than 65536 bytes"


@on_trio
async def test_who_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS_MAX", 0.05)
    path = tmp_path / "control.sock"
    async with answering(path), await trio.open_unix_socket(str(path)) as stream:
        assert b'"ok": false' in await stream.receive_some()


@on_trio
async def test_who_hangs_up_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with answering(path):
        for _ in range(40):
            sock = trio.socket.socket(socket.AF_UNIX)
            await sock.connect(str(path))
            await sock.send(b'{"command": "echo"}\n')
            sock.close()
        assert (await ask(path, {"command": "echo"}))["ok"]


# --- where it lies, and who may open it -------------------------------------------------------------------------


@on_trio
async def test_only_its_user_can_open_it_and_it_goes_with_its_gateway(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with answering(path):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["control.sock"]
    assert os.listdir(tmp_path) == []


@on_trio
async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with answering(path):
        assert (await ask(path, {"command": "echo"}))["ok"]


@on_trio
async def test_one_that_answers_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with answering(path):
        with pytest.raises(CannotControl, match="another gateway answers at"):
            async with control_socket(path):
                pass
        assert (await ask(path, {"command": "echo"}))["ok"]


@on_trio
async def test_a_successors_socket_outlives_its_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with AsyncExitStack() as successor:
        async with control_socket(path):
            path.unlink()
            await successor.enter_async_context(answering(path))
        assert (await ask(path, {"command": "echo"}))["ok"]


@on_trio
async def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("precious")
    with pytest.raises(CannotControl, match="is there and is no socket"):
        async with control_socket(path):
            pass
    assert path.read_text() == "precious"


@pytest.mark.parametrize(("name", "problem"), [("x" * 200, "is too long"), ("no/such/folder.sock", "cannot be opened")])
@on_trio
async def test_a_path_that_cannot_be_used_is_named(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(CannotControl, match=problem):
        async with control_socket(tmp_path / name):
            pass


def test_by_default_it_lies_in_the_users_own_folder() -> None:
    assert control_path({"XDG_RUNTIME_DIR": "/run/user/7"}, 8080) == Path("/run/user/7/gateway-8080.sock")
    assert control_path({}, 8080).name == "gateway-8080.sock"
    assert control_path({}, 8080).parent.name == f"gateway-{os.getuid()}"


def test_a_folder_that_others_can_enter_or_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """/tmp is everyone's: another user may have made it first."""
    make_folder(tmp_path / "own")
    make_folder(tmp_path / "own")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    (tmp_path / "file").touch()
    for name in ("open", "link", "file", "none/inner"):
        with pytest.raises(CannotControl, match="name a control socket elsewhere"):
            make_folder(tmp_path / name)


# --- the commands that ask it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["status", "restart"])
def test_no_gateway_at_that_socket_is_told(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(gateway, [command, "--control", str(tmp_path / "none.sock")])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"no gateway answers at {tmp_path}/none.sock: No such file or directory; ")


def test_the_only_gateway_needs_no_name(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with listening(tmp_path / "gateway-8079.sock"):
        pass  # and was killed: it leaves its socket behind
    with pytest.raises(Unusable, match="no gateway runs here"):
        the_only_socket(environ)
    with listening(tmp_path / "gateway-8080.sock"):
        assert the_only_socket(environ) == tmp_path / "gateway-8080.sock"
        with (
            listening(tmp_path / "gateway-8081.sock"),
            pytest.raises(Unusable, match=r"(?s)several gateways run here; name one.*8080.sock.*8081.sock"),
        ):
            the_only_socket(environ)


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """A socket at that path that takes connections, for the block."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        yield


def test_workers_are_shown_in_columns() -> None:
    worker = {
        "number": 0,
        "pid": 12345,
        "state": "draining",
        "since": "2026-01-01T00:00:00",
        "restarts": 0,
        "turns": 12,
    }
    assert table([worker]) == [
        "number  pid    state     since                restarts  turns",
        "0       12345  draining  2026-01-01T00:00:00  0         12",
    ]
