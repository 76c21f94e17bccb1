"""What was asked for cannot be done, and who asked can put it right: exit code 2, nothing started."""

from __future__ import annotations

import sys
from typing import IO, Any

import click


class Unusable(click.ClickException):
    """The message goes to stderr as it is: one line for each thing to put right."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Click's own would put one `Error:` before many lines."""
        click.echo(self.message, file=file or sys.stderr)
