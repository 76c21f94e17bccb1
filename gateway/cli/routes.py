"""`gateway routes`: which models and routes a running gateway serves, and another table in their place (C2).

show, apply and rollback ask the gateway over its control socket; `check` needs none. Exit code 2: the file cannot be
used, nothing was changed, and every mistake stands on its line. 1: it is in its place, and some process does not serve
it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway import limits
from gateway.app import WORKERS
from gateway.cli.control import ANSWER_SECONDS_MAX, columns, control_option, table_of_workers, unchecked_answer
from gateway.cli.serve import DEFAULT_FILE
from gateway.cli.unusable import Unusable
from gateway.cli.workers import WORKERS_MAX
from gateway.config import Candidate, ConfigError, load, load_routes
from gateway.config.files import read_routes_text
from gateway.server.routes_desk import UNUSABLE

APPLY_SECONDS_MAX: Final = 30.0
"""The files are read, written and read again by each process."""

json_option = click.option("--json", "as_json", is_flag=True, help="For programs: the answer as it came.")
file_argument = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def routes() -> None:
    """Models and routes of a running gateway: look at them, and swap them; no turn is cut."""


@routes.command()
@control_option
@json_option
def show(control: Path | None, as_json: bool) -> None:
    """Show which table serves in which process, its models and routes, and the tables that can be gone back to."""
    answer = _asked(control, {"command": "routes_show"}, ANSWER_SECONDS_MAX)
    click.echo(json.dumps(answer) if as_json else "\n".join(_shown(answer)))


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
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    envvar="GATEWAY_CONFIG",
    show_envvar=True,
    help="The gateway.toml that FILE is for. By default gateway.toml, if it is there; else FILE is checked alone.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    envvar=WORKERS,
    default=1,
    show_default=True,
    help="For how many: a route's concurrency is shared by them, and each needs a part of it.",
)
def check(file: Path, config_file: Path | None, workers: int) -> None:
    """Say all that is wrong with the routes in FILE, without a gateway. Its secrets must be there, as for one."""
    if config_file is None and DEFAULT_FILE.exists():
        config_file = DEFAULT_FILE
    candidate = Candidate(_text_of(file), str(file))
    try:
        if config_file is None:
            found = load_routes(candidate, os.environ, file.parent, workers=workers)
        else:
            found = load(config_file, os.environ, candidate, workers=workers).table_hash
    except ConfigError as error:
        raise Unusable(str(error)) from None
    click.echo(f"{file} can be used: table {found[: limits.TABLE_DIGITS]}")


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


def _shown(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"table {answer['table'][: limits.TABLE_DIGITS]}, from {answer['file']}"
    if answer["problems"]:
        yield "the files as they are now cannot be used; what was read before serves:"
        yield from (f"  {problem}" for problem in answer["problems"])
    yield from ("", *_rows(answer["models"], ("name", "routes", "max_output_tokens"), "model"))
    yield from ("", *_rows(answer["routes"], ("name", "transport", "base_url", "model"), "route"))
    yield from ("", *table_of_workers(answer["workers"]))
    if answer["kept"]:
        yield from ("", *_rows(answer["kept"], ("table", "at"), "kept"))


def _rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str], title: str) -> list[str]:
    """In columns; the first one's headline says what they are."""
    return columns([(title, *names[1:]), *([_cell(name, row[name]) for name in names] for row in rows)])


def _cell(name: str, value: Any) -> str:
    if name == "table":
        return str(value)[: limits.TABLE_DIGITS]
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
