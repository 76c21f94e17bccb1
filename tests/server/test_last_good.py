"""What is kept for a worker that begins while the files cannot be used (C1, C2)."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from config.samples import ACCOUNT, ENVIRON, KEY, MODEL, ROUTE
from gateway.config import Config, ConfigError, load
from gateway.config.files import Kept, KeptFiles
from gateway.server.last_good import LastGood
from gateway.server.place import Place
from server.test_supervisor import until

COLD = 'routes = "routes.toml"\n' + ACCOUNT + KEY
FIRST = ROUTE.replace('{ env = "OPENAI_API_KEY" }', '{ file = "key" }') + MODEL
SECOND = FIRST.replace("gpt-5.6", "gpt-5.7")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.toml").write_text(COLD)
    (tmp_path / "routes.toml").write_text(FIRST)
    (tmp_path / "key").write_text("sk-9")
    return tmp_path


def read(folder: Path, kept: Kept | None = None) -> Config:
    return load(folder / "gateway.toml", ENVIRON, kept=kept)


def handed_over(last_good: LastGood) -> Kept:
    """As a worker takes it from its place."""
    place = Place.read(str(Place(0, 7, [8, 9], last_good.open())))
    assert place.descriptors == (7, 8, 9, place.last_good)
    kept = place.take_last_good()
    assert kept is not None
    assert place.last_good is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(place.last_good)
    return kept


def test_what_was_read_once_can_be_read_again_when_every_file_is_gone(folder: Path) -> None:
    """C2: secrets too, and how the files stood, so that their repair is seen."""
    started = read(folder)
    for file in ("gateway.toml", "routes.toml", "key"):
        (folder / file).unlink()
    again = read(folder, handed_over(LastGood(started, partial(read, folder))))
    assert again == started
    assert (again.files, again.stamps, again.kept) == (started.files, started.stamps, started.kept)
    assert again.routes["openai"].credential == "sk-9"
    assert "sk-9" not in repr(started) + repr(again)


def test_a_place_without_it_has_none() -> None:
    place = Place.read(str(Place(3, 7, [8])))
    assert (place, place.take_last_good(), place.descriptors) == (Place(3, 7, [8]), None, (7, 8))


def test_of_what_was_kept_no_file_is_there_that_was_not_read(folder: Path) -> None:
    kept = KeptFiles(Kept({}, {folder / "key": b"1234"}))
    assert (kept.is_file(folder / "key"), kept.read(folder / "key", 3)) == (True, b"123")
    assert (kept.is_file(folder / "routes.toml"), kept.stamp(folder / "routes.toml")) == (False, None)
    with pytest.raises(FileNotFoundError):
        kept.read(folder / "routes.toml")


@pytest.mark.trio(run=trio.run)
async def test_the_newest_that_could_be_used_is_kept_whenever_somebody_has_read_the_files(folder: Path) -> None:
    last_good = LastGood(read(folder), partial(read, folder))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(last_good.run)
            (folder / "routes.toml").write_text(SECOND)
            for _ in range(3):
                last_good.look()
            await until(lambda: list(last_good.config.models) == ["gpt-5.7"])
            nursery.cancel_scope.cancel()
    (folder / "routes.toml").write_text("[broken\n")
    (problem,) = await last_good.problems()
    assert problem.startswith(f"{folder}/routes.toml: line 1")
    assert list(read(folder, handed_over(last_good)).models) == ["gpt-5.7"]


@pytest.mark.trio(run=trio.run)
async def test_a_bug_that_a_file_brings_to_light_is_a_problem_of_the_files_and_ends_nobody(folder: Path) -> None:
    def fails() -> Config:
        raise LookupError("nobody has thought of it")

    (problem,) = await LastGood(read(folder), fails).problems()
    assert "LookupError" in problem


def test_a_reading_that_fails_tells_which_files_it_looked_at(folder: Path) -> None:
    """C2: those that gateway.toml names now."""
    (folder / "gateway.toml").write_text(COLD.replace("routes.toml", "other.toml"))
    with pytest.raises(ConfigError) as caught:
        read(folder)
    assert list(caught.value.stamps) == [folder / "gateway.toml", folder / "other.toml"]
    assert caught.value.stamps[folder / "other.toml"] is None
