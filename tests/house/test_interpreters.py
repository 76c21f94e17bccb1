"""Every module of the package loads on this interpreter, alone and without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

LOAD_EVERYTHING = """
import importlib, pkgutil, gateway
for module in pkgutil.walk_packages(gateway.__path__, "gateway."):
    if module.name != "gateway.__main__":
        importlib.import_module(module.name)
"""


@pytest.mark.smoke
def test_every_module_loads_without_a_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", LOAD_EVERYTHING]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.smoke
def test_the_command_line_explains_itself() -> None:
    command = [sys.executable, "-W", "error", "-m", "gateway", "--help"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "serve" in result.stdout
