"""The locks are what pyproject.toml asks for, and name nothing of the machine that compiled them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).parents[2]
RUNTIME = REPOSITORY / "deploy/requirements.lock"
DEVELOPMENT = REPOSITORY / "deploy/requirements-dev.lock"

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)[^\\]*\\\n    --hash=sha256:", re.MULTILINE)


def pins(lock: Path) -> dict[str, Version]:
    """What a lock pins, each with at least one hash."""
    return {canonicalize_name(pin["name"]): Version(pin["version"]) for pin in PINNED.finditer(lock.read_text("utf-8"))}


def wanted(*groups: str) -> list[Requirement]:
    """What pyproject.toml asks for: the runtime's dependencies and those of the groups."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    asked = [declared["project"]["dependencies"], *(declared["dependency-groups"][group] for group in groups)]
    return [Requirement(line) for lines in asked for line in lines]


def is_pinned(requirement: Requirement, locked: dict[str, Version]) -> bool:
    version = locked.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version)


@pytest.mark.parametrize(
    ("lock", "groups"), [(RUNTIME, ["build"]), (DEVELOPMENT, ["build", "dev"])], ids=["runtime", "dev"]
)
def test_a_lock_pins_everything_that_is_asked_for(lock: Path, groups: list[str]) -> None:
    locked = pins(lock)
    assert [str(requirement) for requirement in wanted(*groups) if not is_pinned(requirement, locked)] == []


def test_people_test_what_is_deployed() -> None:
    runtime, development = pins(RUNTIME), pins(DEVELOPMENT)
    assert {name: development.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("lock", [RUNTIME, DEVELOPMENT], ids=["runtime", "dev"])
def test_a_lock_names_no_machine_and_no_registry(lock: Path) -> None:
    lines = lock.read_text("utf-8").splitlines()
    assert [line for line in lines if "://" in line or line.startswith(("-", "/")) or " /" in line] == []
