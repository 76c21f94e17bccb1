"""The configuration that a command is about: its file's default name, and what is wrong with it as the command's end.

It imports no server and no app: most commands serve nobody.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.cli.unusable import Unusable
from gateway.config import Config, ConfigError, load

DEFAULT_FILE: Final = Path("gateway.toml")


def read_config(file: Path, workers: int = 1) -> Config:
    """The configuration in the file; every problem on its own line where there is one."""
    try:
        return load(file, os.environ, workers=workers)
    except ConfigError as error:
        is_missing = file == DEFAULT_FILE and not file.exists()
        hint = "\nname one with --config; `gateway demo` needs none" if is_missing else ""
        raise Unusable(f"{error}{hint}") from None


def with_server(config: Config, **given: object) -> Config:
    """The configuration with the command line's own settings of its `server` table; None leaves the file's."""
    update = {name: value for name, value in given.items() if value is not None}
    return replace(config, server=config.server.model_copy(update=update))
