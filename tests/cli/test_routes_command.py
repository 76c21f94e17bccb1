"""`gateway routes` at a person's end: `check` without a gateway, and how the others tell what they were told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, ROUTE, SMALLEST
from gateway import limits
from gateway.cli import gateway
from gateway.config import parse
from gateway.server.control import Control, control_socket
from gateway.server.routes_shown import summed

TABLE = "0123456789abcdef" * 4
OTHER = "f" * 64
HOT = ROUTE + MODEL


def asked(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(gateway, ["routes", *arguments], env={**ENVIRON, **environ})


# --- check ------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A routes file in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "routes.toml").write_text(HOT)
    return tmp_path / "routes.toml"


def test_a_file_that_can_be_used_is_told_with_its_table(file: Path) -> None:
    """C1: alone, and beside the gateway.toml of the current folder, which lets no key's model go."""
    table = parse(SMALLEST, file="", environ=ENVIRON, directory=file.parent).table_hash[: limits.TABLE_DIGITS]
    alone = asked("check", str(file)).output.splitlines()
    assert alone[0] == f"{file} can be used: table {table}"
    cold = file.with_name("gateway.toml")
    cold.write_text('routes = "other.toml"\n' + ACCOUNT + KEY)
    assert asked("check", "routes.toml").output.splitlines()[0] == f"routes.toml can be used: table {table}"
    cold.write_text(cold.read_text() + 'models = ["gpt-9"]\n')
    refused = asked("check", "routes.toml")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("gateway.toml: keys.laptop.models[0]: names no model of other.toml; ")


def test_relative_files_start_where_apply_has_them_start_and_it_is_said_where(file: Path) -> None:
    """C1, C2: at the routes file whose place the checked one would take; without a gateway.toml, at itself."""
    new, own = file.parent / "new", file.parent / "own"
    for folder in (new, own):
        folder.mkdir()
    beside = new / "routes.toml"
    beside.write_text(HOT.replace('{ env = "OPENAI_API_KEY" }', '{ file = "secret" }'))
    (cold := own / "gateway.toml").write_text('routes = "routes.toml"\n' + ACCOUNT + KEY)
    with_config = ("check", str(beside), "--config", str(cold))

    (new / "secret").write_text("s3cret")
    alone = asked("check", str(beside))
    assert (alone.exit_code, alone.stdout.splitlines()[1]) == (
        0,
        f"checked alone: relative files in it start at {new}; `apply` has them start at the routes file that it "
        "replaces, and so does --config GATEWAY_TOML",
    )
    refused = asked(*with_config)
    assert refused.exit_code == 2
    assert refused.stderr.endswith(f"; create it; a relative path starts at {own}\n")

    (own / "secret").write_text("s3cret")
    (new / "secret").unlink()
    assert asked("check", str(beside)).stderr.endswith(f"; create it; a relative path starts at {new}\n")
    found = asked(*with_config)
    assert (found.exit_code, found.stdout.splitlines()[1]) == (
        0,
        f"checked as the routes of {cold}: relative files in it start at {own}",
    )


def test_every_mistake_of_a_file_stands_on_its_line(file: Path) -> None:
    """C1: exit code 2."""
    file.write_text('[routes.openai]\nbase_url = "ftp://u"\nprofile = "opnai"\n')
    refused = asked("check", str(file))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert [line.removeprefix(f"{file}: ").split(":")[0] for line in refused.stderr.splitlines()] == [
        "routes.openai.profile",
        "routes.openai.base_url",
        "routes.openai.credential",
        "routes.openai.price",
        "models",
    ]


def test_a_file_is_checked_for_as_many_workers_as_there_are(file: Path) -> None:
    """C6."""
    file.write_text(ROUTE + "concurrency = 2\n" + MODEL)
    assert asked("check", str(file), "--workers", "2").exit_code == 0
    refused = asked("check", str(file), "--workers", "3")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert asked("check", str(file), GATEWAY_WORKERS="3").stderr == refused.stderr


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    refused = asked("check", "none.toml")
    assert (refused.exit_code, refused.stderr.split(";")[0]) == (2, "none.toml: does not exist or is no regular file")
    assert asked("apply", "none.toml").exit_code == 2


# --- what is asked of a gateway ---------------------------------------------------------------------------------


WORKERS = [
    {"number": 0, "pid": 7, "state": "ready", "turns": 3, "table": TABLE},
    {"number": 1, "pid": 8, "state": "ready", "turns": 0, "table": OTHER},
]
SERVES = {
    "state": "serving",
    "faults": 0,
    "cooled_by": None,
    "was_asked": False,
    "cools_for_seconds": None,
    "open_attempts": 1,
    "coolings": 0,
    "probes": 0,
    "is_cooling": False,
    "places": 100,
    "is_drained": False,
    "is_listed": True,
}
COOLS = {
    **SERVES,
    "state": "cooling",
    "cooled_by": "rate_limit_exceeded",
    "was_asked": True,
    "cools_for_seconds": 12.345,
    "open_attempts": 2,
    "is_cooling": True,
}
LIVE = [
    {"number": 0, "pid": 7, "state": "ready", "error": None, "table": TABLE, "routes": {"openai": SERVES}},
    {"number": 1, "pid": 8, "state": "draining", "error": None, "table": OTHER, "routes": {"openai": COOLS}},
]
SHOWN = {
    "ok": True,
    "table": TABLE,
    "file": "/etc/routes.toml",
    "problems": [],
    "models": [
        {
            "name": "gpt-5.6",
            "routes": ["openai", "azure", "spare"],
            "listed": [
                {"name": "openai", "priority": 1, "weight": 3},
                {"name": "spare", "priority": 2, "weight": 1},
                {"name": "azure", "priority": 1, "weight": 1},
            ],
            "max_output_tokens": 16384,
        }
    ],
    "routes": [
        {
            "name": "openai",
            "transport": "sse",
            "base_url": "https://u/v1",
            "model": None,
            "concurrency": 200,
            "state": "serve",
        }
    ],
    "workers": WORKERS,
    "live": LIVE,
    "summed": summed(LIVE),
    "kept": [{"table": TABLE, "at": "2027-01-01T00:00:00+00:00"}],
}


@contextmanager
def answering(path: Path, answer: Mapping[str, Any]) -> Iterator[list[Mapping[str, Any]]]:
    """A gateway that always answers so, for the block; what it was asked."""
    requests: list[Mapping[str, Any]] = []
    listening, over = Event(), Event()

    async def command(request: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ASYNC124 - as all commands are called
        requests.append(request)
        return answer

    async def serve() -> None:
        names = ("routes_show", "routes_apply", "routes_rollback")
        async with control_socket(path) as listener, trio.open_nursery() as nursery:
            nursery.start_soon(Control(dict.fromkeys(names, command)).serve, listener)
            listening.set()
            await trio.to_thread.run_sync(over.wait)
            nursery.cancel_scope.cancel()

    thread = Thread(target=trio.run, args=(serve,), daemon=True)
    thread.start()
    assert listening.wait(60)
    yield requests
    over.set()
    thread.join(60)


def test_what_serves_is_shown_in_columns(tmp_path: Path) -> None:
    """M1, C2, C3, C6: each route in all workers and in each."""
    path = tmp_path / "gw.sock"
    with answering(path, SHOWN):
        shown = asked("show", "--control", str(path)).output
        told = json.loads(asked("show", "--json", "--control", str(path)).output)
    assert told == SHOWN
    assert shown.splitlines() == [
        "table 0123456789ab, from /etc/routes.toml",
        "",
        "model    routes by priority             max_output_tokens",
        "gpt-5.6  1: openai x3, azure; 2: spare  16384",
        "",
        "route   transport  base_url      model  concurrency  state",
        "openai  sse        https://u/v1  -      200          serve",
        "",
        "route   worker        open  places  circuit         cools for  why",
        "openai  all           3     200     1 of 2 cooling  12.3 s",
        "openai  0             1     100     serving         -",
        "openai  1 (draining)  2     100     cooling         12.3 s     rate_limit_exceeded, retry-after",
        "",
        "worker  pid  state  turns  table",
        "0       7    ready  3      0123456789ab",
        "1       8    ready  0      ffffffffffff",
        "",
        "kept          at",
        "0123456789ab  2027-01-01T00:00:00+00:00",
    ]


def live_lines(tmp_path: Path, *live: Mapping[str, Any]) -> list[str]:
    """What is shown of how the routes stand."""
    path = tmp_path / "gw.sock"
    with answering(path, {**SHOWN, "live": live, "summed": summed(live)}):
        shown = asked("show", "--control", str(path)).output
    return shown.partition("serve\n\n")[2].partition("\n\nworker  pid")[0].splitlines()


@pytest.mark.parametrize(
    ("route", "line"),
    [
        ({}, "openai  0       1     100     serving  -"),
        ({"faults": 4}, "openai  0       1     100     serving  -          4 faults"),
        ({"is_drained": True}, "openai  0       1     100     drained  -"),
        ({"is_cooling": True, "places": None}, "openai  0       1     -       cooling  -"),
        (
            {"state": "probing", "is_cooling": True, "cooled_by": "x"},
            "openai  0       1     100     probing  -          x",
        ),
        (
            {"is_listed": False, "is_drained": True, "places": None},
            "openai  0       1     -       in no table any more  -",
        ),
    ],
)
def test_a_single_process_has_one_row_for_each_route(tmp_path: Path, route: Mapping[str, Any], line: str) -> None:
    live = {**LIVE[0], "routes": {"openai": {**SERVES, **route}}}
    assert live_lines(tmp_path, live)[1:] == [line]


def test_a_worker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    silent = {**LIVE[1], "error": "has not answered within 2 s", "routes": {}}
    away = {**silent, "number": 2, "pid": None, "error": "has ended, and is started again"}
    assert live_lines(tmp_path, LIVE[0], silent, away)[2:] == [
        "",
        "worker 1 (pid 8) has not answered within 2 s: its routes are not shown",
        "worker 2 has ended, and is started again: its routes are not shown",
    ]


def test_without_a_gateway_it_is_said_and_the_files_table_is_shown(file: Path, tmp_path: Path) -> None:
    """Exit code 1: nothing of it serves, as far as anybody knows."""
    file.with_name("gateway.toml").write_text('routes = "routes.toml"\n' + ACCOUNT + KEY)
    nobody = ("--control", str(tmp_path / "none.sock"))
    shown = asked("show", *nobody)
    assert (shown.exit_code, shown.stderr.count("\n")) == (1, 1)
    assert shown.stderr.startswith(f"no gateway answers at {tmp_path}/none.sock: ")
    table = parse(SMALLEST, file="", environ=ENVIRON, directory=file.parent).table_hash
    assert shown.stdout.splitlines() == [
        f"table {table[: limits.TABLE_DIGITS]}, from routes.toml",
        "",
        "model    routes by priority  max_output_tokens",
        "gpt-5.6  1: openai           16384",
        "",
        "route   transport  base_url                   model  concurrency  state",
        "openai  sse        https://api.openai.com/v1  -      -            serve",
    ]
    told = json.loads(asked("show", "--json", *nobody, "--config", str(file.with_name("gateway.toml"))).stdout)
    assert (told["ok"], told["table"], told["live"], told["workers"]) == (False, table, [], [])
    assert told["error"].startswith("no gateway answers")


def test_without_a_gateway_and_a_file_that_can_be_used_both_are_told(file: Path, tmp_path: Path) -> None:
    nobody = ("--control", str(tmp_path / "none.sock"))
    assert asked("show", *nobody).exit_code == 2
    file.with_name("gateway.toml").write_text("routes = ")
    shown = asked("show", *nobody)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert [line.split(":")[0] for line in shown.stderr.splitlines()] == [
        f"no gateway answers at {tmp_path}/none.sock",
        "gateway.toml",
    ]


def test_files_that_are_broken_now_are_told_beside_what_serves(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with answering(path, {**SHOWN, "problems": ["routes.toml: is broken"]}):
        shown = asked("show", "--control", str(path)).output.splitlines()
    assert shown[1:3] == [
        "the files as they are now cannot be used; what was read before serves:",
        "  routes.toml: is broken",
    ]


@pytest.mark.parametrize(
    ("answer", "code", "stdout", "stderr"),
    [
        ({"ok": True, "error": None, "table": TABLE, "workers": WORKERS[:1]}, 0, "table 0123456789ab is in its", ""),
        (
            {"ok": False, "error": "not all", "table": TABLE, "workers": WORKERS},
            1,
            "table 0123456789ab",
            "Error: not all",
        ),
        ({"ok": False, "unusable": True, "error": "a: is wrong\nb: is, too"}, 2, "", "a: is wrong\nb: is, too\n"),
        ({"ok": False, "error": "there is no such command"}, 2, "", "there is no such command"),
    ],
)
def test_the_exit_code_tells_whether_it_serves(
    file: Path, tmp_path: Path, answer: Mapping[str, Any], code: int, stdout: str, stderr: str
) -> None:
    """0: everywhere. 1: not everywhere. 2: nothing was changed."""
    path = tmp_path / "gw.sock"
    with answering(path, answer) as requests:
        applied = asked("apply", str(file), "--control", str(path))
        asked("rollback", "0123456789ab", "--control", str(path))
        asked("rollback", "--control", str(path))
    assert applied.exit_code == code
    assert applied.stdout.startswith(stdout)
    assert applied.stderr.startswith(stderr)
    assert requests == [
        {"command": "routes_apply", "text": HOT, "name": str(file)},
        {"command": "routes_rollback", "table": "0123456789ab"},
        {"command": "routes_rollback"},
    ]
