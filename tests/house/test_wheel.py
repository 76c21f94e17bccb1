"""What an installed gateway has, and a checkout finds in deploy/."""

import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
MIGRATIONS = "gateway/store/migrations"
"""Found by Alembic as files: a wheel without them could not make its database."""


def test_a_wheel_carries_the_package_and_the_files_that_the_demo_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=120, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"gateway/__main__.py", "gateway/embedded/demo.toml", "gateway/embedded/gateway.example.toml"} <= names
    migrations = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / MIGRATIONS).rglob("*.py")}
    assert len(migrations) > 2
    assert migrations <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"gateway"}
