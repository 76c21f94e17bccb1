"""`gateway routes`: which models and routes a running gateway serves, and another table in their place (C2).

show, apply and rollback ask the gateway over its control socket; `check` needs none. Exit code 2: the file cannot be
used, nothing was changed, and every mistake stands on its line. 1: it is in its place, and some process does not serve
it; or no gateway answers, and `show` shows what the file says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gateway import limits
from gateway.cli.configured import DEFAULT_FILE
from gateway.cli.control import ANSWER_SECONDS_MAX, NoGateway, control_option, table_of_workers, unchecked_answer
from gateway.cli.routes_shown import shown, shown_offline
from gateway.cli.unusable import Unusable
from gateway.cli.workers import WORKERS_MAX
from gateway.config import Candidate, ConfigError, load, load_routes
from gateway.config.files import read_routes_text
from gateway.config.workers import WORKERS
from gateway.server.routes_desk import UNUSABLE
from gateway.server.routes_shown import table_as_shown

F = TypeVar("F", bound=Callable[..., Any])

APPLY_SECONDS_MAX: Final = 30.0
"""The files are read, written and read again by each process."""
_BUT_APPLIED: Final = "; `apply` has them start at the routes file that it replaces, and so does --config GATEWAY_TOML"
"""Said where nobody knows which routes file that is."""

json_option = click.option("--json", "as_json", is_flag=True, help="For programs: the answer as it came.")


def config_option(text: str) -> Callable[[F], F]:
    """Names a gateway.toml; `text` says what for."""
    path = click.Path(path_type=Path)
    return click.option("--config", "config_file", type=path, envvar="GATEWAY_CONFIG", show_envvar=True, help=text)


file_argument = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def routes() -> None:
    """Models and routes of a running gateway: look at them, and swap them; no turn is cut."""


@routes.command()
@control_option
@config_option("Whose routes are shown where no gateway answers.")
@json_option
def show(control: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Show the table, how its routes stand in each process (attempts, circuits, what is left alone for how long and
    why), which process serves which table, and the tables that can be gone back to."""
    try:
        answer = _asked(control, {"command": "routes_show"}, ANSWER_SECONDS_MAX)
    except NoGateway as nobody:
        _show_file(nobody, config_file, as_json=as_json)
        raise click.exceptions.Exit(1) from None
    click.echo(json.dumps(answer) if as_json else "\n".join(shown(answer)))


def _show_file(nobody: NoGateway, config_file: Path | None, *, as_json: bool) -> None:
    """What would serve, if it can be used; without a file there is nothing to say but that nobody answers."""
    file = config_file or DEFAULT_FILE
    if config_file is None and not file.exists():
        raise nobody
    nobody.show()
    try:
        config = load(file, os.environ)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    table = {"ok": False, "error": nobody.message, **table_as_shown(config), "problems": []}
    asked: dict[str, Any] = {"workers": [], "live": [], "summed": [], "kept": []}
    click.echo(json.dumps({**table, **asked}) if as_json else "\n".join(shown_offline(table)))


@routes.command()
@file_argument
@control_option
@json_option
def apply(file: Path, control: Path | None, as_json: bool) -> None:
    """Have the routes in FILE serve: it takes the place of the routes file, if it can be used."""
    request = {"command": "routes_apply", "text": _text_of(file), "name": str(file)}
    _report(_asked(control, request, APPLY_SECONDS_MAX), as_json=as_json)


@routes.command()
@click.argument("table", required=False)
@control_option
@json_option
def rollback(table: str | None, control: Path | None, as_json: bool) -> None:
    """Go back to a table that was applied before: the one whose hash begins with TABLE, or the last one before this."""
    request = {"command": "routes_rollback", **({} if table is None else {"table": table})}
    _report(_asked(control, request, APPLY_SECONDS_MAX), as_json=as_json)


@routes.command()
@file_argument
@config_option("The gateway.toml that FILE is for; gateway.toml by default, and without one FILE is checked alone.")
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    envvar=WORKERS,
    default=1,
    show_default=True,
    help="For how many: a route's concurrency is shared by them, and each needs a part of it.",
)
def check(file: Path, config_file: Path | None, workers: int) -> None:
    """Say all that is wrong with the routes in FILE, without a gateway. Its secrets must be there, as for one: relative
    files start at the folder of the routes file that FILE would take the place of, as when it is applied."""
    if config_file is None and DEFAULT_FILE.exists():
        config_file = DEFAULT_FILE
    candidate = Candidate(_text_of(file), str(file))
    try:
        if config_file is None:
            found = load_routes(candidate, os.environ, file.parent, workers=workers)
            checked, folder, but = "alone", file.parent, _BUT_APPLIED
        else:
            config = load(config_file, os.environ, candidate, workers=workers)
            found, checked, but = config.table_hash, f"as the routes of {config_file}", ""
            folder = (config.routes_file or config_file).parent
    except ConfigError as error:
        raise Unusable(str(error)) from None
    click.echo(f"{file} can be used: table {found[: limits.TABLE_DIGITS]}")
    click.echo(f"checked {checked}: relative files in it start at {folder.absolute()}{but}")


def _text_of(file: Path) -> str:
    try:
        return read_routes_text(file)
    except ConfigError as error:
        raise Unusable(str(error)) from None


def _asked(control: Path | None, request: Mapping[str, str], seconds_max: float) -> dict[str, Any]:
    """The answer. What is the asker's to put right ends the command with 2."""
    answer = unchecked_answer(control, request, seconds_max)
    if not answer.get("ok") and (answer.get(UNUSABLE) or "workers" not in answer):
        raise Unusable(str(answer.get("error")))
    return answer


def _report(answer: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer))
    else:
        click.echo(f"table {answer['table'][: limits.TABLE_DIGITS]} is in its place")
        click.echo("\n".join(table_of_workers(answer["workers"])))
    if not answer["ok"]:
        raise click.ClickException(str(answer["error"]))
