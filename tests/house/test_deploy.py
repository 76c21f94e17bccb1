"""The scripts of deploy/ find an interpreter that starts, whatever lies on PATH, or say that there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = ["deploy/run", "deploy/test", ".ci/run"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A folder that stands first on PATH and hides every Python of this machine, behind shims that only fail."""
    for name in ["python3", "python3.11", "python3.12", "python3.13"]:
        executable(tmp_path / name, "echo 'command not found' >&2; exit 127")
    return tmp_path


def executable(file: Path, body: str) -> None:
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)


def bash(script: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    search = f"{path}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-c", f"set -euo pipefail; source '{REPOSITORY}/deploy/environment.sh'; {script}"]
    environment = {"HOME": str(path), "PATH": search, **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_shim_that_does_not_start_is_passed_over(path: Path) -> None:
    executable(path / "python3.11", f"exec '{sys.executable}' \"$@\"")
    result = bash("find_python", path)
    assert (result.returncode, Path(result.stdout.strip()).name[:6]) == (0, "python"), result.stderr


def test_no_interpreter_is_an_error_that_says_what_to_do(path: Path) -> None:
    result = bash("find_python", path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "set PYTHON" in result.stderr


def test_the_interpreter_that_is_asked_for_is_taken_or_refused_never_replaced(path: Path) -> None:
    assert bash("find_python", path, PYTHON=sys.executable).stdout.strip() == sys.executable
    executable(path / "python3.11", f"exec '{sys.executable}' \"$@\"")
    refused = bash("find_python", path, PYTHON="python3.13")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "PYTHON=python3.13" in refused.stderr


def test_a_version_is_found_among_the_interpreters_of_pyenv(path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    installed = path / f".pyenv/versions/{version}.1/bin"
    installed.mkdir(parents=True)
    executable(installed / "python", f"exec '{sys.executable}' \"$@\"")
    assert bash(f"find_python_version {version}", path).stdout.strip() == sys.executable
    assert bash("find_python_version 3.99", path).returncode == 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_run_and_stops_at_the_first_failure(script: str) -> None:
    file = REPOSITORY / script
    assert os.access(file, os.X_OK)
    assert "\nset -euo pipefail\n" in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("says", "is_usable"),
    [("v17.9.1", False), ("v18.0.0", True), ("v20.20.2", True), ("v100.1.0", True), ("nonsense", False), ("", False)],
)
def test_node_is_usable_from_its_eighteenth_version(path: Path, says: str, is_usable: bool) -> None:
    """What is not usable is not played: it must not be left out for another reason."""
    executable(path / "npm", "exit 0")
    executable(path / "node", f"echo '{says}'")
    assert (bash("node_is_usable", path).returncode == 0) is is_usable


def test_without_npm_node_is_no_use(path: Path) -> None:
    executable(path / "node", "echo v20.0.0")
    assert bash(f"PATH='{path}'; node_is_usable", path).returncode == 1


def test_the_pin_of_a_package_is_cut_out_of_a_lock_with_all_its_hashes(path: Path) -> None:
    """And not that of one whose name begins or ends the same."""
    lock = path / "lock"
    pin = "uv==2 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n"
    lock.write_text(f"a-uv==1 \\\n    --hash=sha256:0\n{pin}    # via us\nuvloop==3\n")
    assert bash(f"pin_of uv '{lock}'", path).stdout == pin
