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

from gateway.cli.books import ledger_settings, named_errors
from gateway.cli.serve import DEFAULT_FILE
from gateway.cli.unusable import Unusable
from gateway.store.database import Database
from gateway.store.store import open_database
from gateway.stores import database_of

NOT_DONE: Final = 1
"""The exit code where the books said no; nothing was changed then."""

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
    """The store that the configuration in the file names, brought up to date; what cannot be done ends the command. The
    configuration's secrets are not needed."""
    settings = ledger_settings(file)
    database = database_of(settings)
    try:
        with named_errors():
            open_database(database, Path(settings.spool))
            yield database
    except OSError as error:
        raise Unusable(f"ledger.spool: {error}; run this as the gateway's user") from None
    finally:
        database.close()


def operating_system_user() -> str:
    """Who runs this command: not what the environment says."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
