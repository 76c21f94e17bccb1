"""The store of the configuration that a command names, opened beside the gateways that use it: what a command does to
it they see at once."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from gateway.cli.books import ledger_settings, opened, read_only, require_store
from gateway.cli.configured import DEFAULT_FILE
from gateway.store.database import Database
from gateway.store.schema import check_version, prepare
from gateway.stores import database_of

NOT_DONE: Final = 1
"""The exit code where the books said no; nothing was changed then."""

READ: Final = frozenset({"list", "show"})
"""Commands that change nothing: they need nothing that can be written."""
MAKE: Final = frozenset({"create"})
"""Commands that make a store where there is none, as the first start of a gateway does: accounts may be opened and keys
made before it. All others are about what is there."""

config_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    envvar="GATEWAY_CONFIG",
    default=DEFAULT_FILE,
    show_default=True,
    show_envvar=True,
    help="The configuration file, whose store is meant.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")


@contextmanager
def live_store(file: Path) -> Iterator[Database]:
    """The store that the configuration in the file names; what cannot be done ends the command. The configuration's
    secrets are not needed. What processes that are gone have left in the spool is for the next gateway."""
    settings = ledger_settings(file)
    command = click.get_current_context().info_name
    if command in READ:
        with read_only(settings) as database:
            yield database
        return
    if command not in MAKE:
        require_store(settings)
    with opened(database_of(settings)) as database:
        if command not in MAKE:
            check_version(database)
        prepare(database)
        yield database


def operating_system_user() -> str:
    """Who runs this command: not what the environment says."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
