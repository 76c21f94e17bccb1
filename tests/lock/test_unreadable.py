"""What cannot be read is refused by its file's name, in a line: nothing is waited for, and nobody sees a traceback."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import gateway
from gateway.lock.pack import Pack
from lock.packs import NAMES, small_pack

R9, R15 = NAMES
DEEP = "[" * 200_000
CONFIG = Path(__file__).parents[2] / "deploy" / "demo.toml"


@pytest.fixture(name="pack")
def a_pack(tmp_path: Path) -> Pack:
    return small_pack(tmp_path)


def run(pack: Pack, *arguments: str) -> Result:
    return CliRunner().invoke(gateway, ["lock", "--fixtures", str(pack.root), *arguments])


def refused(result: Result) -> list[str]:
    """The lines of a refusal; an exception that nobody met is none."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    return result.output.splitlines()


def a_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def a_dangling_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def with_bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


DAMAGES = {
    "no UTF-8": with_bytes(b"\xff\xfe"),
    "nested": with_bytes(b"x = " + DEEP.encode()),
    "a number": with_bytes(b"x = 1" + b"0" * 5000),
    "a folder": a_folder,
    "a dangling link": a_dangling_link,
    "a FIFO": a_fifo,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", [["check"], ["list"], ["show", R9], ["record", R9], ["mutate"], ["table"]], ids=str)
def test_a_scenario_that_cannot_be_read_is_refused_by_every_command(
    pack: Pack, command: list[str], damage: str
) -> None:
    DAMAGES[damage](pack.scenario(R9))
    assert any(line.startswith(f"{R9}.toml: ") for line in refused(run(pack, *command)))


@pytest.mark.parametrize("damage", [*DAMAGES, "missing", "no columns", "no entries"])
@pytest.mark.parametrize(
    "command", [["check"], ["show", R9], ["mutate"], ["table"], ["check", "--config", str(CONFIG)]], ids=str
)
def test_a_transcript_that_cannot_be_read_is_refused_by_every_command(
    pack: Pack, command: list[str], damage: str
) -> None:
    damages = DAMAGES | {
        "nested": with_bytes(DEEP.encode()),
        "missing": Path.unlink,
        "no columns": with_bytes(b'{"http": {}}'),
        "no entries": with_bytes(b'{"http": {"client": [1], "upstream": [], "money": [], "records": []}}'),
    }
    damages[damage](pack.transcript(R9))
    assert any(line.startswith(f"{R9}.json: ") for line in refused(run(pack, *command)))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_declaration_that_cannot_be_read_is_a_finding(pack: Pack, damage: str) -> None:
    DAMAGES[damage](pack.declarations / "0003-x.toml")
    assert [line for line in refused(run(pack, "check")) if line.startswith("0003-x.toml: ")]


@pytest.mark.parametrize("folder", ["lock", "declarations", "lock/more"])
@pytest.mark.parametrize("command", [["check"], ["list"], ["show", R9], ["record", R9], ["table"]], ids=str)
def test_a_folder_that_may_not_be_read_is_named(
    pack: Pack, command: list[str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks like an empty one to `glob`. Whoever runs the tests may be allowed everything: so it is refused here."""
    hidden, scandir = pack.root / folder, os.scandir
    hidden.mkdir(exist_ok=True)

    def refusing(path: str | Path = ".") -> object:
        if Path(path) == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    result = run(pack, *command)
    is_needed = folder == "lock" or command[0] in ("check", "record")
    assert (f"{hidden}: cannot be read (Permission denied)" in result.output) is is_needed
    assert result.exit_code == (2 if is_needed else 0)


@pytest.mark.parametrize("make", [a_fifo, a_dangling_link])
def test_a_fixture_that_is_no_regular_file_is_a_finding(pack: Pack, make: Callable[[Path], None]) -> None:
    make(pack.lock / "notes.txt")
    assert refused(run(pack, "check")) == ["notes.txt: is no regular file"]


@pytest.mark.parametrize("make", [a_fifo, a_folder, a_dangling_link])
def test_nothing_is_written_into_what_is_no_file(pack: Pack, make: Callable[[Path], None]) -> None:
    make(pack.transcript(R9))
    assert refused(run(pack, "record", R9)) == [f"{R9}.json: is no regular file"]


@pytest.mark.parametrize("make", [a_fifo, a_folder, a_dangling_link])
def test_no_page_is_written_into_what_is_no_file(pack: Pack, make: Callable[[Path], None]) -> None:
    pack.pages.mkdir()
    make(pack.pages / f"{R9}.md")
    assert refused(run(pack, "table"))[-1] == f"{R9}.md: is no regular file"


@pytest.mark.parametrize(
    "text",
    [
        "[config.server]\ndrain_timeout = -1",
        "[config.server]\ndrain_timeout = 1979-05-27",
        "[config]\nserver = 5",
        "[config]\nroute = 5",
        "[config.routes]\na = 5",
        "[config.routes.c]\nidle_timeout = 5",
        "[request]\nx = 1979-05-27",
        "requests = [{ x = nan }]",
        "[[client]]\nat = 1\ndoes = 'sends'\nframe = { x = 1979-05-27 }",
        "[[upstream]]\nroute = 'a'\ndoes = [{ type = 'x', x = [1979-05-27] }]",
        "[[upstream]]\nroute = 'a'\ndoes = [[1]]",
        "[[upstream]]\nroute = 'a'\ndoes = [1979-05-27]",
    ],
)
def test_a_mistake_anywhere_in_a_scenario_is_told_by_record(pack: Pack, text: str) -> None:
    pack.scenario("mine").write_text(f'about = "x."\nrules = ["R15"]\n{text}', encoding="utf-8")
    (line,) = refused(run(pack, "record", "mine"))
    assert line.startswith("mine.toml: ")
    assert not pack.transcript("mine").exists()
