"""Each import contract of pyproject.toml holds here, and was seen to fail on an import that it is there to refuse."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

FLOORS = "Nothing imports upward and siblings do not see each other"
DOORS = "The two doors do not know each other"
DECISION = "The doors decide nothing"
PURITY = "The core is pure"
DATABASE = "Only the store speaks to a database"
ROOT = "Only the composition root names concrete stores and dialects"

VIOLATIONS = [
    # (contract, the module that gets one line too many, the line)
    (FLOORS, "gateway.core", "import gateway.turn"),
    (FLOORS, "gateway.limits", "import gateway.core"),
    (FLOORS, "gateway.config", "import gateway.ledger"),
    (FLOORS, "gateway.config", "import gateway.ports"),
    (FLOORS, "gateway.measures", "import gateway.ports"),
    (FLOORS, "gateway.encodings", "import gateway.ports"),
    (FLOORS, "gateway.pending", "import gateway.ports"),
    (FLOORS, "gateway.beside_asgi", "import gateway.ports"),
    (FLOORS, "gateway.aside", "import gateway.ports"),
    (FLOORS, "gateway.turn", "import gateway.server"),
    (FLOORS, "gateway.turn", "import gateway.upstream"),
    (FLOORS, "gateway.records", "import gateway.ledger"),
    (FLOORS, "gateway.keys", "import gateway.ledger"),
    (FLOORS, "gateway.store", "import gateway.keys"),
    (FLOORS, "gateway.store", "import gateway.ledger"),
    (FLOORS, "gateway.config", "import gateway.store"),
    (FLOORS, "gateway.server", "import gateway.downstream"),
    (FLOORS, "gateway.stores", "import gateway.routes"),
    (FLOORS, "gateway.downstream", "import gateway.app"),
    (FLOORS, "gateway.app", "import gateway.cli"),
    (FLOORS, "gateway.app", "import gateway.lock"),
    (FLOORS, "gateway.lock", "import gateway.cli"),
    (FLOORS, "gateway.a_floor_nobody_named", ""),
    (DOORS, "gateway.downstream.http", "import gateway.downstream.websocket"),
    (DOORS, "gateway.downstream.websocket", "import gateway.downstream.http"),
    (DECISION, "gateway.downstream.http", "import gateway.core.replay"),
    (DECISION, "gateway.downstream.websocket", "import gateway.core.turn"),
    (PURITY, "gateway.core", "import trio"),
    (PURITY, "gateway.core", "import time"),
    (PURITY, "gateway.core", "from os import environ"),
    (PURITY, "gateway.limits", "import datetime"),
    (PURITY, "gateway.core", "import prometheus_client"),
    (PURITY, "gateway.core", "import psycopg"),
    (DATABASE, "gateway.ledger", "import sqlite3"),
    (DATABASE, "gateway.records", "import psycopg"),
    (DATABASE, "gateway.cli", "import sqlalchemy"),
    (DATABASE, "gateway.turn", "import alembic"),
    (ROOT, "gateway.server", "import gateway.ledger.memory"),
    (ROOT, "gateway.ledger", "import gateway.store.sqlite"),
    (ROOT, "gateway.store.commit", "import gateway.store.postgres"),
    (ROOT, "gateway.server", "import gateway.ledger.durable"),
    (ROOT, "gateway.server", "import gateway.records.memory"),
    (ROOT, "gateway.downstream", "import gateway.keys.memory"),
    (ROOT, "gateway.downstream", "import gateway.upstream.sse"),
    (ROOT, "gateway.downstream", "import gateway.upstream.websocket"),
    (ROOT, "gateway.downstream", "import gateway.metrics"),
    (ROOT, "gateway.server", "import gateway.metrics"),
    (ROOT, "gateway.turn.a_module_nobody_wrote", "import gateway.upstream.scripted"),
]
"""One line per way in which a contract may be broken; the names are those of pyproject.toml."""

ALSO_BROKEN = {"gateway.turn.a_module_nobody_wrote": {FLOORS}}
"""Where no module breaks one contract alone: turn and upstream are siblings, whatever is imported."""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the package and its contracts, to be damaged."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "gateway", tmp_path / "gateway", ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_holds(house: Path) -> None:
    result = lint_imports(house)
    assert (result.returncode, broken(result)) == (0, set()), result.stdout


@pytest.mark.parametrize(
    ("contract", "module", "line"), VIOLATIONS, ids=[f"{v[1]}: {v[2] or 'exists'}" for v in VIOLATIONS]
)
def test_a_contract_names_itself_when_it_is_broken(house: Path, contract: str, module: str, line: str) -> None:
    plant(house, module, line)
    result = lint_imports(house)
    assert result.returncode == 1, result.stdout
    assert broken(result) == {contract} | ALSO_BROKEN.get(module, set()), result.stdout


def test_every_contract_is_seen_to_fail() -> None:
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    contracts = declared["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == {contract for contract, _, _ in VIOLATIONS}


def plant(house: Path, module: str, line: str) -> None:
    """Adds `line` at the end of `module`, which is made where it does not exist."""
    path = house.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    with source.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


def lint_imports(house: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter on the copy: it looks for the package in its working directory first."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=house, capture_output=True, text=True, timeout=60, check=False)


def broken(result: subprocess.CompletedProcess[str]) -> set[str]:
    """The contracts that the linter calls broken."""
    return set(re.findall(r"^(.+) BROKEN\b", result.stdout, re.MULTILINE))
