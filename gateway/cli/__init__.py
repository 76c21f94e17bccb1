"""The command line: `gateway COMMAND`. Exit code 2 means that nothing was started, and says what to put right.

A command's module is imported when it is asked for: serving waits for no scenario player, an account's balance for no
web framework.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

from gateway.cli.imports import importing

COMMANDS: Final = {
    # each has its own name in its module
    "accounts": "gateway.cli.accounts",
    "demo": "gateway.cli.demo",
    "keys": "gateway.cli.keys",
    "ledger": "gateway.cli.ledger",
    "lock": "gateway.cli.lock",
    "probe": "gateway.cli.probe",
    "restart": "gateway.cli.control",
    "routes": "gateway.cli.routes",
    "rules": "gateway.cli.rules",
    "serve": "gateway.cli.serve",
    "status": "gateway.cli.control",
    "turns": "gateway.cli.turns",
}


class Commands(click.Group):
    """The commands by name, each found in its module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        name = COMMANDS.get(cmd_name)
        if name is None:
            return None
        if name not in sys.modules:
            with importing():
                import_module(name)
        command = getattr(sys.modules[name], cmd_name)
        return command if isinstance(command, click.Command) else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def gateway() -> None:
    """A gateway for the OpenAI Responses API: it tries another route while the client has seen no output, and never
    after."""
