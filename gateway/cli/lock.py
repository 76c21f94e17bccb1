"""`gateway lock`: the recorded behaviour of this gateway, checked, mutated, shown, changed by declaration (K).

Exit code 0: as it should be. 1: a finding, by the name of its file or mutant. 2: what was asked for cannot be done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gateway.cli.unusable import Unusable
from gateway.config import ConfigError, load
from gateway.lock.checking import check
from gateway.lock.declarations import SECTIONS, changes, draft, next_file, read_history
from gateway.lock.mutants import all_mutants, unreached
from gateway.lock.mutating import catch_all
from gateway.lock.pack import Pack, checkout, shipped
from gateway.lock.parity import disparities
from gateway.lock.player import play
from gateway.lock.scenario import Scenario, ScenarioError, read_scenario
from gateway.lock.table import documents, left_over, replay_table, scenario_page
from gateway.lock.theirs import played_with
from gateway.lock.transcript import to_text

FIXTURES_HELP: Final = "The folder with lock/ and declarations/; the gateway's own if left out."


@click.group()
@click.option("--fixtures", type=click.Path(exists=True, file_okay=False, path_type=Path), help=FIXTURES_HELP)
@click.pass_context
def lock(context: click.Context, fixtures: Path | None) -> None:
    """The behaviour lock: every turn's behaviour as it was recorded, on both doors, and whether it still is so."""
    context.obj = shipped() if fixtures is None else Pack(fixtures)


@lock.command("list")
@click.pass_obj
def list_scenarios(pack: Pack) -> None:
    """The scenarios, with the rules they show."""
    for name in pack.names:
        scenario = _read(pack, name)
        click.echo(f"{name}  [{', '.join(scenario.rules)}]\n    {scenario.about}")


@lock.command("check")
@click.argument("names", nargs=-1)
@click.option(
    "--config", "file", type=click.Path(path_type=Path), help="Play the pack with this gateway.toml's settings."
)
@click.option("--model", help="Of which of its models the routes are taken; the first if left out.")
@click.pass_obj
def check_pack(pack: Pack, names: tuple[str, ...], file: Path | None, model: str | None) -> None:
    """Play all scenarios, or those named, and compare them with their transcripts; and the files with the
    declarations.

    With --config the pack is played with that file's limits, timeouts, codes and policies, and what goes another way
    than by default is shown. That is for reading: it fails only if the file cannot be used (exit code 2).
    """
    chosen = _chosen(pack, names)
    if file is not None:
        _show_theirs(pack, chosen, file, model)
        return
    findings = check(pack, chosen)
    for finding in findings:
        click.echo(str(finding), err=True)
    if findings:
        raise click.exceptions.Exit(1)
    click.echo(f"{len(chosen)} scenarios behave as recorded, and every fixture is as declared")


@lock.command()
@click.argument("names", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every scenario.")
@click.option("--declare", "slug", metavar="SLUG", help="Write the declaration too, as NNNN-SLUG.toml.")
@click.option("--why", default="", help="Why the behaviour changes; a declaration needs it.")
@click.option("--changelog", "text", default="", help="What CHANGELOG.md says of it; a declaration needs it.")
@click.option("--section", type=click.Choice(SECTIONS), default="Changed", help="Under which heading it says so.")
@click.pass_obj
def record(
    pack: Pack, names: tuple[str, ...], is_all: bool, slug: str | None, why: str, text: str, section: str
) -> None:
    """Write the transcripts of these scenarios as they are played now, and print the declaration to review."""
    if not names and not is_all:
        raise Unusable("name the scenarios to record, or say --all")
    if pack.is_embedded:
        raise Unusable("an installed gateway's fixtures stay as they were released; name others with --fixtures")
    if slug is not None and not (why and text):
        raise Unusable("a declaration needs its reason and its line in the changelog: add --why and --changelog")
    for name in _chosen(pack, names):
        _record(pack, name)
    history = read_history(pack)
    if not changes(pack, history):
        click.echo("every fixture is as declared: there is nothing to declare")
        return
    declaration = draft(pack, history, why, section, text)
    click.echo(declaration, nl=False)
    if slug is not None:
        file = next_file(pack, slug)
        file.parent.mkdir(exist_ok=True)
        file.write_text(declaration, encoding="utf-8")
        click.echo(f"written to {file}", err=True)


def _show_theirs(pack: Pack, names: Sequence[str], file: Path, model: str | None) -> None:
    try:
        theirs = load(file, os.environ)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    model = model or next(iter(theirs.models))
    if model not in theirs.models:
        raise Unusable(f"{file}: there is no model {model!r}; it has: {', '.join(theirs.models)}")
    routes = theirs.models[model].routes
    click.echo(f"the routes of {model!r} stand for a, b: {', '.join(routes)}")
    count = 0
    for found in played_with(pack, names, theirs, model):
        count += 1
        click.echo(f"\n{found.name}: {found.about}")
        click.echo("\n".join(f"    {line}" for line in found.lines))
    click.echo(f"\n{count} of {len(names)} scenarios go another way than by default")


@lock.command()
@click.option("--only", "texts", multiple=True, metavar="NAME", help="Mutants whose name holds this text; repeatable.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Processes; one for each core if left out.")
@click.option("--list", "is_list", is_flag=True, help="Name the mutants and play nothing.")
@click.pass_obj
def mutate(pack: Pack, texts: tuple[str, ...], jobs: int | None, is_list: bool) -> None:
    """Flip every rule, one at a time, by name: each flip must break a scenario. A survivor is listed, and fails."""
    known = [name for name in all_mutants() if name not in unreached()]
    names = [name for name in known if not texts or any(text in name for text in texts)]
    if not names:
        raise Unusable(f"no mutant's name holds {' or '.join(map(repr, texts))}; --list shows them")
    if is_list:
        click.echo("\n".join(names))
        return
    survivors = 0
    for caught in catch_all(pack, names, jobs or os.cpu_count() or 1):
        survivors += caught.has_survived
        if caught.has_survived:
            click.echo(f"SURVIVED  {caught.mutant}", err=True)
        elif texts:
            click.echo(f"caught    {caught.mutant}\n          by {caught.scenario}, {caught.shown}")
    if survivors:
        raise click.exceptions.Exit(1)
    click.echo(f"{len(names)} mutants, each caught by a scenario")


def _record(pack: Pack, name: str) -> None:
    scenario = _read(pack, name)
    played = play(scenario, f"{name}.toml")
    for finding in disparities(name, scenario, played):
        click.echo(f"not alike: {finding}", err=True)
    text, file = to_text(played), pack.transcript(name)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
        click.echo(f"recorded {file.name}", err=True)


@lock.command()
@click.argument("name")
@click.pass_obj
def show(pack: Pack, name: str) -> None:
    """One scenario: its file, and a picture of what was recorded of it."""
    (chosen,) = _chosen(pack, (name,))
    click.echo(pack.scenario(chosen).read_text(encoding="utf-8"))
    click.echo(scenario_page(pack, chosen), nl=False)


@lock.command()
@click.option("--print", "is_printed", is_flag=True, help="Print the replay table and write nothing.")
@click.pass_obj
def table(pack: Pack, is_printed: bool) -> None:
    """Write what documents say of the behaviour, in a checkout: the README's replay table, the changelog's
    declarations, a page for each scenario."""
    repository = checkout()
    if is_printed:
        click.echo(replay_table(), nl=False)
        return
    if not (repository / "README.md").is_file():
        raise Unusable(f"there is no checkout at {repository}; --print shows the replay table")
    pack.pages.mkdir(exist_ok=True)
    for page in left_over(pack):
        page.unlink()
    for path, text in documents(pack, repository):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            click.echo(f"written: {path.name}")


def _chosen(pack: Pack, names: Sequence[str]) -> list[str]:
    """The scenarios named, or all of them. Raises Unusable."""
    known = pack.names
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Unusable("\n".join(f"there is no scenario {name!r}; `gateway lock list` shows them" for name in unknown))
    if not known:
        raise Unusable(f"there are no scenarios in {pack.lock}")
    return list(names) or known


def _read(pack: Pack, name: str) -> Scenario:
    try:
        return read_scenario(pack.scenario(name))
    except ScenarioError as error:
        raise Unusable(str(error)) from None
