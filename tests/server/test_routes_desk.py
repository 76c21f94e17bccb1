"""`gateway routes` at the gateway's end: what is asked for, of processes that do as they are told, or do not (C2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, ROUTE, SMALLEST
from gateway.config import Candidate, Config, load
from gateway.server.posts import live_row
from gateway.server.routes_desk import RoutesDesk

pytestmark = pytest.mark.trio(run=trio.run)

COLD = 'routes = "routes.toml"\n' + ACCOUNT + KEY
FIRST = ROUTE + MODEL
SECOND = FIRST.replace("gpt-5.6", "gpt-5.7")


def stands(open_attempts: int, cools_for_seconds: float | None) -> dict[str, Any]:
    """How a route does, as far as it is summed."""
    is_cooling = cools_for_seconds is not None
    found = {"open_attempts": open_attempts, "cools_for_seconds": cools_for_seconds, "is_cooling": is_cooling}
    return {**found, "is_drained": False}


@dataclass
class Processes:
    """Two workers; those in `deaf` go on with what they have."""

    table: str
    deaf: set[int] = field(default_factory=set)
    draining: set[int] = field(default_factory=set)
    _tables: dict[int, str] = field(default_factory=dict)

    def status(self) -> Sequence[Mapping[str, Any]]:
        return [
            {
                "number": number,
                "pid": 100 + number,
                "state": "draining" if number in self.draining else "ready",
                "turns": 0,
                "table": self._tables.get(number, self.table),
            }
            for number in (0, 1)
        ]

    async def live(self) -> Sequence[Mapping[str, Any]]:  # noqa: ASYNC124 - real ones are asked
        return [
            {**live_row(0, 100, "ready"), "routes": {"openai": stands(2, None)}},
            {**live_row(1, 101, "ready"), "routes": {"openai": stands(1, 7.5), "gone": stands(4, None)}},
            live_row(2, 102, "ready", "has not answered within 2 s"),
        ]

    async def reload_to(self, table: str) -> None:  # noqa: ASYNC124 - real ones take their time
        self._tables |= {number: table for number in (0, 1) if number not in self.deaf}


@dataclass
class Stage:
    folder: Path
    processes: Processes
    desk: RoutesDesk

    @property
    def file(self) -> Path:
        return self.folder / "routes.toml"

    async def apply(self, text: str = SECOND) -> dict[str, Any]:
        return dict(await self.desk.apply({"text": text, "name": "new.toml"}))


def read(path: Path, candidate: Candidate | None) -> Config:
    return load(path, ENVIRON, candidate)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    (tmp_path / "gateway.toml").write_text(COLD)
    (tmp_path / "routes.toml").write_text(FIRST)
    reading = partial(read, tmp_path / "gateway.toml")
    started = reading(None)
    processes = Processes(started.table_hash)
    return Stage(tmp_path, processes, RoutesDesk(processes, reading, lambda: started))


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


async def test_what_can_be_used_takes_the_files_place_in_every_process(
    stage: Stage, logged: list[MutableMapping[str, Any]]
) -> None:
    answer = await stage.apply()

    assert (answer["ok"], answer["error"], stage.file.read_text()) == (True, None, SECOND)
    assert {worker["table"] for worker in answer["workers"]} == {answer["table"]}
    assert [(entry["event"], entry["origin"]) for entry in logged] == [("routes_written", "new.toml")]


async def test_what_cannot_be_used_changes_nothing_and_is_told_whole(stage: Stage) -> None:
    answer = await stage.apply('[routes.openai]\nbase_url = "ftp://u"\n')

    assert (answer["ok"], answer["unusable"], stage.file.read_text()) == (False, True, FIRST)
    assert [line.split(": ")[1] for line in answer["error"].splitlines()] == [
        "routes.openai.base_url",
        "routes.openai.credential",
        "routes.openai.price",
        "models",
    ]


async def test_a_worker_that_does_not_follow_is_named(stage: Stage) -> None:
    stage.processes.deaf = {1}
    answer = await stage.apply()

    assert not answer["ok"]
    assert answer["error"].endswith("but not all serve it: see the log of worker 1")


async def test_a_worker_that_drains_need_not_follow(stage: Stage) -> None:
    stage.processes.deaf = stage.processes.draining = {1}
    assert (await stage.apply())["ok"]


async def test_a_file_that_cannot_be_written_is_told_with_what_to_do(stage: Stage) -> None:
    (stage.folder / "routes.toml.applied").write_text("no folder")
    answer = await stage.apply()

    assert (answer["ok"], stage.file.read_text()) == (False, FIRST)
    assert answer["error"].startswith(f"{stage.file}: cannot be replaced (")
    assert "let the gateway's user write in its folder" in answer["error"]


async def test_a_broken_file_is_replaced_too_and_is_no_table_to_go_back_to(stage: Stage) -> None:
    stage.file.write_text("broken")
    first = await stage.apply(FIRST)
    assert first["ok"]
    answer = await stage.desk.rollback({})
    assert answer["error"].startswith("no table before this one is kept")


async def test_going_back_twice_is_where_one_was(stage: Stage) -> None:
    first = stage.processes.table
    second = (await stage.apply())["table"]

    assert (await stage.desk.rollback({}))["table"] == first
    assert stage.file.read_text() == FIRST
    assert (await stage.desk.rollback({}))["table"] == second
    assert (await stage.desk.rollback({"table": first[:8]}))["table"] == first
    assert [one["table"] for one in (await stage.desk.show({}))["kept"]] == [first, second]


def with_secret_file(stage: Stage, text: str) -> str:
    """The same with the credential in a file beside."""
    (stage.folder / "secret").write_text("s3cret-one")
    return text.replace('{ env = "OPENAI_API_KEY" }', '{ file = "secret" }')


async def test_going_back_after_a_secret_was_rotated_goes_to_another_table(stage: Stage) -> None:
    """What is kept of the table that serves has another hash by now: it is still no table to go back to."""
    first = stage.processes.table
    second = with_secret_file(stage, SECOND)
    applied = (await stage.apply(second))["table"]
    (stage.folder / "secret").write_text("s3cret-two")

    back = await stage.desk.rollback({})
    assert (back["ok"], back["table"], stage.file.read_text()) == (True, first, FIRST)
    again = await stage.desk.rollback({})
    assert (again["ok"], stage.file.read_text()) == (True, second)
    assert again["table"] not in (first, applied)
    assert (await stage.desk.rollback({}))["table"] == first


async def test_where_all_that_is_kept_reads_as_what_serves_it_is_told(stage: Stage) -> None:
    only = with_secret_file(stage, FIRST)
    stage.file.write_text(only)
    await stage.apply(only)
    (stage.folder / "secret").write_text("s3cret-two")
    await stage.apply(only)

    answer = await stage.desk.rollback({})
    assert (answer["ok"], answer["unusable"]) == (False, True)
    assert answer["error"].startswith(
        "no table before this one is kept: every one that is reads as this one now; apply"
    )
    assert stage.file.read_text() == only


async def test_a_kept_table_that_cannot_be_used_any_more_is_told_with_what_is_wrong(stage: Stage) -> None:
    await stage.apply()
    for kept in stage.folder.glob("routes.toml.applied/*.toml"):
        kept.write_text("[routes.openai\n")

    answer = await stage.desk.rollback({})
    assert (answer["unusable"], stage.file.read_text()) == (True, SECOND)
    assert "routes.toml.applied" in answer["error"]


async def test_what_is_shown_is_what_serves_also_while_the_file_is_broken(stage: Stage) -> None:
    stage.file.write_text("[routes.openai\n")
    shown = await stage.desk.show({})

    assert shown["table"] == stage.processes.table
    assert [(model["name"], model["routes"]) for model in shown["models"]] == [("gpt-5.6", ["openai"])]
    assert [route["base_url"] for route in shown["routes"]] == ["https://api.openai.com/v1"]
    (problem,) = shown["problems"]
    assert problem.startswith(f"{stage.file}: line 1, column 15: is not valid TOML")
    assert "s3cret" not in str(shown)


async def test_what_is_configured_and_how_it_stands_is_shown_in_each_process_and_in_all(stage: Stage) -> None:
    """M1, C3, C6."""
    listed = ROUTE + 'concurrency = 8\nstate = "drain"\n' + MODEL.replace('"openai"', '{ name = "openai", weight = 3 }')
    stage.file.write_text(listed)
    shown = await stage.desk.show({})

    assert shown["models"][0]["listed"] == [{"name": "openai", "priority": 1, "weight": 3}]
    assert [(route["concurrency"], route["state"]) for route in shown["routes"]] == [(8, "drain")]
    assert shown["live"] == await stage.processes.live()
    assert shown["summed"] == [
        {
            "name": "openai",
            "open_attempts": 3,
            "workers": 2,
            "cooling_workers": 1,
            "cools_for_seconds": 7.5,
            "is_drained": False,
        },
        {
            "name": "gone",
            "open_attempts": 4,
            "workers": 1,
            "cooling_workers": 0,
            "cools_for_seconds": None,
            "is_drained": False,
        },
    ]


async def test_routes_that_stand_in_gateway_toml_are_not_written_by_anybody(stage: Stage) -> None:
    (stage.folder / "gateway.toml").write_text(SMALLEST)
    reading = partial(read, stage.folder / "gateway.toml")
    desk = RoutesDesk(stage.processes, reading, partial(reading, None))

    answer = await desk.apply({"text": SECOND, "name": "new.toml"})
    assert answer["error"].startswith("new.toml: would take the place of no file; move routes and models from ")
    assert "holds its routes itself" in (await desk.rollback({}))["error"]
    assert (await desk.show({}))["file"] == f"{stage.folder}/gateway.toml"


@pytest.mark.parametrize("request_", [{}, {"text": 1, "name": "x"}, {"text": "x"}])
async def test_a_request_without_a_text_is_refused(stage: Stage, request_: dict[str, Any]) -> None:
    assert (await stage.desk.apply(request_))["unusable"]
    assert (await stage.desk.rollback({"table": 7}))["unusable"]
