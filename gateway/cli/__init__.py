"""The command line: `gateway COMMAND`. Exit code 2 means that nothing was started, and says what to put right."""

from __future__ import annotations

import click

from gateway.cli.accounts import accounts
from gateway.cli.control import restart, status
from gateway.cli.demo import demo
from gateway.cli.keys import keys
from gateway.cli.ledger import ledger
from gateway.cli.lock import lock
from gateway.cli.probe import probe
from gateway.cli.rules import rules
from gateway.cli.serve import serve
from gateway.cli.turns import turns


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def gateway() -> None:
    """A gateway for the OpenAI Responses API: it tries another route while the client has seen no output, and never
    after."""


for command in (serve, restart, status, demo, probe, accounts, keys, ledger, turns, rules, lock):
    gateway.add_command(command)
