"""What an installed gateway has, and a checkout finds in deploy/."""

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
MIGRATIONS = "gateway/store/migrations"
"""Found by Alembic as files: a wheel without them could not make its database."""


def test_a_wheel_carries_the_package_and_the_files_that_its_commands_need(tmp_path: Path) -> None:
    """And from them `gateway lock` works where no checkout is."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=120, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    embedded = ("demo.toml", "gateway.example.toml", "routes.example.toml", "fixtures/lock/r9-break-after-created.json")
    assert {"gateway/__main__.py", *(f"gateway/embedded/{name}" for name in embedded)} <= names
    migrations = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / MIGRATIONS).rglob("*.py")}
    assert len(migrations) > 2
    assert migrations <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"gateway"}
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    checked = lock(tmp_path / "installed", "check", "r9-break-after-created")
    assert checked == (0, "1 scenarios behave as recorded, and every fixture is as declared\n")
    recorded = lock(tmp_path / "installed", "record", "--all")
    assert recorded == (
        2,
        "an installed gateway's fixtures stay as they were released; name others with --fixtures\n",
    )


def lock(installed: Path, *arguments: str) -> tuple[int, str]:
    """What the package that lies there answers."""
    command = [sys.executable, "-m", "gateway", "lock", *arguments]
    result = subprocess.run(command, cwd=installed, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout + result.stderr
