"""`gateway status` and `gateway restart`: what they ask a running gateway's supervisor over its control socket."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import trio

from gateway.cli.unusable import Unusable
from gateway.server.control import CannotControl, ask, control_folder

COLUMNS: Final = ("number", "pid", "state", "since", "restarts", "turns")

control_option = click.option(
    "--control",
    type=click.Path(path_type=Path),
    envvar="GATEWAY_CONTROL",
    show_envvar=True,
    help="The gateway's control socket, which it names when it starts. Not needed where only one gateway runs.",
)


@click.command()
@control_option
@click.option("--json", "as_json", is_flag=True, help="For programs: the answer as it came.")
def status(control: Path | None, as_json: bool) -> None:
    """Show the workers of the running gateway."""
    answer = answer_of(control, {"command": "status"})
    click.echo(json.dumps(answer) if as_json else "\n".join(table(answer["workers"])))


@click.command()
@control_option
def restart(control: Path | None) -> None:
    """Replace the workers of the running gateway, one by one; no turn is cut.

    Returns when all are replaced, which takes until the last turn of each old worker has ended, or the drain has.
    """
    answer = answer_of(control, {"command": "restart"})
    click.echo(f"all {len(answer['workers'])} workers are replaced")


def answer_of(control: Path | None, request: Mapping[str, str]) -> dict[str, Any]:
    """The gateway's answer; a refusal ends the command."""
    try:
        answer = trio.run(partial(ask, control or the_only_socket(os.environ), request))
    except CannotControl as error:
        raise Unusable(str(error)) from None
    if not answer.get("ok"):
        raise click.ClickException(str(answer.get("error")))
    return answer


def the_only_socket(environ: Mapping[str, str]) -> Path:
    """The one control socket in the folder where they lie by default."""
    folder = control_folder(environ)
    found = sorted(folder.glob("gateway-*.sock"))
    if len(found) != 1:
        listed = "".join(f"\n  --control {path}" for path in found) or f": {folder} has none"
        more = "several gateways run here; name one" if found else "no gateway with workers runs here"
        raise Unusable(f"{more}{listed}" if found else f"{more}{listed}; start one with `gateway serve --workers 2`")
    return found[0]


def table(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The workers in columns, under a headline."""
    rows = [COLUMNS, *([str(worker[column]) for column in COLUMNS] for worker in workers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
