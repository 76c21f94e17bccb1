"""When a process reads its files again (C2): when it is asked, and when they were left alone for a second."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, ROUTE
from gateway.config import Config, load
from gateway.lock.virtual import virtual_run
from gateway.server.reloading import Read, Reloading, Result, Steadiness

virtually = pytest.mark.trio(run=virtual_run)

COLD = 'routes = "routes.toml"\n' + ACCOUNT + KEY
FIRST = ROUTE + MODEL
SECOND = FIRST.replace("gpt-5.6", "gpt-5.7")
BROKEN = "[routes.openai\n"


@dataclass
class Stage:
    """A folder's files, and what was made of them: the time of each swap, with the models that serve from then on."""

    folder: Path
    swaps: list[tuple[float, list[str]]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    reads: int = 0
    meanwhile: Callable[[], None] = lambda: None
    _writes: int = 0

    def write(self, text: str, name: str = "routes.toml") -> None:
        """At a file time of its own, whatever the file system's clock can tell apart."""
        path = self.folder / name
        path.write_text(text)
        self._writes += 1
        os.utime(path, ns=(0, self._writes * 10**9))

    def read(self) -> Config:
        self.reads += 1
        return load(self.folder / "gateway.toml", ENVIRON)

    async def run_read(self, read: Read) -> Config:  # noqa: ASYNC124 - a virtual clock would jump while a thread runs
        try:
            return read()
        finally:
            self.meanwhile()

    def swap(self, config: Config) -> None:
        self.swaps.append((trio.current_time(), list(config.models)))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.write(COLD, "gateway.toml")
    made.write(FIRST)
    return made


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


@asynccontextmanager
async def watching(stage: Stage) -> AsyncIterator[Reloading]:
    reloading = Reloading(stage.read(), stage.read, stage.swap, stage.results.append, stage.run_read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloading.watch)
        yield reloading
        nursery.cancel_scope.cancel()


def events(logged: list[MutableMapping[str, Any]]) -> list[str]:
    return [str(entry["event"]) for entry in logged]


def test_files_are_due_when_they_were_left_alone_for_a_second() -> None:
    """C2: just before, and at the second."""
    steadiness = Steadiness(((1, 1, 1),), 0.0)
    changed = ((2, 1, 1),)
    looks = [(0.5, ((1, 1, 1),)), (1.0, changed), (1.999, changed), (2.0, changed)]
    assert [steadiness.is_due(found, at) for at, found in looks] == [False, False, False, True]
    steadiness.was_read(changed)
    assert not steadiness.is_due(changed, 9.0)
    assert [steadiness.is_due((None,), at) for at in (9.5, 10.0, 10.5)] == [False, False, True]


def test_files_that_change_back_are_as_they_were_read() -> None:
    steadiness = Steadiness(((1, 1, 1),), 0.0)
    assert not steadiness.is_due(((2, 1, 1),), 1.0)
    assert not steadiness.is_due(((1, 1, 1),), 5.0)
    assert not steadiness.is_due(((1, 1, 1),), 9.0)


@virtually
async def test_a_changed_file_is_swapped_in_when_it_is_steady(stage: Stage) -> None:
    """C2: changed at 0.2 s, seen at 0.5 s, steady at 1.5 s; nothing else is read."""
    async with watching(stage):
        await trio.sleep(0.2)
        stage.write(SECOND)
        await trio.sleep(5)
    assert stage.swaps == [(1.5, ["gpt-5.7"])]
    assert (stage.reads, stage.results) == (2, ["applied"])


@virtually
async def test_a_change_between_the_start_and_the_first_look_is_seen(stage: Stage) -> None:
    """C2: a process takes a second from reading its files to serving."""
    started = stage.read()
    stage.write(SECOND)
    reloading = Reloading(started, stage.read, stage.swap, stage.results.append, stage.run_read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reloading.watch)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert [models for _, models in stage.swaps] == [["gpt-5.7"]]


@virtually
async def test_a_routes_file_that_is_named_while_it_serves_is_watched_from_then_on(stage: Stage) -> None:
    async with watching(stage):
        stage.write(SECOND, "other.toml")
        stage.write(COLD.replace("routes.toml", "other.toml"), "gateway.toml")
        await trio.sleep(5)
        stage.write(SECOND.replace("gpt-5.7", "gpt-5.8"), "other.toml")
        await trio.sleep(5)
    assert [models for _, models in stage.swaps] == [["gpt-5.7"], ["gpt-5.8"]]


@virtually
async def test_half_a_file_is_neither_served_nor_complained_of(
    stage: Stage, logged: list[MutableMapping[str, Any]]
) -> None:
    """C2: a slow copy is read once, when it is over."""
    async with watching(stage):
        for length in range(10, len(SECOND), 20):
            stage.write(SECOND[:length])
            await trio.sleep(0.7)
        stage.write(SECOND)
        await trio.sleep(5)
    assert [models for _, models in stage.swaps] == [["gpt-5.7"]]
    assert events(logged) == ["routes_applied"]


@virtually
async def test_a_file_that_is_written_to_while_it_is_read_is_read_again(stage: Stage) -> None:
    async with watching(stage):
        stage.meanwhile = lambda: stage.write(SECOND) if stage.reads == 2 else None
        stage.write(FIRST.replace("gpt-5.6", "half"))
        await trio.sleep(5)
    assert [models for _, models in stage.swaps] == [["gpt-5.7"]]


@virtually
async def test_a_broken_file_changes_nothing_and_is_told_once(
    stage: Stage, logged: list[MutableMapping[str, Any]]
) -> None:
    """C2."""
    async with watching(stage) as reloading:
        before = reloading.table
        stage.write(BROKEN)
        await trio.sleep(60)
        assert (stage.swaps, reloading.table) == ([], before)
        stage.write(SECOND)
        await trio.sleep(5)
    assert events(logged) == ["routes_refused", "routes_applied"]
    (problem,) = logged[0]["problems"]
    assert problem.startswith(f"{stage.folder}/routes.toml: line 1, column 15: is not valid TOML")
    assert stage.results == ["refused", "applied"]


@virtually
async def test_a_file_that_is_gone_is_told_and_one_that_comes_back_is_as_it_was(
    stage: Stage, logged: list[MutableMapping[str, Any]]
) -> None:
    async with watching(stage):
        (stage.folder / "routes.toml").unlink()
        await trio.sleep(5)
        stage.write(FIRST)
        await trio.sleep(5)
    assert events(logged) == ["routes_refused"]
    assert stage.results == ["refused", "unchanged"]


@virtually
async def test_who_asks_is_answered_at_once(stage: Stage, logged: list[MutableMapping[str, Any]]) -> None:
    """C2: SIGHUP."""
    async with watching(stage) as reloading:
        await trio.sleep(0.1)
        stage.write(SECOND)
        reloading.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.swaps == [(0.1, ["gpt-5.7"])]
        await trio.sleep(5)
        reloading.ask()
        await trio.sleep(5)
    assert len(stage.swaps) == 1
    assert events(logged) == ["routes_applied", "routes_unchanged"]


@virtually
async def test_what_needs_a_restart_is_named_once_for_each_change(
    stage: Stage, logged: list[MutableMapping[str, Any]]
) -> None:
    """C1: and the rest is swapped all the same."""
    async with watching(stage):
        stage.write(COLD + "[limits]\nturns_max = 7\n", "gateway.toml")
        stage.write(SECOND)
        await trio.sleep(5)
        stage.write(FIRST)
        await trio.sleep(5)
    assert events(logged) == ["restart_needed", "routes_applied", "routes_applied"]
    assert logged[0]["tables"] == ["limits"]


@virtually
async def test_routes_in_gateway_toml_itself_are_swapped_too(stage: Stage) -> None:
    """C1."""
    stage.write(ACCOUNT + KEY + FIRST, "gateway.toml")
    async with watching(stage):
        stage.write(ACCOUNT + KEY + SECOND, "gateway.toml")
        await trio.sleep(5)
    assert [models for _, models in stage.swaps] == [["gpt-5.7"]]


@virtually
async def test_a_rotated_secret_is_another_table(stage: Stage) -> None:
    """C2."""
    (stage.folder / "key").write_text("first")
    stage.write(FIRST.replace('{ env = "OPENAI_API_KEY" }', '{ file = "key" }'))
    async with watching(stage) as reloading:
        (stage.folder / "key").write_text("second")
        outcome = await reloading.reload("asked")
    assert outcome.result is Result.APPLIED
    assert len(stage.swaps) == 1


# --- which files are watched once some could not be used ------------------------------------------------------------

ELSEWHERE = COLD.replace("routes.toml", "other.toml")


@virtually
async def test_a_routes_file_that_was_broken_when_it_was_named_is_seen_being_repaired(stage: Stage) -> None:
    """C2: named at 0 s, refused at 1.5 s; repaired at 5.2 s, seen at 5.5 s, steady at 6.5 s."""
    async with watching(stage):
        stage.write(BROKEN, "other.toml")
        stage.write(ELSEWHERE, "gateway.toml")
        await trio.sleep(5.2)
        stage.write(SECOND, "other.toml")
        await trio.sleep(5)
    assert stage.results == ["refused", "applied"]
    assert stage.swaps == [(6.5, ["gpt-5.7"])]


@virtually
async def test_a_routes_file_that_was_missing_when_it_was_named_is_seen_coming(stage: Stage) -> None:
    """C2: asked for, too."""
    async with watching(stage) as reloading:
        stage.write(ELSEWHERE, "gateway.toml")
        assert (await reloading.reload("asked")).result is Result.REFUSED
        await trio.sleep(10)
        stage.write(SECOND, "other.toml")
        await trio.sleep(5)
    assert stage.results == ["refused", "applied"]


@virtually
async def test_a_file_that_is_named_no_more_is_not_looked_at(stage: Stage) -> None:
    async with watching(stage):
        stage.write(BROKEN, "other.toml")
        stage.write(ELSEWHERE, "gateway.toml")
        await trio.sleep(5)
        stage.write(SECOND)
        await trio.sleep(5)
    assert stage.results == ["refused"]


@virtually
async def test_a_gateway_toml_that_names_nothing_for_a_while_is_seen_naming_something_again(stage: Stage) -> None:
    async with watching(stage):
        stage.write("routes = ", "gateway.toml")
        await trio.sleep(5)
        stage.write(SECOND)
        stage.write(COLD, "gateway.toml")
        await trio.sleep(5)
    assert stage.results == ["refused", "applied"]


# --- what nobody has foreseen ---------------------------------------------------------------------------------------


@virtually
@pytest.mark.parametrize("where", ["read", "swap"])
async def test_a_bug_that_a_file_brings_to_light_changes_nothing_and_ends_nothing(
    stage: Stage, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: the next file that can be used serves."""

    def fails(*_arguments: object) -> Config:
        raise LookupError("nobody has thought of it")

    async with watching(stage) as reloading:
        table = reloading.table
        with monkeypatch.context() as patch:
            patch.setattr(reloading, f"_{where}", fails)
            stage.write(SECOND)
            outcome = await reloading.reload("asked")
            assert (outcome.result, reloading.table, stage.swaps) == (Result.REFUSED, table, [])
            assert "LookupError" in str(outcome.problems[0])
        assert (await reloading.reload("asked")).result is Result.APPLIED


@virtually
@pytest.mark.parametrize(
    "text", ["routes = " + "[" * 2000 + "]" * 2000, FIRST.replace("api.openai.com", f"{'a' * 64}.test")]
)
async def test_what_no_reader_can_hold_and_no_name_can_be_is_a_mistake_in_the_file(stage: Stage, text: str) -> None:
    """C1."""
    async with watching(stage) as reloading:
        stage.write(text)
        assert (await reloading.reload("asked")).result is Result.REFUSED
