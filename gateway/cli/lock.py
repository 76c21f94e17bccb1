"""`gateway lock`: the recorded behaviour of this gateway, checked, mutated, shown, changed by declaration (K).

Exit code 0: as it should be. 1: a finding, by the name of its file or mutant. 2: what was asked for cannot be done.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.unusable import Unusable
from gateway.config import Config, ConfigError, load
from gateway.lock.checking import check
from gateway.lock.declarations import SECTIONS, changes, draft, next_file, read_history
from gateway.lock.files import Unreadable, text_of
from gateway.lock.mutants import all_mutants, unreached
from gateway.lock.mutating import catch_all
from gateway.lock.pack import NAME, Pack, checkout, shipped
from gateway.lock.parity import disparities
from gateway.lock.player import Crashed, play
from gateway.lock.reading import read_playable
from gateway.lock.scenario import ScenarioError, read_scenario
from gateway.lock.table import MarksMissing, documents, left_over, replay_table, scenario_page, scenario_pages
from gateway.lock.theirs import Otherwise, left_out, played_with, stand_ins
from gateway.lock.transcript import to_text
from gateway.lock.vocabulary import vocabulary

FIXTURES_HELP: Final = "The folder with lock/ and declarations/; the gateway's own if left out."

PROGRESS_SECONDS: Final = 5.0
"""On a busy machine the pack plays for minutes: so often it says how far it is."""
SHOWN_IN_FULL_MAX: Final = 20
"""Of the scenarios that go another way with --config; the rest is named, and may be asked for by name."""


class Refusing(click.Group):
    """A group whose commands end in a line for each thing to put right, wherever they met it."""

    def invoke(self, context: click.Context) -> Any:
        """The command. Raises Unusable and Abort."""
        try:
            return super().invoke(context)
        except (ScenarioError, Unreadable, MarksMissing) as error:
            raise Unusable(str(error)) from None
        except OSError as error:
            raise Unusable(f"{error.filename}: {error.strerror}") from None
        except BaseExceptionGroup as group:  # Ctrl-C as trio hands it on
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise click.Abort from None


@click.group(cls=Refusing)
@click.option("--fixtures", type=click.Path(exists=True, file_okay=False, path_type=Path), help=FIXTURES_HELP)
@click.pass_context
def lock(context: click.Context, fixtures: Path | None) -> None:
    """The behaviour lock: every turn's behaviour as it was recorded, on both doors, and whether it still is so."""
    context.obj = shipped() if fixtures is None else Pack(fixtures)


@lock.command("list")
@click.pass_obj
def list_scenarios(pack: Pack) -> None:
    """The scenarios, with the rules they show."""
    for name in _chosen(pack, ()):
        scenario = read_scenario(pack.scenario(name))
        click.echo(f"{name}  [{', '.join(scenario.rules)}]\n    {scenario.about}")


@lock.command("check")
@click.argument("names", nargs=-1)
@click.option(
    "--config", "file", type=click.Path(path_type=Path), help="Play the pack with this gateway.toml's settings."
)
@click.option("--model", help="With --config: of which of its models; the first if left out.")
@click.pass_obj
def check_pack(pack: Pack, names: tuple[str, ...], file: Path | None, model: str | None) -> None:
    """Play all scenarios, or those named, and compare them with their transcripts; and the files with the
    declarations.

    With --config the pack is played with that file's limits, timeouts, codes and policies, and what goes another way
    than by default is shown. That is for reading: it fails only if the file cannot be used (exit code 2).
    """
    if file is None and model is not None:
        raise Unusable("--model says of which model of a configuration the routes are; name that file with --config")
    chosen = _chosen(pack, names)
    if file is not None:
        _show_theirs(pack, chosen, file, model)
        return
    findings = check(pack, _told_of(chosen))
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
    if slug is not None:
        _require_words(slug, why, text)
    if sum([_record(pack, name) for name in _told_of(_chosen(pack, names))]):
        raise click.exceptions.Exit(1)
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
        if pack.repository is not None:
            click.echo("`gateway lock table` writes its line in CHANGELOG.md, and the pages", err=True)


def _require_words(slug: str, why: str, text: str) -> None:
    """What a declaration has to have, before anything is written. Raises Unusable."""
    if NAME.fullmatch(slug) is None:
        raise Unusable(f"{slug!r} is no name for a declaration; use lower-case words joined by hyphens")
    if not (why.strip() and text.strip()):
        raise Unusable("a declaration needs its reason and its line in the changelog: add --why and --changelog")
    if not (why.isprintable() and text.isprintable()):
        raise Unusable("the reason and the line in the changelog are one line of text each")


def _show_theirs(pack: Pack, names: Sequence[str], file: Path, model: str | None) -> None:
    try:
        theirs = load(file, os.environ)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    model = model or next(iter(theirs.models))
    if model not in theirs.models:
        raise Unusable(f"{file}: there is no model {model!r}; it has: {', '.join(theirs.models)}")
    for line in _what_is_played(pack, names, theirs, model):
        click.echo(line)
    found = list(played_with(pack, _told_of(names), theirs, model))
    click.echo(f"\n{len(found)} of {len(names)} scenarios go another way than by default")
    for line in _differences(found):
        click.echo(line)


def _what_is_played(pack: Pack, names: Sequence[str], theirs: Config, model: str) -> Iterator[str]:
    """Which of their routes stand for which of a scenario's, and what of their file does not matter here."""
    routes = theirs.models[model].routes
    standing = stand_ins(pack, names, routes)
    told = ", ".join(f"{route} is {name}" for route, name in standing.items() if name is not None)
    yield f"the routes of {model!r} stand for a scenario's: {told}"
    unused = [route for route in routes if route not in standing.values()]
    if unused:
        yield f"not used: {', '.join(unused)}"
    missing = [route for route, name in standing.items() if name is None]
    never = f", and {model!r} with its one route never replays (R14)" if len(routes) == 1 else ""
    if missing:
        yield f"a scenario's {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing{never}"
    yield f"not taken over: {', '.join(left_out(theirs, model))}"


def _told_of(names: Sequence[str]) -> Iterator[str]:
    """The scenarios one by one, as they are played; now and then a line of how many that were."""
    told = time.monotonic()
    for count, name in enumerate(names):
        if count and time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            click.echo(f"{count} of {len(names)} scenarios are played", err=True)
        yield name


def _differences(found: Sequence[Otherwise]) -> Iterator[str]:
    """How many by rule; then the first in full, the others by name."""
    rules = Counter(rule for each in found for rule in each.rules)
    if rules:
        yield "by rule: " + ", ".join(f"{rule} {count}" for rule, count in rules.most_common())
    for each in found[:SHOWN_IN_FULL_MAX]:
        yield f"\n{each.name}: {each.about}"
        yield from (f"    {line}" for line in each.lines)
    if len(found) > SHOWN_IN_FULL_MAX:
        yield "\nand, each to be shown when it is named:"
        yield from (f"    {each.name}" for each in found[SHOWN_IN_FULL_MAX:])


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


def _record(pack: Pack, name: str) -> bool:
    """Write its transcript; whether something in it is not alike: the doors, or two orders of tasks."""
    scenario, file = read_playable(pack.scenario(name)), pack.transcript(name)
    _require_regular(file)
    try:
        played, again = (play(scenario, f"{name}.toml", order=order) for order in (0, 1))
    except Crashed as error:
        click.echo(f"{name}.toml: {error}", err=True)
        return True
    text = to_text(played)
    unlike = [str(finding) for finding in disparities(name, scenario, played)]
    if to_text(again) != text:
        unlike.append(f"{name}.toml: another order of tasks gives another transcript")
    for problem in unlike:
        click.echo(f"not alike: {problem}", err=True)
    if not file.is_file() or file.read_bytes() != text.encode():
        file.write_bytes(text.encode())
        click.echo(f"recorded {file.name}", err=True)
    return bool(unlike)


def _require_regular(file: Path) -> None:
    """What is written to has to be a file, if it is there: a FIFO would be waited for. Raises Unusable."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise Unusable(f"{file.name}: is no regular file")


@lock.command()
@click.argument("name")
@click.pass_obj
def show(pack: Pack, name: str) -> None:
    """One scenario: its file, and a picture of what was recorded of it."""
    (chosen,) = _chosen(pack, (name,))
    page = scenario_page(pack, chosen)
    click.echo(text_of(pack.scenario(chosen)))
    click.echo(page, nl=False)


@lock.command("notation")
def show_notation() -> None:
    """How a scenario is written: its keys, and what an upstream does in a few words."""
    click.echo(vocabulary(), nl=False)


@lock.command()
@click.option("--print", "is_printed", is_flag=True, help="Print the replay table and write nothing.")
@click.pass_obj
def table(pack: Pack, is_printed: bool) -> None:
    """Write what documents say of the behaviour, in a checkout: the README's replay table, the changelog's
    declarations, a page for each scenario. With --fixtures only the pages are written, in that folder."""
    if is_printed:
        click.echo(replay_table(), nl=False)
        return
    if pack.is_embedded:
        raise Unusable(f"there is no checkout at {checkout()}; --print shows the replay table")
    repository = pack.repository
    written = list(scenario_pages(pack) if repository is None else documents(pack, repository))
    pack.pages.mkdir(exist_ok=True)
    for page in left_over(pack):
        page.unlink()
    for path, text in written:
        _require_regular(path)
        if not path.is_file() or path.read_bytes() != text.encode():
            path.write_bytes(text.encode())
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
