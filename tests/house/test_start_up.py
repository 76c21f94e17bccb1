"""Issue 7: a gateway imports before it is ready what it needs. Counted, for times are noise on a shared machine."""

import subprocess
import sys
from functools import cache

import pytest

MODULES_MAX = 1000
"""With the console's colours, which are installed for the tests and load 66 modules; what is there now, and 5 %."""
FOR_SOME = {
    "psycopg": "the driver of PostgreSQL: for those who keep their books there",
    "sqlalchemy": "for migrations only",
    "alembic": "for migrations only",
    "genai_prices": "for routes whose prices are taken from its data",
    "gateway.lock": "for the command of this name",
    "gateway.cli.demo": "for the command of this name",
    "gateway.upstream.scripted": "for tests, the lock and the demo",
}


@cache
def imported() -> frozenset[str]:
    """The modules of a process that is about to serve."""
    program = "import sys, gateway.cli.serve, gateway.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("name", FOR_SOME)
def test_what_only_some_need_is_not_imported(name: str) -> None:
    assert [module for module in imported() if module == name or module.startswith(f"{name}.")] == []


def test_a_start_imports_no_more_modules_than_it_did() -> None:
    assert len(imported()) <= MODULES_MAX
