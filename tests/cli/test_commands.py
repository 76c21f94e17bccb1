"""Commands are imported as they are asked for."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from gateway.cli import COMMANDS, gateway
from support.processes import run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found_by_its_name(name: str) -> None:
    command = gateway.get_command(click.Context(gateway), name)
    assert command is not None
    assert command.name == name


def test_the_help_names_all_of_them() -> None:
    text = CliRunner().invoke(gateway, ["--help"]).output
    assert [name for name in COMMANDS if f"\n  {name} " not in text] == []


def test_a_command_that_is_none_is_named() -> None:
    result = CliRunner().invoke(gateway, ["srve"])
    assert (result.exit_code, "No such command 'srve'" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("name", "needless"), [("serve", "gateway.lock"), ("rules", "gateway.app"), ("status", "gateway.app")]
)
def test_a_command_imports_nothing_of_the_others(name: str, needless: str) -> None:
    asked = (
        f"import sys, gateway.cli; gateway.cli.gateway.get_command(None, {name!r}); print({needless!r} in sys.modules)"
    )
    assert run(sys.executable, "-c", asked).stdout.strip() == "False"
