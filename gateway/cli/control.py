"""`gateway status` and `gateway restart`: what they ask a running gateway over its control socket."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

import click
import trio

from gateway import limits
from gateway.cli.unusable import Unusable
from gateway.server.control import CannotControl, ask, control_folder

COLUMNS: Final = ("number", "pid", "state", "since", "restarts", "turns")
WHO: Final = ("number", "pid", "state", "turns")

ANSWER_SECONDS_MAX: Final = 5.0
"""A gateway tells its status at once; one that was stopped, or hangs, never."""
CONNECT_SECONDS_MAX: Final = 1.0

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
    """Show the processes of the running gateway: its workers, or the only one."""
    answer = answer_of(control, {"command": "status"}, ANSWER_SECONDS_MAX)
    click.echo(json.dumps(answer) if as_json else "\n".join(table(answer["workers"])))


@click.command()
@control_option
def restart(control: Path | None) -> None:
    """Replace the workers of the running gateway, one by one; no turn is cut.

    Returns when all are replaced, which takes until the last turn of each old worker has ended, or the drain has.
    """
    answer = answer_of(control, {"command": "restart"})
    click.echo(f"all {len(answer['workers'])} workers are replaced")


def answer_of(control: Path | None, request: Mapping[str, str], seconds_max: float = inf) -> dict[str, Any]:
    """The gateway's answer; a refusal ends the command."""
    answer = unchecked_answer(control, request, seconds_max)
    if not answer.get("ok"):
        raise click.ClickException(str(answer.get("error")))
    return answer


def unchecked_answer(control: Path | None, request: Mapping[str, str], seconds_max: float = inf) -> dict[str, Any]:
    """The gateway's answer, a refusal too."""
    try:
        return trio.run(partial(ask, control or the_only_socket(os.environ), request, seconds_max))
    except CannotControl as error:
        raise NoGateway(str(error)) from None


class NoGateway(Unusable):
    """Nobody answers."""


def the_only_socket(environ: Mapping[str, str]) -> Path:
    """The one control socket in the folder where they lie by default; those that nobody answers at are none."""
    folder = control_folder(environ)
    found = [path for path in sorted(folder.glob("gateway-*.sock")) if _is_alive(path)]
    if not found:
        raise NoGateway(f"no gateway runs here: {folder} has no control socket; start one, or name its with --control")
    if len(found) > 1:
        listed = "".join(f"\n  --control {path}" for path in found)
        raise Unusable(f"several gateways run here; name one{listed}")
    return found[0]


def _is_alive(path: Path) -> bool:
    """A gateway that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(CONNECT_SECONDS_MAX)
        try:
            sock.connect(str(path))
        except TimeoutError:  # somebody is there, and takes no more
            return True
        except OSError:
            return False
        return True


def table(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The workers in columns, under a headline."""
    return columns([COLUMNS, *([str(worker[column]) for column in COLUMNS] for worker in workers)])


def table_of_workers(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which table of models and routes each of them serves (C2)."""
    shown = ([*(str(worker[name]) for name in WHO), worker["table"][: limits.TABLE_DIGITS]] for worker in workers)
    return columns([("worker", *WHO[1:], "table"), *shown])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Each as wide as its widest cell."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
