"""The scripts of deploy/ find an interpreter that starts, whatever lies on PATH, or say that there is none."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
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


def interpreter(file: Path, *, is_optimized: bool = True, brings_pip: bool = True, pip: str = "") -> str:
    """This one under another name, which it gives; `pip` is the wheel that it has to lend, if any."""
    file.parent.mkdir(parents=True, exist_ok=True)
    executable(
        file,
        f"""case "$*" in
            *CONFIG_ARGS*) echo '{VERSION} {"optimized" if is_optimized else "plain"} {file}' ;;
            *ensurepip.version*) exit {0 if brings_pip else 1} ;;
            *ensurepip*) {f"echo '{pip}'" if pip else "exit 1"} ;;
            *) exec '{sys.executable}' "$@" ;;
        esac""",
    )
    return str(file)


def bash(script: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    search = f"{path}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-c", f"set -euo pipefail; source '{REPOSITORY}/deploy/environment.sh'; {script}"]
    environment = {"HOME": str(path), "PATH": search, "DISTRIBUTION_BIN": f"{path}/usr", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_shim_that_does_not_start_is_passed_over(path: Path) -> None:
    found = interpreter(path / "python3.11")
    result = bash("find_python", path)
    assert (result.returncode, result.stdout.strip()) == (0, found), result.stderr


def test_one_that_was_built_optimized_comes_first_wherever_it_lies(path: Path) -> None:
    """It is a fifth to a third faster; the distribution's own is, and is looked for behind what is on PATH."""
    plain = interpreter(path / "python3.12", is_optimized=False)
    assert bash("find_python", path).stdout.strip() == plain
    own = interpreter(path / "usr/python3")
    assert bash("find_python", path).stdout.strip() == own
    first = interpreter(path / "python3.11")
    assert bash("find_python", path).stdout.strip() == first


def test_of_a_version_the_one_that_was_built_optimized_comes_first(path: Path) -> None:
    plain = interpreter(path / f".pyenv/versions/{VERSION}.1/bin/python", is_optimized=False)
    assert bash(f"find_python_version {VERSION}", path).stdout.strip() == plain
    own = interpreter(path / f"usr/python{VERSION}")
    assert bash(f"find_python_version {VERSION}", path).stdout.strip() == own


def test_this_interpreter_says_what_it_is(path: Path) -> None:
    """A distribution's was built optimized; of any other sysconfig knows."""
    is_optimized = sys.base_prefix == "/usr" or "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    kind = "optimized" if is_optimized else "plain"
    assert bash(f"described '{sys.executable}'", path).stdout == f"{VERSION} {kind} {sys.executable}\n"


def test_one_that_brings_pip_in_a_place_of_its_own_needs_no_other(path: Path) -> None:
    """A distribution's: its wheels lie beside the interpreter, and there may be no other Python."""
    own = interpreter(path / "usr/python3")
    assert bash("find_python", path).stdout.strip() == own
    assert bash("find_python", path, PYTHON=own).stdout.strip() == own


def test_one_that_brings_no_pip_is_lent_another_s(path: Path) -> None:
    """Debian's, without its package python3-venv. Alone it can make no environment."""
    own = interpreter(path / "usr/python3", brings_pip=False)
    refused = bash("find_python", path, PYTHON=own)
    assert (bash("find_python", path).returncode, refused.returncode) == (1, 1)
    assert "pip" in refused.stderr
    wheel = path / "pip-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr("pip/__main__.py", "import sys; print('pip', *sys.argv[1:])")
    interpreter(path / "python3.12", is_optimized=False, pip=str(wheel))
    assert bash("find_python", path).stdout.strip() == own
    made = bash(f"make_environment '{path}/made' '{own}'", path)
    assert made.stdout.split() == ["pip", "install", "--quiet", "--quiet", "--no-index", str(wheel)], made.stderr


def test_no_interpreter_is_an_error_that_says_what_to_do(path: Path) -> None:
    result = bash("find_python", path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "set PYTHON" in result.stderr


def test_the_interpreter_that_is_asked_for_is_taken_or_refused_never_replaced(path: Path) -> None:
    plain = interpreter(path / "mine", is_optimized=False)
    interpreter(path / "python3.11")
    assert bash("find_python", path, PYTHON=plain).stdout.strip() == plain
    refused = bash("find_python", path, PYTHON="python3.13")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "PYTHON=python3.13" in refused.stderr


def test_a_version_is_found_among_the_interpreters_of_pyenv(path: Path) -> None:
    installed = interpreter(path / f".pyenv/versions/{VERSION}.1/bin/python")
    assert bash(f"find_python_version {VERSION}", path).stdout.strip() == installed
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
